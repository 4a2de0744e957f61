// Copies from global to shared memory that a thread waits for later (cp.async). They arrive as late as they may: at the wait.
#include "access.h"
#include "decoder.h"
#include "traffic.h"

#include <algorithm>

namespace polyhead::cuda_driver {

namespace {

constexpr int largest_copy = 16;

Copies &copies_of(Warp &warp, int lane) {
    warp.copies.resize(lanes);
    return warp.copies[static_cast<size_t>(lane)];
}

// Inputs: the address in shared memory, the address in global memory, and how many bytes are read there; the rest becomes 0.
bool copy_lane(Warp &warp, const Instruction &instruction, Access &to, Access &from, int lane) {
    const uint32_t source_bytes = instruction.inputs.size() > 2 ? values<uint32_t>(warp, instruction.inputs[2])[lane] : ~0u;
    const int bytes = instruction.mode;
    from.bytes = static_cast<int>(std::min<uint32_t>(source_bytes, static_cast<uint32_t>(bytes)));
    if (to.address[lane] % static_cast<uint64_t>(bytes) != 0 || from.address[lane] % static_cast<uint64_t>(bytes) != 0) {
        return misaligned(warp, instruction, to.address[lane] % static_cast<uint64_t>(bytes) != 0 ? to : from, lane);
    }
    if (!lookup_shared(warp, instruction, to, lane, to.address[lane]) ||
        (from.bytes > 0 && !lookup_global(warp, instruction, from, lane, nullptr))) {
        return false;
    }
    char value[largest_copy] = {};
    std::memcpy(value, from.host[lane], static_cast<size_t>(from.bytes));
    int other = 0;
    if (!warp.block->shared.note_copy(to.address[lane], bytes, warp.thread(lane), value, other)) {
        return race_in_shared(warp, instruction, to, lane, other);
    }
    copies_of(warp, lane).open.push_back({static_cast<size_t>(to.address[lane]), bytes});
    return true;
}

bool copy(Warp &warp, const Instruction &instruction) {
    Access to, from;
    to.bytes = from.bytes = instruction.mode;
    to.write = true;
    find_addresses(warp, instruction.inputs[0], instruction.displacement, to);
    find_addresses(warp, instruction.inputs[1], instruction.second_displacement, from);
    if (warp.launch->count_traffic) {
        warp.launch->traffic[static_cast<size_t>(instruction.index)] += sectors(from.address, warp.active);
    }
    for (int lane = 0; lane < lanes; lane++) {
        if (warp.active_lanes[lane] && !copy_lane(warp, instruction, to, from, lane)) {
            return false;
        }
    }
    return true;
}

bool commit(Warp &warp, const Instruction &) {
    for (int lane = 0; lane < lanes; lane++) {
        if (warp.active_lanes[lane]) {
            Copies &copies = copies_of(warp, lane);
            copies.groups.push_back(std::move(copies.open));
            copies.open.clear();
        }
    }
    return true;
}

void arrive(Warp &warp, const std::vector<Copy> &group, int lane) {
    for (const Copy &copy : group) {
        warp.block->shared.finish_copy(copy.offset, copy.bytes, warp.thread(lane));
    }
}

// Of the groups that were committed, the displacement of the instruction says how many may be under way afterwards; -1: wait_all.
bool wait(Warp &warp, const Instruction &instruction) {
    for (int lane = 0; lane < lanes; lane++) {
        if (!warp.active_lanes[lane]) {
            continue;
        }
        Copies &copies = copies_of(warp, lane);
        const size_t most = instruction.displacement < 0 ? 0 : static_cast<size_t>(instruction.displacement);
        for (; copies.groups.size() > most; copies.groups.pop_front()) {
            arrive(warp, copies.groups.front(), lane);
        }
        if (instruction.displacement < 0) {
            arrive(warp, copies.open, lane);
            copies.open.clear();
        }
    }
    return true;
}

// cp.async.cg.shared.global [to], [from], 16 {, bytes to read};
void decode_copy(Decoder &decoder, Modifiers &modifiers) {
    Instruction &instruction = decoder.instruction();
    const bool first_level = modifiers.take("ca");
    const bool known = (first_level || modifiers.take("cg")) && modifiers.take_one_of({"shared", "shared::cta"}) >= 0;
    modifiers.take_one_of({"L2::64B", "L2::128B", "L2::256B"});
    int64_t bytes = 0;
    const size_t count = decoder.operands().size();
    if (!known || !modifiers.take("global") || (count != 3 && count != 4) || !parse_integer(decoder.operands()[2], bytes)) {
        decoder.refuse("the copy is not known");
        return;
    }
    if (bytes != largest_copy && !(first_level && (bytes == 4 || bytes == 8))) {
        decoder.refuse("a copy of " + decoder.operands()[2] + " bytes, expected 16, or 4 or 8 with .ca");
    }
    decoder.address(0, false);
    decoder.address(1, false, &instruction.second_displacement);
    if (count == 4) {
        decoder.input(3, Type::b32);
    }
    instruction.mode = static_cast<int32_t>(bytes);
    instruction.space = Space::shared;
    instruction.reading = Reading::strict;
    decoder.set(copy);
}

} // namespace

bool decode_async(Decoder &decoder, Modifiers &modifiers) {
    if (modifiers.base() != "cp" || !modifiers.take("async")) {
        return false;
    }
    Instruction &instruction = decoder.instruction();
    if (modifiers.take("commit_group")) {
        decoder.set(commit);
        return decoder.expect(0) || true;
    }
    if (modifiers.take("wait_all")) {
        instruction.displacement = -1;
        decoder.set(wait);
        return decoder.expect(0) || true;
    }
    if (modifiers.take("wait_group")) {
        if (decoder.expect(1) && (!parse_integer(decoder.operands()[0], instruction.displacement) || instruction.displacement < 0)) {
            decoder.refuse("the number of groups is not a constant");
        }
        decoder.set(wait);
        return true;
    }
    decode_copy(decoder, modifiers);
    return true;
}

} // namespace polyhead::cuda_driver
