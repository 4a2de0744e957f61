// The extents that a call's tensors must have.
#include "bound_extents.h"

#include <algorithm>

#include "../call/call_tensors.h"

namespace polyhead::runtime {
namespace {

// Lengths, which a tensor gives to those behind it; widths are those of the problem, and so are key/value heads unless they are free.
bool is_length(int32_t what, const polyhead_problem &problem) noexcept {
    return (what < POLYHEAD_EXTENT_FREE && what >= POLYHEAD_EXTENT_KV) || what == extent_rows || what == extent_pages ||
           what == extent_blocks || what == extent_block_keys || (what == extent_kv_heads && problem.free_group_size != 0);
}

} // namespace

BoundExtents::BoundExtents(const polyhead_problem &problem, bool packed_q, bool packed_kv) noexcept
    : problem_(problem), free_heads_(free_heads(problem)), packed_q_(packed_q), packed_kv_(packed_kv) {
    if (attends_itself(problem) && problem.cache == 0) { // either length is both
        problem_.seq_len_q = problem_.seq_len_kv = std::max(problem.seq_len_q, problem.seq_len_kv);
    }
}

bool BoundExtents::is_packed(int32_t what) const noexcept {
    if (!packed_q_ && !packed_kv_) {
        return false;
    }
    const int32_t length = counted(what, problem_);
    return (length == POLYHEAD_EXTENT_Q && packed_q_) || (length == POLYHEAD_EXTENT_KV && packed_kv_);
}

// A fixed length holds for each sequence of packed tokens, and the rules of parts check it.
int64_t BoundExtents::fixed(int32_t what) const noexcept {
    const int32_t extent = is_packed(what) ? 0 : fixed_extent(what, problem_);
    return extent > 0 ? extent : any_extent;
}

Extent BoundExtents::expected(int32_t declared) const noexcept {
    if (declared < POLYHEAD_EXTENT_FREE && given_[-declared].extent != any_extent) {
        return given_[-declared];
    }
    const int32_t what = counted(declared, problem_);
    return what != declared ? expected(what) : Extent{fixed(what)};
}

void BoundExtents::expected(const int32_t *declared, int32_t rank, Extent *extents) const noexcept {
    const bool packed = std::any_of(declared, declared + rank, [&](int32_t d) { return is_packed(d); });
    for (int i = 0; i < rank; ++i) {
        const bool batch = counted(declared[i], problem_) == POLYHEAD_EXTENT_B;
        extents[i] = packed && batch ? Extent{1, "calls with packed tokens"} : expected(declared[i]);
    }
}

void BoundExtents::give(int32_t declared, int64_t extent, const char *as_in) noexcept {
    given_[-declared] = {extent, as_in};
    if (declared == POLYHEAD_EXTENT_H) {
        problem_ = with_heads(problem_, extent, 0);
    } else if (declared == extent_kv_heads) {
        problem_.num_kv_heads = static_cast<int32_t>(extent);
    }
}

void BoundExtents::give(const TensorRow &row, const polyhead_tensor &tensor) noexcept {
    const bool packed = std::any_of(row.extents, row.extents + row.rank, [&](int32_t d) { return is_packed(d); });
    for (int i = 0; i < row.rank; ++i) {
        const int32_t what = row.extents[i], counts = counted(what, problem_);
        if (!is_length(what, problem_) || (packed && counts == POLYHEAD_EXTENT_B)) {
            continue;
        }
        const char *as_in = what == POLYHEAD_EXTENT_H && !free_heads_ ? nullptr : said_of(row);
        for (const int32_t given : {what, counts}) {
            if (given_[-given].extent == any_extent) {
                give(given, tensor.shape[i], as_in);
            }
        }
    }
}

CallShape BoundExtents::shape() const noexcept {
    const auto length = [&](int32_t what, int64_t otherwise) {
        return given_[-what].extent != any_extent ? given_[-what].extent : otherwise;
    };
    CallShape shape;
    shape.batch = length(POLYHEAD_EXTENT_B, 1);
    shape.seq_len_q = length(POLYHEAD_EXTENT_Q, length(extent_rows, 0));
    shape.seq_len_kv = length(POLYHEAD_EXTENT_KV, 1);
    shape.num_heads = attends(problem_) ? problem_.num_heads : 1;
    shape.num_kv_heads = attends(problem_) ? problem_.num_kv_heads : 1;
    shape.backward = is_backward(problem_);
    const bool of_layer = is_backward(problem_) && is_attention_layer(problem_);
    shape.sums_rows = of_layer || problem_.grad_score_bias != 0 || problem_.grad_alibi != 0 || problem_.grad_sinks != 0 ||
                      problem_.grad_query_norm != 0 || problem_.grad_key_norm != 0;
    shape.packed_q = packed_q_;
    shape.packed_kv = packed_kv_;
    return shape;
}

} // namespace polyhead::runtime
