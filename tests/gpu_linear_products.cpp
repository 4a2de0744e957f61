// Linear layers whose products are made by warps, of f16, bf16 and floats in parts: compiled by the test, over widths, columns and rows
// around the borders of tiles and chunks, against the reference. Quick tier: some of them, chosen by POLYHEAD_SWEEP_SEED.
// POLYHEAD_TEST_ALL=1: all.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "instruments/calls/compiled_kernel.h"
#include "instruments/calls/device_call.h"
#include "instruments/calls/problems.h"
#include "support/required_device.h"
#include "support/sweep.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

const char *const target = "host-cuda-cuda_capability_80";
constexpr int all_layers = 24, quick_layers = 2, all_attention_layers = 48, quick_attention_layers = 1;
constexpr uint16_t not_a_number = 0x7fff, infinity_of_f16 = 0x7c00;
// The lower bits of the second number, which the upper part of a float has not, are all that tells it from an infinity.
constexpr uint32_t float_infinity = 0x7f800000, signalling_nan = 0x7f800001;

enum class Elements { halves, floats };

void choose_dtype(Problem *p, Elements elements, Random &random) {
    p->dtype = random.chance(50) ? POLYHEAD_F16 : POLYHEAD_BF16;
    if (elements == Elements::floats) {
        p->dtype = POLYHEAD_F32;
        p->precision = POLYHEAD_TF32X3;
    }
}

Problem layer(int number, Elements elements, Random &random) {
    const std::vector<int> inputs = {8, 24, 64, 200, 32, 40, 96, 136}, columns = {1, 7, 16, 17, 100, 129, 64, 250};
    const int of_four = elements == Elements::floats && number % 4 == 1 ? 4 : 0; // rows of whole copies
    Problem p = linear_problem(inputs[static_cast<size_t>(number) % inputs.size()] - of_four, random.pick(columns));
    choose_dtype(&p, elements, random);
    p.bias = random.chance(50);
    return p;
}

bool by_warps(const polyhead_kernel &forced) {
    return forced.variants[0].alignment == 16;
}

// The variants of CUDA: warps multiply in all but so many, where threads do.
std::vector<polyhead_kernel> variants_of(const CompiledKernel &compiled, size_t count, int by_threads = 1) {
    std::vector<polyhead_kernel> forced = forced_variants(compiled.kernel(), Api::cuda);
    REQUIRE(forced.size() == count);
    CHECK(std::count_if(forced.begin(), forced.end(), by_warps) == static_cast<int>(count) - by_threads);
    CHECK(by_warps(forced.front()));
    CHECK(!by_warps(forced.back()));
    return forced;
}

// Rows of numbers with gaps between them, and rows of out likewise. Word: the bits of an element.
template <class Word> class StridedCall {
public:
    // before: elements in front of the first row. gap: what lies between rows.
    StridedCall(const Problem &p, int64_t rows, int64_t row_gap, int64_t out_gap, Word gap = Word(not_a_number), int64_t before = 0,
                int64_t out_before = 0)
        : columns_(p.out_features), out_stride_(p.out_features + out_gap), out_before_(out_before),
          input_(static_cast<size_t>(before + rows * (p.embed_dim + row_gap)), gap),
          out_(static_cast<size_t>(out_before + rows * out_stride_), 0xabcd) {
        Random random(11);
        const int64_t stride = p.embed_dim + row_gap;
        for (int64_t m = 0; m < rows; m++) {
            for (int64_t k = 0; k < p.embed_dim; k++) {
                // Halves from -2 to 2, which both types have.
                const auto halves = static_cast<int>(random.below(9)) - 4;
                input_[static_cast<size_t>(before + m * stride + k)] = store_number(p.dtype, static_cast<float>(halves) * 0.5f);
            }
        }
        args_ = polyhead_args_of(POLYHEAD_LINEAR);
        args_.query = view(p.dtype, input_.data() + before, rows, p.embed_dim, stride);
        args_.out = view(p.dtype, out_.data() + out_before, rows, columns_, out_stride_);
    }

    polyhead_args &args() { return args_; }
    Word &input(int64_t m, int64_t k) { return static_cast<Word *>(args_.query.data)[m * args_.query.stride[0] + k]; }
    // Rows of this call.
    void take(int64_t first, int64_t count) {
        args_.query.data = &input(first, 0);
        args_.out.data = static_cast<Word *>(args_.out.data) + first * out_stride_;
        args_.query.shape[0] = args_.out.shape[0] = count;
    }
    std::vector<Word> row(int64_t m) const {
        const auto first = out_.begin() + out_before_ + m * out_stride_;
        return {first, first + columns_};
    }
    bool gaps_untouched() const {
        bool same = true;
        for (size_t i = 0; i < out_.size(); i++) {
            const int64_t at = static_cast<int64_t>(i) - out_before_;
            same = same && ((at >= 0 && at % out_stride_ < columns_) || out_[i] == 0xabcd);
        }
        return same;
    }

private:
    int64_t columns_, out_stride_, out_before_;
    std::vector<Word> input_, out_;
    polyhead_args args_{};

    static Word store_number(int32_t dtype, float value) {
        if (dtype != POLYHEAD_F32) {
            return dtype == POLYHEAD_F16 ? test::to_f16(value) : test::to_bf16(value);
        }
        Word bits;
        std::memcpy(&bits, &value, sizeof bits);
        return bits;
    }
    static polyhead_tensor view(int32_t dtype, Word *data, int64_t rows, int64_t columns, int64_t stride) {
        polyhead_tensor t{};
        t.data = data;
        t.dtype = dtype;
        t.rank = 2;
        t.shape[0] = rows;
        t.shape[1] = columns;
        t.stride[0] = stride;
        t.stride[1] = 1;
        return t;
    }
};

