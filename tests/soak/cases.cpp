// Records calls of the kernel table, and compares repetitions with them byte by byte.
#include "cases.h"

#include <cstdio>
#include <cstdlib>

#include "kernel_table.h"

#include "instruments/calls/call_tensors.h"
#include "support/environment.h"
#include "support/shapes.h"

namespace polyhead::soak {
namespace {

using namespace polyhead::test;

constexpr unsigned char canary = 0xA5;
constexpr double most_multiply_adds = 3e6;
constexpr int shapes_per_kernel = 3;

// Bytes from the lowest to the end of the highest element, and of those before the first.
struct Span {
    size_t bytes = 0, before = 0;
};

Span span_of(const polyhead_tensor &t) {
    int64_t low = 0, high = 1;
    for (int i = 0; i < t.rank; ++i) {
        const int64_t last = (t.shape[i] - 1) * t.stride[i];
        if (t.shape[i] == 0) {
            return {};
        }
        (last < 0 ? low : high) += last;
    }
    const auto bytes = static_cast<size_t>(dtype_bytes(t.dtype));
    return t.rank == 0 ? Span{} : Span{static_cast<size_t>(high - low) * bytes, static_cast<size_t>(-low) * bytes};
}

} // namespace

Case::Case(const KernelSubject &subject, const Shape &shape) : subject_(subject), inputs_(subject.subject().problem, shape) {}

polyhead_args Case::args(Memory *memory) const {
    polyhead_args args = inputs_.args();
    const std::vector<CallTensor> outputs = outputs_of(args.op);
    memory->resize(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
        polyhead_tensor &t = args.*outputs[i].tensor;
        const Span span = span_of(t);
        (*memory)[i].assign(span.bytes, canary);
        if (span.bytes > 0) {
            t.data = (*memory)[i].data() + span.before;
            t.offset = 0;
        }
    }
    return args;
}

std::string Case::record() {
    const polyhead_status status = run(args(&expected_));
    return status.code == POLYHEAD_OK ? "" : name() + ": " + status.message;
}

Case::Outcome Case::run() const {
    Memory found;
    const polyhead_args call = args(&found);
    Memory before(found.size());
    for (size_t i = 0; i < found.size(); ++i) {
        before[i].assign(found[i].size(), canary);
    }
    Outcome outcome{run(call), false, false};
    outcome.right = found == expected_;
    outcome.written = found != before;
    return outcome;
}

std::vector<std::unique_ptr<Case>> recorded_cases(std::vector<std::unique_ptr<KernelSubject>> *subjects) {
    std::vector<std::unique_ptr<Case>> cases;
    const uint64_t seed = text_seed(sweep_seed_text());
    for (const Kernel *kernel : kernel_table) {
        if (!kernel->supported()) {
            continue; // EXCLUDED: kernels without a variant for this CPU: POLYHEAD_UNSUPPORTED (c_api.h)
        }
        subjects->push_back(std::make_unique<KernelSubject>(*kernel, seed));
        int taken = 0;
        for (Shape &shape : awkward_shapes(kernel->problem, seed ^ text_seed(kernel->name), 12)) {
            shape.values = Values::normal; // no NaN in the answers: bytes are compared
            shape.poison = false;
            if (multiply_adds(kernel->problem, shape) > most_multiply_adds || taken == shapes_per_kernel) {
                continue; // EXCLUDED: long calls: a soak needs many short ones; the label kernels runs long ones
            }
            auto one = std::make_unique<Case>(*subjects->back(), shape);
            const std::string refusal = one->record();
            if (!refusal.empty()) {
                std::printf("%s: %s\n", kernel->name, refusal.c_str());
                std::exit(1);
            }
            cases.push_back(std::move(one));
            ++taken;
        }
    }
    return cases;
}

} // namespace polyhead::soak
