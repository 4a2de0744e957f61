// Levels of the psABI as targets, and what `portable` stands for.
#include "named_targets.h"

#include <algorithm>
#include <iterator>

#include "../machines/products.h"
#include "plan.h"
#include "target_features.h"
#include "text.h"

namespace polyhead::gen {
namespace {

constexpr const char x86[] = "x86";

std::string target_with(uint64_t cpu_features) {
    Target target;
    target.architecture = x86;
    target.bits = 64;
    target.system = this_system().system;
    target.features = features_within(x86, cpu_features);
    return target.to_string();
}

// Level 4 with dot products: what Intel's and AMD's CPUs have of them.
constexpr uint64_t with_dot_products[] = {contract::cpu_level::fp16, contract::cpu_level::bf16_vnni | POLYHEAD_CPU_SSE4A};

// Whether a CPU with these features multiplies stored elements of the problem in another way than one of level 4.
bool has_other_products(const polyhead_problem &problem, uint64_t cpu_features) {
    const auto other = [&](int32_t dtype) {
        return product_of(dtype, Holder::lane, cpu_features) != product_of(dtype, Holder::lane, contract::cpu_level::skylake);
    };
    return other(problem.dtype) || (problem.int8_cache != 0 && other(POLYHEAD_I8));
}

} // namespace

std::string psabi_target(const std::string &text) {
    for (const PsabiLevel &level : psabi_levels) {
        const std::string name = level.name;
        const bool more = level.cpu_features != 0 && text.rfind(name + "-", 0) == 0; // x86-64-... alone is Halide's
        if (text == name || more) {
            return target_with(level.cpu_features) + text.substr(name.size());
        }
    }
    return "";
}

const char *psabi_level_of(const Target &target) {
    const uint64_t used = cpu_features_of(target);
    const bool of_cpu = target.architecture == x86 && target.bits == 64 && !machine_of(target).gpu();
    const auto *level =
        std::find_if(std::begin(psabi_levels), std::end(psabi_levels), [&](const PsabiLevel &l) { return (used & ~l.cpu_features) == 0; });
    return of_cpu && level != std::end(psabi_levels) ? level->name : nullptr;
}

std::vector<std::string> targets_of_word(const std::string &word, const polyhead_problem &problem) {
    if (word != "portable") {
        return {word};
    }
    const Target here = this_system();
    if (here.architecture != x86 || here.bits != 64) {
        return {here.least().to_string()};
    }
    std::vector<std::string> targets;
    for (const uint64_t cpu_features : with_dot_products) {
        if (has_other_products(problem, cpu_features)) {
            targets.push_back(target_with(cpu_features));
        }
    }
    for (const auto *level = std::end(psabi_levels); level != std::begin(psabi_levels);) {
        targets.push_back(target_with((--level)->cpu_features));
    }
    return targets;
}

std::string read_targets(const std::string &text, bool untested, const Problem &problem, std::vector<std::string> *targets) {
    for (const std::string &word : split(text, ',')) {
        for (const std::string &target : targets_of_word(word, problem)) {
            std::string full;
            const std::string refusal = refuse_target(target, untested, &full);
            if (!refusal.empty()) {
                return refusal;
            }
            targets->push_back(full);
        }
    }
    return targets->empty() ? "target: found no target, expected at least one" : "";
}

} // namespace polyhead::gen
