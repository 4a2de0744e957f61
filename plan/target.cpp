// Target strings are read and written here, and nowhere else.
#include "target.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include "../contract/apis.h"
#include "../machines/machines.h"
#include "plan.h"
#include "target_features.h"

namespace polyhead::gen {

namespace {

constexpr struct {
    const char *name;
    Architecture architecture;
} architectures[] = {{"x86", Architecture::x86},       {"arm", Architecture::arm},       {"riscv", Architecture::riscv},
                     {"powerpc", Architecture::other}, {"hexagon", Architecture::other}, {"wasm", Architecture::other}};
constexpr const char *systems[] = {"linux", "windows", "osx", "android", "ios", "qurt", "noos", "fuchsia", "wasmrt"};
constexpr const char *tunings[] = {"tune_amdfam10", "tune_bdver1", "tune_bdver2", "tune_bdver3",  "tune_bdver4",
                                   "tune_btver1",   "tune_btver2", "tune_k8",     "tune_k8_sse3", "tune_znver1",
                                   "tune_znver2",   "tune_znver3", "tune_znver4", "tune_znver5"};
constexpr const char untuned[] = "tune_generic", vector_bits_[] = "vector_bits_", trace_all[] = "trace_all",
                     cuda_capability_[] = "cuda_capability_";
constexpr const char *traces[] = {"trace_loads", "trace_realizations", "trace_stores"};
constexpr const char *two_names[] = {"hvx", "hvx_128"}; // of one feature, which is written with both

template <class Names> bool is_one_of(const Names &names, const std::string &word) {
    return std::any_of(std::begin(names), std::end(names), [&](const char *name) { return word == name; });
}

bool read_number(const std::string &word, const std::string &prefix, int *number) {
    if (word.rfind(prefix, 0) != 0) {
        return false;
    }
    const char *const begin = word.data() + prefix.size(), *const end = word.data() + word.size();
    const auto read = std::from_chars(begin, end, *number);
    return read.ec == std::errc() && read.ptr == end && *number >= 0;
}

// Reads the words of a target; each part may stand once, at any place.
class TargetParser {
public:
    bool read(const std::string &text, Target *target) {
        for (size_t at = 0; at <= text.size();) {
            const size_t dash = std::min(text.find('-', at), text.size());
            if (!read_word(text.substr(at, dash - at), target)) {
                return false;
            }
            at = dash + 1;
        }
        return architecture_ && bits_ && system_;
    }

private:
    bool architecture_ = false, bits_ = false, system_ = false, tuning_ = false;

    // Fills a part that no word has filled yet.
    template <class Part> static bool once(bool *filled, Part *part, const Part &value) {
        *part = value;
        return !std::exchange(*filled, true);
    }

