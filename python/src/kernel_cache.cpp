// Kernels of this process by problem, target, tiling and range of query lengths.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <iterator>
#include <map>
#include <mutex>
#include <pthread.h>
#include <tuple>

#include "../../contract/problem_fields.h"
#include "../../load/bundle.h"
#include "../../plan/named_targets.h"
#include "../../tools/compile_process.h"
#include "errors.h"
#include "kernel_cache.h"
#include "no_fork.h"
#include "without_lock.h"

namespace polyhead::python {
namespace {

using load::Plan;
using Pointer = std::shared_ptr<const LoadedKernel>;
using Key =
    std::tuple<std::array<int32_t, contract::num_problem_fields>, std::string, std::vector<std::string>, std::string, int32_t, int32_t>;

struct Entry {
    std::shared_future<Pointer> kernel;
    uint64_t last_use = 0;

    bool compiled() const { return kernel.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
};

// The kernels that were used last. A kernel that leaves the cache is unloaded when its last owner releases it: a Python kernel object, or a
// running call.
class Cache {
public:
    // Never destroyed: kernels may be wanted while the process ends.
    static Cache &of() {
        static Cache *const all = [] {
            auto *made = new Cache;
            pthread_atfork(nullptr, nullptr, [] { of().forget_unfinished(); });
            return made;
        }();
        return *all;
    }

    // The kernel of this key, or one that somebody compiles; false and a place for `mine`, which the caller compiles.
    bool find(const Key &key, const std::shared_future<Pointer> &mine, std::shared_future<Pointer> *found) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto [entry, added] = entries_.try_emplace(key, Entry{mine});
        entry->second.last_use = ++clock_;
        *found = entry->second.kernel;
        return !added;
    }

    void forget(const Key &key) {
        const std::lock_guard<std::mutex> lock(mutex_);
        entries_.erase(key);
    }

    // In a child process of fork: only threads of the parent compile these kernels. No thread was in the cache (NoFork).
    void forget_unfinished() {
        for (auto entry = entries_.begin(); entry != entries_.end();) {
            entry = entry->second.compiled() ? std::next(entry) : entries_.erase(entry);
        }
    }

