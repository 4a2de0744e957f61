// The Halide generator "polyhead_kernel": a Problem and a Tiling as parameters, the argument list, algorithm and schedule.
#include <Halide.h>

#include "../schedules/apply.h"
#include "../schedules/device_asserts.h"
#include "layer.h"

namespace polyhead::gen {

using Halide::Buffer;
using Halide::Expr;

class KernelGenerator : public Halide::Generator<KernelGenerator> {
public:
    GeneratorParam<std::string> frame{"frame", "query_lanes"};
#define POLYHEAD_PARAM(name) GeneratorParam<int> param_##name{#name, 0};
    POLYHEAD_PROBLEM_FIELDS(POLYHEAD_PARAM)
#undef POLYHEAD_PARAM
#define POLYHEAD_PARAM(name, meaning) GeneratorParam<int> param_##name{#name, 0};
    POLYHEAD_TILING_KNOBS(POLYHEAD_PARAM)
#undef POLYHEAD_PARAM

    void configure() {
        const Problem p = problem();
        query_ = input(p.op == POLYHEAD_LINEAR ? "input" : "query", p.op == POLYHEAD_SDPA ? 4 : p.op == POLYHEAD_MHA ? 3 : 2);
        if (p.op == POLYHEAD_SDPA) {
            key_ = input("key", 4);
            value_ = input("value", 4);
        } else if (p.op == POLYHEAD_MHA) {
            key_ = p.cross ? input("key", 3) : query_;
            value_ = p.cross ? input("value", 3) : query_;
            for (const char *name : {"weight_q", "weight_k", "weight_v", "weight_out"}) {
                weights_.push_back(input(name, 3));
            }
            for (const char *name : {"bias_q", "bias_k", "bias_v", "bias_out"}) {
                biases_.push_back(p.bias ? input(name, 1) : nullptr);
            }
        } else {
            weights_.push_back(input("weight", 3));
            biases_.push_back(p.bias ? input("bias_out", 1) : nullptr);
        }
        if (p.kv_lengths) {
            lengths_ = add_input<Buffer<void>>("valid_lengths", Halide::Int(32), 1);
        }
        if (p.op != POLYHEAD_LINEAR) {
            softmax_scale_ = add_input<float>("softmax_scale");
        }
        if (p.causal) {
            from_end_ = add_input<int32_t>("from_end");
        }
        out_ = add_output<Buffer<void>>("out", storage().type, p.op == POLYHEAD_SDPA ? 4 : p.op == POLYHEAD_MHA ? 3 : 2);
        if (p.lse) {
            lse_ = add_output<Buffer<void>>("lse_out", Halide::Float(32), 3);
        }
    }

    void generate() {
        const Problem p = problem();
        constrain_inputs(p);
        if (p.op == POLYHEAD_SDPA) {
            generate_sdpa(p);
        } else if (p.op == POLYHEAD_MHA) {
            generate_mha(p);
        } else {
            generate_linear(p);
        }
    }

    void schedule() {
        constrain_outputs(problem());
        if (param_unscheduled) {
            schedule_nothing(&plan_);
        } else {
            schedule_kernel(&plan_, tiling(), machine());
        }
        drop_device_asserts(get_pipeline());
    }

private:
    using Tensor = Input<Buffer<void>>;
    Tensor *query_ = nullptr, *key_ = nullptr, *value_ = nullptr, *lengths_ = nullptr;
    std::vector<Tensor *> weights_, biases_;
    Input<float> *softmax_scale_ = nullptr;
    Input<int32_t> *from_end_ = nullptr;
    Output<Buffer<void>> *out_ = nullptr, *lse_ = nullptr;
    KernelStages plan_;

    Tensor *input(const char *name, int dimensions) { return add_input<Buffer<void>>(name, storage().type, dimensions); }

    Machine machine() const { return machine_of(get_target()); }
    Storage storage() const { return storage_of(param_dtype, machine().api == POLYHEAD_CUDA); }
    // Elements of a tensor as floats.
    template <class... Index> Expr load(Tensor *tensor, const Index &...index) const { return storage().load((*tensor)(index...)); }

    Problem problem() const {
        Problem p{};
#define POLYHEAD_READ(name) p.name = param_##name;
        POLYHEAD_PROBLEM_FIELDS(POLYHEAD_READ)
#undef POLYHEAD_READ
        return p;
    }

    Tiling tiling() const {
        Tiling t;
#define POLYHEAD_READ(name, meaning) t.name = param_##name;
        POLYHEAD_TILING_KNOBS(POLYHEAD_READ)
#undef POLYHEAD_READ
        return t;
    }

    template <class Port> static void constrain(Port &port, int width, int length_dimension, int length) {
        for (int i = 0; i < port.dimensions(); i++) {
            port.dim(i).set_min(0);
        }
        port.dim(0).set_extent(width);
        if (length > 0) {
            port.dim(length_dimension).set_extent(length);
        }
    }