    bool read_word(const std::string &word, Target *target) {
        if (word == "32" || word == "64") {
            return once(&bits_, &target->bits, word == "32" ? 32 : 64);
        }
        if (std::any_of(std::begin(architectures), std::end(architectures), [&](const auto &row) { return word == row.name; })) {
            return once(&architecture_, &target->architecture, word);
        }
        if (is_one_of(systems, word)) {
            return once(&system_, &target->system, word);
        }
        if (word == untuned || is_one_of(tunings, word)) {
            return once(&tuning_, &target->tuning, word == untuned ? std::string() : word);
        }
        if (word == trace_all) {
            target->features.insert(std::begin(traces), std::end(traces));
            return true;
        }
        if (is_one_of(two_names, word)) {
            target->features.insert(std::begin(two_names), std::end(two_names));
            return true;
        }
        if (feature_rule(word)) {
            target->features.insert(word);
            return true;
        }
        return read_number(word, vector_bits_, &target->vector_bits);
    }
};

// Of CUDA, the only capability that runs code for the target; null: there are several.
const ExactCapability *only_capability_of(const Target &target) {
    const auto *const row = std::find_if(std::begin(exact_capabilities), std::end(exact_capabilities),
                                         [&](const ExactCapability &exact) { return target.has(exact.feature); });
    return row == std::end(exact_capabilities) ? nullptr : row;
}

bool is_capability(const std::string &feature) {
    return feature.rfind(cuda_capability_, 0) == 0;
}

// In the place of all capabilities of a target.
void set_capability(Target *target, const std::string &capability) {
    for (auto feature = target->features.begin(); feature != target->features.end();) {
        feature = is_capability(*feature) ? target->features.erase(feature) : std::next(feature);
    }
    target->features.insert(capability);
}

// What code for the target needs at least.
int capability_of(const Target &target) {
    constexpr int least = 20;
    int lowest = 0, number = 0;
    for (const std::string &feature : target.features) {
        if (read_number(feature, cuda_capability_, &number)) {
            lowest = lowest == 0 ? number : std::min(lowest, number);
        }
    }
    return lowest == 0 ? least : lowest;
}

} // namespace

std::string Target::to_string() const {
    std::string text = architecture + "-" + std::to_string(bits) + "-" + system + (tuning.empty() ? "" : "-" + tuning);
    const bool traced = std::all_of(std::begin(traces), std::end(traces), [&](const char *trace) { return has(trace); });
    for (const std::string &feature : features) {
        if (!traced || !is_one_of(traces, feature)) {
            text += "-" + feature;
        } else if (feature == traces[0]) {
            text += std::string("-") + trace_all;
        }
    }
    return text + (vector_bits != 0 ? std::string("-") + vector_bits_ + std::to_string(vector_bits) : "");
}

Target Target::for_halide() const {
    Target target = *this;
    if (const ExactCapability *only = only_capability_of(*this)) {
        set_capability(&target, cuda_capability_ + std::to_string(only->as));
    }
    return target;
}

// Halide 21 makes code for RISC-V only with vectors of a known length.
Target Target::least() const {
    Target target{architecture, system, bits, "", {}, 0};
    if (architecture == "riscv") {
        target.features = {"rvv"};
        target.vector_bits = vector_bits;
    }
    return target;
}

bool parse_target(const std::string &given, Target *target, std::string *error) {
    const std::string text = resolve_target(given, error);
    if (!error->empty()) {
        return false;
    }
    *target = Target();
    if (!TargetParser().read(text, target)) {
        *error =
            "target '" + text + "' is not known: expected host, portable, x86-64-v3 or a Halide target such as x86-64-linux-avx2-fma-f16c";
        return false;
    }
    *error = refused_features(text, *target);
    return error->empty();
}

Target parsed_target(const std::string &text) {
    Target target;
    std::string error;
    TargetParser().read(resolve_target(text, &error), &target);
    return target;
}

std::string refuse_target(const std::string &word, bool untested, std::string *full) {
    Target target;
    std::string refusal;
    if (!parse_target(word, &target, &refusal)) {
        return refusal;
    }
    *full = target.to_string();
    const std::string part = untested ? "" : untested_part(target);
    return part.empty() ? ""
                        : "target '" + word + "' is not tested (" + part +
                              "): expected x86-64, plain arm-64, or polyhead generate with --untested-target";
}

Machine machine_of(const Target &target) {
    for (const Device &device : devices) {
        if (target.has(contract::apis[device.api].name)) {
            const ExactCapability *only = device.api == POLYHEAD_CUDA ? only_capability_of(target) : nullptr;
            const int capability = only ? only->capability : device.api == POLYHEAD_CUDA ? capability_of(target) : 0;
            return machine_for(device, capability, only != nullptr);
        }
    }
    Architecture architecture = Architecture::other;
    for (const auto &row : architectures) {
        architecture = target.architecture == row.name ? row.architecture : architecture;
    }
    return machine_for(Processor{architecture, target.bits, target.vector_bits, cpu_features_of(target)});
}

std::vector<Target> parts_of(const Target &target) {
    const ExactCapability *only = machine_of(target).exact ? only_capability_of(target) : nullptr;
    if (!only) {
        return {target};
    }
    Target others = target, alone = target;
    others.features.erase(only->feature);
    if (std::none_of(others.features.begin(), others.features.end(), is_capability)) {
        others.features.insert(only->others);
    }
    set_capability(&alone, only->feature);
    return {others, alone};
}

std::string target_class(const Target &target) {
    const char *const kind = machine_of(target).kind;
    return kind ? kind : target.architecture + "-" + std::to_string(target.bits);
}

} // namespace polyhead::gen
