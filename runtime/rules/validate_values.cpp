// Checks numbers of a call, and what its integer tensors on the host hold: key lengths, offsets, positions.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>

#include "../../contract/tensors.h"
#include "../call/needed_keys.h"
#include "../status.h"
#include "tensor_rules.h"
#include "validate_parts.h"

namespace polyhead::runtime {
namespace {

// Lengths and offsets up to here leave every distance of a query and a key below window_unbounded.
constexpr int64_t position_limit = window_unbounded / 2;

bool check_scale(const polyhead_problem &p, const polyhead_args &args, polyhead_status *status) noexcept {
    if (!args.has_softmax_scale) {
        return true;
    }
    if (!attends(p)) {
        return refuse(status, POLYHEAD_WRONG_OPERATION, "softmax_scale: given, expected none, because the kernel is a linear layer");
    }
    // The kernel multiplies by log2 e as well; the product must stay finite.
    if (!std::isfinite(args.softmax_scale * 1.4426951f)) {
        return refuse(status, POLYHEAD_BAD_VALUE, "softmax_scale: value %s, expected a finite number below 2.3e38",
                      NumberText(args.softmax_scale).text);
    }
    return true;
}

bool check_alignment(const polyhead_problem &p, const polyhead_args &args, polyhead_status *status) noexcept {
    if (args.alignment < POLYHEAD_NOT_CAUSAL || args.alignment > POLYHEAD_TOP_LEFT) {
        return refuse(status, POLYHEAD_BAD_VALUE, "alignment: value %d, expected 0 (of the problem), 1 (bottom_right) or 2 (top_left)",
                      args.alignment);
    }
    if (args.alignment != 0 && (!attends(p) || !knows_positions(p))) {
        return refuse(status, POLYHEAD_BAD_VALUE,
                      "alignment: value %d, expected 0, because the kernel uses no positions (causal, window, alibi, rope)",
                      args.alignment);
    }
    return true;
}

bool check_span(const char *name, int32_t span, polyhead_status *status) noexcept {
    if (span >= -1) {
        return true;
    }
    return refuse(status, POLYHEAD_BAD_VALUE, "%s: value %d, a negative span, expected -1 (unbounded), 0 or more", name, span);
}

bool check_window(const polyhead_problem &p, const polyhead_args &args, polyhead_status *status) noexcept {
    if (!args.has_window) {
        return true;
    }
    if (!p.window || !attends(p)) {
        return refuse(status, POLYHEAD_WRONG_OPERATION, "window: given, expected none, because the kernel was built without window");
    }
    return check_span("window_left", args.window_left, status) && check_span("window_right", args.window_right, status);
}

bool check_given(const NumberRow &row, const polyhead_problem &p, const polyhead_args &args, polyhead_status *status) noexcept {
    const float value = args.*row.given;
    if (!takes(p, row)) {
        return value == 0 || refuse(status, POLYHEAD_WRONG_OPERATION, "%s: given, expected none, because the kernel was built without %s",
                                    row.name, row.feature ? row.feature : row.name);
    }
    if (value >= row.least && value <= row.most) { // false for NaN
        return true;
    }
    return refuse(status, POLYHEAD_BAD_VALUE, "%s: value %s, expected %s", row.name, NumberText(value).text, row.allowed);
}

bool check_range(const char *name, const polyhead_tensor &t, int64_t least, int64_t most, const char *meaning, polyhead_status *status,
                 int64_t direction = -1) noexcept {
    if (!readable(t)) {
        return true;
    }
    for (int64_t row = 0; row < t.shape[0]; ++row) {
        for (int64_t column = 0; column < (t.rank > 1 ? t.shape[1] : 1); ++column) {
            const int32_t value = integer_at(t, row, column);
            if (value >= least && value <= most) {
                continue;
            }
            char place[64];
            const auto i = static_cast<long long>(row), j = static_cast<long long>(column);
            direction < 0 ? std::snprintf(place, sizeof place, t.rank > 1 ? "%lld, %lld" : "%lld of dimension 0", i, j)
                          : std::snprintf(place, sizeof place, "%lld, %lld, %lld", i, static_cast<long long>(direction), j);
            return refuse(status, POLYHEAD_BAD_VALUE, "%s: value %d at index %s, expected %lld to %lld (%s)", name, value, place,
                          static_cast<long long>(least), static_cast<long long>(most), meaning);
        }
    }
    return true;
}

// [B,T], or [B,S,T] with sections.
bool check_positions(const char *name, const polyhead_tensor &t, int64_t last, polyhead_status *status) noexcept {
    constexpr const char meaning[] = "rows of rope_cos";
    if (t.rank < 3) {
        return check_range(name, t, 0, last, meaning, status);
    }
    for (int64_t direction = 0; direction < t.shape[1]; ++direction) {
        if (!check_range(name, of_direction(t, direction), 0, last, meaning, status, direction)) {
            return false;
        }
    }
    return true;
}

// Entries of the page table behind the keys of a row are not read, by nobody.
bool check_pages(const polyhead_problem &p, const polyhead_args &args, const CallShape &s, polyhead_status *status) noexcept {
    const bool lengths_known = absent(args.kv_lengths) || readable(args.kv_lengths);
    if (!lengths_known || !readable(args.page_table)) {
        return true;
    }
    const int64_t pages = args.key.shape[0];
    for (int64_t b = 0; b < s.batch; ++b) {
        const int64_t length = absent(args.kv_lengths) ? s.seq_len_kv : index_at(args.kv_lengths, s.seq_len_kv, b);
        if (!check_page_row(args.page_table, b, (length + p.page_size - 1) / p.page_size, pages, "key", status)) {
            return false;
        }
    }
    return pages > 0 || s.no_pairs() ||
           refuse(status, POLYHEAD_WRONG_SHAPE, "key: extent 0 of dimension 0, expected at least 1 page, because page_table has pages");
}

// Whether queries at negative positions, of which `last` is the last, see a key. (Where they see none, they need no rotation.)
bool sees_from(const polyhead_problem &p, const polyhead_args &args, int64_t last) noexcept {
    return p.causal == POLYHEAD_NOT_CAUSAL && last + window_right_of(p, args) >= 0;
}

// Without position tensors, positions follow from lengths. If these are known here, the tables must have rows for all positions.
bool check_rope_rows(const polyhead_problem &p, const polyhead_args &args, const CallShape &s, polyhead_status *status) noexcept {
    const polyhead_tensor &lengths = p.cache ? args.cache_lengths : args.kv_lengths;
    const int64_t added = p.cache ? s.seq_len_q : 0; // to the keys that were valid before
    const bool lengths_known = absent(lengths) || readable(lengths),
               offsets_known = absent(args.position_offsets) || readable(args.position_offsets);
    const bool from_end = counts_from_end(p, args);
    const int64_t rows = args.rope_cos.shape[0];
    const bool query_known = absent(args.positions_q) && offsets_known && (lengths_known || !from_end);
    int64_t last_query = 0, last_key = 0;
    for (int64_t b = 0; b < s.batch; ++b) {
        const int64_t length = absent(lengths) || !lengths_known ? s.seq_len_kv : integer_at(lengths, b) + added;
        const int64_t offset = absent(args.position_offsets) || !offsets_known ? 0 : integer_at(args.position_offsets, b);
        const int64_t first = (from_end ? length - s.seq_len_q : 0) + offset, last = first + s.seq_len_q - 1;
        if (query_known && first < 0 && length > 0 && sees_from(p, args, std::min<int64_t>(last, -1))) {
            return refuse(
                status, POLYHEAD_BAD_VALUE,
                "positions_q: missing, and query 0 of batch row %lld is at position %lld, expected at least 0, where rope_cos begins",
                static_cast<long long>(b), static_cast<long long>(first));
        }
        last_query = std::max(last_query, last);
        last_key = std::max(last_key, length - 1);
    }
    if (query_known && last_query >= rows) {
        return refuse(
            status, POLYHEAD_WRONG_SHAPE,
            "rope_cos: extent %lld of dimension 0, expected at least %lld: without positions_q the last query is at position %lld",
            static_cast<long long>(rows), static_cast<long long>(last_query + 1), static_cast<long long>(last_query));
    }
    if (absent(args.positions_kv) && p.shared_cache == 0 && lengths_known && last_key >= rows) {
        return refuse(status, POLYHEAD_WRONG_SHAPE,
                      "rope_cos: extent %lld of dimension 0, expected at least %lld: without positions_kv the last key is at position %lld",
                      static_cast<long long>(rows), static_cast<long long>(last_key + 1), static_cast<long long>(last_key));
    }
    return true;
}

// Positions, distances and lengths in whole tiles are 32-bit integers to kernels.
bool check_distances(const polyhead_problem &p, const CallShape &s, polyhead_status *status) noexcept {
    const bool positions = knows_positions(p);
    const int power = p.window ? 27 : positions ? 29 : 30;
    const int64_t most = int64_t(1) << power;
    if (std::max(s.seq_len_q, s.seq_len_kv) <= most) {
        return true;
    }
    const bool query = s.seq_len_q > most;
    return refuse(status, POLYHEAD_UNSUPPORTED, "%s: value %lld, expected at most 2^%d%s", query ? "seq_len_q" : "seq_len_kv",
                  static_cast<long long>(query ? s.seq_len_q : s.seq_len_kv), power,
                  p.window    ? ", because the kernel was built with window"
                  : positions ? ", because the kernel uses positions (causal, alibi, rope, position offsets, an expression)"
                              : "");
}

} // namespace

bool check_numbers(const polyhead_problem &problem, const polyhead_args &args, polyhead_status *status) noexcept {
    return check_scale(problem, args, status) && check_alignment(problem, args, status) && check_window(problem, args, status) &&
           std::all_of(std::begin(numbers), std::end(numbers),
                       [&](const NumberRow &row) { return !row.given || check_given(row, problem, args, status); });
}

bool check_values(const polyhead_problem &problem, const polyhead_args &args, const CallShape &shape, Workers *workers,
                  polyhead_status *status) noexcept {
    if (shape.reads_nothing()) {
        return true;
    }
    if (!check_distances(problem, shape, status) ||
        !check_range("kv_lengths", args.kv_lengths, 0, shape.seq_len_kv, "seq_len_kv", status) ||
        !check_range("position_offsets", args.position_offsets, -position_limit, position_limit, "2^27", status)) {
        return false;
    }
    if (problem.cache && !check_cache_values(problem, args, shape, status)) {
        return false;
    }
    if (problem.page_size > 0 && !problem.cache && !check_pages(problem, args, shape, status)) {
        return false;
    }
    if (problem.int8_cache != 0 && !check_scales(problem, args, shape, workers, status)) {
        return false;
    }
    if (problem.rope == POLYHEAD_NO_ROPE) {
        return true;
    }
    const int64_t last = args.rope_cos.shape[0] - 1;
    return check_positions("positions_q", args.positions_q, last, status) &&
           check_positions("positions_kv", args.positions_kv, last, status) && check_rope_rows(problem, args, shape, status);
}

} // namespace polyhead::runtime