    // Removes the compiled kernels that were not used for the longest time, until at most `most` are left. They end without the lock.
    void shrink(size_t most) {
        std::vector<Entry> leaving;
        const std::lock_guard<std::mutex> lock(mutex_);
        while (entries_.size() > most) {
            auto oldest = entries_.end();
            for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
                const bool older = oldest == entries_.end() || entry->second.last_use < oldest->second.last_use;
                oldest = older && entry->second.compiled() ? entry : oldest;
            }
            if (oldest == entries_.end()) {
                return;
            }
            leaving.push_back(std::move(oldest->second));
            entries_.erase(oldest);
        }
    }

private:
    std::mutex mutex_;
    uint64_t clock_ = 0;
    std::map<Key, Entry> entries_;
};

Key key_of(const Problem &p, const std::vector<std::string> &targets, const std::string &tiling, const Plan &plan) {
    std::string plans = tiling; // tuning records may change what is planned
    for (const gen::VariantPlan &variant : plan.variants) {
        plans += "\n" + variant.text();
    }
    std::array<int32_t, contract::num_problem_fields> numbers;
    std::transform(std::begin(contract::problem_fields), std::end(contract::problem_fields), numbers.begin(),
                   [&](const contract::ProblemField &field) { return p.*field.value; });
    return {numbers, p.expression ? p.expression : "", targets, plans, plan.min_seq_len_q, plan.max_seq_len_q};
}

bool serves(const gen::VariantPlan &plan, int64_t seq_len_q) {
    return seq_len_q >= plan.min_seq_len_q && (plan.max_seq_len_q == 0 || seq_len_q <= plan.max_seq_len_q);
}

bool serves_group(const gen::VariantPlan &plan, int64_t group_size) {
    return group_size == 0 || (group_size >= plan.min_group_size && (plan.max_group_size == 0 || group_size <= plan.max_group_size));
}

// Dispatch never gets to the variant in a call that these serve: one before it takes the same tensors on the device of the call. Code for
// one capability alone is in the target of a call only where the device has it.
bool is_hidden(const gen::VariantPlan &variant, const std::vector<gen::VariantPlan> &before) {
    return std::any_of(before.begin(), before.end(), [&](const gen::VariantPlan &one) {
        return one.few_blocks_of == 0 && one.tiling.load_width == variant.tiling.load_width && one.frame->of_one_capability();
    });
}

Plan plan_for(const Problem &problem, const std::vector<std::string> &targets, const std::string &tiling, const CallsOf &calls,
              const gen::TuningChoice &tuning) {
    std::string error;
    Plan plan{gen::plan_variants(problem, targets, tiling, &error, tuning)};
    if (!error.empty()) {
        throw Refusal(POLYHEAD_BAD_VALUE, error);
    }
    const int64_t seq_len_q = calls.seq_len_q;
    if (seq_len_q == any_seq_len_q) {
        return plan;
    }
    std::vector<gen::VariantPlan> looked_at;
    for (const gen::VariantPlan &variant : plan.variants) {
        if (!serves_group(variant, calls.group_size) || !gen::this_cpu_has(variant.cpu_features(problem))) {
            continue;
        }
        if (serves(variant, seq_len_q)) {
            plan.min_seq_len_q = std::max(plan.min_seq_len_q, variant.min_seq_len_q);
            plan.max_seq_len_q = variant.max_seq_len_q == 0 ? plan.max_seq_len_q : std::min(plan.max_seq_len_q, variant.max_seq_len_q);
            if (!is_hidden(variant, looked_at)) {
                looked_at.push_back(variant);
            }
            if (variant.tiling.load_width <= 1) { // whatever the addresses of the tensors are
                break;
            }
        } else if (seq_len_q < variant.min_seq_len_q) { // longer queries may use it
            plan.max_seq_len_q = std::min(plan.max_seq_len_q, variant.min_seq_len_q - 1);
        } else {
            plan.min_seq_len_q = std::max(plan.min_seq_len_q, variant.max_seq_len_q + 1);
        }
    }
    plan.variants = looked_at.empty() ? plan.variants : looked_at;
    return plan;
}

Pointer made(const load::KernelRequest &request) {
    load::Failure failure;
    Pointer kernel = LoadedKernel::make(request, &failure);
    raise(failure);
    return kernel;
}

} // namespace

void raise(const load::Failure &failure) {
    if (failure) {
        throw Refusal(failure.code, failure.sentence);
    }
}

tools::Limits interruptible(tools::Limits limits) {
    limits.while_waiting = [] {
        const ForkMeanwhile forks; // the thread that forks has Python's lock
        const WithLock held;
        if (PyErr_CheckSignals() != 0) { // looks in Python's main thread only
            throw Interrupted();
        }
    };
    return limits;
}

tools::Limits default_limits() {
    static const bool found = [] { // the compiler lies beside the module, in a wheel among the programs
        const std::filesystem::path folder = std::filesystem::path(load::own_file()).parent_path();
        std::error_code error;
        const std::filesystem::path in_wheel = folder / "bin" / "polyhead-generate";
        tools::set_compiler_program((std::filesystem::exists(in_wheel, error) ? in_wheel : folder / "polyhead-generate").string());
        return true;
    }();
    static_cast<void>(found);
    tools::Limits limits;
    if (const std::string sentence = tools::read_limits(&limits); !sentence.empty()) {
        throw Refusal(POLYHEAD_BAD_VALUE, sentence);
    }
    return interruptible(limits);
}

