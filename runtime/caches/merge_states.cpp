// Merges what attention over parts of the keys gave.
#include <algorithm>
#include <cmath>
#include <limits>

#include "../call/call_guard.h"
#include "../call/resources.h"
#include "../rules/shared_elements.h"
#include "../threads/floating_point.h"
#include "../threads/for_each_row.h"
#include "head_rows.h"

namespace polyhead::runtime {
namespace {

// The states of one call of polyhead_merge_states.
struct Merge {
    const polyhead_state *parts;
    int32_t num_parts;
    const polyhead_tensor *sinks; // or null
    const polyhead_tensor &out;
    const polyhead_tensor *lse; // or null

    bool check(polyhead_status *status) const noexcept {
        if (num_parts < 1) {
            return refuse(status, POLYHEAD_BAD_VALUE, "num_parts: value %d, expected at least 1", num_parts);
        }
        if (!check_storage("out", out, status) || !check_host_tensor({"out", &out, out.dtype, Role::output, 4, {}}, status)) {
            return false;
        }
        const auto as_out = [&](int i) { return Extent{out.shape[i], "out"}; };
        if (lse && !check_host_tensor({"lse", lse, POLYHEAD_F32, Role::output, 3, {as_out(0), as_out(1), as_out(2)}}, status)) {
            return false;
        }
        if (lse && !check_apart("lse", *lse, "out", out, Apart::elements, status)) {
            return false;
        }
        if (sinks && (!check_host_tensor({"sinks", sinks, POLYHEAD_F32, Role::input, 1, {as_out(1)}}, status) ||
                      !check_apart("out", out, "sinks", *sinks, Apart::elements, status) ||
                      (lse && !check_apart("lse", *lse, "sinks", *sinks, Apart::elements, status)))) {
            return false;
        }
        for (int32_t i = 0; i < num_parts; ++i) {
            if (!check_part(parts[i], status)) {
                return false;
            }
        }
        return true;
    }

    bool check_part(const polyhead_state &part, polyhead_status *status) const noexcept {
        const auto as_out = [&](int i) { return Extent{out.shape[i], "out"}; };
        return check_host_tensor({"out of a part", &part.out, out.dtype, Role::input, 4, {as_out(0), as_out(1), as_out(2), as_out(3)}},
                                 status) &&
               check_host_tensor({"lse of a part", &part.lse, POLYHEAD_F32, Role::input, 3, {as_out(0), as_out(1), as_out(2)}}, status) &&
               check_in_place("out", out, "out of a part", part.out, status) &&
               check_apart("out", out, "lse of a part", part.lse, Apart::elements, status) &&
               (!lse || (check_in_place("lse", *lse, "lse of a part", part.lse, status) &&
                         check_apart("lse", *lse, "out of a part", part.out, Apart::elements, status)));
    }

    // Some libraries give +inf for no keys. Its weight is no number.
    bool check_sums(polyhead_status *status) const noexcept {
        const int64_t heads = out.shape[1], queries = out.shape[2], rows = out.shape[0] * heads * queries;
        for (int32_t i = 0; i < num_parts; ++i) {
            for (int64_t row = 0; row < rows; ++row) {
                const int64_t b = row / (heads * queries), h = row / queries % heads, q = row % queries;
                if (lse_at(parts[i].lse, b, h, q) == std::numeric_limits<float>::infinity()) {
                    return refuse(
                        status, POLYHEAD_BAD_VALUE,
                        "lse of a part: value inf at index %lld, %lld, %lld of part %d, expected a finite number, or -inf where the "
                        "part has no key",
                        static_cast<long long>(b), static_cast<long long>(h), static_cast<long long>(q), i);
                }
            }
        }
        return true;
    }

    // Whether there is anything to write.
    bool writes() const noexcept { return !empty(out) || (lse && !empty(*lse)); }

    static float &lse_at(const polyhead_tensor &t, int64_t b, int64_t h, int64_t q) noexcept {
        return static_cast<float *>(t.data)[t.offset + b * t.stride[0] + h * t.stride[1] + q * t.stride[2]];
    }

    // Pieces of head_dim_v that fit on the stack; every element of out is read from all parts before it is written.
    void row(int64_t b, int64_t h, int64_t q) const noexcept {
        constexpr int64_t piece = 256;
        constexpr float nothing = -std::numeric_limits<float>::infinity();
        float largest = nothing;
        for (int32_t i = 0; i < num_parts; ++i) {
            largest = std::max(largest, lse_at(parts[i].lse, b, h, q));
        }
        const bool empty = largest == nothing;
        const float sink = sinks && !empty ? static_cast<const float *>(sinks->data)[sinks->offset + h * (sinks->shape[0] > 1)] : nothing;
        largest = std::max(largest, sink);
        const auto weight = [&](int32_t i) {
            const float part = lse_at(parts[i].lse, b, h, q);
            return part == nothing ? 0.0f : std::exp(part - largest);
        };
        float sum = sink == nothing ? 0.0f : std::exp(sink - largest);
        for (int32_t i = 0; i < num_parts; ++i) {
            sum += weight(i);
        }
        const int64_t width = out.shape[3];
        float merged[piece], element[piece];
        for (int64_t first = 0; first < width; first += piece) {
            const int64_t count = std::min(piece, width - first), bytes = first * dtype_bytes(out.dtype);
            std::fill(merged, merged + count, 0.0f);
            for (int32_t i = 0; i < num_parts; ++i) {
                const float share = empty ? 0.0f : weight(i) / sum;
                if (share == 0.0f) {
                    continue; // its out may be anything
                }
                load_floats(head_row(parts[i].out, b, h, q) + bytes, out.dtype, count, element);
                for (int64_t d = 0; d < count; ++d) {
                    merged[d] += share * element[d];
                }
            }
            store_floats(merged, count, out.dtype, head_row(out, b, h, q) + bytes);
        }
        if (lse) {
            lse_at(*lse, b, h, q) = empty ? nothing : largest + std::log(sum);
        }
    }
};

} // namespace
} // namespace polyhead::runtime

polyhead_status polyhead_merge_states(const polyhead_state *parts, int32_t num_parts, const polyhead_tensor *sinks,
                                      const polyhead_tensor *out, const polyhead_tensor *lse) {
    return polyhead_merge_states_in(nullptr, parts, num_parts, sinks, out, lse);
}

polyhead_status polyhead_merge_states_in(const polyhead_workspace *given_workspace, const polyhead_state *parts, int32_t num_parts,
                                         const polyhead_tensor *sinks, const polyhead_tensor *out, const polyhead_tensor *lse) {
    using namespace polyhead::runtime;
    const CallGuard guard;
    const DefinedArithmetic arithmetic;
    polyhead_status status = success();
    if (!parts || !out) {
        refuse(&status, POLYHEAD_NULL_POINTER, "%s: null pointer, expected %s", parts ? "out" : "parts",
               parts ? "a tensor" : "an array of states");
        return status;
    }
    const Merge merge{parts, num_parts, sinks, *out, lse};
    GivenWorkspace workspace;
    if (!workspace.read(given_workspace, &status) || !merge.check(&status) || !merge.writes() || !merge.check_sums(&status)) {
        return status;
    }
    const int64_t heads = out->shape[1], queries = out->shape[2], rows = out->shape[0] * heads * queries;
    Workers workers(workspace.executor);
    for_each_row(rows, rows * out->shape[3] * 4 * num_parts, &workers,
                 [&](int64_t i) { merge.row(i / (heads * queries), i / queries % heads, i % queries); });
    say_fault(workers, &status);
    return status;
}
