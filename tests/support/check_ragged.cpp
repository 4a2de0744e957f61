// A call with packed tokens gives each sequence the bits of a call with this sequence alone.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "check.h"
#include "instruments/calls/call_tensors.h"
#include "instruments/calls/problems.h"
#include "instruments/reference/expressions.h"
#include "instruments/reference/reference.h"

namespace polyhead::test {

namespace {

constexpr int32_t B = POLYHEAD_EXTENT_B, H = POLYHEAD_EXTENT_H, Q = POLYHEAD_EXTENT_Q, KV = POLYHEAD_EXTENT_KV, other = 1;

// What the dimensions of each tensor are; a tensor of a lower rank has the last ones.
struct Dimensions {
    polyhead_tensor polyhead_args::*tensor;
    std::vector<int32_t> are;
    bool may_spread = false;                            // one element may stand for all of a dimension
    int32_t polyhead_problem::*always_spread = nullptr; // the dimensions in which one does, by POLYHEAD_BROADCAST_ bits
};
const std::vector<Dimensions> tensors_of_calls = {
    {&polyhead_args::query, {B, H, Q, other}},
    {&polyhead_args::key, {B, H, KV, other}},
    {&polyhead_args::value, {B, H, KV, other}},
    {&polyhead_args::key_scales, {B, H, KV, other}},
    {&polyhead_args::value_scales, {B, H, KV, other}},
    {&polyhead_args::kv_lengths, {B}},
    {&polyhead_args::page_table, {B, other}},
    {&polyhead_args::position_offsets, {B}},
    {&polyhead_args::mask, {B, H, Q, KV}, true, &polyhead_problem::mask_broadcast},
    {&polyhead_args::score_bias, {B, H, Q, KV}, true, &polyhead_problem::score_bias_broadcast},
    {&polyhead_args::alibi_slopes, {B, H}},
    {&polyhead_args::sinks, {H}},
    {&polyhead_args::rope_cos, {other, other}},
    {&polyhead_args::rope_sin, {other, other}},
    {&polyhead_args::positions_q, {B, Q}},
    {&polyhead_args::positions_kv, {B, KV}},
    {&polyhead_args::head_gate, {H}},
    {&polyhead_args::gate, {B, H, Q, other}},
    {&polyhead_args::query_norm_weight, {other}},
    {&polyhead_args::query_norm_bias, {other}},
    {&polyhead_args::key_norm_weight, {other}},
    {&polyhead_args::key_norm_bias, {other}},
    {&polyhead_args::out, {B, H, Q, other}},
    {&polyhead_args::lse, {B, H, Q}},
    {&polyhead_args::grad_out, {B, H, Q, other}},
    {&polyhead_args::grad_query, {B, H, Q, other}},
    {&polyhead_args::grad_key, {B, H, KV, other}},
    {&polyhead_args::grad_value, {B, H, KV, other}},
    {&polyhead_args::grad_gate, {B, H, Q, other}},
};

// Positions by direction have a further dimension.
std::vector<Dimensions> dimensions_of(const polyhead_problem &p) {
    std::vector<Dimensions> all = tensors_of_calls;
    for (Dimensions &one : all) {
        if (p.rope_sections != POLYHEAD_NO_SECTIONS &&
            (one.tensor == &polyhead_args::positions_q || one.tensor == &polyhead_args::positions_kv)) {
            one.are.insert(one.are.begin() + 1, other);
        }
    }
    return all;
}

struct Sequences {
    std::vector<int32_t> begins_q = {0}, begins_kv = {0};
    bool packed_kv = false;
    int64_t count() const { return static_cast<int64_t>(begins_q.size()) - 1; }
    static int64_t longest(const std::vector<int32_t> &begins) {
        int32_t most = 0;
        for (size_t i = 1; i < begins.size(); i++) {
            most = std::max(most, begins[i] - begins[i - 1]);
        }
        return most;
    }
};

// Short and long ones, empty ones, and neighbours of equal lengths.
Sequences random_sequences(const polyhead_problem &p, bool packed_kv, int64_t most_rows, Random &random) {
    Sequences s;
    s.packed_kv = packed_kv;
    const std::vector<int32_t> queries = {0, 1, 1, 1, 2, 5, 17, 33, 70}, keys = {0, 1, 2, 31, 33, 64, 100, 290};
    int32_t q = 1, kv = 1;
    for (int64_t count = random.between(1, 8); count > 0; count--) {
        if (!random.chance(30)) { // otherwise as the one before
            // EXCLUDED: more queries than the variant serves: POLYHEAD_UNSUPPORTED (c_api.h)
            q = static_cast<int32_t>(std::min<int64_t>(random.pick(queries), most_rows));
            kv = random.pick(keys);
        }
        s.begins_q.push_back(s.begins_q.back() + (p.seq_len_q > 0 ? p.seq_len_q : q));
        s.begins_kv.push_back(s.begins_kv.back() + (p.seq_len_kv > 0 ? p.seq_len_kv : kv));
    }
    return s;
}

// How the tensors of a packed call are cut.
class Cut {
public:
    Cut(const polyhead_problem &problem, const Sequences &s) : problem_(problem), s_(s) {}

