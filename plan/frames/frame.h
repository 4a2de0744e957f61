// A frame as plans see it: whom it serves, its numbers, what is refused, what it keeps. One table of them. compile/frames/ makes its
// stages.
#pragma once

#include <string>
#include <vector>

#include "../scratch_terms.h"
#include "../tiling.h"

namespace polyhead::gen {

class Frame {
public:
    virtual ~Frame() = default;

    virtual const char *name() const = 0;
    // Increase it when a change of the frame or its schedule makes another tiling the fastest: records with another number are refused.
    // 0: the frame has no knobs, and no records.
    virtual int schedule_version() const = 0;
    // Does it multiply by instructions that a warp makes together?
    virtual bool multiplies_by_warps() const { return false; }
    // Does it multiply by instructions that devices of one capability alone have? Code for such a capability has these frames and no
    // others: what others have, its devices run as well.
    virtual bool of_one_capability() const { return false; }
    // Which knobs it reads, in addition to those of linear layers; everyone: no others. A frame that is made of another reads its knobs
    // too.
    virtual KnobUser knob_user() const { return KnobUser::everyone; }
    virtual bool reads(KnobUser user) const { return user == knob_user(); }

    // Can it compute the problem on this machine?
    virtual bool serves(const Problem &problem, const Machine &machine) const = 0;
    // Does a kernel have it if the user names no frame? `first`: none before it in the table.
    virtual bool wanted(const Problem &problem, const Machine &machine, bool first) const = 0;
    // The longest query length that its variants serve; 0: all.
    virtual int max_seq_len_q() const { return 0; }
    // The longest query length for which a kernel takes it if other frames serve the problem, too; 0: no limit.
    virtual int best_up_to(const Problem &, const Machine &) const { return max_seq_len_q(); }
    // Where group sizes are free: the largest of each range that has a variant of its own. Behind the last there is one more.
    virtual std::vector<int> group_sizes(const Machine &) const { return {}; }
    // Elements of one load in an extra variant for tensors whose addresses and strides allow it; 0: it would not be faster.
    virtual int wide_load(const Problem &, const Tiling &) const { return 0; }

    // Largest row count of an extra variant with a small tile; 0: no such variant.
    virtual int few_rows(const Machine &) const { return 0; }

    // An extra variant with smaller blocks and the same results, whose knobs it fills, is faster in calls with fewer blocks of so many
    // queries than the device has multiprocessors. 0: no such variant.
    virtual int few_blocks_of(const Problem &, const Tiling &, const Machine &, Tiling *) const { return 0; }

    // Does a batch row of a layer have so few queries that the linear layers take those of all batch rows together?
    virtual bool joins_rows() const { return false; }

    // The shortest query length, or number of rows, from which a variant that multiplies by tiles is faster; -1: never.
    virtual int tiles_from(const Problem &) const { return -1; }

    // Fills the knobs that are 0; those of linear layers are filled for every frame.
    virtual void fill_defaults(Tiling *, const Problem &, const Machine &) const {}
    // Sentences: what these numbers mean on this machine.
    virtual std::vector<std::string> reasons(const Problem &, const Tiling &, const Machine &) const { return {}; }
    // Why several knobs together cannot be built, or empty.
    virtual std::string refusal(const Problem &, const Tiling &, const Machine &) const { return ""; }
    // Why a tuner need not try what can be built: it spills, or computes padding.
    virtual std::string waste(const Problem &, const Tiling &, const Machine &) const { return ""; }
    // Does it read key and value of 16 bits as floats that are written once per call?
    virtual bool stages_keys(const Problem &, const Tiling &, const Machine &) const { return false; }
    // Does a layer keep projected heads, and the context, as elements of its storage type, because the products that read them take these?
    // Otherwise as floats.
    bool keeps_heads_as_stored(const Tiling &tiling) const { return tiling.pair > 1 || multiplies_by_warps(); }
    bool keeps_context_as_stored(const Tiling &tiling) const { return tiling.pair > 1 || tiling.warp_products != 0; }
    // What it keeps for a whole call.
    virtual void add_scratch(ScratchTerms *) const {}
};

// Are there variants of the frame for this machine?
inline bool compiled_for(const Frame &frame, const Problem &problem, const Machine &machine) {
    return frame.of_one_capability() == machine.exact && frame.serves(problem, machine);
}

// In the order in which variants of a kernel are planned.
const std::vector<const Frame *> &frames();
// Null when there is none of this name.
const Frame *frame_named(const std::string &name);
// "head_lanes, query_lanes, ...": those that have knobs.
std::string frame_names();

// Fills the knobs that are 0 for this frame, problem and machine; sets those to 0 that the frame does not read.
Tiling default_tiling(const Frame &frame, const Problem &problem, const Machine &machine, Tiling overrides);
// Why the frame cannot be built with this tiling, or empty: a knob that the table of knobs refuses, or several that together take more
// registers, bytes or code than makes sense.
std::string tiling_refusal(const Frame &frame, const Problem &problem, const Tiling &tiling, const Machine &machine);

} // namespace polyhead::gen
