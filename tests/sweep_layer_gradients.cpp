// Gradients of layers of attention: the same bits for any number of threads and in memory of the caller, inside of their tensors; and what
// is refused. The values are compared with float64 by tests/python_layer_gradients.py. Quick tier: one problem, which rotates with
// POLYHEAD_SWEEP_SEED; POLYHEAD_TEST_ALL=1: all.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "contract/tensors.h"
#include "instruments/calls/layouts.h"
#include "instruments/calls/outputs.h"
#include "support/sweep_compiled.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

struct LayerShape {
    int64_t batch, queries, keys;
    Place place;
    uint64_t seed;
};

// A call with a tensor for each row of the contract. Heads and lse are random numbers: any finite ones are a call.
class LayerCall {
public:
    LayerCall(const Problem &p, const LayerShape &shape) : problem_(p), shape_(shape), random_(shape.seed), args_(polyhead_args_of(p.op)) {
        for (const contract::TensorRow &row : contract::taken_by(p)) {
            if (row.place != contract::Place::host) {
                add(row);
            }
        }
        args_.norm_epsilon = contract::normalises(p) ? 1e-5f : 0.0f;
        args_.dropout_p = p.dropout != 0 ? 0.25f : 0.0f;
    }
    polyhead_args &args() { return args_; }
    std::string unwritten() const { return outputs_.unwritten(); }
    bool outputs_untouched() const { return outputs_.untouched(); }
    bool gaps_untouched() {
        outputs_.refill();
        return outputs_.untouched();
    }

private:
    int64_t extent(int32_t what) const {
        const int32_t counts = contract::counted(what, problem_);
        return counts == POLYHEAD_EXTENT_B      ? shape_.batch
               : counts == POLYHEAD_EXTENT_Q    ? shape_.queries
               : counts == POLYHEAD_EXTENT_KV   ? shape_.keys
               : counts == POLYHEAD_EXTENT_FREE ? std::max(shape_.queries, shape_.keys) // positions of tables
                                                : contract::fixed_extent(counts, problem_);
    }

    void add(const contract::TensorRow &row) {
        std::vector<int64_t> extents, strides(static_cast<size_t>(row.rank), 1);
        for (int i = 0; i < row.rank; i++) {
            extents.push_back(extent(row.extents[i]));
        }
        constexpr int64_t gap = 3; // behind each row
        for (size_t i = extents.size(); i-- > 1;) {
            strides[i - 1] = strides[i] * extents[i] + (i + 1 == extents.size() ? gap : 0);
        }
        const int32_t dtype = row.dtype(problem_);
        if (row.place == contract::Place::result) {
            outputs_.add(row.tensor, make_tensor(static_cast<DType>(dtype), extents, strides, shape_.place), &args_);
        } else if (row.tensor == &polyhead_args::kv_lengths) {
            inputs_.push_back(make_tensor(DType::i32, extents, strides, shape_.place));
            for (int64_t b = 0; b < shape_.batch; b++) {
                static_cast<int32_t *>(inputs_.back().view.data)[b] = static_cast<int32_t>(b == 0 ? 0 : random_.between(1, shape_.keys));
            }
            args_.*row.tensor = inputs_.back().view;
        } else if (dtype == POLYHEAD_F32 || is_16_bit(dtype)) {
            Tensor values = make_tensor(DType::f32, extents, strides, shape_.place);
            fill_normal(values, random_, 1.0f);
            inputs_.push_back(is_16_bit(dtype) ? store(values, dtype, shape_.place) : std::move(values));
            inputs_.back().memory.make_read_only();
            args_.*row.tensor = inputs_.back().view;
        }
    }

    Problem problem_;
    LayerShape shape_;
    Random random_;
    polyhead_args args_;
    std::vector<Tensor> inputs_;
    OutputTensors outputs_;
};

Problem layer(int heads, int kv_heads, int dim) {
    Problem p = mha_problem(heads * dim, heads);
    p.op = POLYHEAD_MHA_BACKWARD;
    p.num_kv_heads = kv_heads;
    p.head_dim = dim;
    p.bias = 1;
    return p;
}

std::vector<Problem> swept_problems() {
    Problem plain = layer(3, 3, 24), cross = layer(4, 2, 16), rotated = layer(2, 1, 20), causal = layer(4, 4, 8);
    cross.cross = cross.kv_lengths = 1;
    cross.kdim = 37;
    cross.vdim = 50;
    cross.head_dim_v = 9;
    cross.gate = POLYHEAD_GATE_OF_ENTRIES;
    cross.dtype = POLYHEAD_BF16;
    rotated.rope = POLYHEAD_ROPE_HALF_SPLIT;
    rotated.query_norm = rotated.key_norm = POLYHEAD_RMS_NORM;
    rotated.gate = POLYHEAD_GATE_OF_HEADS;
    rotated.dtype = POLYHEAD_F16;
    rotated.f32_weights = 1;
    causal.causal = POLYHEAD_TOP_LEFT;
    causal.dropout = causal.sinks = causal.grad_sinks = 1;
    return {plain, cross, rotated, causal};
}