std::shared_ptr<const LoadedKernel> kernel_for(Problem problem, const std::vector<std::string> &targets, const std::string &tiling,
                                               const CallsOf &calls, const gen::TuningChoice &tuning, const tools::Limits &limits) {
    const std::string sentence = gen::complete(&problem);
    if (!sentence.empty()) {
        throw Refusal(POLYHEAD_BAD_VALUE, sentence);
    }
    Plan plan = plan_for(problem, targets, tiling, calls, tuning);
    const Key key = key_of(problem, targets, tiling, plan);
    std::promise<Pointer> promise;
    const std::shared_future<Pointer> mine = promise.get_future().share();
    std::shared_future<Pointer> found;
    while (Cache::of().find(key, mine, &found)) {
        while (found.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) {
            limits.while_waiting();
        }
        try {
            return found.get();
        } catch (const Interrupted &) { // only the thread that compiled it was interrupted
        }
    }
    Pointer kernel;
    try {
        kernel = made({problem, targets, tiling, tuning, std::move(plan), limits});
    } catch (...) {
        Cache::of().forget(key);                         // who comes later tries again
        promise.set_exception(std::current_exception()); // for those who wait
        throw;
    }
    promise.set_value(kernel);
    Cache::of().shrink(kernels_kept());
    return kernel;
}

namespace {

// The problem whose kernel serves most calls beside this one: other numbers of heads, lengths, masks of one row.
Problem common_problem(Problem p) {
    p.kv_lengths = 1;
    p.mask_broadcast &= ~POLYHEAD_BROADCAST_Q;
    if (p.scores == POLYHEAD_NO_SCORES && p.weights_mean == 0) {
        p.num_heads = p.num_kv_heads = p.group_size = 0;
        p.free_group_size = 1;
    }
    return p;
}

// The kernel for the best CPU level whose objects the bundle has, and that this process may run.
std::shared_ptr<const LoadedKernel> bundled_kernel_for(const Problem &problem, const tools::Limits &limits) {
    if (!load::has_bundle()) {
        return nullptr;
    }
    for (const std::string &target : gen::targets_of_word("portable", problem)) {
        if (!gen::this_cpu_has(gen::cpu_features_of(gen::parsed_target(target)))) {
            continue;
        }
        load::KernelRequest request;
        request.problem = problem;
        request.targets = {target};
        request.plan = plan_for(problem, request.targets, "", {}, {});
        if (LoadedKernel::is_bundled(request)) {
            return kernel_for(problem, request.targets, "", {}, {}, limits);
        }
    }
    return nullptr;
}

} // namespace

std::shared_ptr<const LoadedKernel> common_kernel_for(Problem problem, int64_t seq_len_q, const tools::Limits &limits) {
    if (const std::string sentence = gen::complete(&problem); !sentence.empty()) {
        throw Refusal(POLYHEAD_BAD_VALUE, sentence);
    }
    const CallsOf calls{seq_len_q, contract::group_size_of(problem)};
    const Problem common = common_problem(problem);
    if (Pointer ready = bundled_kernel_for(common, limits)) {
        return ready;
    }
    std::vector<std::string> targets;
    if (const std::string sentence = gen::read_targets("host", false, problem, &targets); !sentence.empty()) {
        throw Refusal(POLYHEAD_BAD_VALUE, sentence);
    }
    const Plan own = plan_for(problem, targets, "", calls, {});
    const auto is_tuned = [](const gen::VariantPlan &variant) { return !variant.record.empty(); };
    const bool tuned = std::any_of(own.variants.begin(), own.variants.end(), is_tuned);
    return kernel_for(tuned ? problem : common, targets, "", calls, {}, limits);
}

size_t kernels_kept() {
    constexpr size_t by_default = 256;
    static const size_t most = [] {
        const char *text = std::getenv("POLYHEAD_KERNELS_KEPT");
        char *end = nullptr;
        const unsigned long given = text && *text >= '0' && *text <= '9' ? std::strtoul(text, &end, 10) : 0;
        return end && *end == 0 ? size_t(given) : by_default;
    }();
    return most;
}

void clear_kernels() {
    const NoFork no_fork;
    Cache::of().shrink(0);
}

} // namespace polyhead::python
