// Filling and laying out test tensors.
#include "inputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "../reference/reference.h"
#include "layouts.h"
#include "poison.h"
#include "problems.h"

namespace polyhead::test {

namespace {

float step_of_extreme(int64_t keys) {
    return std::floor(1954.0f / static_cast<float>(std::max<int64_t>(keys, 1)) * 4.0f) / 4.0f;
}

// Queries pick one component, keys hold distinct multiples of `step` in each: logits reach 5e5 and lie 512 * step or more apart.
void fill_extreme(const Tensor &query, const Tensor &key, float scale) {
    const int64_t dim = query.view.shape[3], keys = std::max<int64_t>(key.view.shape[2], 1);
    const float magnitude = 512.0f, step = step_of_extreme(keys);
    for_each_row(query.view, [&](float *row, int64_t, int64_t h, int64_t q) {
        std::fill(row, row + dim, 0.0f);
        row[(q + h) % dim] = ((q / dim) % 2 == 0 ? magnitude : -magnitude) / scale;
    });
    for_each_row(key.view, [&](float *row, int64_t b, int64_t h, int64_t n) {
        for (int64_t d = 0; d < dim; d++) {
            const int64_t place = (n * 7919 + d * 31 + h * 17 + b) % keys; // distinct for distinct n: keys < 7919, a prime
            row[d] = step * static_cast<float>(place - keys / 2);
        }
    });
}

constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();
constexpr float infinite = std::numeric_limits<float>::infinity();
constexpr int64_t spare_pages = 3; // that no batch row uses

} // namespace

void poison_row(float *row, int64_t features, int64_t position, int32_t dtype) {
    static constexpr float wide[] = {nan_value, 1e30f, infinite, -3e38f, -infinite, -1e30f};
    static constexpr float f16[] = {nan_value, 65504.0f, infinite, -65504.0f, -infinite, -6e4f}; // the huge numbers that it has
    const float *hostile = dtype == POLYHEAD_F16 ? f16 : wide;
    for (int64_t d = 0; d < features; d++) {
        row[d] = position % 7 == 0 ? hostile[d % 6] : hostile[position % 6];
    }
}

namespace {

// As huge as sums of them may be in the storage type; after two projections, and as gradients, less.
float huge_value(const Problem &p) {
    return p.dtype == POLYHEAD_F16 ? (is_backward(p) ? 1e2f : is_sdpa(p) ? 1e4f : 1e3f) : is_sdpa(p) ? 1e30f : 1e20f;
}

} // namespace

std::string describe(const Problem &problem, const Shape &s) {
    static const char *const values[] = {"normal", "peaked", "extreme_logits", "huge_values", "values_near_one"};
    std::string text = "batch " + std::to_string(s.batch) + " seq_len_q " + std::to_string(s.seq_len_q) + " seq_len_kv " +
                       std::to_string(s.seq_len_kv) + " query " + layout_name(s.query) + " key " + layout_name(s.key) + " value " +
                       layout_name(s.value) + " out " + layout_name(s.out) + " place " + place_name(s.place) + " values " +
                       values[static_cast<int>(s.values)] + " poison " + std::to_string(s.poison) + " poison_key " +
                       std::to_string(s.poison_key) + (s.poison_query < 0 ? "" : " poison_query " + std::to_string(s.poison_query)) +
                       " alignment " + std::to_string(static_cast<int>(s.alignment)) + " seed " + std::to_string(s.seed);
    if (s.softmax_scale) {
        text += " softmax_scale " + std::to_string(*s.softmax_scale);
    }
    if (!s.lengths.empty()) {
        text += " lengths";
        for (int32_t length : s.lengths) {
            text += " " + std::to_string(length);
        }
    }
    return text + describe(problem, s.extras);
}

Inputs::Inputs(const Problem &problem, const Shape &shape) : shape_(shape) {
    shape_.seq_len_kv = in_whole_pages(problem, shape.seq_len_kv);
    page_size_ = problem.page_size;
    if (problem.cache != 0) {
        fit_lengths(problem);
    }
    if (problem.int8_cache != 0) {
        constexpr int64_t most_exact = 254; // multiples of one scale, so that keys stay apart
        shape_.values = shape.values == Values::extreme_logits && shape_.seq_len_kv > most_exact ? Values::peaked : shape.values;
        shape_.poison_key = -1; // integers cannot be NaN
    }
    args_ = polyhead_args_of(problem.op);
    args_.has_softmax_scale = shape.softmax_scale.has_value();
    args_.softmax_scale = shape.softmax_scale.value_or(0.0f);
    args_.alignment = static_cast<int32_t>(shape.alignment);
    if (is_linear(problem)) {
        make_linear(problem);
    } else if (is_mha(problem)) {
        make_mha(problem);
    } else {
        make_sdpa(problem);
    }
    args_.query = query_.view;
    args_.key = key_.view;
    args_.value = value_.view;
    if (!is_linear(problem)) {
        make_lengths(problem);
        if (problem.cache != 0) {
            std::swap(args_.kv_lengths, args_.cache_lengths);
        }
        extras_ = ExtraTensors(problem, shape.extras, {shape.batch, shape.seq_len_q, shape_.seq_len_kv, shape.place}, shape.seed, &args_);
        make_score_outputs(problem);
        make_modifier_gradients(problem);
        make_expression_gradients(problem);
        poison(problem);
    }
    reference_args_ = args_;
    store(problem.dtype, query_, stored_query_, args_.query);
    if (problem.int8_cache != 0) {
        make_int8(problem);
        return;
    }
    store(problem.dtype, key_, stored_key_, args_.key);
    store(problem.dtype, value_, stored_value_, args_.value);
    if (is_backward(problem)) {
        make_forward_results(problem);
    } else if (problem.cache != 0) {
        make_caches(problem);
    } else if (problem.page_size != 0) {
        make_page_table(problem);
        key_pages_ = in_pages(key_, problem.page_size, shape.key);
        value_pages_ = value_.view.rank != 0 ? in_pages(value_, problem.page_size, shape.value) : Tensor();
        args_.key = key_pages_.view;
        args_.value = value_pages_.view;
        store(problem.dtype, key_pages_, stored_key_, args_.key);
        store(problem.dtype, value_pages_, stored_value_, args_.value);
    }
}

void Inputs::make_int8(const Problem &p) {
    const bool shared = key_.view.stride[0] == 0;
    const auto valid = [&](int64_t b, int64_t n) {
        bool in_length = n < key_length(p, args_, b);
        for (int64_t other = 0; shared && other < shape_.batch; other++) {
            in_length = in_length || n < key_length(p, args_, other);
        }
        return in_length;
    };
    const float scale = shape_.values == Values::extreme_logits ? step_of_extreme(shape_.seq_len_kv) : 0.0f;
    int8_key_ = to_int8(key_, {shape_.key, shape_.place, p.scale_channels, scale, valid});
    if (p.value_in_key == 0) {
        int8_value_ = to_int8(value_, {shape_.value, shape_.place, p.scale_channels, 0.0f, valid});
    }
    key_.memory.make_read_only();
    value_.memory.make_read_only();
    if (p.page_size != 0) {
        make_page_table(p);
    }
    add_int8(p, int8_key_, shape_.key, &args_.key, &args_.key_scales);
    if (p.value_in_key == 0) {
        add_int8(p, int8_value_, shape_.value, &args_.value, &args_.value_scales);
    }
}

void Inputs::add_int8(const Problem &p, const Int8Rows &rows, Layout layout, polyhead_tensor *integers, polyhead_tensor *scales) {
    for (const auto &[tensor, view] : {std::pair(&rows.integers, integers), std::pair(&rows.scales, scales)}) {
        *view = tensor->view;
        if (p.page_size != 0) {
            int8_pages_.push_back(in_pages(*tensor, p.page_size, layout));
            int8_pages_.back().memory.make_read_only();
            *view = int8_pages_.back().view;
        }
    }
}

void Inputs::store(int32_t dtype, Tensor &values, Tensor &stored, polyhead_tensor &argument) {
    if (is_16_bit(dtype) && values.view.rank != 0) {
        stored = test::store(values, dtype, shape_.place);
        argument = stored.view;
        stored.memory.make_read_only();
    }
    values.memory.make_read_only();
}

void Inputs::make_sdpa(const Problem &p) {
    const Shape &s = shape_;
    const auto tensor = [&s](Layout layout, int64_t heads, int64_t length, int64_t dim) {
        return make_tensor(DType::f32, {s.batch, heads, length, dim}, head_strides(layout, heads, length, dim), s.place);
    };
    query_ = tensor(s.query, p.num_heads, s.seq_len_q, p.head_dim);
    key_ = tensor(s.key, p.num_kv_heads, s.seq_len_kv, p.head_dim);
    if (p.value_in_key == 0) {
        value_ = tensor(s.value, p.num_kv_heads, s.seq_len_kv, p.head_dim_v);
    }
    if (is_backward(p)) {
        make_gradient_outputs(p);
    } else {
        outputs_.add(&polyhead_args::out,
                     make_tensor(static_cast<DType>(p.dtype), {s.batch, p.num_heads, s.seq_len_q, p.head_dim_v},
                                 head_strides(s.out, p.num_heads, s.seq_len_q, p.head_dim_v), s.place),
                     &args_);
    }
    Random random(s.seed);
    const float scale = s.softmax_scale.value_or(1.0f / std::sqrt(static_cast<float>(p.head_dim)));
    fill_normal(query_, random, s.values == Values::peaked ? 8.0f : 1.0f);
    fill_normal(key_, random, 1.0f);
    if (s.values == Values::extreme_logits) {
        fill_extreme(query_, key_, scale);
    }
    if (p.value_in_key == 0) {
        fill_value(p, random);
    }
}

void Inputs::fill_value(const Problem &p, Random &random) {
    switch (shape_.values) {
    case Values::huge_values:
        fill_normal(value_, random, huge_value(p));
        break;
    case Values::values_near_one:
        fill_normal(value_, random, 0.05f, 1.0f);
        break;
    default:
        fill_normal(value_, random, 1.0f);
    }
}

void Inputs::make_mha(const Problem &p) {
    const Shape &s = shape_;
    const auto tensor = [&s](Layout layout, int64_t length, int64_t features) {
        return make_tensor(DType::f32, {s.batch, length, features}, token_strides(layout, s.batch, length, features), s.place);
    };
    Random random(s.seed);
    query_ = tensor(s.query, s.seq_len_q, p.embed_dim);
    fill_normal(query_, random, s.values == Values::peaked ? 4.0f : 1.0f);
    if (p.cache != 0) {
        const auto cache = [&s, &p](Layout layout, int64_t dim) {
            return make_tensor(DType::f32, {s.batch, p.num_kv_heads, s.seq_len_kv, dim},
                               head_strides(layout, p.num_kv_heads, s.seq_len_kv, dim), s.place);
        };
        key_ = cache(s.key, p.head_dim);
        value_ = cache(s.value, p.head_dim_v);
        fill_normal(key_, random, 1.0f);
        fill_value(p, random);
    }
    if (p.cross != 0) {
        key_ = tensor(s.key, s.seq_len_kv, p.kdim);
        value_ = tensor(s.value, s.seq_len_kv, p.vdim);
        fill_normal(key_, random, 1.0f);
        fill_value(p, random);
    }
    outputs_.add(&polyhead_args::out,
                 make_tensor(static_cast<DType>(p.dtype), {s.batch, s.seq_len_q, p.embed_dim},
                             token_strides(s.out, s.batch, s.seq_len_q, p.embed_dim), s.place),
                 &args_);
}

void Inputs::make_linear(const Problem &p) {
    const auto tensor = [this](DType dtype, Layout layout, int64_t features) {
        const int64_t stride = layout == Layout::bhsd || layout == Layout::bshd ? features : features + 3;
        return make_tensor(dtype, {shape_.seq_len_q, features}, {stride, 1}, shape_.place);
    };
    Random random(shape_.seed);
    query_ = tensor(DType::f32, shape_.query, p.embed_dim);
    fill_normal(query_, random, 1.0f);
    outputs_.add(&polyhead_args::out, tensor(static_cast<DType>(p.dtype), shape_.out, p.out_features), &args_);
}

// The capacity has room for the new keys; without lengths the first batch row fills it.
void Inputs::fit_lengths(const Problem &p) {
    shape_.seq_len_kv = in_whole_pages(p, std::max(shape_.seq_len_kv, shape_.seq_len_q));
    const int64_t room = shape_.seq_len_kv - shape_.seq_len_q;
    for (int64_t b = static_cast<int64_t>(shape_.lengths.size()); b < shape_.batch; b++) {
        shape_.lengths.push_back(static_cast<int32_t>(room / (b + 1)));
    }
    for (int32_t &length : shape_.lengths) {
        length = static_cast<int32_t>(std::min<int64_t>(length, room));
    }
}

// Copies of the keys and values that the reference has, which a call may write.
void Inputs::make_caches(const Problem &p) {
    if (p.page_size != 0) {
        make_page_table(p);
    }
    const std::array<std::pair<const Tensor *, Layout>, 2> sources = {{{&key_, shape_.key}, {&value_, shape_.value}}};
    for (size_t i = 0; i < caches_.size(); i++) {
        const auto &[source, layout] = sources[i];
        Tensor cache;
        if (p.page_size != 0) {
            cache = in_pages(*source, p.page_size, layout);
        } else {
            const polyhead_tensor &v = source->view;
            cache = make_tensor(DType::f32, {v.shape, v.shape + v.rank}, {v.stride, v.stride + v.rank}, shape_.place);
            for_each_row(
                v, [&](const float *row, int64_t b, int64_t h, int64_t n) { std::copy_n(row, v.shape[3], element(cache.view, b, h, n)); });
        }
        caches_[i] = is_16_bit(p.dtype) ? test::store(cache, p.dtype, shape_.place) : std::move(cache);
        const char *const bytes = static_cast<const char *>(caches_[i].memory.data());
        caches_before_[i].assign(bytes, bytes + caches_[i].memory.bytes());
        args_.*cache_tensors[i].tensor = caches_[i].view;
    }
    args_.key = args_.value = polyhead_tensor{};
}

template <class Visit> void Inputs::for_each_new_row(size_t i, int64_t b, Visit visit) const {
    const polyhead_tensor &v = caches_[i].view;
    const int64_t first = shape_.lengths[static_cast<size_t>(b)], columns = page_size_ != 0 ? shape_.seq_len_kv / page_size_ : 0;
    for (int64_t h = 0; h < v.shape[1]; h++) {
        for (int64_t n = first; n < first + shape_.seq_len_q; n++) {
            const int64_t outermost = page_size_ != 0 ? pages_[static_cast<size_t>(b * columns + n / page_size_)] : b;
            visit(outermost * v.stride[0] + h * v.stride[1] + (page_size_ != 0 ? n % page_size_ : n) * v.stride[2]);
        }
    }
}

std::vector<float> Inputs::new_rows(size_t i, int64_t b) const {
    const polyhead_tensor &v = caches_[i].view;
    std::vector<float> rows;
    for_each_new_row(i, b, [&](int64_t offset) {
        for (int64_t at = offset; at < offset + v.shape[3]; at++) {
            rows.push_back(is_16_bit(v.dtype) ? from_storage_bits(static_cast<const uint16_t *>(v.data)[at], v.dtype)
                                              : static_cast<const float *>(v.data)[at]);
        }
    });
    return rows;
}

std::vector<float> Inputs::new_rows(size_t i) const {
    std::vector<float> rows;
    for (int64_t b = 0; caches_[i].view.rank != 0 && b < shape_.batch; b++) {
        const std::vector<float> of_row = new_rows(i, b);
        rows.insert(rows.end(), of_row.begin(), of_row.end());
    }
    return rows;
}

void Inputs::make_lengths(const Problem &p) {
    const Shape &s = shape_;
    if (!s.lengths.empty() || p.cache != 0) {
        const int64_t room = s.seq_len_kv - (p.cache != 0 ? s.seq_len_q : 0); // of a shape that a budget may have made smaller
        const auto no = [&](int32_t length) { return length < 0 || length > room; };
        if (int64_t(s.lengths.size()) != s.batch || std::any_of(s.lengths.begin(), s.lengths.end(), no)) {
            throw std::logic_error("lengths: expected one for each batch row, at most all keys:" + describe(p, s));
        }
        kv_lengths_ = make_tensor(DType::i32, {s.batch}, {1}, s.place);
        std::copy(s.lengths.begin(), s.lengths.end(), static_cast<int32_t *>(kv_lengths_.view.data));
        kv_lengths_.memory.make_read_only();
        args_.kv_lengths = kv_lengths_.view;
    }
}

// Pages of all batch rows and some more, in any order; batch rows that share their keys share pages. Behind the keys of a row the table
// has numbers that name no page.
void Inputs::make_page_table(const Problem &p) {
    const int64_t columns = shape_.seq_len_kv / p.page_size, count = shape_.batch * columns + spare_pages;
    std::vector<int32_t> pages(static_cast<size_t>(count));
    std::iota(pages.begin(), pages.end(), 0);
    Random random(shape_.seed + 1);
    for (size_t i = pages.size() - 1; i > 0; i--) {
        std::swap(pages[i], pages[static_cast<size_t>(random.below(static_cast<int64_t>(i) + 1))]);
    }
    const bool shared = shape_.key == Layout::shared && shape_.value == Layout::shared;
    page_table_ =
        make_tensor(DType::i32, {shape_.batch, columns}, {columns + (shape_.key == Layout::bhsd_padded ? 2 : 0), 1}, shape_.place);
    for (int64_t b = 0; b < shape_.batch; b++) {
        const int64_t used = (key_length(p, args_, b) + p.page_size - 1) / p.page_size;
        for (int64_t i = 0; i < columns; i++) {
            const int32_t page = pages[static_cast<size_t>((shared ? 0 : b * columns) + i)];
            pages_.push_back(page);
            const int32_t no_page = i % 2 == 0 ? INT32_MIN : static_cast<int32_t>(count);
            static_cast<int32_t *>(page_table_.view.data)[b * page_table_.view.stride[0] + i] = i < used ? page : no_page;
        }
    }
    page_table_.memory.make_read_only();
    args_.page_table = page_table_.view;
}

Tensor Inputs::in_pages(const Tensor &keys, int64_t page_size, Layout layout) const {
    const int64_t heads = keys.view.shape[1], dim = keys.view.shape[3], columns = keys.view.shape[2] / page_size;
    const int32_t dtype = keys.view.dtype, bytes = static_cast<int32_t>(dtype_bytes(dtype));
    Tensor pages = make_tensor(static_cast<DType>(dtype), {shape_.batch * columns + spare_pages, heads, page_size, dim},
                               head_strides(layout == Layout::shared ? Layout::bhsd : layout, heads, page_size, dim), shape_.place);
    char *const data = static_cast<char *>(pages.view.data);
    for_each_offset(pages.view, [&](int64_t offset, int64_t, int64_t, int64_t) {
        if (dtype == POLYHEAD_F32) {
            std::fill_n(reinterpret_cast<float *>(data) + offset, dim, nan_value);
        } else {
            std::fill_n(reinterpret_cast<int8_t *>(data) + offset, dim, std::numeric_limits<int8_t>::min());
        }
    });
    for_each_offset(keys.view, [&](int64_t offset, int64_t b, int64_t h, int64_t n) {
        const int64_t page = pages_[static_cast<size_t>(b * columns + n / page_size)];
        const polyhead_tensor &v = pages.view;
        const int64_t to = page * v.stride[0] + h * v.stride[1] + n % page_size * v.stride[2];
        std::copy_n(static_cast<const char *>(keys.view.data) + offset * bytes, dim * bytes, data + to * bytes);
    });
    return pages;
}

void Inputs::make_score_outputs(const Problem &p) {
    const Shape &s = shape_;
    const bool padded = s.out == Layout::bhsd_padded || s.out == Layout::bshd_padded;
    if (p.lse != 0) {
        const int64_t row = s.seq_len_q + (padded ? 3 : 0);
        outputs_.add(&polyhead_args::lse,
                     make_tensor(DType::f32, {s.batch, p.num_heads, s.seq_len_q}, {p.num_heads * row + (padded ? 2 : 0), row, 1}, s.place),
                     &args_);
    }
    if (p.scores != POLYHEAD_NO_SCORES) {
        outputs_.add(&polyhead_args::scores,
                     make_tensor(DType::f32, {s.batch, p.num_heads, s.seq_len_q, s.seq_len_kv},
                                 head_strides(s.out, p.num_heads, s.seq_len_q, s.seq_len_kv), s.place),
                     &args_);
    }
    if (p.weights_mean != 0) {
        outputs_.add(&polyhead_args::weights_mean,
                     make_tensor(DType::f32, {s.batch, s.seq_len_q, s.seq_len_kv},
                                 token_strides(padded ? Layout::bhsd_padded : Layout::bhsd, s.batch, s.seq_len_q, s.seq_len_kv), s.place),
                     &args_);
    }
}

bool Inputs::poisoned(int64_t b, int64_t h_kv, int64_t n) const {
    return seen_ && !seen_->seen(b, h_kv, n);
}

// Self-attention layers: the rows that are not seen as keys are queries too; as keys they must still not be seen.
void Inputs::poison(const Problem &p) {
    const bool self = is_mha(p) && p.cross == 0 && p.cache == 0, keys_have_heads = is_sdpa(p) || p.cache != 0;
    if (is_backward(p)) {
        poison_queries(p);
    }
    if ((!shape_.poison && shape_.poison_key < 0) || num_rows(args_) == 0 || num_keys(p, args_) == 0) {
        return;
    }
    if (shape_.poison) {
        seen_.emplace(p, args_);
    }
    const auto attack = [&](const Tensor &tensor) {
        const int64_t features = tensor.view.shape[tensor.view.rank - 1];
        for_each_row(tensor.view, [&](float *row, int64_t i, int64_t j, int64_t k) {
            const int64_t position = keys_have_heads ? k : j;
            if (position == shape_.poison_key) {
                std::fill(row, row + features, nan_value);
            } else if (poisoned(i, is_mha(p) ? 0 : j, position)) {
                poison_row(row, features, position, p.dtype);
            }
        });
    };
    if (self) {
        attack(query_);
    } else {
        // What finds the poison of one tensor must not be what saves the results from that of another.
        const uint64_t alone = is_backward(p) ? shape_.seed % 4 : 0;
        if (alone != 1) {
            attack(key_);
        }
        if (p.value_in_key == 0 && alone != 2) {
            attack(value_);
        }
    }
}

bool Inputs::gaps_untouched() {
    for (size_t i = 0; i < caches_.size(); i++) {
        const polyhead_tensor &view = caches_[i].view;
        const size_t size = view.rank != 0 ? static_cast<size_t>(dtype_bytes(view.dtype)) : 0;
        for (int64_t b = 0; view.rank != 0 && b < shape_.batch; b++) {
            for_each_new_row(i, b, [&](int64_t offset) {
                char *const row = static_cast<char *>(view.data) + static_cast<size_t>(offset) * size;
                const ptrdiff_t before = row - static_cast<char *>(caches_[i].memory.data());
                std::copy_n(caches_before_[i].data() + before, static_cast<size_t>(view.shape[3]) * size, row);
            });
        }
    }
    outputs_.refill();
    return outputs_untouched();
}

bool Inputs::outputs_untouched() const {
    bool untouched = outputs_.untouched();
    for (size_t i = 0; i < caches_.size(); i++) {
        const GuardedBuffer &memory = caches_[i].memory;
        const std::vector<char> &before = caches_before_[i]; // without elements it has no address, which memcmp() must not get
        untouched =
            untouched && memory.margins_canary() && (before.empty() || std::memcmp(memory.data(), before.data(), before.size()) == 0);
    }
    return untouched;
}

} // namespace polyhead::test