std::string check_bits(const Kernel &kernel, const LayerShape &shape) {
    std::vector<std::vector<float>> first;
    const int before = polyhead_num_threads();
    for (const int threads : {1, 2, 5}) {
        for (const bool own_memory : {false, true}) {
            LayerCall call(kernel.problem, shape);
            polyhead_set_num_threads(threads);
            const GuardedBuffer memory(own_memory ? static_cast<size_t>(kernel.scratch_bytes(call.args())) : 0, Place::at_end);
            if (own_memory) {
                call.args().scratch = memory.data();
                call.args().scratch_bytes = memory.bytes();
            }
            const Status status = kernel.run(call.args());
            polyhead_set_num_threads(before);
            if (!status.ok()) {
                return status.message();
            }
            if (!call.unwritten().empty()) {
                return call.unwritten();
            }
            const std::vector<std::vector<float>> found = read_outputs(call.args());
            first = first.empty() ? found : first;
            for (size_t i = 0; i < found.size(); i++) {
                if (!found[i].empty() && std::memcmp(found[i].data(), first[i].data(), found[i].size() * sizeof(float)) != 0) {
                    return "output " + std::to_string(i) + " has other bits with " + std::to_string(threads) + " threads";
                }
                if (std::any_of(found[i].begin(), found[i].end(), [](float x) { return !std::isfinite(x); })) {
                    return "output " + std::to_string(i) + " is not finite";
                }
            }
            if (!call.gaps_untouched()) {
                return "memory beside the results was written";
            }
        }
    }
    return "";
}

} // namespace

TEST_CASE("gradients of layers: the same bits in any memory") {
    const std::vector<std::string> targets = {"host", "x86-64-linux-avx2-fma-f16c-avx-sse41", "x86-64-linux-sse41", "host"};
    for_each_of_sweep("layer_gradients/", rotating_numbers(0, static_cast<int>(targets.size()), 1), [&](int number, uint64_t seed) {
        const Problem p = swept_problems()[static_cast<size_t>(number)];
        const CompiledKernel compiled(p, {targets[static_cast<size_t>(number)], "", "layer_gradients"});
        INFO(generate_line(p));
        REQUIRE(compiled.error() == "");
        for (const auto &[batch, queries, keys] : {std::array<int64_t, 3>{1, 1, 1}, {3, 7, 19}, {2, 70, 131}, {5, 16, 33}}) {
            const LayerShape shape{batch, queries, p.cross != 0 ? keys : queries, batch == 3 ? Place::at_begin : Place::at_end, seed + 1};
            INFO(batch << " x " << queries << " x " << shape.keys);
            CHECK(check_bits(compiled.kernel(), shape) == "");
        }
    });
}

TEST_CASE("gradients of layers: wrong arguments are refused, and nothing is written") {
    const CompiledKernel compiled(layer(2, 1, 4), {"host", "", "layer"});
    REQUIRE(compiled.error() == "");
    const auto sentence = [&](const auto &change) {
        LayerCall call(compiled.kernel().problem, {2, 5, 5, Place::inside, 1});
        change(call.args());
        const Status status = compiled.kernel().run(call.args());
        CHECK(!status.ok());
        CHECK(call.outputs_untouched());
        return std::string(status.message());
    };
    using Args = polyhead_args;
    CHECK(sentence([](Args &a) { a.lse = polyhead_tensor{}; }).rfind("lse: missing", 0) == 0);
    CHECK(sentence([](Args &a) { a.attended = polyhead_tensor{}; }).rfind("attended: missing", 0) == 0);
    CHECK(sentence([](Args &a) { a.key_heads.shape[1] = 2; }) == "key_heads: extent 2 of dimension 1, expected 1");
    CHECK(sentence([](Args &a) { a.weight_k.shape[0] = 8; }) == "weight_k: extent 8 of dimension 0, expected 4");
    CHECK(sentence([](Args &a) { a.grad_out.shape[1] = 4; }) == "grad_out: extent 4 of dimension 1, expected 5 as in input");
    CHECK(sentence([](Args &a) { a.grad_bias_v = polyhead_tensor{}; }).rfind("grad_bias_v: missing", 0) == 0);
    CHECK(sentence([](Args &a) { a.grad_weight_q = a.weight_q; }).find("shares memory with weight_q") != std::string::npos);
    CHECK(sentence([](Args &a) { a.grad_key = a.grad_query; }).find("grad_key: given") == 0);
    CHECK(sentence([](Args &a) { a.weight_gate = a.weight_q; }).find("weight_gate: given") == 0);
    CHECK(sentence([](Args &a) { a.op = POLYHEAD_MHA; }).rfind("arguments: of operation mha, expected mha_backward", 0) == 0);
}

TEST_CASE("gradients of layers: what is not computed is refused by name") {
    const auto error = [](const auto &change, const char *target) {
        Problem p = layer(2, 2, 4);
        change(p);
        return CompiledKernel(p, {target, "", "refused"}).error();
    };
    CHECK(error([](Problem &p) { p.cache = 1; }, "host") == "cache is not a parameter of op mha_backward");
    CHECK(error([](Problem &p) { p.norm_of_projection = 1; }, "host") == "norm_of_projection is not a parameter of op mha_backward");
    CHECK(error([](Problem &p) { p.lse = 1; }, "host") == "lse is not a parameter of op mha_backward");
    CHECK(error([](Problem &) {}, "host-opencl").find("op mha_backward is not supported on target ") == 0);
    const auto forward = [&](const auto &change, const char *target) {
        return error(
            [&](Problem &p) {
                p.op = POLYHEAD_MHA;
                p.keep_heads = 1;
                change(p);
            },
            target);
    };
    CHECK(forward([](Problem &p) { p.cache = 1; }, "host") ==
          "keep_heads is not allowed with cache: gradients of a cache are not computed");
    CHECK(forward([](Problem &p) { p.value_from_key = 1; }, "host").find("keep_heads is not allowed with value_from_key") == 0);
    CHECK(forward([](Problem &) {}, "host-opencl").find("keep_heads is not supported on target ") == 0);
}