// What the warps of attention read in a cache, too.
void choose_cache(Problem *p, Random &random) {
    p->cache = 1;
    p->page_size = random.pick(std::vector<int32_t>{0, 0, 1, 16, 32});
    p->shared_cache = random.chance(25);
    p->value_from_key = p->shared_cache == 0 && p->head_dim == p->head_dim_v && random.chance(20);
    p->causal = random.pick(std::vector<int32_t>{POLYHEAD_NOT_CAUSAL, POLYHEAD_BOTTOM_RIGHT, POLYHEAD_BOTTOM_RIGHT});
    p->window = random.chance(25);
    p->mask = random.chance(25) ? POLYHEAD_BOOLEAN_MASK : POLYHEAD_NO_MASK;
    p->softcap = random.chance(20);
    p->sinks = random.chance(20);
    p->gate = random.chance(20) ? POLYHEAD_GATE_OF_ENTRIES : POLYHEAD_NO_GATE;
}

// Layers of attention: a quarter is plain, one has masks, one what stands between projections and scores, one a cache without that.
Problem attention_layer(int number, Elements elements, Random &random) {
    const int heads = random.pick(std::vector<int>{1, 2, 4});
    Problem p = mha_problem(random.pick(std::vector<int>{64, 96, 40, 128}), heads, random.pick(std::vector<int>{heads, 1}),
                            random.pick(std::vector<int>{16, 32, 64, 24, 20}));
    p.head_dim_v = random.chance(70) && p.head_dim % 8 == 0 ? p.head_dim : random.pick(std::vector<int>{16, 8, 40});
    choose_dtype(&p, elements, random);
    p.bias = random.chance(60);
    p.lse = random.chance(40);
    if (number % 4 == 1) {
        p.causal = random.pick(std::vector<int32_t>{POLYHEAD_NOT_CAUSAL, POLYHEAD_BOTTOM_RIGHT, POLYHEAD_TOP_LEFT});
        p.kv_lengths = random.chance(60);
        p.window = random.chance(25);
        p.mask = random.chance(30) ? random.pick(std::vector<int32_t>{POLYHEAD_BOOLEAN_MASK, POLYHEAD_ADDITIVE_MASK}) : POLYHEAD_NO_MASK;
        p.cross = random.chance(40);
        p.kdim = p.cross != 0 ? 48 : 0;
        p.vdim = p.cross != 0 ? 72 : 0;
    }
    if (number % 4 == 2) {
        p.cache = random.chance(40);
        p.causal = POLYHEAD_BOTTOM_RIGHT;
        p.rope = random.chance(50) && p.head_dim % 2 == 0 ? POLYHEAD_ROPE_HALF_SPLIT : POLYHEAD_NO_ROPE;
        p.query_norm = p.key_norm = random.chance(40) ? POLYHEAD_RMS_NORM : POLYHEAD_NO_NORM;
        p.gate = random.pick(std::vector<int32_t>{POLYHEAD_NO_GATE, POLYHEAD_GATE_OF_HEADS, POLYHEAD_GATE_OF_ENTRIES});
        p.softcap = random.chance(30);
        p.sinks = random.chance(30);
    }
    if (number % 4 == 3) {
        choose_cache(&p, random);
    }
    return p;
}

