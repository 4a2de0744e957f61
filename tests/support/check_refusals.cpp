// Wrong arguments leave the outputs untouched.
#include <cmath>

#include "check.h"
#include "problems.h"

namespace polyhead::test {

namespace {

struct Mistake {
    std::string name;
    polyhead_args args;
    polyhead_code code;
};

void add_for_tensor(std::vector<Mistake> &mistakes, const polyhead_args &good, const std::string &name,
                    polyhead_tensor polyhead_args::*tensor) {
    if ((good.*tensor).rank == 0) {
        return;
    }
    const int inner = (good.*tensor).rank - 1;
    const auto add = [&](const std::string &what, polyhead_code code, auto change) {
        mistakes.push_back({name + ": " + what, good, code});
        change(mistakes.back().args.*tensor);
    };
    add("data null", POLYHEAD_NULL_POINTER, [](polyhead_tensor &t) { t.data = nullptr; });
    add("rank one less", POLYHEAD_WRONG_SHAPE, [](polyhead_tensor &t) { t.rank--; });
    add("innermost extent one more", POLYHEAD_WRONG_SHAPE, [inner](polyhead_tensor &t) { t.shape[inner]++; });
    add("negative extent", POLYHEAD_WRONG_SHAPE, [](polyhead_tensor &t) { t.shape[0] = -1; });
    if ((good.*tensor).shape[inner] > 1) { // the stride of a single element means nothing
        add("innermost stride 2", POLYHEAD_WRONG_STRIDE, [inner](polyhead_tensor &t) { t.stride[inner] = 2; });
    }
    add("another dtype", POLYHEAD_WRONG_DTYPE,
        [](polyhead_tensor &t) { t.dtype = t.dtype == POLYHEAD_BF16 ? POLYHEAD_F16 : POLYHEAD_BF16; });
}

std::vector<Mistake> mistakes_of(const Problem &p, const polyhead_args &good) {
    std::vector<Mistake> mistakes;
    add_for_tensor(mistakes, good, "query", &polyhead_args::query);
    add_for_tensor(mistakes, good, "key", &polyhead_args::key);
    add_for_tensor(mistakes, good, "value", &polyhead_args::value);
    add_for_tensor(mistakes, good, "out", &polyhead_args::out);
    add_for_tensor(mistakes, good, "lse", &polyhead_args::lse);
    const auto add = [&](const char *name, polyhead_code code, auto change) {
        mistakes.push_back({name, good, code});
        change(mistakes.back().args);
    };
    add("another operation", POLYHEAD_WRONG_OPERATION, [&p](polyhead_args &a) { a.op = is_linear(p) ? POLYHEAD_SDPA : POLYHEAD_LINEAR; });
    add("out aliases query", POLYHEAD_ALIASED, [](polyhead_args &a) { a.query.data = a.out.data; });
    if (good.out.shape[good.out.rank - 2] > 1) { // the stride of one row means nothing
        add("out rows overlap", POLYHEAD_WRONG_STRIDE, [](polyhead_args &a) { a.out.stride[a.out.rank - 2] = 0; });
    }
    if (!is_linear(p)) {
        add("softmax_scale NaN", POLYHEAD_BAD_VALUE, [](polyhead_args &a) {
            a.has_softmax_scale = 1;
            a.softmax_scale = NAN;
        });
        if (p.lse == 0) {
            add("lse for a kernel without", POLYHEAD_WRONG_OPERATION, [](polyhead_args &a) { a.lse = a.out; });
        } else {
            add("lse missing", POLYHEAD_NULL_POINTER, [](polyhead_args &a) { a.lse = polyhead_tensor{}; });
        }
    }
    return mistakes;
}

// One sentence, or nothing when the call was refused as it should be.
std::string refused(const Subject &subject, const Inputs &inputs, const std::string &name, const polyhead_args &args, polyhead_code code) {
    const polyhead_status status = subject.run(args);
    if (status.code == POLYHEAD_OK) {
        return name + ": accepted";
    }
    if (status.code != code) {
        return name + ": code " + std::to_string(status.code) + ", expected " + std::to_string(code) + " (" + status.message + ")";
    }
    if (status.message[0] == '\0') {
        return name + ": refused without a sentence";
    }
    return inputs.outputs_untouched() ? "" : name + ": refused, but an output was written";
}

} // namespace

std::string check_refusals(const Subject &subject, const Shape &shape) {
    const Inputs inputs(subject.problem, shape);
    std::string failures;
    for (const Mistake &mistake : mistakes_of(subject.problem, inputs.args())) {
        const std::string failure = refused(subject, inputs, mistake.name, mistake.args, mistake.code);
        failures += failure.empty() ? "" : "\n  " + failure;
    }
    if (subject.problem.kv_lengths != 0) {
        for (int32_t length : {-1, static_cast<int32_t>(shape.seq_len_kv) + 1}) {
            std::vector<int32_t> lengths(static_cast<size_t>(shape.batch), 0);
            lengths.back() = length;
            polyhead_args args = inputs.args();
            args.kv_lengths = TensorView(lengths.data(), DType::i32, {shape.batch}, {1});
            const std::string failure = refused(subject, inputs, "key length " + std::to_string(length), args, POLYHEAD_BAD_VALUE);
            failures += failure.empty() ? "" : "\n  " + failure;
        }
    }
    return failures.empty() ? "" : failures + reproduce(subject, shape);
}

} // namespace polyhead::test
