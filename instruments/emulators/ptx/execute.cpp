// The loops over blocks, warps and instructions; divergence by a stack of paths that meet at postdominators.
#include "execute.h"

#include <algorithm>

namespace polyhead::cuda_driver {

namespace {

constexpr size_t register_alignment = 64;

std::string place_of(const uint32_t *index) {
    return "(" + std::to_string(index[0]) + ", " + std::to_string(index[1]) + ", " + std::to_string(index[2]) + ")";
}

uint32_t special_value(const Warp &warp, int which, int lane) {
    const Launch &launch = *warp.launch;
    const uint32_t thread = static_cast<uint32_t>(warp.thread(lane));
    switch (which) { // the order of the names in decoder.cpp
    case 0:
        return thread % launch.block[0];
    case 1:
        return thread / launch.block[0] % launch.block[1];
    case 2:
        return thread / launch.block[0] / launch.block[1];
    case 3:
    case 4:
    case 5:
        return launch.block[which - 3];
    case 6:
    case 7:
    case 8:
        return warp.block->index[which - 6];
    case 9:
    case 10:
    case 11:
        return launch.grid[which - 9];
    case 12:
        return static_cast<uint32_t>(lane);
    default:
        return static_cast<uint32_t>(warp.index);
    }
}

void start_warp(Warp &warp, Launch &launch, Block &block, int index) {
    const Kernel &kernel = *launch.kernel;
    const uint32_t threads = launch.block[0] * launch.block[1] * launch.block[2];
    const uint32_t here = std::min<uint32_t>(lanes, threads - static_cast<uint32_t>(index) * lanes);
    warp.launch = &launch;
    warp.block = &block;
    warp.index = index;
    warp.initial = warp.live = here == lanes ? ~0u : (1u << here) - 1;
    warp.active = 0;
    std::fill(warp.active_lanes, warp.active_lanes + lanes, 0u);
    warp.barrier = -1;
    warp.paths.assign(1, Path{0, -1, warp.live});
    warp.register_room.resize(kernel.register_bytes + register_alignment);
    const size_t base = reinterpret_cast<size_t>(warp.register_room.data());
    warp.registers = warp.register_room.data() + (register_alignment - base % register_alignment) % register_alignment;
    warp.constants = kernel.constants.data();
    warp.written.assign(static_cast<size_t>(kernel.registers), 0);
    warp.parts.assign(static_cast<size_t>(kernel.registers), PartsWritten{});
    warp.copies.clear();
    warp.flight = Flight();
    warp.local_memory.assign(kernel.local_bytes * lanes, static_cast<char>(0xff));
    for (const auto &[which, operand] : kernel.specials) {
        for (int lane = 0; lane < lanes; lane++) {
            target<uint32_t>(warp, operand)[lane] = special_value(warp, which, lane);
        }
        warp.written[static_cast<size_t>(operand.register_id)] = ~0u;
    }
}

uint32_t valid_lanes(const Warp &warp, const Operand &operand) {
    return operand.register_id < 0 ? ~0u : warp.written[static_cast<size_t>(operand.register_id)];
}

bool never_written(Warp &warp, const Instruction &instruction, const char *what) {
    return warp.fail(FaultKind::launch, instruction,
                     std::string(what) + " comes from a register that was never written by the thread that reads it");
}

// Of the active lanes, those that are valid; others stay.
void note_lanes(const Warp &warp, uint32_t valid, uint32_t *written) {
    *written = (*written & ~warp.active) | (valid & warp.active);
}
void note_written(Warp &warp, const Operand &output, uint32_t valid) {
    note_lanes(warp, valid, &warp.written[static_cast<size_t>(output.register_id)]);
}

// Compilers pack a half that has no value beside one that has, and take only the latter out again.
void note_packed(Warp &warp, const Instruction &instruction) {
    PartsWritten &parts = warp.parts[static_cast<size_t>(instruction.outputs[0].register_id)];
    uint32_t all = ~0u;
    for (size_t part = 0; part < instruction.inputs.size(); part++) {
        const uint32_t valid = valid_lanes(warp, instruction.inputs[part]);
        note_lanes(warp, valid, &parts[part]);
        all &= valid;
    }
    note_written(warp, instruction.outputs[0], all);
}
void note_unpacked(Warp &warp, const Instruction &instruction) {
    const Operand &packed = instruction.inputs[0];
    const uint32_t whole = valid_lanes(warp, packed);
    const PartsWritten parts = packed.register_id < 0 ? PartsWritten{} : warp.parts[static_cast<size_t>(packed.register_id)];
    for (size_t part = 0; part < instruction.outputs.size(); part++) {
        note_written(warp, instruction.outputs[part], whole | parts[part]);
    }
}

// Registers of products in flight are nobody's, and what others touch must be fenced before the next product.
bool note_touched(Warp &warp, const Instruction &instruction) {
    Flight &flight = warp.flight;
    const auto touch = [&](const Operand &operand) {
        const auto id = static_cast<size_t>(std::max(operand.register_id, 0));
        if (operand.register_id >= 0 && (flight.sums[id] != 0 || flight.operands[id] != 0)) {
            return warp.fail(FaultKind::launch, instruction, "a register is one of a product of the warpgroup that was not waited for");
        }
        flight.touched[id] = flight.touched[id] || operand.register_id >= 0;
        return true;
    };
    return std::all_of(instruction.inputs.begin(), instruction.inputs.end(), touch) &&
           std::all_of(instruction.outputs.begin(), instruction.outputs.end(), touch);
}

// Keeps track of which lanes of a register have a value. Returns false when memory or a decision uses a lane without a value.
bool note_registers(Warp &warp, const Instruction &instruction) {
    const uint32_t mask = warp.active;
    const auto &inputs = instruction.inputs;
    uint32_t valid = mask;
    if (instruction.reading == Reading::own) {
        return true;
    }
    if (!warp.flight.groups.empty() && !note_touched(warp, instruction)) {
        return false;
    }
    if (instruction.reading == Reading::pack || instruction.reading == Reading::unpack) {
        instruction.reading == Reading::pack ? note_packed(warp, instruction) : note_unpacked(warp, instruction);
        return true;
    }
    if (instruction.reading == Reading::select) {
        const uint32_t first = predicate(warp, inputs[2]);
        valid &= valid_lanes(warp, inputs[2]) & ((valid_lanes(warp, inputs[0]) & first) | (valid_lanes(warp, inputs[1]) & ~first));
    } else {
        for (size_t input = instruction.reading == Reading::shuffle ? 1 : 0; input < inputs.size(); input++) {
            valid &= valid_lanes(warp, inputs[input]);
        }
    }
    if (valid != mask && (instruction.reading == Reading::strict || instruction.reading == Reading::shuffle)) {
        return never_written(warp, instruction, "an input");
    }
    for (const Operand &output : instruction.outputs) {
        note_written(warp, output, valid);
        if (valid != mask) {
            warp.parts[static_cast<size_t>(output.register_id)] = {};
        }
    }
    return true;
}

// The path divides: the side that falls through waits below the side that jumps, both above the place where they meet.
bool branch(Warp &warp, const Instruction &instruction, uint32_t taken) {
    Path &path = warp.paths.back();
    const uint32_t stays = path.mask & ~taken;
    if (stays == 0 || taken == 0) {
        path.pc = taken ? instruction.target : path.pc + 1;
        return true;
    }
    if (instruction.uniform) {
        return warp.fail(FaultKind::launch, instruction, "the branch says that it is uniform, but the threads of the warp disagree");
    }
    const int32_t meeting = instruction.reconverge, through = path.pc + 1;
    path.pc = meeting;
    if (meeting < 0) {
        warp.paths.pop_back(); // both sides run to the end on their own
    }
    for (const Path &side : {Path{through, meeting, stays}, Path{instruction.target, meeting, taken}}) {
        if (side.pc != meeting) {
            warp.paths.push_back(side);
        }
    }
    return true;
}

// A thread does not leave before its copies have arrived: the memory may belong to another block then.
bool leave(Warp &warp, const Instruction &instruction, uint32_t mask) {
    for (int lane = 0; lane < static_cast<int>(warp.copies.size()); lane++) {
        const Copies &copies = warp.copies[static_cast<size_t>(lane)];
        if (((mask >> lane) & 1u) && !(copies.open.empty() && copies.groups.empty())) {
            return warp.fail(FaultKind::launch, instruction, "a thread leaves, and copies of it are under way that were not waited for");
        }
    }
    if (warp.flight.any()) {
        return warp.fail(FaultKind::launch, instruction, "a thread leaves, and products of its warpgroup were not waited for");
    }
    warp.live &= ~mask;
    for (Path &path : warp.paths) {
        path.mask &= ~mask;
    }
    while (!warp.paths.empty() && warp.paths.back().mask == 0) {
        warp.paths.pop_back();
    }
    return true;
}

bool reach_barrier(Warp &warp, const Instruction &instruction, uint32_t mask) {
    if (mask == 0) { // the guard leaves no lane that waits
        warp.paths.back().pc++;
        return true;
    }
    if (mask != warp.initial) {
        return warp.fail(FaultKind::launch, instruction,
                         "not all threads of the warp are at the barrier: " + std::to_string(__builtin_popcount(mask)) + " of " +
                             std::to_string(__builtin_popcount(warp.initial)));
    }
    for (const Operand &input : instruction.inputs) {
        if ((valid_lanes(warp, input) & mask) != mask) {
            warp.activate(mask);
            return never_written(warp, instruction, "the predicate");
        }
    }
    warp.barrier = instruction.index;
    warp.paths.back().pc++;
    return true;
}

// What the warp loop does itself. False: the warp has failed.
bool flow(Warp &warp, const Instruction &instruction, uint32_t mask) {
    Path &path = warp.paths.back();
    switch (instruction.flow) {
    case Flow::branch:
        return branch(warp, instruction, mask);
    case Flow::leave:
        path.pc++;
        return leave(warp, instruction, mask);
    case Flow::barrier:
        return reach_barrier(warp, instruction, mask);
    case Flow::trap:
        return mask == 0 ? (path.pc++, true) : warp.fail(FaultKind::trap, instruction, "the kernel gave up");
    case Flow::plain:
        break;
    }
    return true;
}

// The paths that have arrived where their sides meet end; the path below goes on with all of their threads.
bool merge_paths(Warp &warp) {
    while (!warp.paths.empty() && (warp.paths.back().mask == 0 || warp.paths.back().pc == warp.paths.back().reconverge)) {
        warp.paths.pop_back();
    }
    return !warp.paths.empty();
}

// Runs until the warp waits at a barrier or is done.
bool run_warp(Warp &warp) {
    Launch &launch = *warp.launch;
    const std::vector<Instruction> &code = launch.kernel->code;
    while (merge_paths(warp)) {
        Path &path = warp.paths.back();
        const Instruction &instruction = code[static_cast<size_t>(path.pc)];
        uint32_t mask = path.mask;
        if (instruction.guard.width != 0) {
            if ((valid_lanes(warp, instruction.guard) & mask) != mask) {
                warp.activate(mask);
                return never_written(warp, instruction, "the guard");
            }
            mask &= predicate(warp, instruction.guard);
        }
        if (++launch.steps > launch.step_limit) {
            return warp.fail(FaultKind::too_long, instruction, "the launch takes more steps than the limit allows");
        }
        launch.executed[static_cast<size_t>(instruction.index)] += mask != 0;
        launch.threads[static_cast<size_t>(instruction.index)] += static_cast<uint64_t>(__builtin_popcount(mask));
        if (instruction.flow != Flow::plain) {
            if (!flow(warp, instruction, mask)) {
                return false;
            }
            if (warp.barrier >= 0) {
                return true;
            }
            continue;
        }
        if (mask != 0) {
            warp.activate(mask);
            if (!note_registers(warp, instruction) || !instruction.execute(warp, instruction)) {
                return false;
            }
        }
        path.pc++;
        if (warp.yields) {
            return true;
        }
    }
    return true;
}

// Runs all warps until each waits at a barrier of the block or is done. Those that wait at one in memory are tried again.
bool run_warps(Block &block, std::vector<Warp> &warps) {
    for (Warp &warp : warps) {
        warp.yields = true;
        warp.barrier = -1;
    }
    for (bool waits = true; waits;) {
        waits = false;
        const uint64_t arrivals = block.shared.arrivals();
        bool moved = false;
        Warp *stuck = nullptr;
        for (Warp &warp : warps) {
            if (!warp.yields) {
                continue;
            }
            warp.yields = false;
            if (!run_warp(warp)) {
                return false;
            }
            moved = moved || !warp.yields;
            waits = waits || warp.yields;
            stuck = warp.yields ? &warp : stuck;
        }
        if (waits && !moved && block.shared.arrivals() == arrivals) {
            const auto at = static_cast<size_t>(stuck->paths.back().pc - 1);
            return stuck->fail(FaultKind::launch, stuck->launch->kernel->code[at], "all warps that are not done wait for each other");
        }
    }
    return true;
}

// The warps of a group do the same products.
bool check_groups(std::vector<Warp> &warps) {
    for (Warp &warp : warps) {
        const Warp &first = warps[static_cast<size_t>(warp.index / warps_of_group * warps_of_group)];
        if (warp.flight.order != first.flight.order) {
            return warp.fail(FaultKind::launch, warp.launch->kernel->code.front(),
                             "the warp did other products of the warpgroup than warp " + std::to_string(first.index));
        }
    }
    return true;
}

// All warps have stopped: at one barrier, or at the end.
bool check_barrier(std::vector<Warp> &warps, bool &done) {
    Warp *waiting = nullptr;
    for (Warp &warp : warps) {
        if (warp.barrier >= 0) {
            waiting = &warp;
        }
    }
    done = waiting == nullptr;
    for (const Warp &warp : warps) {
        if (waiting && warp.barrier != waiting->barrier) {
            const Instruction &instruction = waiting->launch->kernel->code[static_cast<size_t>(waiting->barrier)];
            return waiting->fail(FaultKind::launch, instruction,
                                 "warp " + std::to_string(waiting->index) + " waits at this barrier, warp " + std::to_string(warp.index) +
                                     (warp.barrier < 0 ? " has ended" : " waits at another one"));
        }
    }
    return true;
}

// What a barrier makes of the predicates of all threads.
void reduce(std::vector<Warp> &warps) {
    const Instruction &instruction = warps[0].launch->kernel->code[static_cast<size_t>(warps[0].barrier)];
    if (instruction.outputs.size() == 0) {
        return;
    }
    uint32_t yes = 0, all = 0;
    for (const Warp &warp : warps) {
        yes += static_cast<uint32_t>(__builtin_popcount(predicate(warp, instruction.inputs[0]) & warp.initial));
        all += static_cast<uint32_t>(__builtin_popcount(warp.initial));
    }
    const bool found = instruction.mode == barrier_or ? yes != 0 : yes == all;
    uint32_t counts[lanes];
    std::fill(counts, counts + lanes, yes);
    for (Warp &warp : warps) {
        warp.activate(warp.initial);
        if (instruction.mode == barrier_popc) {
            write_lanes(warp, instruction.outputs[0], counts);
        } else {
            set_predicate(warp, instruction.outputs[0], found ? ~0u : 0u);
        }
        note_written(warp, instruction.outputs[0], ~0u);
    }
}

bool run_block(Launch &launch, Block &block, std::vector<Warp> &warps) {
    block.number++;
    block.shared.start_block();
    for (size_t index = 0; index < warps.size(); index++) {
        start_warp(warps[index], launch, block, static_cast<int>(index));
    }
    for (bool done = false; !done;) {
        if (!run_warps(block, warps)) {
            return false;
        }
        if (!check_barrier(warps, done)) {
            return false;
        }
        if (!done) {
            reduce(warps);
        }
        block.shared.pass_barrier();
    }
    return check_groups(warps);
}

} // namespace

bool Warp::fail(FaultKind kind, const Instruction &instruction, const std::string &what) {
    launch->fault.kind = kind;
    launch->fault.text = "kernel " + launch->kernel->name + ", PTX line " + std::to_string(instruction.line) + ": \"" + instruction.text +
                         "\": " + what + "; block " + place_of(block->index) + ", warp " + std::to_string(index);
    return false;
}

bool Warp::whole(const Instruction &instruction) {
    return active == ~0u || fail(FaultKind::launch, instruction,
                                 "the instruction is one of a whole warp, and only " + std::to_string(__builtin_popcount(active)) +
                                     " of its threads are here");
}

bool execute(Launch &launch) {
    const Kernel &kernel = *launch.kernel;
    launch.executed.assign(kernel.code.size(), 0);
    launch.threads.assign(kernel.code.size(), 0);
    launch.traffic.assign(kernel.code.size(), 0);
    launch.found.assign(kernel.code.size(), nullptr);
    const size_t threads = static_cast<size_t>(launch.block[0]) * launch.block[1] * launch.block[2];
    std::vector<Warp> warps((threads + lanes - 1) / lanes);
    Block block;
    block.shared.resize(kernel.shared_base, kernel.static_shared + launch.dynamic_shared, kernel.shared_granule, kernel.asynchronous,
                        warps.size());
    for (block.index[2] = 0; block.index[2] < launch.grid[2]; block.index[2]++) {
        for (block.index[1] = 0; block.index[1] < launch.grid[1]; block.index[1]++) {
            for (block.index[0] = 0; block.index[0] < launch.grid[0]; block.index[0]++) {
                if (!run_block(launch, block, warps)) {
                    return false;
                }
            }
        }
    }
    return true;
}

} // namespace polyhead::cuda_driver