Shape layer_shape(const Problem &p, int64_t queries, int64_t keys, uint64_t seed, Random &random) {
    Shape shape = plain_shape(p, 1 + random.below(2), queries, p.cross != 0 || p.cache != 0 ? keys : queries, seed);
    const int64_t longest = shape.seq_len_kv - (p.cache != 0 ? shape.seq_len_q : 0); // before the call
    for (int64_t b = 0; (p.kv_lengths != 0 || p.cache != 0) && b < shape.batch; b++) {
        shape.lengths.push_back(static_cast<int32_t>(random.chance(30) ? longest : random.between(0, longest)));
    }
    shape.poison = random.chance(50);
    shape.poison_key = random.chance(40) && p.cache == 0 ? random.below(shape.seq_len_kv) : -1;
    shape.extras = random_extras(p, shape.seq_len_q, shape.seq_len_kv, random);
    return shape;
}

Problem strided_problem(int32_t dtype) {
    Problem p = linear_problem(72, 36);
    p.dtype = dtype;
    p.precision = POLYHEAD_TF32X3;
    p.bias = 1;
    return p;
}

void sweep_layers(Elements elements) {
    const int64_t more_than_a_block = elements == Elements::floats ? 97 : 129;
    for_each_of_sweep("gpu/linear_products/", rotating_numbers(0, all_layers, quick_layers), [&](int number, uint64_t seed) {
        Random random(seed);
        const Problem p = layer(number, elements, random);
        // A third has another tiling than the variants that are planned: blocks of other warps, of which copies do not come out even.
        const std::string tiling =
            number % 3 != 2 ? ""
                            : "frame=linear warp_products=1" +
                                  random.pick(std::vector<std::string>{" linear_rows=4 linear_block=64 linear_panels=4",
                                                                       " linear_rows=2 linear_columns=8 linear_block=48 linear_panels=2"});
        const std::string line = generate_line(p) + " --target " + target + " --tiling '" + tiling + "'";
        INFO(line);
        const CompiledKernel compiled(p, {target, tiling, "gpu_linear_products_" + std::to_string(number)});
        REQUIRE(compiled.error() == "");
        const std::vector<polyhead_kernel> forced =
            tiling.empty() ? variants_of(compiled, 3) : forced_variants(compiled.kernel(), Api::cuda);
        double worst = 0;
        int shapes = 0;
        for (size_t i = 0; i < (tiling.empty() ? 2 : 1); i++) { // of few rows, and of any number
            const KernelSubject subject(forced[i], seed, false, TestDevice::get().raw());
            for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{15}, int64_t{16}, int64_t{17}, more_than_a_block}) {
                if (serves(forced[i], rows)) {
                    CHECK(check_answer(subject.subject(), plain_shape(p, 1, rows, 0, seed), &worst, 3e7) == "");
                    shapes++;
                }
            }
        }
        print_swept(elements == Elements::floats ? "gpu linear products of floats" : "gpu linear products", number, shapes, worst, line);
    });
}