    // Inputs of the layer that weight i belongs to: query, key, value, out, or the linear layer alone.
    static int weight_depth(const Problem &p, size_t i) {
        const int depths[] = {p.embed_dim, p.kdim, p.vdim, p.num_heads * p.head_dim_v};
        return depths[i];
    }

    // Addresses and outer strides are multiples of so many elements.
    static void align(Tensor &tensor, int elements) {
        tensor.set_host_alignment(elements * tensor.type().bytes());
        for (int i = 1; i < tensor.dimensions(); i++) {
            tensor.dim(i).set_stride(tensor.dim(i).stride() / elements * elements);
        }
    }

    void constrain_inputs(const Problem &p) {
        if (p.op == POLYHEAD_SDPA) {
            constrain(*query_, p.head_dim, 1, p.seq_len_q);
            constrain(*key_, p.head_dim, 1, 0);
            constrain(*value_, p.head_dim_v, 1, 0);
            if (const int width = tiling().load_width; width > 1) {
                for (Tensor *tensor : {query_, key_, value_}) {
                    align(*tensor, width);
                }
            }
        } else {
            constrain(*query_, p.embed_dim, 1, p.seq_len_q);
            if (p.cross) {
                constrain(*key_, p.kdim, 1, p.seq_len_kv);
                constrain(*value_, p.vdim, 1, p.seq_len_kv);
            }
        }
        for (size_t i = 0; i < weights_.size(); i++) {
            Tensor *weight = weights_[i];
            constrain(*weight, POLYHEAD_WEIGHT_PANEL, 0, 0);
            weight->dim(1).set_stride(POLYHEAD_WEIGHT_PANEL);
            weight->dim(2).set_stride(POLYHEAD_WEIGHT_PANEL * weight_depth(p, i)); // as packed: wide loads know their alignment
            weight->set_host_alignment(64);
        }
        for (Tensor *bias : biases_) {
            if (bias) {
                bias->dim(0).set_min(0);
                bias->set_host_alignment(64);
            }
        }
        if (lengths_) {
            lengths_->dim(0).set_min(0).set_stride(Expr()); // 0 when one length serves every row
        }
    }

    void constrain_outputs(const Problem &p) {
        constrain(*out_, p.op == POLYHEAD_SDPA ? p.head_dim_v : p.op == POLYHEAD_MHA ? p.embed_dim : p.out_features, 1, p.seq_len_q);
        if (lse_) {
            for (int i = 0; i < 3; i++) {
                lse_->dim(i).set_min(0);
            }
        }
    }

    AttentionInputs attention_inputs(const Problem &p) {
        AttentionInputs in;
        in.seq_len_q = p.seq_len_q > 0 ? Expr(p.seq_len_q) : query_->dim(1).extent();
        in.seq_len_kv = p.seq_len_kv > 0 ? Expr(p.seq_len_kv) : key_->dim(1).extent();
        in.key_rows = p.op == POLYHEAD_SDPA ? Expr(key_->dim(1).extent()) : in.seq_len_kv;
        in.softmax_scale = *softmax_scale_;
        if (from_end_) {
            in.from_end = *from_end_;
        }
        if (lengths_) {
            in.kv_lengths = [this](const Expr &b) { return (*lengths_)(b); };
        }
        return in;
    }

    auto reader(Tensor *tensor) const {
        return [=](const Expr &d, const Expr &t, const Expr &h, const Expr &b) { return load(tensor, d, t, h, b); };
    }

    // Attention through the chosen frame, into `result` (d, q, h, b), or (d, h, q, b) with heads inside, and lse if asked for.
    void attend(const Problem &p, const AttentionInputs &in, const Halide::Func &result, bool heads_inside) {
        plan_.attention = make_attention(AttentionFormulas(p, in), frame, tiling(), machine());
        const AttentionStages &attention = plan_.attention;
        AttentionOut &o = plan_.attention_out;
        // Two outputs of different shape cannot share a loop nest: where the frame keeps its tile inside the task, lse travels as one
        // more column of `attended`, and the outputs copy.
        const bool joined = p.lse && attention.writes_one_output();
        o.func = joined && !heads_inside ? Halide::Func("attended") : result;
        o.columns = p.head_dim_v + int(joined);
        auto at = [&](const Expr &d, const Expr &q) {
            return heads_inside ? std::vector<Expr>{d, o.h, q, o.b} : std::vector<Expr>{d, q, o.h, o.b};
        };
        // What is an intermediate stays f32.
        const bool stored = !heads_inside && !joined;
        plan_.attention.write(o, joined, in.seq_len_q, at, stored ? storage().store : [](const Expr &x) { return x; });
        if (joined && !heads_inside) {
            plan_.copy = result;
            plan_.copy(o.d, o.q, o.h, o.b) = storage().store(o.func(at(o.d, o.q)));
        }
        if (p.lse) {
            plan_.lse = *lse_;
            plan_.lse(o.q, o.h, o.b) = joined ? o.func(at(p.head_dim_v, o.q)) : attention.lse(o.q, o.h, o.b);
        }
    }

