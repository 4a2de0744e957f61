// What concerns more than one lane: shuffles, votes, barriers, fences, the end.
#include "decoder.h"
#include "warp.h"

#include <algorithm>

namespace polyhead::cuda_driver {

namespace {

enum Shuffle { shuffle_up, shuffle_down, shuffle_bfly, shuffle_idx };

bool members_present(Warp &warp, const Instruction &instruction, uint32_t members) {
    // Lanes that have left or never were may be named; lanes that are alive must come.
    if ((members & warp.live & ~warp.active) != 0) {
        return warp.fail(FaultKind::launch, instruction, "a lane that the member mask names is not here: the warp has diverged");
    }
    if ((warp.active & ~members) != 0) {
        return warp.fail(FaultKind::launch, instruction, "a lane is here that the member mask does not name");
    }
    return true;
}

bool all_present(Warp &warp, const Instruction &instruction, const Operand &members) {
    const uint32_t *mask = values<uint32_t>(warp, members);
    if (members.register_id < 0) {
        return members_present(warp, instruction, mask[0]);
    }
    for (int lane = 0; lane < lanes; lane++) {
        if (((warp.active >> lane) & 1u) && !members_present(warp, instruction, mask[lane])) {
            return false;
        }
    }
    return true;
}

// The source lane and whether it lies inside of the segment, as the PTX manual defines it.
int source_lane(int mode, int lane, uint32_t by, uint32_t control, bool &inside) {
    const int segment = static_cast<int>((control >> 8) & 31u), clamp = static_cast<int>(control & 31u), b = static_cast<int>(by & 31u);
    const int last = (lane & segment) | (clamp & ~segment), first = lane & segment;
    int source = lane;
    switch (mode) {
    case shuffle_up:
        source = lane - b;
        inside = source >= last;
        break;
    case shuffle_down:
        source = lane + b;
        inside = source <= last;
        break;
    case shuffle_bfly:
        source = lane ^ b;
        inside = source <= last;
        break;
    default:
        source = first | (b & ~segment);
        inside = source <= last;
        break;
    }
    return inside ? source : lane;
}

bool shuffle(Warp &warp, const Instruction &instruction) {
    const uint32_t *a = values<uint32_t>(warp, instruction.inputs[0]), *by = values<uint32_t>(warp, instruction.inputs[1]);
    const uint32_t *control = values<uint32_t>(warp, instruction.inputs[2]);
    const int32_t from = instruction.inputs[0].register_id;
    // What a lane gets from one that is not here is nothing, as if it had never been written.
    const uint32_t present = warp.active & (from < 0 ? ~0u : warp.written[static_cast<size_t>(from)]);
    uint32_t results[lanes], inside_bits = 0, valid = 0;
    for (int lane = 0; lane < lanes; lane++) {
        bool inside = false;
        const int source = source_lane(instruction.mode, lane, by[lane], control[lane], inside);
        results[lane] = a[source];
        inside_bits |= static_cast<uint32_t>(inside) << lane;
        valid |= ((present >> source) & 1u) << lane;
    }
    if (!all_present(warp, instruction, instruction.inputs[3])) {
        return false;
    }
    write_lanes(warp, instruction.outputs[0], results);
    uint32_t &written = warp.written[static_cast<size_t>(instruction.outputs[0].register_id)];
    written = (written & ~warp.active) | (valid & warp.active);
    if (instruction.outputs.size() == 2) {
        set_predicate(warp, instruction.outputs[1], inside_bits);
    }
    return true;
}

bool wait_for_warp(Warp &warp, const Instruction &instruction) {
    return all_present(warp, instruction, instruction.inputs[0]);
}

enum Vote { vote_all, vote_any, vote_uni, vote_ballot };

bool vote(Warp &warp, const Instruction &instruction) {
    const uint32_t yes = predicate(warp, instruction.inputs[0]) & warp.active;
    if (!all_present(warp, instruction, instruction.inputs[1])) {
        return false;
    }
    if (instruction.mode == vote_ballot) {
        uint32_t results[lanes];
        std::fill(results, results + lanes, yes);
        write_lanes(warp, instruction.outputs[0], results);
        return true;
    }
    const bool all = yes == warp.active, none = yes == 0;
    const bool result = instruction.mode == vote_all ? all : instruction.mode == vote_any ? !none : all || none;
    set_predicate(warp, instruction.outputs[0], result ? ~0u : 0u);
    return true;
}

bool do_nothing(Warp &, const Instruction &) {
    return true;
}

bool decode_shuffle(Decoder &decoder, Modifiers &modifiers) {
    const int mode = modifiers.take_one_of({"up", "down", "bfly", "idx"});
    if (!modifiers.take("sync") || !modifiers.take("b32") || mode < 0) {
        return false;
    }
    if (decoder.expect(5)) {
        const std::vector<std::string> results = split_at(decoder.operands()[0], '|');
        decoder.output_text(results[0], Type::b32);
        if (results.size() == 2) {
            decoder.output_text(results[1], Type::pred);
        }
        for (size_t index = 1; index <= 4; index++) {
            decoder.input(index, Type::b32);
        }
        decoder.instruction().mode = mode;
        decoder.instruction().reading = Reading::shuffle;
    }
    decoder.set(shuffle);
    return true;
}

bool decode_vote(Decoder &decoder, Modifiers &modifiers) {
    const int mode = modifiers.take_one_of({"all", "any", "uni", "ballot"});
    if (!modifiers.take("sync") || mode < 0 || !modifiers.take(mode == vote_ballot ? "b32" : "pred")) {
        return false;
    }
    if (decoder.expect(3)) {
        decoder.output(0, mode == vote_ballot ? Type::b32 : Type::pred);
        decoder.input(1, Type::pred);
        decoder.input(2, Type::b32);
    }
    decoder.instruction().mode = mode;
    decoder.instruction().reading = Reading::strict;
    decoder.set(vote);
    return true;
}

// barrier.red.or.pred p, 0, q: all threads of the block meet, and each gets what their predicates make together.
void decode_reduction(Decoder &decoder, Modifiers &modifiers) {
    const int result = modifiers.take_one_of({"popc", "and", "or"});
    if (result < 0 || !modifiers.take(result == barrier_popc ? "u32" : "pred")) {
        decoder.refuse("the reduction of the barrier is not known");
        return;
    }
    decoder.instruction().mode = result;
    if (decoder.expect(3)) {
        decoder.output(0, result == barrier_popc ? Type::u32 : Type::pred);
        decoder.input(2, Type::pred);
    }
}

bool decode_barrier(Decoder &decoder, Modifiers &modifiers) {
    const bool warp_only = modifiers.take("warp");
    modifiers.take("cta");
    modifiers.take("aligned");
    const bool reduces = !warp_only && modifiers.take("red");
    if (!reduces && !modifiers.take("sync")) {
        return false;
    }
    Instruction &instruction = decoder.instruction();
    if (reduces) {
        decode_reduction(decoder, modifiers);
    } else if (!decoder.expect(1)) {
        return true;
    }
    if (warp_only) {
        decoder.input(0, Type::b32);
        instruction.reading = Reading::strict;
        decoder.set(wait_for_warp);
        return true;
    }
    const size_t number = reduces ? 1 : 0;
    if (decoder.operands().size() <= number || !parse_integer(decoder.operands()[number], instruction.displacement)) {
        decoder.refuse("the number of the barrier is not a constant");
    }
    instruction.flow = Flow::barrier;
    return true;
}

} // namespace

bool decode_warp(Decoder &decoder, Modifiers &modifiers) {
    const std::string &base = modifiers.base();
    if (base == "shfl") {
        return decode_shuffle(decoder, modifiers);
    }
    if (base == "vote") {
        return decode_vote(decoder, modifiers);
    }
    if (base == "bar" || base == "barrier") {
        return decode_barrier(decoder, modifiers);
    }
    if (base == "ret" || base == "exit" || base == "trap") {
        decoder.instruction().flow = base == "trap" ? Flow::trap : Flow::leave;
        modifiers.take("uni");
        return decoder.expect(0) || true;
    }
    if (base == "nanosleep") { // time is nothing here
        decoder.input(0, Type::b32);
        decoder.set(do_nothing);
        return modifiers.take("u32") && decoder.expect(1);
    }
    if (base == "fence" && modifiers.take("proxy")) {
        return false; // decode_memory_barrier() has it
    }
    if (base == "membar" || base == "fence") { // warps take turns and memory is one: every fence is already there
        const bool known = modifiers.take_one_of({"cta", "gl", "gpu", "sys"}) >= 0;
        modifiers.take_one_of({"sc", "acq_rel"});
        decoder.set(do_nothing);
        return known;
    }
    return false;
}

} // namespace polyhead::cuda_driver
