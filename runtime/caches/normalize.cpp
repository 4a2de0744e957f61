// Norms of rows of heads as an operation of its own.
#include "../call/call_guard.h"
#include "../call/resources.h"
#include "../rules/served.h"
#include "../threads/floating_point.h"
#include "../threads/for_each_row.h"
#include "head_norm.h"
#include "head_rows.h"

namespace polyhead::runtime {
namespace {

bool check_normalize(const polyhead_tensor &input, const polyhead_head_norm &norm, const HeadNorm &normalize, const polyhead_tensor &out,
                     polyhead_status *status) noexcept {
    return check_rows(input, out, status) && normalize.check({"norm", "weight", "bias"}, input.shape[3], status) &&
           check_epsilon("epsilon", norm.epsilon, normalize.normalizes(), status) &&
           (norm.reserved == 0 || refuse(status, POLYHEAD_UNSUPPORTED, "norm: reserved %u, expected 0", norm.reserved)) &&
           check_in_place("out", out, "input", input, status) && check_in_place("out", out, "weight", norm.weight, status) &&
           check_in_place("out", out, "bias", norm.bias, status);
}

} // namespace
} // namespace polyhead::runtime

polyhead_status polyhead_normalize(const polyhead_tensor *input, const polyhead_head_norm *norm, const polyhead_tensor *out) {
    return polyhead_normalize_in(nullptr, input, norm, out);
}

polyhead_status polyhead_normalize_in(const polyhead_workspace *given_workspace, const polyhead_tensor *input,
                                      const polyhead_head_norm *norm, const polyhead_tensor *out) {
    using namespace polyhead::runtime;
    const CallGuard guard;
    const DefinedArithmetic arithmetic;
    polyhead_status status = success();
    if (!input || !norm || !out) {
        refuse(&status, POLYHEAD_NULL_POINTER, "%s: null pointer, expected a struct", !input ? "input" : !norm ? "norm" : "out");
        return status;
    }
    polyhead_head_norm room;
    GivenWorkspace workspace;
    norm = served(*norm, &room, {"norm", of_struct, of_headers}, &status);
    if (!norm || !workspace.read(given_workspace, &status)) {
        return status;
    }
    const HeadNorm normalize(norm->norm, norm->weight, norm->bias, norm->epsilon);
    if (!check_normalize(*input, *norm, normalize, *out, &status) || empty(*out)) {
        return status;
    }
    const int64_t heads = input->shape[1], tokens = input->shape[2], width = input->shape[3];
    Workers workers(workspace.executor);
    for_each_row(input->shape[0] * heads, input->shape[0] * heads * tokens * width * 4, &workers, [&](int64_t i) {
        for (int64_t t = 0; t < tokens; ++t) {
            float floats[most_head_dim];
            load_floats(head_row(*input, i / heads, i % heads, t), input->dtype, width, floats);
            if (normalize.normalizes()) {
                normalize.apply(floats, width);
            }
            store_floats(floats, width, out->dtype, head_row(*out, i / heads, i % heads, t));
        }
    });
    say_fault(workers, &status);
    return status;
}
