// From the nearest tuning records to planned variants.
#include "plan_records.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "../../contract/problem_fields.h"
#include "../../contract/tensors.h"
#include "../text.h"

namespace polyhead::gen {
namespace {

// The recorded knobs that mean the same for this problem; the others take their defaults.
Tiling transferred(const TunedRecord &record, const Problem &p, const Machine &machine) {
    const Problem &of = record.problem;
    Tiling t = record.tiling;
    // What gives both problems tiles of another size by default (causal, RoPE, pairs) was not measured here.
    if (default_tiling(*record.frame, of, machine, {}).q_tile != default_tiling(*record.frame, p, machine, {}).q_tile) {
        t.q_tile = t.kv_tile = t.key_panel = t.value_panel = 0;
    }
    if (of.head_dim_v != p.head_dim_v) {
        t.value_panel = 0;
    }
    if (contract::group_size_of(of) != contract::group_size_of(p)) {
        t.row_tile = 0;
    }
    if (of.seq_len_kv != p.seq_len_kv) {
        t.kv_tile = p.seq_len_kv > 0 && t.kv_tile > p.seq_len_kv ? 0 : t.kv_tile;
    }
    if (of.embed_dim != p.embed_dim || of.out_features != p.out_features || of.kdim != p.kdim || of.vdim != p.vdim) {
        t.linear_rows = t.linear_panels = t.linear_columns = 0;
        t.linear_block = t.warp_products != 0 ? 0 : t.linear_block; // its rows are those of whole warps
    }
    return t;
}

bool holds(const VariantPlan &plan, int64_t seq_len_q) {
    return seq_len_q >= plan.min_seq_len_q && (plan.max_seq_len_q == 0 || seq_len_q <= plan.max_seq_len_q);
}

// Every length of first..last (0 = no limit) is served.
bool covered(const std::vector<VariantPlan> &plans, int64_t first, int64_t last) {
    while (last == 0 || first <= last) {
        const auto plan = std::find_if(plans.begin(), plans.end(), [first](const VariantPlan &p) { return holds(p, first); });
        if (plan == plans.end()) {
            return false;
        }
        if (plan->max_seq_len_q == 0) {
            return true;
        }
        first = int64_t(plan->max_seq_len_q) + 1;
    }
    return true;
}

std::string description_of(const TunedRecord &record, double distance) {
    std::string file = record.file; // is in a C string of the generated header
    std::replace_if(file.begin(), file.end(), [](char c) { return c == '"' || c == '\\' || c < ' '; }, '_');
    return "record " + std::to_string(record.index + 1) + " of " + file + ", distance " + number_text(distance, 2) + ": " +
           contract::flags_of(record.problem); // not the text of the file, which may hold any bytes
}

// Where the shortest query of a record was the first that no decoding frame can take, it is the first that none of them does take.
int first_query(const TunedRecord &record, const Problem &p, const Machine &machine) {
    for (const Frame *frame : frames()) {
        if (frame->serves(p, machine) && frame->max_seq_len_q() > 0 && record.min_seq_len_q == frame->max_seq_len_q() + 1) {
            return frame->best_up_to(p, machine) + 1;
        }
    }
    return record.min_seq_len_q;
}

std::vector<VariantPlan> usable(const TunedMatch &match, const Problem &p, const Machine &machine, const std::string &target) {
    std::vector<VariantPlan> plans;
    for (const TunedRecord &record : match.records) {
        if (!compiled_for(*record.frame, p, machine)) {
            continue;
        }
        VariantPlan plan{record.frame,
                         target,
                         default_tiling(*record.frame, p, machine, transferred(record, p, machine)),
                         first_query(record, p, machine),
                         record.max_seq_len_q,
                         description_of(record, match.distance)};
        const int longest = record.frame->best_up_to(p, machine);
        const bool few = longest > 0; // it is for few queries
        if (few && plan.max_seq_len_q == 0) {
            plan.max_seq_len_q = p.seq_len_q;
        }
        if (few) {
            plan.max_seq_len_q = std::min(plan.max_seq_len_q, longest);
        }
        const bool limited = !few || (plan.max_seq_len_q > 0 && plan.min_seq_len_q <= plan.max_seq_len_q);
        const bool wanted = p.seq_len_q == 0 || holds(plan, p.seq_len_q);
        if (limited && wanted && tiling_refusal(*record.frame, p, plan.tiling, machine).empty()) {
            plans.push_back(plan);
        }
    }
    return plans;
}

bool multiplies_by_warps(const VariantPlan &plan) {
    return plan.frame->multiplies_by_warps() || plan.tiling.warp_products != 0;
}

// Plans from the records of the nearest problem. Bare attention of 16 or 8 bits that computes with floats also takes records of f32: its
// keys and values become floats once per call. Not for a few queries, whose keys are read as they are stored.
std::vector<VariantPlan> recorded(const TunedRecords &records, const Problem &given, const Machine &machine,
                                  const std::string &target_class, const std::string &target) {
    Problem p = given;
    p.precision = machine.gpu() ? p.precision : POLYHEAD_IEEE; // CPUs multiply floats in one way
    std::vector<VariantPlan> plans = usable(nearest_records(records, p, target_class), p, machine, target);
    const int key_dtype = contract::key_dtype(p);
    if (!plans.empty() || contract::has_weights(p) || key_dtype == POLYHEAD_F32 || machine.gpu() || machine.multiplies_pairs(key_dtype)) {
        return plans;
    }
    Problem floats = p;
    floats.dtype = POLYHEAD_F32;
    floats.additive_in_storage = floats.int8_cache = floats.scale_channels = 0;
    plans = usable(nearest_records(records, floats, target_class), p, machine, target);
    const auto few = [](const VariantPlan &plan) { return plan.frame->max_seq_len_q() > 0; };
    plans.erase(std::remove_if(plans.begin(), plans.end(), few), plans.end());
    return plans;
}

// What the caller's choice and $POLYHEAD_TUNED, which counts where the caller says nothing, mean together.
TuningChoice with_environment(TuningChoice choice) {
    const char *const everywhere = std::getenv("POLYHEAD_TUNED");
    if (choice.records && choice.file.empty() && everywhere) {
        choice.records = std::string(everywhere) != "off";
        choice.file = everywhere;
    }
    if (!choice.records) {
        choice.file.clear();
    }
    return choice;
}

} // namespace

std::string records_file(const TuningChoice &choice) {
    return with_environment(choice).file;
}

std::string RecordFinder::open(const TuningChoice &choice) {
    choice_ = with_environment(choice);
    std::string error;
    if (!choice_.file.empty()) {
        read_records(choice_.file, &own_, &error);
    }
    return error;
}

std::vector<VariantPlan> RecordFinder::apply(const Problem &p, const Machine &machine, const std::string &target_class,
                                             const std::vector<VariantPlan> &defaults) const {
    if (!choice_.records || defaults.empty()) {
        return defaults;
    }
    for (const TunedRecords *records : {&own_, &shipped_records()}) {
        std::vector<VariantPlan> plans = recorded(*records, p, machine, target_class, defaults[0].target);
        if (plans.empty()) {
            continue;
        }
        for (const VariantPlan &plan : defaults) {
            // Variants whose warps multiply are not for all tensors and devices: in the place of others they need them behind them.
            std::vector<VariantPlan> replacing;
            std::copy_if(plans.begin(), plans.end(), std::back_inserter(replacing),
                         [&](const VariantPlan &one) { return !multiplies_by_warps(one) || multiplies_by_warps(plan); });
            const bool served =
                p.seq_len_q > 0 ? covered(replacing, p.seq_len_q, p.seq_len_q) : covered(replacing, plan.min_seq_len_q, plan.max_seq_len_q);
            if (!served) {
                plans.push_back(plan);
            }
        }
        return plans;
    }
    return defaults;
}

} // namespace polyhead::gen