    // A packed tensor comes from `packed`, any other one from `rows`, which has a batch row for each sequence.
    const polyhead_tensor &choose(const polyhead_tensor &packed, const polyhead_tensor &rows, const Dimensions &dimensions) const {
        return is_packed(packed, dimensions) ? packed : rows;
    }

    // The view of sequence b, as somebody would write it who has no packed call.
    void narrow(polyhead_tensor *tensor, const Dimensions &dimensions, int64_t b) const {
        const bool packed = is_packed(*tensor, dimensions);
        const auto take = [&](size_t i, int64_t first, int64_t count) {
            tensor->data = static_cast<char *>(tensor->data) + first * tensor->stride[i] * dtype_bytes(tensor->dtype);
            tensor->shape[i] = count;
        };
        const auto row = static_cast<size_t>(b);
        for (size_t i = 0; i < rank_of(*tensor, dimensions); i++) {
            const int32_t is = what(*tensor, dimensions, i);
            if (is == B && !packed && tensor->shape[i] > 1) {
                take(i, b, 1);
            } else if (is == Q && !spread(*tensor, dimensions, i)) {
                take(i, s_.begins_q[row], s_.begins_q[row + 1] - s_.begins_q[row]);
            } else if (is == KV && s_.packed_kv && !spread(*tensor, dimensions, i)) {
                take(i, s_.begins_kv[row], s_.begins_kv[row + 1] - s_.begins_kv[row]);
            }
        }
    }

private:
    static size_t rank_of(const polyhead_tensor &tensor, const Dimensions &dimensions) {
        return std::min(static_cast<size_t>(tensor.rank), dimensions.are.size());
    }
    static int32_t what(const polyhead_tensor &tensor, const Dimensions &dimensions, size_t i) {
        return dimensions.are[dimensions.are.size() - rank_of(tensor, dimensions) + i];
    }

    // One element for all of a dimension. Where there is one token in all, one element is that token's, unless the kernel was built for one
    // element.
    bool spread(const polyhead_tensor &tensor, const Dimensions &dimensions, size_t i) const {
        if (!dimensions.may_spread || tensor.shape[i] != 1) {
            return false;
        }
        const bool query = what(tensor, dimensions, i) == Q;
        const int32_t bit = query ? POLYHEAD_BROADCAST_Q : POLYHEAD_BROADCAST_KV;
        const bool always = dimensions.always_spread && (problem_.*dimensions.always_spread & bit) != 0;
        return always || (query ? s_.begins_q : s_.begins_kv).back() != 1;
    }

