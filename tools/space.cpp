// The space of tilings as JSON.
#include "space.h"

#include <optional>

#include <nlohmann/json.hpp>

#include "../contract/problem_fields.h"
#include "../plan/target.h"
#include "../plan/tuning/tiling_space.h"
#include "../plan/tuning/tuned_records.h"
#include "library.h"

namespace polyhead::tools {
namespace {

using OrderedJson = nlohmann::ordered_json;

// The knobs of a tiling by name.
OrderedJson tiling_json(const gen::Tiling &tiling) {
    OrderedJson j = OrderedJson::object();
#define POLYHEAD_WRITE(name, meaning, ...)                                                                                                 \
    if (tiling.name != 0) {                                                                                                                \
        j[#name] = tiling.name;                                                                                                            \
    }
    POLYHEAD_TILING_KNOBS(POLYHEAD_WRITE)
#undef POLYHEAD_WRITE
    return j;
}

// The machine of the part of a target that a frame is compiled for; none: there is no such part.
std::optional<gen::Machine> machine_for(const gen::Frame &frame, const polyhead_problem &p, const gen::Target &target) {
    for (const gen::Target &part : gen::parts_of(target)) {
        if (const gen::Machine machine = gen::machine_of(part); gen::compiled_for(frame, p, machine)) {
            return machine;
        }
    }
    return std::nullopt;
}

// What a device must have, as the manifest says it.
void add_capability(const gen::Machine &machine, OrderedJson *j) {
    if (machine.capability > 0) {
        (*j)["capability"] = machine.capability;
        (*j)["capability_exact"] = machine.exact;
    }
}

OrderedJson frames_json(const polyhead_problem &p, const gen::Target &target) {
    OrderedJson frames = OrderedJson::array();
    for (const gen::Frame *frame : gen::frames()) {
        const std::optional<gen::Machine> found = machine_for(*frame, p, target);
        if (frame->schedule_version() == 0 || !found) {
            continue;
        }
        const gen::Machine &machine = *found;
        OrderedJson knobs = OrderedJson::array();
        for (const gen::KnobValues &k : gen::tiling_space(*frame, p, machine)) {
            knobs.push_back({{"knob", k.knob}, {"meaning", k.meaning}, {"values", k.values}});
        }
        frames.push_back({{"frame", frame->name()},
                          {"schedule_version", frame->schedule_version()},
                          {"max_seq_len_q", frame->best_up_to(p, machine)},
                          {"default", tiling_json(gen::default_tiling(*frame, p, machine, {}))},
                          {"knobs", knobs}});
        add_capability(machine, &frames.back());
    }
    return frames;
}

OrderedJson variants_json(const Request &request, const std::string &target, std::string *error) {
    Request one = request;
    one.targets = {target};
    OrderedJson variants = OrderedJson::array();
    for (const gen::VariantPlan &plan : plan_request(one, error)) {
        // A tuner measures on this machine, which may lack what only some processors of the target have. It measures calls that fill a
        // device.
        if (plan.few_blocks_of > 0 ||
            !gen::this_cpu_has(plan.cpu_features(one.problem) & ~gen::cpu_features_of(gen::parsed_target(plan.target)))) {
            continue;
        }
        variants.push_back({{"frame", plan.frame->name()},
                            {"min_seq_len_q", plan.min_seq_len_q},
                            {"max_seq_len_q", plan.max_seq_len_q},
                            {"tiling", plan.tiling.to_string()},
                            {"record", readable(plan.record)}});
        add_capability(gen::machine_of(gen::parsed_target(plan.target)), &variants.back());
    }
    return variants;
}

} // namespace

std::string space_text(const Request &request, std::string *error) {
    const polyhead_problem &p = request.problem;
    OrderedJson j = {{"problem", readable(contract::flags_of(p))}, {"halide", gen::halide_version()}, {"polyhead", POLYHEAD_VERSION}};
    for (const contract::ProblemField &field : contract::problem_fields) {
        j["fields"][field.name] = p.*field.value;
    }
    Library counted;
    counted.problem = p;
    const OrderedJson manifest = OrderedJson::parse(manifest_text(counted));
    j["flops"] = manifest["flops"].value("batch_1", OrderedJson());
    j["bytes_moved"] = manifest["bytes_moved"].value("batch_1", OrderedJson());
    j["targets"] = OrderedJson::array();
    for (const std::string &text : request.targets) {
        const gen::Target target = gen::parsed_target(text);
        OrderedJson variants = variants_json(request, text, error);
        if (!error->empty()) {
            return "";
        }
        j["targets"].push_back(
            {{"target", text}, {"target_class", gen::target_class(target)}, {"frames", frames_json(p, target)}, {"variants", variants}});
    }
    return j.dump(2) + "\n";
}

std::string point_refusal(const Request &request, const std::string &name, const std::string &text) {
    gen::Tiling tiling;
    const std::string refusal = tiling.set_all(text);
    if (!refusal.empty()) {
        return refusal;
    }
    const gen::Frame *const frame = gen::frame_named(name);
    const std::optional<gen::Machine> machine =
        frame ? machine_for(*frame, request.problem, gen::parsed_target(request.targets[0])) : std::nullopt;
    if (!machine) {
        return "frame: " + name + " does not serve this problem on " + request.targets[0];
    }
    return gen::candidate_refusal(*frame, request.problem, gen::default_tiling(*frame, request.problem, *machine, tiling), *machine);
}

std::string records_text(const std::string &json, const std::string &name) {
    const gen::TunedRecords all = gen::parse_records(json, name);
    OrderedJson usable = OrderedJson::array();
    for (const gen::TunedRecord &record : all.records) {
        usable.push_back(record.index);
    }
    OrderedJson complaints = OrderedJson::array();
    for (const std::string &complaint : all.complaints) {
        complaints.push_back(readable(complaint));
    }
    return OrderedJson({{"listed", all.listed}, {"usable", usable}, {"complaints", complaints}}).dump(2);
}

} // namespace polyhead::tools
