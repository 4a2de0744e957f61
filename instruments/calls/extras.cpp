// Tensors of masks and modifiers. The values of masks have a file of their own, mask_values.cpp.
#include "extras.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../../contract/problem.h"
#include "../reference/expressions.h"
#include "../reference/visibility.h"
#include "mask_values.h"

namespace polyhead::test {

namespace {

bool given(const Extras &extras, Optional which) {
    return (extras.left_out & which) == 0;
}

DType additive_dtype(const Problem &p) {
    return p.additive_in_storage != 0 ? static_cast<DType>(p.dtype) : DType::f32;
}

Tensor make_mask(const Problem &p, const MaskForm &form, int32_t broadcast, DType dtype, const CallSize &size) {
    const int64_t extents[4] = {size.batch, p.num_heads, (broadcast & POLYHEAD_BROADCAST_Q) != 0 ? 1 : size.seq_len_q,
                                (broadcast & POLYHEAD_BROADCAST_KV) != 0 ? 1 : size.seq_len_kv};
    std::vector<int64_t> shape, stride;
    for (int dim = 4 - form.rank; dim < 4; dim++) {
        const bool full = form.full[static_cast<size_t>(dim)] || dim == 3; // the innermost is the problem's to say
        shape.push_back(full ? extents[dim] : 1);
    }
    stride.assign(shape.size(), 1);
    int64_t step = shape.back() + (form.padded ? 3 : 0);
    for (int i = form.rank - 1; i-- > 0;) {
        const bool stretched = form.stretched[static_cast<size_t>(i + 4 - form.rank)];
        stride[static_cast<size_t>(i)] = stretched ? 0 : step;
        step *= stretched ? 1 : shape[static_cast<size_t>(i)];
    }
    return make_tensor(dtype, shape, stride, size.place);
}

// Values of one vector of numbers.
template <class Value> Tensor vector_of(int64_t count, Place place, Value value) {
    Tensor tensor = make_tensor(DType::f32, {count}, {1}, place);
    for (int64_t i = 0; i < count; i++) {
        static_cast<float *>(tensor.view.data)[i] = value(i);
    }
    return tensor;
}

template <class Value> Tensor integers(std::vector<int64_t> shape, std::vector<int64_t> stride, Place place, Value value) {
    Tensor tensor = make_tensor(DType::i32, shape, stride, place);
    for_each_offset(tensor.view, [&](int64_t offset, int64_t, int64_t, int64_t) {
        for (int64_t i = 0; i < tensor.view.shape[tensor.view.rank - 1]; i++) {
            static_cast<int32_t *>(tensor.view.data)[offset + i] = static_cast<int32_t>(value());
        }
    });
    return tensor;
}

std::string form_text(const MaskForm &form) {
    static const char *const letters = "bhqk";
    std::string text;
    for (int dim = 4 - form.rank; dim < 4; dim++) {
        const size_t i = static_cast<size_t>(dim);
        text += !form.full[i] && dim != 3 ? '1' : letters[dim];
        text += form.stretched[i] ? "*" : ""; // stride 0
    }
    return text + (form.padded ? "+" : "");
}

MaskForm random_form(Random &random) {
    MaskForm form;
    form.rank = random.chance(60) ? 4 : static_cast<int32_t>(random.between(1, 3));
    for (size_t dim = 0; dim < 3; dim++) {
        form.full[dim] = random.chance(65);
        form.stretched[dim] = form.full[dim] && random.chance(15);
    }
    form.padded = random.chance(40);
    return form;
}

} // namespace

std::string describe(const Problem &p, const Extras &e) {
    static const char *const fills[] = {"all", "random", "sparse", "columns", "rows", "documents", "sentinels"};
    std::string text;
    if (p.window != 0) {
        text +=
            given(e, leave_out_window) ? " window " + std::to_string(e.window_left) + " " + std::to_string(e.window_right) : " no window";
    }
    text += p.position_offsets == 0 ? "" : given(e, leave_out_offsets) ? " offsets to " + std::to_string(e.offset_reach) : " no offsets";
    if (p.mask != 0) {
        text += given(e, leave_out_mask) ? " mask " + form_text(e.mask) : " no mask";
    }
    if (p.score_bias != 0) {
        text += given(e, leave_out_score_bias) ? " score_bias " + form_text(e.score_bias) : " no score_bias";
    }
    text += p.mask != 0 || p.score_bias != 0 ? std::string(" fill ") + fills[static_cast<int>(e.fill)] : "";
    text += p.softcap != 0 ? " softcap " + std::to_string(e.softcap) : "";
    text += p.alibi == 0 ? "" : !given(e, leave_out_alibi) ? " no slopes" : e.slopes_per_batch_row ? " slopes per batch row" : "";
    text += p.sinks == 0 ? "" : given(e, leave_out_sinks) ? " sinks near " + std::to_string(e.sink) : " no sinks";
    text += p.rope == 0 ? ""
                        : std::string(given(e, leave_out_positions_q) ? " positions_q" : "") +
                              (given(e, leave_out_positions_kv) ? " positions_kv" : "");
    text += p.head_gate != 0 && !given(e, leave_out_gate) ? " no gate" : "";
    text += contract::normalises(p) && !given(e, leave_out_norms) ? " no weights of norms" : "";
    return text;
}

Extras random_extras(const Problem &p, int64_t seq_len_q, int64_t seq_len_kv, Random &random) {
    Extras e;
    e.left_out = 0;
    for (uint32_t bit = leave_out_window; bit <= leave_out_gate; bit *= 2) {
        e.left_out |= random.chance(bit == leave_out_positions_q || bit == leave_out_positions_kv ? 50 : 10) ? bit : 0;
    }
    e.left_out |= contract::normalises(p) && random.chance(15) ? uint32_t(leave_out_norms) : 0u;
    const std::vector<int32_t> reaches = {-1, 0, 1, 3, 17, 64, 300};
    e.window_left = random.pick(reaches);
    e.window_right = random.pick(reaches);
    e.offset_reach = random.pick(std::vector<int32_t>{2, 40, static_cast<int32_t>(seq_len_q + seq_len_kv)});
    e.mask = random_form(random);
    e.score_bias = random_form(random);
    e.fill = static_cast<MaskFill>(random.below(static_cast<int64_t>(MaskFill::sentinels) + 1));
    if (p.mask != POLYHEAD_ADDITIVE_MASK && p.score_bias == 0 && e.fill == MaskFill::sentinels) {
        e.fill = MaskFill::rows;
    }
    e.softcap = random.pick(std::vector<float>{2.0f, 20.0f, 50.0f, 1e4f});
    e.slopes_per_batch_row = random.chance(50);
    e.sink = random.pick(std::vector<float>{-1e4f, -3.0f, 0.0f, 3.0f, 60.0f, 2e3f});
    return e;
}

ExtraTensors::ExtraTensors(const Problem &p, const Extras &e, const CallSize &size, uint64_t seed, polyhead_args *args) {
    Random random(seed ^ 0x657874726173u);
    if (p.softcap != 0) {
        args->softcap = e.softcap;
    }
    if (p.window != 0 && given(e, leave_out_window)) {
        args->has_window = 1;
        args->window_left = e.window_left;
        args->window_right = e.window_right;
    }
    make_position_tensors(p, e, size, random, args);
    make_masks(p, e, size, random, args);
    make_head_vectors(p, e, size, random, args);
    if (p.rope != POLYHEAD_NO_ROPE) {
        make_rope(p, e, size, random, args);
    }
    if (p.gate != POLYHEAD_NO_GATE && contract::by_heads(p)) {
        make_gate(p, size, random, args);
    }
    if (contract::normalises(p)) {
        make_norms(p, e, size, random, args);
    }
    for (Tensor &tensor : make_expression_tensors(p, size.batch, size.seq_len_q, size.seq_len_kv, size.place, random)) {
        expression_views_.push_back(tensor.view);
        tensors_.push_back(std::move(tensor));
    }
    args->expression_tensors = expression_views_.empty() ? nullptr : expression_views_.data();
    args->num_expression_tensors = static_cast<int32_t>(expression_views_.size());
}

void ExtraTensors::add(Tensor tensor, polyhead_tensor *view) {
    *view = tensor.view;
    tensor.memory.make_read_only();
    tensors_.push_back(std::move(tensor));
}

void ExtraTensors::make_position_tensors(const Problem &p, const Extras &e, const CallSize &size, Random &random, polyhead_args *args) {
    if (p.position_offsets != 0 && given(e, leave_out_offsets)) {
        add(integers({size.batch}, {1}, size.place, [&] { return random.between(-e.offset_reach, e.offset_reach); }),
            &args->position_offsets);
    }
}

void ExtraTensors::make_masks(const Problem &p, const Extras &e, const CallSize &size, Random &random, polyhead_args *args) {
    if (p.mask != POLYHEAD_NO_MASK && given(e, leave_out_mask)) {
        const bool boolean = p.mask == POLYHEAD_BOOLEAN_MASK;
        Tensor mask = make_mask(p, e.mask, p.mask_broadcast, boolean ? DType::boolean : additive_dtype(p), size);
        boolean ? fill_boolean_mask(mask.view, e.fill, random) : fill_additive_mask(mask.view, e.fill, random);
        add(std::move(mask), &args->mask);
    }
    if (p.score_bias != 0 && given(e, leave_out_score_bias)) {
        // A formula in f32 cannot represent the sum of two sentinels in one logit: with an additive mask the bias has none.
        const MaskFill fill = p.mask != POLYHEAD_ADDITIVE_MASK ? e.fill : e.fill == MaskFill::sentinels ? MaskFill::random : MaskFill::all;
        MaskForm form = e.score_bias;
        if (p.grad_score_bias != 0) { // it has as many rows as the kernel was built for
            form.rank = std::max(form.rank, 2);
            form.full[2] = true;
        }
        Tensor bias = make_mask(p, form, p.score_bias_broadcast, additive_dtype(p), size);
        fill_additive_mask(bias.view, fill, random);
        add(std::move(bias), &args->score_bias);
    }
}

void ExtraTensors::make_head_vectors(const Problem &p, const Extras &e, const CallSize &size, Random &random, polyhead_args *args) {
    if (p.alibi != 0 && given(e, leave_out_alibi)) {
        const bool both = e.slopes_per_batch_row;
        const std::vector<int64_t> shape = both ? std::vector<int64_t>{size.batch, p.num_heads} : std::vector<int64_t>{p.num_heads};
        Tensor slopes =
            make_tensor(DType::f32, shape, both ? std::vector<int64_t>{p.num_heads + 1, 1} : std::vector<int64_t>{1}, size.place);
        for_each_row(slopes.view, [&](float *row, int64_t, int64_t, int64_t) {
            for (int32_t h = 0; h < p.num_heads; h++) {
                row[h] = std::exp2(-8.0f * static_cast<float>(random.between(0, p.num_heads)) / static_cast<float>(p.num_heads));
            }
        });
        add(std::move(slopes), &args->alibi_slopes);
    }
    if (p.sinks != 0 && given(e, leave_out_sinks)) {
        add(vector_of(p.num_heads, size.place, [&](int64_t) { return e.sink + random.normal(); }), &args->sinks);
    }
    if (p.head_gate != 0 && given(e, leave_out_gate)) {
        // A head with gate 0, one with a negative gate, others in between.
        add(vector_of(p.num_heads, size.place,
                      [&](int64_t h) { return h % 5 == 3   ? 0.0f
                                              : h % 5 == 1 ? -0.75f
                                                           : 0.5f + 0.3f * random.normal(); }),
            &args->head_gate);
    }
}

// Gates near 0 and 1, in between, and infinite ones.
void ExtraTensors::make_gate(const Problem &p, const CallSize &size, Random &random, polyhead_args *args) {
    const int64_t heads = p.num_heads, gates = contract::gates_of_head(p), row = gates + random.below(3);
    Tensor gate = make_tensor(DType::f32, {size.batch, heads, size.seq_len_q, gates},
                              {heads * size.seq_len_q * row, size.seq_len_q * row, row, 1}, size.place);
    constexpr float infinite = std::numeric_limits<float>::infinity();
    for_each_row(gate.view, [&](float *numbers, int64_t, int64_t, int64_t) {
        for (int64_t i = 0; i < gates; i++) {
            const int64_t kind = random.below(40);
            numbers[i] = kind == 0 ? infinite : kind == 1 ? -infinite : kind < 6 ? 60.0f * random.normal() : 2.0f * random.normal();
        }
    });
    if (is_16_bit(p.dtype)) {
        add(store(gate, p.dtype, size.place), &args->gate);
    } else {
        add(std::move(gate), &args->gate);
    }
}

void ExtraTensors::make_norms(const Problem &p, const Extras &e, const CallSize &size, Random &random, polyhead_args *args) {
    args->norm_epsilon = random.chance(50) ? 1e-6f : 1e-3f;
    if (!given(e, leave_out_norms)) {
        return;
    }
    const struct {
        int32_t kind;
        int64_t heads;
        polyhead_tensor polyhead_args::*weight, polyhead_args::*bias;
    } norms[] = {{p.query_norm, p.num_heads, &polyhead_args::query_norm_weight, &polyhead_args::query_norm_bias},
                 {p.key_norm, p.num_kv_heads, &polyhead_args::key_norm_weight, &polyhead_args::key_norm_bias}};
    for (const auto &norm : norms) {
        const int64_t count = (p.norm_of_projection != 0 ? norm.heads : 1) * p.head_dim;
        const float usual = norm.kind == POLYHEAD_RMS_NORM_PLUS_ONE ? 0.0f : 1.0f;
        if (norm.kind != POLYHEAD_NO_NORM) {
            add(vector_of(count, size.place, [&](int64_t) { return usual + 0.4f * random.normal(); }), &(args->*norm.weight));
        }
        if (norm.kind == POLYHEAD_LAYER_NORM && random.chance(80)) {
            add(vector_of(count, size.place, [&](int64_t) { return 0.5f * random.normal(); }), &(args->*norm.bias));
        }
    }
}

// Whether a query before the first position sees a key: such a call has to give positions_q.
static bool sees_before_0(const Problem &p, const CallSize &size, const polyhead_args &args) {
    for (int64_t b = 0; b < size.batch; b++) {
        for (int64_t q = 0; q < size.seq_len_q && position_of(p, args, b, q) < 0; q++) {
            if (key_range(p, args, b, q).count() > 0) {
                return true;
            }
        }
    }
    return false;
}

// int32 [B,T], or with sections [B,S,T].
template <class Value> static Tensor positions_of(const Problem &p, const CallSize &size, int64_t tokens, int64_t row, Value value) {
    if (p.rope_sections == POLYHEAD_NO_SECTIONS) {
        return integers({size.batch, tokens}, {row, 1}, size.place, value);
    }
    const int64_t directions = p.section_3 > 0 ? 3 : 2;
    return integers({size.batch, directions, tokens}, {directions * row + 1, row, 1}, size.place, value);
}

// Rows for every position that occurs, and a few more.
void ExtraTensors::make_rope(const Problem &p, const Extras &e, const CallSize &size, Random &random, polyhead_args *args) {
    int64_t highest = size.seq_len_kv;
    for (int64_t b = 0; b < size.batch && size.seq_len_q > 0; b++) {
        highest = std::max(highest, position_of(p, *args, b, size.seq_len_q - 1));
    }
    const int64_t positions = highest + 1 + random.below(5), pairs = (p.rotary_dim > 0 ? p.rotary_dim : p.head_dim) / 2;
    const int64_t stride = pairs + random.below(3);
    Tensor cosines = make_tensor(DType::f32, {positions, pairs}, {stride, 1}, size.place),
           sines = make_tensor(DType::f32, {positions, pairs}, {pairs, 1}, size.place);
    for (int64_t n = 0; n < positions; n++) {
        for (int64_t i = 0; i < pairs; i++) {
            const double angle = static_cast<double>(n) * std::pow(1e4, -static_cast<double>(i) / static_cast<double>(pairs));
            // Not of length 1: tables may carry a scale, and nothing may lean on the angle.
            static_cast<float *>(cosines.view.data)[n * stride + i] = static_cast<float>(0.9 * std::cos(angle));
            static_cast<float *>(sines.view.data)[n * pairs + i] = static_cast<float>(0.9 * std::sin(angle));
        }
    }
    add(std::move(cosines), &args->rope_cos);
    add(std::move(sines), &args->rope_sin);
    const auto any_position = [&] { return random.below(positions); };
    // EXCLUDED: no positions_q where a query before position 0 sees a key: runtime/include/polyhead/c_api.h
    if (given(e, leave_out_positions_q) || sees_before_0(p, size, *args)) {
        add(positions_of(p, size, size.seq_len_q, size.seq_len_q + 2, any_position), &args->positions_q);
    }
    if (given(e, leave_out_positions_kv) && p.shared_cache == 0) {
        const int64_t keys = p.cache != 0 ? size.seq_len_q : size.seq_len_kv;
        add(positions_of(p, size, keys, keys, any_position), &args->positions_kv);
    }
}

} // namespace polyhead::test