    bool has(const polyhead_tensor &tensor, const Dimensions &dimensions, int32_t dimension) const {
        for (size_t i = 0; i < rank_of(tensor, dimensions); i++) {
            if (what(tensor, dimensions, i) == dimension && !spread(tensor, dimensions, i)) {
                return true;
            }
        }
        return false;
    }

    bool is_packed(const polyhead_tensor &tensor, const Dimensions &dimensions) const {
        return has(tensor, dimensions, Q) || (s_.packed_kv && has(tensor, dimensions, KV));
    }

    const polyhead_problem &problem_;
    const Sequences &s_;
};

Dimensions declared_dimensions(const polyhead_declaration &declared) {
    return {nullptr, {declared.extents, declared.extents + declared.rank}, true};
}

// The arguments of one packed call, and of each sequence alone.
class PackedCall {
public:
    PackedCall(const Subject &subject, const Sequences &sequences, Shape shape, Random &random)
        : problem_(subject.problem), call_dimensions_(dimensions_of(problem_)), s_(sequences), packed_(problem_, with_totals(shape)),
          rows_(problem_, with_batch(shape, random)), args_(chosen(packed_.args(), rows_.args())) {
        if (problem_.rope != POLYHEAD_NO_ROPE && packed_.args().rope_cos.shape[0] > args_.rope_cos.shape[0]) {
            args_.rope_cos = packed_.args().rope_cos;
            args_.rope_sin = packed_.args().rope_sin;
        }
        const ExpressionCase *expression = expression_of(problem_);
        for (int32_t i = 0; i < args_.num_expression_tensors; i++) {
            tensors_.push_back(cut_.choose(packed_.args().expression_tensors[i], rows_.args().expression_tensors[i],
                                           declared_dimensions(expression->tensors[static_cast<size_t>(i)])));
        }
        args_.expression_tensors = tensors_.data();
        args_.cu_seqlens_q = view(s_.begins_q.data(), {s_.count() + 1});
        if (s_.packed_kv) {
            args_.cu_seqlens_kv = view(s_.begins_kv.data(), {s_.count() + 1});
        }
        if (is_backward(problem_)) {
            make_forward_results();
        }
    }

    const polyhead_args &args() const { return args_; }
    polyhead_args alone(int64_t b, std::vector<polyhead_tensor> *tensors) const { return alone(args_, b, tensors); }

    // Also of what no call writes. Destroys the outputs.
    bool gaps_untouched() { return packed_.gaps_untouched() & rows_.gaps_untouched(); }

private:
    // A packed call of tensors with all tokens in one batch row, and of tensors with a batch row for each sequence.
    polyhead_args chosen(const polyhead_args &packed, const polyhead_args &rows) const {
        polyhead_args args = packed;
        for (const Dimensions &one : call_dimensions_) {
            const bool of_pages = problem_.page_size != 0 && lies_in_pages(one.tensor);
            args.*one.tensor = cut_.choose(packed.*one.tensor, rows.*one.tensor, of_pages ? Dimensions{} : one);
        }
        return args;
    }

    // out and lse as they are for each sequence alone.
    void make_forward_results() {
        const auto like = [](const polyhead_tensor &t, Place place) {
            return make_tensor(static_cast<DType>(t.dtype), {t.shape, t.shape + t.rank}, {t.stride, t.stride + t.rank}, place);
        };
        out_ = like(args_.out, packed_.shape().place);
        lse_ = like(args_.lse, packed_.shape().place);
        args_.out = out_.view;
        args_.lse = lse_.view;
        const polyhead_args reference = chosen(packed_.reference_args(), rows_.reference_args());
        std::vector<polyhead_tensor> tensors;
        for (int64_t b = 0; b < s_.count(); b++) {
            const polyhead_args one = alone(reference, b, &tensors), views = alone(b, &tensors);
            const Answer<double> answer = evaluate<double>(problem_, one, {}, all_rows(problem_, one));
            const auto write = [](const polyhead_tensor &t, const std::vector<double> &values) {
                size_t next = 0;
                for_each_offset(t, [&](int64_t offset, int64_t, int64_t, int64_t) {
                    for (int64_t i = offset; i < offset + t.shape[t.rank - 1]; i++) {
                        const float value = static_cast<float>(values[next++]);
                        if (is_16_bit(t.dtype)) {
                            static_cast<uint16_t *>(t.data)[i] = to_storage_bits(value, t.dtype);
                        } else {
                            static_cast<float *>(t.data)[i] = value;
                        }
                    }
                });
            };
            write(views.out, answer.out);
            write(views.lse, answer.lse);
        }
        out_.memory.make_read_only();
        lse_.memory.make_read_only();
    }