void sweep_attention_layers(Elements elements) {
    for_each_of_sweep(
        "gpu/layer_products/", rotating_numbers(0, all_attention_layers, quick_attention_layers), [&](int number, uint64_t seed) {
            Random random(seed);
            const Problem p = attention_layer(number, elements, random);
            const std::string line = generate_line(p) + " --target " + target;
            INFO(line);
            const CompiledKernel compiled(p, {target, "", "gpu_layer_products_" + std::to_string(number)});
            REQUIRE(compiled.error() == "");
            const bool splits = p.cache != 0 || p.cross != 0; // of keys, for few queries: one by warps, one by threads
            const std::vector<polyhead_kernel> forced = variants_of(compiled, splits ? 4 : 2, splits ? 2 : 1);
            double worst = 0;
            int shapes = 0;
            for (const polyhead_kernel &variant : forced) {
                if (!by_warps(variant)) {
                    continue;
                }
                const KernelSubject subject(variant, seed, false, TestDevice::get().raw(), number % 2 == 0 ? Home::host : Home::device);
                for (const auto &[queries, keys] :
                     std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {17, 33}, {70, 129}, {9, 40}, {1, 300}, {3, 257}}) {
                    if (serves(variant, queries) && (keys < 200 || splits)) {
                        CHECK(check_answer(subject.subject(), layer_shape(p, queries, keys, seed, random), &worst, 3e7) == "");
                        shapes++;
                    }
                }
                if (const Shape same = same_bits_shape(p, seed); test_all() && serves(variant, same.seq_len_q)) {
                    CHECK(check_same_bits(subject.subject(), same) == "");
                }
            }
            print_swept(elements == Elements::floats ? "gpu layer products of floats" : "gpu layer products", number, shapes, worst, line);
        });
}

// hostile: values of gaps between rows, and of a row.
template <class Word> void check_bits(int32_t dtype, const std::vector<Word> &hostile) {
    constexpr int64_t rows = 131, poisoned = 7;
    const Problem p = strided_problem(dtype);
    const CompiledKernel compiled(p, {target, "", "gpu_linear_bits_" + std::to_string(dtype)});
    REQUIRE(compiled.error() == "");
    const std::vector<polyhead_kernel> forced = variants_of(compiled, 3);
    const KernelSubject of_any_rows(forced[1], 5, false, TestDevice::get().raw(), Home::device),
        subject(compiled.kernel(), 5, false, TestDevice::get().raw(), Home::device); // which has another variant for few rows
    StridedCall<Word> all(p, rows, 0, 0);
    const polyhead_status status = of_any_rows.subject().run(all.args());
    INFO(status.message);
    REQUIRE(status.code == POLYHEAD_OK);
    for (const auto &[first, count] : {std::pair<int64_t, int64_t>{0, 1}, {3, 15}, {64, 16}, {17, 17}, {0, 128}}) {
        StridedCall<Word> some(p, rows, 0, 0);
        some.take(first, count);
        REQUIRE(subject.subject().run(some.args()).code == POLYHEAD_OK);
        for (int64_t m = first; m < first + count; m++) {
            CHECK(some.row(m) == all.row(m));
        }
    }
    for (const Word gap : hostile) {
        StridedCall<Word> apart(p, rows, 24, 6, gap);
        for (int64_t k = 0; k < p.embed_dim; k++) {
            apart.input(poisoned, k) = k % 2 == 0 ? gap : hostile[0];
        }
        REQUIRE(subject.subject().run(apart.args()).code == POLYHEAD_OK);
        CHECK(apart.gaps_untouched());
        for (int64_t m = 0; m < rows; m++) {
            CHECK((m == poisoned) != (apart.row(m) == all.row(m)));
        }
    }
}

// bytes: what out must be aligned to.
template <class Word> void check_unaligned(int32_t dtype, const std::string &bytes) {
    const Problem p = strided_problem(dtype);
    const int64_t copied = 16 / int64_t{sizeof(Word)};
    const CompiledKernel compiled(p, {target, "", "gpu_linear_unaligned_" + std::to_string(dtype)});
    REQUIRE(compiled.error() == "");
    const std::vector<polyhead_kernel> forced = variants_of(compiled, 3);
    const KernelSubject products(forced[0], 5, false, TestDevice::get().raw(), Home::device),
        threads(forced[2], 5, false, TestDevice::get().raw(), Home::device),
        both(compiled.kernel(), 5, false, TestDevice::get().raw(), Home::device);
    struct Case {
        int64_t row_gap, out_gap, before, out_before;
        std::string refusal;
    };
    const std::string of_input = "address and strides of input to be multiples of 16 bytes",
                      of_out = "address and strides of out to be multiples of " + bytes;
    for (const Case &c : {Case{copied / 2, 0, 0, 0, of_input}, Case{copied, 0, 1, 0, of_input}, Case{copied, 1, 0, 0, of_out},
                          Case{copied, 2, 0, 1, of_out}}) {
        const auto call = [&c, &p] { return StridedCall<Word>(p, 5, c.row_gap, c.out_gap, Word(not_a_number), c.before, c.out_before); };
        StridedCall<Word> refused = call(), expected = call(), found = call();
        const polyhead_status status = products.subject().run(refused.args());
        CHECK(status.code == POLYHEAD_UNSUPPORTED);
        CHECK(std::string(status.message).find(c.refusal) != std::string::npos);
        REQUIRE(threads.subject().run(expected.args()).code == POLYHEAD_OK);
        REQUIRE(both.subject().run(found.args()).code == POLYHEAD_OK);
        CHECK(found.gaps_untouched());
        for (int64_t m = 0; m < 5; m++) {
            CHECK(found.row(m) == expected.row(m));
        }
    }
}

