// Variants are planned here.
#include "plan.h"

#include <algorithm>

#include "knob_rules.h"
#include "target.h"
#include "text.h"
#include "tuning/plan_records.h"

namespace polyhead::gen {

namespace {

// Overrides: the words that are no knobs, and the tiling.
struct Overrides {
    std::string frame, autoscheduler, autoscheduler_fields;
    Tiling tiling;
};

std::string read_overrides(const std::string &text, Overrides *overrides) {
    TextReader words(text);
    std::string word, knobs;
    auto starts = [&word](const char *with) { return word.rfind(with, 0) == 0; };
    while (words >> word) {
        const std::string value = word.substr(std::min(word.find('='), word.size() - 1) + 1);
        if (starts("frame=")) {
            overrides->frame = value;
        } else if (starts("autoscheduler=")) {
            overrides->autoscheduler = value;
        } else if (starts("autoscheduler.")) {
            overrides->autoscheduler_fields += " " + word.substr(word.find('.') + 1);
        } else {
            knobs += word + " ";
        }
    }
    return overrides->tiling.set_all(knobs);
}

std::string target_refusal(const Problem &p, const std::string &target, const Machine &machine) {
    const bool stores_16_bits = machine.device.stores_16_bits;
    if (p.dtype != POLYHEAD_F32 && !stores_16_bits) {
        return "dtype " + dtype_name(p.dtype) + " is not supported on target " + target + ": expected f32, or a CPU, CUDA or OpenCL target";
    }
    if (contract::is_backward(p) && machine.gpu()) {
        return std::string("op ") + contract::op_name(p.op) + " is not supported on target " + target + ": expected a CPU";
    }
    if (p.free_group_size != 0 && machine.gpu()) { // threads share the rows of a group
        return "free_group_size is not supported on target " + target + ": expected group_size, or a CPU";
    }
    if (machine.gpu() && (p.keep_heads != 0 || p.dropout != 0)) {
        return std::string(p.keep_heads != 0 ? "keep_heads" : "dropout") + " is not supported on target " + target + ": expected a CPU";
    }
    return p.int8_cache != 0 && !stores_16_bits
               ? "int8_cache is not supported on target " + target + ": expected a CPU, CUDA or OpenCL target"
               : "";
}

// A kernel for one query length that its only frame never takes.
std::string length_refusal(const VariantPlan &plan, const Problem &p) {
    return plan.max_seq_len_q == 0 || p.seq_len_q <= plan.max_seq_len_q
               ? ""
               : "tiling: frame " + std::string(plan.frame->name()) + " serves query lengths up to " + std::to_string(plan.max_seq_len_q) +
                     ", found seq_len_q " + std::to_string(p.seq_len_q);
}

// A problem for each range of group sizes that has a variant of its own, and the range.
struct GroupRange {
    Problem problem;
    int32_t min = 0, max = 0;
};

std::vector<GroupRange> group_ranges(const Problem &p, const Frame &frame, const Machine &machine, const Tiling &given) {
    const std::vector<int> largest = frame.group_sizes(machine);
    if (p.free_group_size == 0 || given.row_tile > 0 || largest.empty()) {
        return {{p}};
    }
    std::vector<GroupRange> ranges;
    int first = 1;
    for (const int last : largest) {
        ranges.push_back({p, first, last});
        ranges.back().problem.group_size = last;
        first = last + 1;
    }
    ranges.push_back({p, first, 0});
    ranges.back().problem.group_size = 2 * first;
    return ranges;
}

// The variants of one frame for one target, behind those that are there.
void add_plans(const Frame &frame, const Problem &p, const Target &target, const Overrides &given, std::vector<VariantPlan> *plans,
               std::string *error) {
    const Machine machine = machine_of(target);
    const bool wanted = given.frame.empty() ? frame.wanted(p, machine, plans->empty()) : given.frame == frame.name();
    if (!wanted || !compiled_for(frame, p, machine)) {
        return;
    }
    const int longest = given.frame.empty() ? frame.best_up_to(p, machine) : frame.max_seq_len_q();
    for (const GroupRange &range : group_ranges(p, frame, machine, given.tiling)) {
        plans->push_back({&frame, target.to_string(), default_tiling(frame, range.problem, machine, given.tiling), 0, longest, "",
                          given.autoscheduler.empty() ? "" : given.autoscheduler + given.autoscheduler_fields, 0, range.min, range.max});
        *error = length_refusal(plans->back(), p);
        if (error->empty()) {
            *error = tiling_refusal(frame, p, plans->back().tiling, machine);
        }
        if (!error->empty()) {
            return;
        }
    }
}

// The variants of one part of a target by frame and default, or by the overrides.
std::vector<VariantPlan> default_plans(const Problem &p, const Target &target, const Overrides &given, std::string *error) {
    std::vector<VariantPlan> plans;
    for (const Frame *frame : frames()) {
        add_plans(*frame, p, target, given, &plans, error);
        if (!error->empty()) {
            return {};
        }
    }
    return plans;
}

// The same frame for calls of few rows, and the others behind it; unchanged where the frame has no such variant, or a record for a range.
std::vector<VariantPlan> with_few_rows(const Problem &p, const Machine &machine, std::vector<VariantPlan> plans) {
    const int rows = plans.empty() ? 0 : plans[0].frame->few_rows(machine);
    if (rows == 0 || p.seq_len_q > rows || plans[0].tiling.amx != 0 || (!plans[0].record.empty() && plans[0].max_seq_len_q > 0)) {
        return plans;
    }
    VariantPlan few = plans[0];
    Tiling tiling;
    tiling.linear_rows = rows;
    few.tiling = default_tiling(*few.frame, p, machine, tiling);
    few.min_seq_len_q = 0;
    few.max_seq_len_q = rows;
    few.record.clear();
    if (p.seq_len_q > 0) {
        return {few};
    }
    plans.insert(plans.begin(), few);
    return plans;
}

// In front of each default variant whose blocks may be too few for a device, one with smaller blocks.
std::vector<VariantPlan> with_few_blocks(const Problem &p, const Machine &machine, const std::vector<VariantPlan> &plans) {
    std::vector<VariantPlan> all;
    for (const VariantPlan &plan : plans) {
        VariantPlan few = plan;
        Tiling tiling;
        few.few_blocks_of = plan.record.empty() ? plan.frame->few_blocks_of(p, plan.tiling, machine, &tiling) : 0;
        if (few.few_blocks_of > 0) {
            few.tiling = default_tiling(*few.frame, p, machine, tiling);
            all.push_back(few);
        }
        all.push_back(plan);
    }
    return all;
}

// The frame's default variant with tiles (amx 1) or without it (0), put at a place of the plans unless the problem has no such variant.
void insert_default(const Frame &frame, int amx, int from, const Problem &p, const Machine &machine, std::vector<VariantPlan> *plans,
                    std::vector<VariantPlan>::iterator place) {
    Tiling tiling;
    tiling.amx = amx;
    const VariantPlan plan{&frame, plans->front().target, default_tiling(frame, p, machine, tiling), from, frame.max_seq_len_q(), "", ""};
    if (tiling_refusal(frame, p, plan.tiling, machine).empty()) {
        plans->insert(place, plan);
    }
}

// For a target some of whose processors multiply by tiles: a variant with them in front of the frame's others, and one without them behind
// them, which dispatch takes where they are missing. Where a record chose the tiling, it also chose whether there is one with tiles.
std::vector<VariantPlan> with_tiles(const Problem &p, const Machine &machine, std::vector<VariantPlan> plans) {
    const Product *tiles = machine.core_product(p.dtype);
    if (!tiles || !machine.some_have(*tiles)) {
        return plans;
    }
    for (const Frame *frame : frames()) {
        const auto of_frame = [&](const VariantPlan &plan) { return plan.frame == frame; };
        const auto first = std::find_if(plans.begin(), plans.end(), of_frame);
        const int from = frame->tiles_from(p);
        if (first == plans.end() || from < 0) {
            continue;
        }
        const auto recorded = [&](const VariantPlan &plan) { return of_frame(plan) && !plan.record.empty(); };
        const auto by_tiles = [&](const VariantPlan &plan) { return of_frame(plan) && plan.tiling.amx != 0; };
        if (std::any_of(plans.begin(), plans.end(), by_tiles)) {
            insert_default(*frame, 0, 0, p, machine, &plans, std::find_if(plans.rbegin(), plans.rend(), of_frame).base());
        } else if (std::none_of(plans.begin(), plans.end(), recorded) && (p.seq_len_q == 0 || p.seq_len_q >= from)) {
            insert_default(*frame, 1, from, p, machine, &plans, first);
        }
    }
    return plans;
}

// For a GPU whose warps multiply elements as they are stored: a variant with such products in front of the frame's others, which take the
// tensors whose rows it does not. A linear layer, and a layer with a cache, whose new keys are as few as its queries, have another one with
// blocks of few rows. Where a frame is for few queries alone, these products are in front of its variant, too.
std::vector<VariantPlan> with_warp_products(const Problem &p, const Machine &machine, std::vector<VariantPlan> plans) {
    const auto by_products = [](const VariantPlan &plan) { return plan.tiling.warp_products != 0; };
    const Product *product = product_for(p, machine);
    if (!contract::projects(p) || !product || plans.empty()) {
        return plans;
    }
    const auto planned = [&](VariantPlan plan, Tiling tiling, int longest) {
        tiling.warp_products = 1;
        plan.tiling = default_tiling(*plan.frame, p, machine, tiling);
        plan.max_seq_len_q = longest;
        return plan;
    };
    Tiling few;
    few.linear_rows = 2;
    few.linear_columns = 8;
    few.linear_panels = 4;
    few.linear_block = product->m;
    const bool few_rows = !contract::attends(p) || p.cache != 0, few_queries = plans.front().max_seq_len_q > 0;
    const auto others = plans.begin() + (few_queries ? 1 : 0);
    std::vector<VariantPlan> products;
    if ((few_rows || few_queries) && p.seq_len_q <= product->m && !by_products(plans.front())) {
        products.push_back(planned(plans.front(), few_rows ? few : Tiling(), few_queries ? plans.front().max_seq_len_q : product->m));
    }
    if ((!few_rows || p.seq_len_q == 0 || p.seq_len_q > product->m) && std::none_of(others, plans.end(), by_products)) {
        products.push_back(planned(plans.back(), {}, 0));
    }
    if (!products.empty() && tiling_refusal(*products[0].frame, p, products[0].tiling, machine).empty()) {
        plans.insert(plans.begin(), products.begin(), products.end());
    }
    return plans;
}

// The variants of one target, best first. finder: null where there are overrides, which records are not for.
std::vector<VariantPlan> plans_of_target(const Problem &p, const Target &target, const Overrides &given, const RecordFinder *finder,
                                         std::string *error) {
    std::vector<VariantPlan> plans;
    for (const Target &part : parts_of(target)) {
        const Machine machine = machine_of(part);
        std::vector<VariantPlan> here = default_plans(p, part, given, error);
        if (!error->empty()) {
            return {};
        }
        if (finder) {
            here = with_warp_products(p, machine, here);
            here =
                p.free_group_size != 0 ? here : finder->apply(p, machine, target_class(part), here); // records are for groups of one size
            here = with_few_blocks(p, machine, with_tiles(p, machine, with_few_rows(p, machine, here)));
        }
        // Those for one capability alone come before those for all other devices, but behind those for few queries.
        const auto many =
            std::stable_partition(plans.begin(), plans.end(), [](const VariantPlan &plan) { return plan.max_seq_len_q != 0; });
        plans.insert(many, here.begin(), here.end());
    }
    return plans;
}

std::vector<VariantPlan> planned(const Problem &p, const std::vector<std::string> &targets, const std::string &overrides,
                                 std::string *error, const TuningChoice &tuning, std::vector<std::string> *complaints) {
    *error = refusal(p);
    Overrides given;
    if (error->empty()) {
        *error = read_overrides(overrides, &given);
    }
    const bool overridden = overrides.find('=') != std::string::npos;
    RecordFinder finder;
    if (error->empty() && !overridden) {
        *error = finder.open(tuning);
    }
    if (complaints) {
        *complaints = finder.complaints();
    }
    std::vector<VariantPlan> plans;
    std::vector<FrameOnMachine> on;
    for (const std::string &text : targets) {
        Target target;
        if (!error->empty() || !parse_target(text, &target, error)) {
            return {};
        }
        *error = target_refusal(p, target.to_string(), machine_of(target));
        const std::vector<VariantPlan> here =
            error->empty() ? plans_of_target(p, target, given, overridden ? nullptr : &finder, error) : std::vector<VariantPlan>();
        if (!error->empty()) {
            return {};
        }
        for (const VariantPlan &plan : here) {
            on.push_back({plan.frame, machine_of(parsed_target(plan.target))});
            if (const int width = plan.frame->wide_load(p, plan.tiling); given.tiling.load_width == 0 && width > 0) {
                plans.push_back(plan);
                plans.back().tiling.load_width = width;
            }
            plans.push_back(plan);
        }
    }
    if (plans.empty()) {
        *error = "no frame" + (given.frame.empty() ? std::string() : " '" + given.frame + "'") +
                 " serves this problem on this target: expected one of " + frame_names();
    } else {
        *error = unread_knobs(on, p, given.tiling);
    }
    return error->empty() ? plans : std::vector<VariantPlan>();
}

} // namespace

std::string VariantPlan::text() const {
    return "frame=" + std::string(frame->name()) + " " + tiling.to_string() + (record.empty() ? "" : ", from " + record);
}

uint64_t VariantPlan::cpu_features(const Problem &problem) const {
    const Machine machine = machine_of(parsed_target(target));
    const Product *const tiles = tiling.amx != 0 ? machine.core_product(problem.dtype) : nullptr;
    return machine.cpu_features | (tiles ? tiles->required : 0);
}

std::vector<std::string> VariantPlan::reasons(const Problem &problem) const {
    return frame->reasons(problem, tiling, machine_of(parsed_target(target)));
}

std::vector<VariantPlan> plan_variants(const Problem &p, const std::vector<std::string> &targets, const std::string &overrides,
                                       std::string *error, const TuningChoice &tuning, std::vector<std::string> *complaints) {
    std::vector<VariantPlan> plans = planned(p, targets, overrides, error, tuning, complaints);
    *error = on_one_line(*error); // it may repeat a path, a target or a knob
    return plans;
}

} // namespace polyhead::gen