    polyhead_args alone(const polyhead_args &all, int64_t b, std::vector<polyhead_tensor> *tensors) const {
        polyhead_args args = all;
        args.cu_seqlens_q = args.cu_seqlens_kv = polyhead_tensor{};
        for (const Dimensions &one : call_dimensions_) {
            const bool of_pages = problem_.page_size != 0 && lies_in_pages(one.tensor);
            if (!of_pages) {
                cut_.narrow(&(args.*one.tensor), one, b);
            }
        }
        *tensors = tensors_;
        const ExpressionCase *expression = expression_of(problem_);
        for (size_t i = 0; i < tensors->size(); i++) {
            cut_.narrow(&(*tensors)[i], declared_dimensions(expression->tensors[i]), b);
        }
        args.expression_tensors = tensors->data();
        return args;
    }

    // Keys that are not packed have room for the longest sequence and some more.
    int64_t capacity() const { return problem_.seq_len_kv > 0 ? problem_.seq_len_kv : Sequences::longest(s_.begins_kv) + 3; }

    Shape with_totals(Shape shape) const {
        shape.batch = 1;
        shape.seq_len_q = s_.begins_q.back();
        shape.seq_len_kv = s_.packed_kv ? s_.begins_kv.back() : capacity();
        // EXCLUDED: no positions_q where a sequence has more queries than keys and sees them: runtime/include/polyhead/c_api.h
        for (size_t i = 1; i < s_.begins_q.size() && problem_.causal == POLYHEAD_NOT_CAUSAL; i++) {
            const bool more = s_.begins_q[i] - s_.begins_q[i - 1] > s_.begins_kv[i] - s_.begins_kv[i - 1] || problem_.kv_lengths != 0;
            shape.extras.left_out &= more ? ~uint32_t(leave_out_positions_q) : ~uint32_t(0);
        }
        return shape;
    }

    // Lengths are those of the keys where they are not packed, and may be less where they are.
    Shape with_batch(Shape shape, Random &random) const {
        shape.batch = s_.count();
        shape.seq_len_q = 2; // of nothing that is used
        const bool long_tables = problem_.rope != POLYHEAD_NO_ROPE && s_.packed_kv;
        shape.seq_len_kv = long_tables ? s_.begins_kv.back() + s_.begins_q.back() + 8 : capacity();
        if (problem_.rope != POLYHEAD_NO_ROPE) {
            shape.extras.left_out |= leave_out_offsets; // so that the tables have every position
        }
        if (problem_.kv_lengths != 0 && (!s_.packed_kv || random.chance(50))) {
            for (size_t i = 1; i < s_.begins_kv.size(); i++) {
                const int32_t most = s_.begins_kv[i] - s_.begins_kv[i - 1];
                shape.lengths.push_back(s_.packed_kv ? static_cast<int32_t>(random.between(0, most)) : most);
            }
        }
        shape.seed++;
        return shape;
    }