// The product of one row and one column as floats have it.
float plain_product(const std::vector<float> &row, const std::vector<float> &weight, size_t column) {
    float sum = 0;
    for (size_t k = 0; k < row.size(); k++) {
        sum += row[k] * weight[column * row.size() + k];
    }
    return sum;
}

} // namespace

TEST_CASE("gpu linear products: rows, inputs and columns around the borders of tiles") {
    if (required_cuda()) {
        sweep_layers(Elements::halves);
    }
}

TEST_CASE("gpu linear products: floats, rows, inputs and columns around the borders of tiles") {
    if (required_cuda()) {
        sweep_layers(Elements::floats);
    }
}

TEST_CASE("gpu linear products: layers of attention") {
    if (required_cuda()) {
        sweep_attention_layers(Elements::halves);
    }
}

TEST_CASE("gpu linear products: layers of attention of floats") {
    if (required_cuda()) {
        sweep_attention_layers(Elements::floats);
    }
}

TEST_CASE("gpu linear products: a row has the same bits in any call, beside any others, and with any stride") {
    if (required_cuda()) {
        check_bits<uint16_t>(POLYHEAD_F16, {not_a_number, infinity_of_f16});
        check_bits<uint16_t>(POLYHEAD_BF16, {not_a_number, infinity_of_f16});
        check_bits<uint32_t>(POLYHEAD_F32, {signalling_nan, float_infinity, float_infinity | 1u << 22});
    }
}

TEST_CASE("gpu linear products: tensors whose rows are no whole copies take the threads' variant") {
    if (required_cuda()) {
        check_unaligned<uint16_t>(POLYHEAD_F16, "4 bytes");
        check_unaligned<uint32_t>(POLYHEAD_F32, "8 bytes");
    }
}

// A product that adds to a long sum may cut off more than f32 errs by: sums of all lengths are within the rule, in both ways of adding.
TEST_CASE("gpu linear products: sums of floats of any length") {
    const TestDevice *const device = required_cuda();
    if (!device) {
        return;
    }
    for (const int inputs : {1024, 8192}) {
        Problem p = linear_problem(inputs, 64);
        p.precision = POLYHEAD_TF32X3;
        const CompiledKernel compiled(p, {target, "", "gpu_linear_long_" + std::to_string(inputs)});
        REQUIRE(compiled.error() == "");
        const std::vector<polyhead_kernel> forced = variants_of(compiled, 3);
        const KernelSubject subject(forced[0], 5, false, device->raw());
        double worst = 0;
        CHECK(check_answer(subject.subject(), plain_shape(p, 1, 16, 0, 7), &worst, 3e7) == "");
        CHECK(worst < 0.15); // without sums of 8 inputs it is 0.24 of the tolerance and more
    }
}

