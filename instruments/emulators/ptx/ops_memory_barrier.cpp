// Barriers in shared memory (mbarrier), and the fence between what threads write and what products of a warpgroup read.
#include "access.h"
#include "decoder.h"

namespace polyhead::cuda_driver {

namespace {

constexpr int barrier_bytes = 8;
constexpr uint32_t most_arrivals = (1u << 20) - 1; // PTX ISA, mbarrier: range of the count

// Calls each(lane) for the active lanes, up to the first that fails.
template <class Each> bool for_each_active_lane(const Warp &warp, const Each &each) {
    for (int lane = 0; lane < lanes; lane++) {
        if (warp.active_lanes[lane] && !each(lane)) {
            return false;
        }
    }
    return true;
}

// The addresses of all lanes, each of 8 bytes of the block.
bool find_barriers(Warp &warp, const Instruction &instruction, Access &access) {
    access.bytes = barrier_bytes;
    find_addresses(warp, instruction.inputs[0], instruction.displacement, access);
    return for_each_active_lane(warp, [&](int lane) {
        const uint64_t at = access.address[lane];
        if (at % barrier_bytes != 0) {
            return misaligned(warp, instruction, access, lane);
        }
        return warp.block->shared.barrier_at(at) || lookup_shared(warp, instruction, access, lane, at);
    });
}

bool initialise_barrier(Warp &warp, const Instruction &instruction) {
    Access access;
    const uint32_t *const count = values<uint32_t>(warp, instruction.inputs[1]);
    return find_barriers(warp, instruction, access) && for_each_active_lane(warp, [&](int lane) {
               if (count[lane] == 0 || count[lane] > most_arrivals) {
                   return warp.fail(FaultKind::launch, instruction,
                                    "the barrier expects " + std::to_string(count[lane]) + " arrivals, expected from 1 to 1048575");
               }
               warp.block->shared.make_barrier(access.address[lane], count[lane], warp.thread(lane));
               return true;
           });
}

MemoryBarrier *known_barrier(Warp &warp, const Instruction &instruction, const Access &access, int lane) {
    SharedMemory &shared = warp.block->shared;
    MemoryBarrier *const barrier = shared.barrier_at(access.address[lane]);
    if (!barrier || !shared.knows_barrier(*barrier, warp.thread(lane))) {
        warp.fail(FaultKind::launch, instruction,
                  described(warp, access, lane) + (barrier ? ", where another thread made a barrier, and no barrier of the block is between"
                                                           : ", where no barrier was made"));
        return nullptr;
    }
    return barrier;
}

bool arrive_in_memory(Warp &warp, const Instruction &instruction) {
    Access access;
    MemoryBarrier *barriers[lanes] = {};
    const bool known = find_barriers(warp, instruction, access) && for_each_active_lane(warp, [&](int lane) {
                           barriers[lane] = known_barrier(warp, instruction, access, lane);
                           return barriers[lane] != nullptr;
                       });
    if (!known) {
        return false;
    }
    const MemoryBarrier *const first = barriers[__builtin_ctz(warp.active)];
    bool together = warp.active == warp.live; // in one phase of one barrier
    for (const MemoryBarrier *barrier : barriers) {
        together = together && (!barrier || barrier == first);
    }
    together = together && first->pending >= static_cast<uint32_t>(__builtin_popcount(warp.active));
    return for_each_active_lane(warp, [&](int lane) {
        warp.block->shared.arrive(*barriers[lane], warp.index, together);
        return true;
    });
}

// Has the phase of this parity ended? A warp that must wait lets others run.
bool try_wait_in_memory(Warp &warp, const Instruction &instruction) {
    Access access;
    const uint32_t *const parity = values<uint32_t>(warp, instruction.inputs[1]);
    uint32_t ended = 0;
    const bool known =
        find_barriers(warp, instruction, access) && for_each_active_lane(warp, [&](int lane) {
            const MemoryBarrier *const barrier = known_barrier(warp, instruction, access, lane);
            if (barrier && parity[lane] > 1) {
                return warp.fail(FaultKind::launch, instruction, "the parity is " + std::to_string(parity[lane]) + ", expected 0 or 1");
            }
            if (barrier && barrier->parity != parity[lane]) {
                ended |= 1u << lane;
                warp.block->shared.learn(*barrier, warp.index);
            }
            return barrier != nullptr;
        });
    if (!known) {
        return false;
    }
    set_predicate(warp, instruction.outputs[0], ended);
    warp.yields = (ended & warp.active) != warp.active;
    return true;
}

bool fence_proxy(Warp &warp, const Instruction &) {
    return for_each_active_lane(warp, [&](int lane) {
        warp.block->shared.fence_products(warp.thread(lane));
        return true;
    });
}

bool decode_proxy_fence(Decoder &decoder, Modifiers &modifiers) {
    if (!modifiers.take("proxy") || !modifiers.take("async")) {
        return false;
    }
    modifiers.take_one_of({"shared", "shared::cta"});
    decoder.kernel().needs.at_least({90, false, 8.0});
    decoder.set(fence_proxy);
    return decoder.expect(0) || true;
}

} // namespace

// mbarrier.init.shared.b64 [at], count;  mbarrier.arrive.shared.b64 _, [at];  mbarrier.try_wait.parity.shared.b64 p, [at], parity;
bool decode_memory_barrier(Decoder &decoder, Modifiers &modifiers) {
    if (modifiers.base() == "fence") {
        return decode_proxy_fence(decoder, modifiers);
    }
    if (modifiers.base() != "mbarrier") {
        return false;
    }
    Instruction &instruction = decoder.instruction();
    const int kind = modifiers.take_one_of({"init", "arrive", "try_wait", "test_wait"});
    const bool known = kind >= 0 && (kind < 2 || modifiers.take("parity")) && modifiers.take_one_of({"shared", "shared::cta"}) >= 0 &&
                       modifiers.take("b64");
    if (!known || (kind == 1 && (decoder.operands().size() != 2 || decoder.operands()[0] != "_"))) {
        decoder.refuse("this use of a barrier in memory is not known");
        return true;
    }
    if (kind == 1) {
        decoder.address(1, false);
    } else if (decoder.expect(kind == 0 ? 2 : 3)) {
        decoder.address(kind == 0 ? 0 : 1, false);
        decoder.input(kind == 0 ? 1 : 2, Type::b32);
        kind == 0 ? void() : decoder.output(0, Type::pred);
    }
    decoder.kernel().asynchronous = true;
    decoder.kernel().needs.at_least(kind == 2 ? Needs{90, false, 7.8} : Needs{80, false, 7.0});
    instruction.space = Space::shared;
    instruction.reading = Reading::strict;
    decoder.set(kind == 0 ? initialise_barrier : kind == 1 ? arrive_in_memory : try_wait_in_memory);
    return true;
}

} // namespace polyhead::cuda_driver
