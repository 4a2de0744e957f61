// Kernels of this process by problem, target and tiling.
#include <future>
#include <map>
#include <mutex>
#include <tuple>

#include "errors.h"
#include "loaded_kernel.h"

namespace polyhead::python {
namespace {

using Pointer = std::shared_ptr<const LoadedKernel>;
using Key = std::tuple<std::vector<int32_t>, std::string, std::string, std::string>;

struct Cache {
    std::mutex mutex;
    std::map<Key, std::shared_future<Pointer>> kernels;
};

// Never destroyed: kernels may be wanted while the process ends.
Cache &cache() {
    static Cache *const all = new Cache;
    return *all;
}

Key key_of(const Problem &p, const std::string &target, const std::string &tiling) {
    std::vector<int32_t> numbers;
#define POLYHEAD_NUMBER(name) numbers.push_back(p.name);
    POLYHEAD_PROBLEM_FIELDS(POLYHEAD_NUMBER)
#undef POLYHEAD_NUMBER
    return {numbers, p.expression ? p.expression : "", target, tiling};
}

} // namespace

std::shared_ptr<const LoadedKernel> kernel_for(Problem problem, const std::string &target, const std::string &tiling) {
    const std::string sentence = gen::complete(&problem);
    if (!sentence.empty()) {
        throw Refusal(POLYHEAD_BAD_VALUE, sentence);
    }
    const Key key = key_of(problem, target, tiling);
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
        const auto kernel = std::make_shared<const LoadedKernel>(problem, target, tiling);
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