// Whole numbers, whose lower parts are 0: an infinity must not meet one.
TEST_CASE("gpu linear products: infinities, numbers that are none and huge ones are what floats make of them") {
    const TestDevice *const device = required_cuda();
    if (!device) {
        return;
    }
    constexpr size_t inputs = 24, columns = 18, rows = 6;
    constexpr float infinity = std::numeric_limits<float>::infinity(), huge = 3e38f;
    Problem p = linear_problem(inputs, columns);
    p.precision = POLYHEAD_TF32X3;
    const CompiledKernel compiled(p, {target, "", "gpu_linear_infinities"});
    REQUIRE(compiled.error() == "");
    const polyhead_kernel kernel = variants_of(compiled, 3).at(0);
    Random random(3);
    std::vector<float> weight(columns * inputs), input(rows * inputs), out(rows * columns);
    for (std::vector<float> *numbers : {&weight, &input}) {
        for (float &x : *numbers) {
            x = static_cast<float>(random.below(9)) - 4;
        }
    }
    weight[5 * inputs + 3] = -infinity;
    input[0 * inputs + 2] = infinity;
    input[1 * inputs + 17] = -infinity;
    input[2 * inputs + 9] = std::numeric_limits<float>::quiet_NaN();
    input[4 * inputs + 1] = huge;
    const auto matrix = [](std::vector<float> &data, size_t height, size_t width) {
        polyhead_tensor t{};
        t.data = data.data();
        t.rank = 2;
        t.shape[0] = static_cast<int64_t>(height);
        t.shape[1] = t.stride[0] = static_cast<int64_t>(width);
        t.stride[1] = 1;
        return t;
    };
    polyhead_weight_tensors tensors = polyhead_weight_tensors_of();
    tensors.out_proj = matrix(weight, columns, inputs);
    GuardedBuffer memory((polyhead_weights_bytes(&kernel) + 63) / 64 * 64, Place::at_end); // begins at a multiple of 64
    polyhead_weights packed{};
    const polyhead_status status = polyhead_pack(&kernel, &tensors, memory.data(), &packed);
    INFO(status.message);
    REQUIRE(status.code == POLYHEAD_OK);
    polyhead_args args = polyhead_args_of(POLYHEAD_LINEAR);
    args.query = matrix(input, rows, inputs);
    args.out = matrix(out, rows, columns);
    args.weights = &packed;
    args.device = device->raw();
    const polyhead_status ran = polyhead_run(&kernel, &args);
    INFO(ran.message);
    REQUIRE(ran.code == POLYHEAD_OK);
    for (size_t m = 0; m < rows; m++) {
        const std::vector<float> row(input.begin() + static_cast<int64_t>(m * inputs),
                                     input.begin() + static_cast<int64_t>((m + 1) * inputs));
        for (size_t n = 0; n < columns; n++) {
            const float expected = plain_product(row, weight, n), found = out[m * columns + n];
            INFO(m << ", " << n << ": " << found << ", expected " << expected);
            CHECK((std::isnan(expected)   ? std::isnan(found)
                   : std::isinf(expected) ? found == expected
                                          : std::abs(found - expected) <= 1e-6f * std::abs(expected)));
        }
    }
}

TEST_CASE("gpu linear products: a cache whose rows are no whole copies takes the threads' variant") {
    if (!required_cuda()) {
        return;
    }
    Problem p = mha_problem(64, 2, 1, 32);
    p.dtype = POLYHEAD_BF16;
    p.cache = 1;
    p.causal = POLYHEAD_BOTTOM_RIGHT;
    const CompiledKernel compiled(p, {target, "", "gpu_unaligned_cache"});
    REQUIRE(compiled.error() == "");
    const KernelSubject subject(compiled.kernel(), 5, false, TestDevice::get().raw(), Home::device);
    for (const auto &[layout, queries, runs] :
         {std::tuple(Layout::bhsd, 20, "warp_tiles"), std::tuple(Layout::bhsd_padded, 20, "thread_rows"),
          std::tuple(Layout::bshd_padded, 3, "split_rows")}) {
        Shape shape = plain_shape(p, 2, queries, 70, 5);
        shape.lengths = {50, 0};
        shape.key = layout;
        CHECK(check_answer(subject.subject(), shape) == "");
        const Inputs inputs(p, shape);
        const DeviceCall call(TestDevice::get().raw(), Home::device, subject.prepared(inputs.args()));
        std::string text(4096, ' ');
        polyhead_explain(&compiled.kernel(), &call.args(), text.data(), text.size());
        INFO(text);
        const std::string refusal = "wants address and strides of key_cache to be multiples of 16 bytes\n",
                          frame = std::string(" frame=") + runs;
        const size_t chosen = text.find("runs ");
        REQUIRE(chosen != std::string::npos);
        CHECK(text.substr(chosen, text.find('\n', chosen) - chosen).find(frame) != std::string::npos);
        CHECK((text.find(refusal) != std::string::npos) == (layout != Layout::bhsd));
    }
}