    void generate_sdpa(const Problem &p) {
        AttentionInputs in = attention_inputs(p);
        in.query = reader(query_);
        in.key = reader(key_);
        in.value = reader(value_);
        attend(p, in, *out_, false);
    }

    LayerWeights layer_weights() {
        auto panel = [this](int i) {
            return [this, i](const Expr &column, const Expr &k, const Expr &panel) { return load(weights_[i], column, k, panel); };
        };
        auto bias = [this](int i) -> LayerWeights::Bias {
            return biases_[i] ? LayerWeights::Bias([this, i](const Expr &column) { return load(biases_[i], column); })
                              : LayerWeights::Bias();
        };
        return {panel(0), panel(1), panel(2), panel(3), bias(0), bias(1), bias(2), bias(3)};
    }

    void generate_mha(const Problem &p) {
        AttentionInputs in = attention_inputs(p);
        const LayerWeights weights = layer_weights();
        const int block = tiling().reduction_block;
        const auto threads = thread_blocking(tiling(), machine());
        auto rows = [this](Tensor *tensor, int width, const Expr &count) {
            return LayerRows{[=](const Expr &k, const Expr &t, const Expr &b) { return load(tensor, k, t, b); }, width, count};
        };
        plan_.projections = {project_heads("query_heads", rows(query_, p.embed_dim, in.seq_len_q), weights.query, weights.query_bias,
                                           p.head_dim, p.num_heads, block, threads),
                             project_heads("key_heads", rows(key_, p.kdim, in.seq_len_kv), weights.key, weights.key_bias, p.head_dim,
                                           p.num_kv_heads, block, threads),
                             project_heads("value_heads", rows(value_, p.vdim, in.seq_len_kv), weights.value, weights.value_bias,
                                           p.head_dim_v, p.num_kv_heads, block, threads)};
        read_heads(&in, plan_.projections[0], plan_.projections[1], plan_.projections[2]);
        Halide::Func context("context");
        attend(p, in, context, true);
        plan_.has_linear = true;
        plan_.linear = project_out(p, context, in.seq_len_q, weights, block);
        write_linear(p.embed_dim, true);
    }

    void generate_linear(const Problem &p) {
        LinearInputs in;
        in.inner = reduction_block(p.embed_dim, tiling().reduction_block);
        in.outer = p.embed_dim / in.inner;
        in.rows = [&](const Expr &k, const Expr &block, const Expr &m, const Expr &) { return load(query_, block * in.inner + k, m); };
        in.weight = [this](const Expr &column, const Expr &k, const Expr &panel) { return load(weights_[0], column, k, panel); };
        if (p.bias) {
            in.bias = [this](const Expr &column) { return load(biases_[0], column); };
        }
        in.panels = panels_of(p.out_features);
        in.num_rows = p.seq_len_q > 0 ? Expr(p.seq_len_q) : query_->dim(1).extent();
        plan_.has_linear = true;
        plan_.linear = linear("linear", in);
        write_linear(p.out_features, false);
    }

    // The linear layer's result is the kernel's out.
    void write_linear(int columns, bool batched) {
        LinearOut &o = plan_.linear_out;
        o.func = *out_;
        o.n = Halide::Var("n");
        o.m = Halide::Var("m");
        o.columns = columns;
        if (batched) {
            o.outer = {Halide::Var("b")};
        }
        const Expr batch = batched ? Expr(o.outer[0]) : Expr(0);
        auto arguments = [&](const Expr &n, const Expr &m) { return batched ? std::vector<Expr>{n, m, batch} : std::vector<Expr>{n, m}; };
        if (const auto threads = thread_blocking(tiling(), machine())) {
            std::vector<Halide::Var> vars = {o.n, o.m};
            vars.insert(vars.end(), o.outer.begin(), o.outer.end());
            auto at = [&](const Expr &column, const Expr &panel, const Expr &m) {
                return arguments(Halide::min(panel * POLYHEAD_WEIGHT_PANEL + column, columns - 1), //
                                 Halide::min(m, plan_.linear.num_rows - 1));
            };
            plan_.linear.write(*out_, vars, batch, columns, *threads, at, storage().store);
        } else {
            o.func(arguments(o.n, o.m)) = storage().store(plan_.linear.out(o.n, o.m, batch));
        }
    }
};

} // namespace polyhead::gen

HALIDE_REGISTER_GENERATOR(polyhead::gen::KernelGenerator, polyhead_kernel)
