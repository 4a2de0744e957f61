// What tests ask the driver beyond CUDA: the last problem, counts of instructions, launches and allocations.
#include "state.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace polyhead::cuda_driver;

namespace {

Count total(const char *opcode) {
    State &s = state();
    const std::lock_guard<std::recursive_mutex> guard(s.lock);
    const std::string wanted = opcode;
    Count sum;
    for (const auto &[name, count] : s.counts) {
        const bool fits = wanted.empty() || name == wanted || name.compare(0, wanted.size() + 1, wanted + ".") == 0;
        sum.warps += fits ? count.warps : 0;
        sum.threads += fits ? count.threads : 0;
        sum.traffic += fits ? count.traffic : 0;
    }
    return sum;
}

} // namespace

const char *polyhead_cuda_driver_error() {
    thread_local std::string text;
    State &s = state();
    const std::lock_guard<std::recursive_mutex> guard(s.lock);
    text = s.problem;
    return text.c_str();
}

// For programs that do not ask themselves.
__attribute__((destructor)) static void write_statistics() {
    const char *name = std::getenv("POLYHEAD_CUDA_DRIVER_STATISTICS");
    if (std::FILE *file = name ? std::fopen(name, "w") : nullptr) {
        std::string text(polyhead_cuda_driver_statistics(nullptr, 0), ' ');
        polyhead_cuda_driver_statistics(text.data(), text.size());
        std::fputs(text.c_str(), file);
        std::fclose(file);
    }
}

uint64_t polyhead_cuda_driver_executed(const char *opcode) {
    return total(opcode).warps;
}
uint64_t polyhead_cuda_driver_executed_threads(const char *opcode) {
    return total(opcode).threads;
}
uint64_t polyhead_cuda_driver_traffic(const char *opcode) {
    return total(opcode).traffic;
}

size_t polyhead_cuda_driver_statistics(char *text, size_t bytes) {
    State &s = state();
    const std::lock_guard<std::recursive_mutex> guard(s.lock);
    std::string all;
    for (const auto &[name, count] : s.counts) {
        all.append(name).append(" ").append(std::to_string(count.warps)).append(" ").append(std::to_string(count.threads));
        all.append(s.count_traffic ? " " + std::to_string(count.traffic) : "").append("\n");
    }
    if (text && bytes > 0) {
        std::strncpy(text, all.c_str(), bytes);
        text[bytes - 1] = 0;
    }
    return all.size() + 1;
}

void polyhead_cuda_driver_reset_statistics() {
    State &s = state();
    const std::lock_guard<std::recursive_mutex> guard(s.lock);
    s.counts.clear();
    s.calls.clear();
    s.problem.clear();
}

uint64_t polyhead_cuda_driver_calls(const char *function) {
    State &s = state();
    const std::lock_guard<std::recursive_mutex> guard(s.lock);
    const std::string wanted = function;
    uint64_t sum = 0;
    for (const auto &[name, calls] : s.calls) {
        sum += wanted.empty() || name == wanted || name == wanted + "_v2" ? calls : 0;
    }
    return sum;
}

void polyhead_cuda_driver_execute(int executes) {
    State &s = state();
    const std::lock_guard<std::recursive_mutex> guard(s.lock);
    s.executes = executes != 0;
}

uint64_t polyhead_cuda_driver_launches(CUcontext context, CUstream stream) {
    State &s = state();
    const std::lock_guard<std::recursive_mutex> guard(s.lock);
    if (!context) {
        return s.launches;
    }
    if (!s.contexts.count(context)) {
        return 0;
    }
    const auto found = context->launches.find(stream);
    return found == context->launches.end() ? 0 : found->second;
}

uint64_t polyhead_cuda_driver_memory_in_use() {
    State &s = state();
    const std::lock_guard<std::recursive_mutex> guard(s.lock);
    uint64_t bytes = 0;
    for (const Device &device : s.devices) {
        bytes += device.memory.used();
    }
    return bytes;
}

uint64_t polyhead_cuda_driver_modules() {
    State &s = state();
    const std::lock_guard<std::recursive_mutex> guard(s.lock);
    return s.modules.size();
}

uint64_t polyhead_cuda_driver_allocations() {
    State &s = state();
    const std::lock_guard<std::recursive_mutex> guard(s.lock);
    uint64_t count = 0;
    for (const Device &device : s.devices) {
        count += device.memory.count();
    }
    return count;
}

uint64_t polyhead_cuda_driver_contexts() {
    State &s = state();
    const std::lock_guard<std::recursive_mutex> guard(s.lock);
    return s.contexts.size();
}

int polyhead_cuda_driver_max_registers() {
    State &s = state();
    const std::lock_guard<std::recursive_mutex> guard(s.lock);
    return s.max_registers;
}

void polyhead_cuda_driver_restart() {
    State &s = state();
    const std::lock_guard<std::recursive_mutex> guard(s.lock);
    s.clear();
    context_stack().clear();
}