    const Problem problem_;
    const std::vector<Dimensions> call_dimensions_;
    const Sequences s_;
    const Cut cut_{problem_, s_};
    Inputs packed_, rows_;
    polyhead_args args_;
    Tensor out_, lse_; // inputs of gradients
    std::vector<polyhead_tensor> tensors_;
};

std::string run(const Subject &subject, const polyhead_args &args) {
    const polyhead_status status = subject.run(args);
    return status.code == POLYHEAD_OK ? "" : std::string("refused: ") + status.message;
}

using Bits = std::vector<std::vector<float>>;

// Runs each sequence alone into fresh outputs; then these in one.
std::string run_alone(const Subject &subject, PackedCall &call, const Sequences &s, Bits *bits) {
    std::vector<polyhead_tensor> tensors;
    call.gaps_untouched(); // refills the outputs
    for (int64_t b = 0; b < s.count(); b++) {
        const std::string failure = run(subject, call.alone(b, &tensors));
        if (!failure.empty()) {
            return "sequence " + std::to_string(b) + " alone: " + failure;
        }
    }
    *bits = read_outputs(call.args());
    return "";
}

std::string run_packed(const Subject &subject, PackedCall &call, int threads, const Bits &expected) {
    subject.set_threads(threads);
    call.gaps_untouched();
    const std::string failure = run(subject, call.args());
    if (!failure.empty()) {
        return failure;
    }
    const std::string with = " of packed sequences on " + std::to_string(threads) + " threads";
    const Bits bits = read_outputs(call.args());
    for (size_t i = 0; i < bits.size(); i++) {
        const CallTensor output = outputs_of(call.args().op)[i];
        if (!same_bits(bits[i], expected[i])) {
            return output.name + with + " has other bits than sequences alone";
        }
        if (find_unwritten(call.args().*output.tensor) >= 0) {
            return output.name + with + " was not written completely";
        }
    }
    return call.gaps_untouched() ? "" : "memory around the outputs" + with + " was written";
}

} // namespace

bool takes_packed_tokens(const Problem &problem) {
    // EXCLUDED: gradients that may be sums over sequences: POLYHEAD_UNSUPPORTED (runtime/rules/validate_sequences.cpp)
    const bool tables = has_expression(problem) && !expression_of(problem)->gradients.empty(),
               sums = problem.grad_score_bias != 0 || problem.grad_alibi != 0 || problem.grad_sinks != 0 || problem.grad_query_norm != 0 ||
                      problem.grad_key_norm != 0 || tables;
    return is_sdpa(problem) && problem.scores == POLYHEAD_NO_SCORES && problem.weights_mean == 0 && !sums;
}

std::string check_ragged(const Subject &subject, uint64_t seed, int64_t most_rows) {
    Random random(seed ^ 0x726167676564u);
    const bool packed_kv = subject.problem.page_size == 0 && random.chance(60);
    const Sequences s = random_sequences(subject.problem, packed_kv, most_rows, random);
    Shape shape;
    shape.seed = seed;
    const std::vector<Layout> layouts = {Layout::bhsd, Layout::bshd, Layout::bshd_padded};
    shape.query = random.pick(layouts);
    shape.key = shape.value = random.pick(layouts);
    shape.out = random.pick(layouts);
    shape.poison_key = packed_kv && s.begins_kv.back() > 0 && random.chance(50) ? random.below(s.begins_kv.back()) : -1;
    const int32_t threads_before = polyhead_num_threads();
    PackedCall call(subject, s, shape, random);
    Bits expected;
    subject.set_threads(1);
    std::string failure = run_alone(subject, call, s, &expected);
    for (int threads : {1, 2, 5}) {
        failure = failure.empty() ? run_packed(subject, call, threads, expected) : failure;
    }
    subject.set_threads(threads_before);
    if (failure.empty()) {
        return "";
    }
    std::string lengths = packed_kv ? " packed keys" : " keys in rows";
    for (int64_t b = 0; b < s.count(); b++) {
        const auto i = static_cast<size_t>(b);
        lengths += " " + std::to_string(s.begins_q[i + 1] - s.begins_q[i]) + "x" + std::to_string(s.begins_kv[i + 1] - s.begins_kv[i]);
    }
    return failure + reproduce(subject, shape) + lengths;
}

} // namespace polyhead::test
