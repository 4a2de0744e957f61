// Kernels of this process by problem, target, tiling and range of query lengths.
#include <algorithm>
#include <future>
#include <map>
#include <mutex>
#include <tuple>

#include "errors.h"
#include "loaded_kernel.h"
#include "no_fork.h"

namespace polyhead::python {
namespace {

using Pointer = std::shared_ptr<const LoadedKernel>;
using Key = std::tuple<std::vector<int32_t>, std::string, std::string, std::string, int32_t, int32_t>;

struct Cache {
    std::mutex mutex;
    std::map<Key, std::shared_future<Pointer>> kernels;
};

// Never destroyed: kernels may be wanted while the process ends.
Cache &cache() {
    static Cache *const all = new Cache;
    return *all;
}

Key key_of(const Problem &p, const std::string &target, const std::string &tiling, const Plan &plan) {
    std::string plans = tiling; // tuning records may change what is planned
    for (const gen::VariantPlan &variant : plan.variants) {
        plans += "\n" + variant.text();
    }
    std::vector<int32_t> numbers;
#define POLYHEAD_NUMBER(name) numbers.push_back(p.name);
    POLYHEAD_PROBLEM_FIELDS(POLYHEAD_NUMBER)
#undef POLYHEAD_NUMBER
    return {numbers, p.expression ? p.expression : "", target, plans, plan.min_seq_len_q, plan.max_seq_len_q};
}

bool serves(const gen::VariantPlan &plan, int64_t seq_len_q) {
    return seq_len_q >= plan.min_seq_len_q && (plan.max_seq_len_q == 0 || seq_len_q <= plan.max_seq_len_q);
}

Plan plan_for(const Problem &problem, const std::string &target, const std::string &tiling, int64_t seq_len_q,
              const gen::TuningChoice &tuning) {
    std::string error;
    Plan plan{gen::plan_variants(problem, {target}, tiling, &error, tuning)};
    if (!error.empty()) {
        throw Refusal(POLYHEAD_BAD_VALUE, error);
    }
    if (seq_len_q == any_seq_len_q) {
        return plan;
    }
    std::vector<gen::VariantPlan> looked_at;
    for (const gen::VariantPlan &variant : plan.variants) {
        if (serves(variant, seq_len_q)) {
            plan.min_seq_len_q = std::max(plan.min_seq_len_q, variant.min_seq_len_q);
            plan.max_seq_len_q = variant.max_seq_len_q == 0 ? plan.max_seq_len_q : std::min(plan.max_seq_len_q, variant.max_seq_len_q);
            looked_at.push_back(variant);
            if (variant.tiling.load_width <= 1) { // whatever the addresses of the tensors are
                break;
            }
        } else if (seq_len_q < variant.min_seq_len_q) { // lengths beyond would look at it
            plan.max_seq_len_q = std::min(plan.max_seq_len_q, variant.min_seq_len_q - 1);
        } else {
            plan.min_seq_len_q = std::max(plan.min_seq_len_q, variant.max_seq_len_q + 1);
        }
    }
    plan.variants = looked_at.empty() ? plan.variants : looked_at;
    return plan;
}

} // namespace

std::shared_ptr<const LoadedKernel> kernel_for(Problem problem, const std::string &target, const std::string &tiling, int64_t seq_len_q,
                                               const gen::TuningChoice &tuning) {
    const NoFork no_fork;
    const std::string sentence = gen::complete(&problem);
    if (!sentence.empty()) {
        throw Refusal(POLYHEAD_BAD_VALUE, sentence);
    }
    Plan plan = plan_for(problem, target, tiling, seq_len_q, tuning);
    const Key key = key_of(problem, target, tiling, plan);
    std::promise<Pointer> promise;
    {
        std::unique_lock<std::mutex> lock(cache().mutex);
        const auto found = cache().kernels.find(key);
        if (found != cache().kernels.end()) {
            const std::shared_future<Pointer> future = found->second;
            lock.unlock();
            return future.get();
        }
        cache().kernels.emplace(key, promise.get_future().share());
    }
    try {
        const auto kernel = std::make_shared<const LoadedKernel>(problem, target, tiling, tuning, std::move(plan));
        promise.set_value(kernel);
        return kernel;
    } catch (...) {
        promise.set_exception(std::current_exception()); // for those who wait; who comes later tries again
        const std::lock_guard<std::mutex> lock(cache().mutex);
        cache().kernels.erase(key);
        throw;
    }
}

} // namespace polyhead::python
