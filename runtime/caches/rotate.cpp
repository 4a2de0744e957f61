// Rotation by position as an operation of its own.
#include "../call/call_guard.h"
#include "../call/resources.h"
#include "../threads/floating_point.h"
#include "../threads/for_each_row.h"
#include "head_rows.h"

namespace polyhead::runtime {
namespace {

// Of [B,H,T,d].
TokenRows all_tokens(const polyhead_tensor &input) noexcept {
    return {input.shape[0], input.shape[2], nullptr, nullptr};
}

bool check_rotate(const polyhead_tensor &input, const polyhead_rotation &rotation, const contract::RopeSections &sections,
                  const polyhead_tensor &out, polyhead_status *status) noexcept {
    return check_rows(input, out, status) && Rotation::check(rotation, sections, all_tokens(input), input.shape[3], status) &&
           check_in_place("out", out, "input", input, status) && check_in_place("out", out, "rope_cos", rotation.cos, status) &&
           check_in_place("out", out, "rope_sin", rotation.sin, status) &&
           check_in_place("out", out, "positions", rotation.positions, status);
}

} // namespace
} // namespace polyhead::runtime

polyhead_status polyhead_rotate(const polyhead_tensor *input, const polyhead_rotation *rotation, const polyhead_tensor *out) {
    return polyhead_rotate_in(nullptr, input, rotation, out);
}

polyhead_status polyhead_rotate_in(const polyhead_workspace *given_workspace, const polyhead_tensor *input,
                                   const polyhead_rotation *rotation, const polyhead_tensor *out) {
    return polyhead_rotate_sections_in(given_workspace, input, rotation, nullptr, out);
}

polyhead_status polyhead_rotate_sections_in(const polyhead_workspace *given_workspace, const polyhead_tensor *input,
                                            const polyhead_rotation *rotation, const polyhead_sections *given_sections,
                                            const polyhead_tensor *out) {
    using namespace polyhead::runtime;
    const CallGuard guard;
    const DefinedArithmetic arithmetic;
    polyhead_status status = success();
    if (!input || !rotation || !out) {
        refuse(&status, POLYHEAD_NULL_POINTER, "%s: null pointer, expected a struct", !input ? "input" : !rotation ? "rotation" : "out");
        return status;
    }
    GivenWorkspace workspace;
    const polyhead::contract::RopeSections sections = given_sections ? sections_of(*given_sections) : polyhead::contract::RopeSections();
    const Rotation rotate(*rotation, sections, nullptr);
    if (!workspace.read(given_workspace, &status) || !check_rotate(*input, *rotation, sections, *out, &status) || empty(*out) ||
        !rotate.check_positions(all_tokens(*input), &status)) {
        return status;
    }
    const int64_t heads = input->shape[1], tokens = input->shape[2], width = input->shape[3];
    Workers workers(workspace.executor);
    for_each_row(input->shape[0] * heads, input->shape[0] * heads * tokens * width * 4, &workers, [&](int64_t i) {
        for (int64_t t = 0; t < tokens; ++t) {
            float floats[most_head_dim];
            load_floats(head_row(*input, i / heads, i % heads, t), input->dtype, width, floats);
            if (rotate.rotates()) {
                rotate.apply(floats, width, {i / heads, t, i / heads, t});
            }
            store_floats(floats, width, out->dtype, head_row(*out, i / heads, i % heads, t));
        }
    });
    say_fault(workers, &status);
    return status;
}
