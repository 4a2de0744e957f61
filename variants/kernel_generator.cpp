// The Halide generator "polyhead_kernel": a Problem and a Tiling as parameters, the argument list, algorithm and schedule.
#include <algorithm>
#include <map>

#include <Halide.h>

#include "../generators/layer.h"
#include "../runtime/optional_tensors.h"
#include "../schedules/autoschedule.h"
#include "../schedules/device_asserts.h"
#include "../schedules/schedules.h"
#include "schedule_kernel.h"
#include "task_scratch.h"

namespace polyhead::gen {

using Halide::Buffer;
using Halide::Expr;

class KernelGenerator : public Halide::Generator<KernelGenerator> {
public:
    GeneratorParam<std::string> param_frame{"frame", ""};
    GeneratorParam<std::string> param_expression{"expression", ""};
    GeneratorParam<std::string> scheduled_by{"scheduled_by", ""}; // an autoscheduler of Halide and its parameters
#define POLYHEAD_PARAM(name) GeneratorParam<int> param_##name{#name, 0};
    POLYHEAD_PROBLEM_FIELDS(POLYHEAD_PARAM)
#undef POLYHEAD_PARAM
#define POLYHEAD_PARAM(name, meaning, ...) GeneratorParam<int> param_##name{#name, 0};
    POLYHEAD_TILING_KNOBS(POLYHEAD_PARAM)
#undef POLYHEAD_PARAM

    void configure() {
        const Problem p = problem();
        query_ = input(p.op == POLYHEAD_LINEAR ? "input" : "query", p.op == POLYHEAD_SDPA ? 4 : p.op == POLYHEAD_MHA ? 3 : 2);
        if (p.op == POLYHEAD_SDPA) {
            key_ = input("key", 4);
            value_ = p.value_in_key ? nullptr : input("value", 4);
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
        out_type_ = storage().type;
        if (p.op != POLYHEAD_LINEAR) {
            declare_optional(p);
        }
        out_ = add_output<Buffer<void>>("out", out_type_, p.op == POLYHEAD_SDPA ? 4 : p.op == POLYHEAD_MHA ? 3 : 2);
        for (const runtime::OptionalTensor &t : runtime::optional_outputs) {
            if (p.op != POLYHEAD_LINEAR && t.exists(p)) {
                outputs_[t.name] = add_output<Buffer<void>>(port_name(t.name), type_of(t.dtype), t.rank);
            }
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
        if (!scheduled_by.value().empty()) {
            estimate(problem());
            autoschedule(get_pipeline(), get_target(), scheduled_by);
        } else if (param_unscheduled) {
            schedule_nothing(&plan_);
        } else {
            schedule_kernel(&plan_, frame(), tiling(), machine());
            measure_task_scratch(get_pipeline());
        }
        drop_device_asserts(get_pipeline());
    }

private:
    using Tensor = Input<Buffer<void>>;
    using Result = Output<Buffer<void>>;
    Tensor *query_ = nullptr, *key_ = nullptr, *value_ = nullptr;
    std::vector<Tensor *> weights_, biases_, expression_tensors_;
    std::map<std::string, Tensor *> optional_;
    std::map<std::string, std::function<Expr()>> scalars_; // read in generate()
    std::map<std::string, Result *> outputs_;              // beside out
    Result *out_ = nullptr;
    Halide::Type out_type_;
    mutable std::string expression_text_; // what problem().expression points to
    Expression expression_;
    KernelStages plan_;

    Tensor *input(const char *name, int dimensions) { return add_input<Buffer<void>>(name, storage().type, dimensions); }

    // Arguments and Funcs share a namespace in the code.
    static std::string port_name(const std::string &name) { return name + "_arg"; }
    static Halide::Type type_of(int dtype) {
        return dtype == POLYHEAD_F32 ? Halide::Type(Halide::Float(32)) : dtype == POLYHEAD_I32 ? Halide::Int(32) : Halide::UInt(8);
    }

    // A number, and what an autoscheduler takes it for.
    template <class Port, class Number> static Expr estimated(Port *port, Number number) {
        port->set_estimate(number);
        return Expr(*port);
    }

    // In the order of runtime/optional_tensors.h.
    void declare_optional(const Problem &p) {
        for (const runtime::OptionalTensor &t : runtime::optional_inputs) {
            if (t.exists(p)) {
                optional_[t.name] = add_input<Buffer<void>>(port_name(t.name), type_of(t.dtype), t.rank);
            }
        }
        const std::string refused = expression_text_.empty() ? "" : Expression::parse(expression_text_, "expression", &expression_);
        _halide_user_assert(refused.empty()) << refused;
        for (const ExpressionTensor &t : expression_.tensors()) {
            expression_tensors_.push_back(add_input<Buffer<void>>("expression_" + t.name, type_of(t.dtype), std::max(t.rank, 1)));
        }
        for (const runtime::ScalarArgument &t : runtime::scalar_arguments) {
            if (!t.exists(p)) {
                continue;
            }
            if (t.dtype == POLYHEAD_F32) {
                scalars_[t.name] = [port = add_input<float>(port_name(t.name))] { return estimated(port, 1.0f); };
            } else {
                scalars_[t.name] = [port = add_input<int32_t>(port_name(t.name))] { return estimated(port, 1); };
            }
        }
    }

    Machine machine() const { return machine_of(get_target()); }
    const Frame &frame() const {
        const Frame *const found = frame_named(param_frame);
        _halide_user_assert(found) << "frame: found '" << param_frame.value() << "', expected one of " << frame_names();
        return *found;
    }
    Numerics numerics() const {
        const int api = machine().api;
        return api == POLYHEAD_CUDA ? cuda_numerics() : api == POLYHEAD_OPENCL ? opencl_numerics() : portable_numerics();
    }
    Storage storage() const { return storage_of(param_dtype, machine().api == POLYHEAD_CUDA); }
    // Elements of a tensor as floats.
    template <class... Index> Expr load(Tensor *tensor, const Index &...index) const { return storage().load((*tensor)(index...)); }

    Problem problem() const {
        Problem p{};
#define POLYHEAD_READ(name) p.name = param_##name;
        POLYHEAD_PROBLEM_FIELDS(POLYHEAD_READ)
#undef POLYHEAD_READ
        expression_text_ = param_expression.value();
        p.expression = expression_text_.c_str();
        return p;
    }

    Tiling tiling() const {
        Tiling t;
#define POLYHEAD_READ(name, meaning, ...) t.name = param_##name;
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
            if (value_) {
                constrain(*value_, p.head_dim_v, 1, 0);
            }
            for (Tensor *tensor : {query_, key_, value_}) {
                if (tensor && tiling().load_width > 1) {
                    align(*tensor, tiling().load_width);
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
            weight->dim(2).set_stride(POLYHEAD_WEIGHT_PANEL * weight_depth(p, i)); // as packed: the alignment of wide loads is known
            weight->set_host_alignment(64);
        }
        for (Tensor *bias : biases_) {
            if (bias) {
                bias->dim(0).set_min(0);
                bias->set_host_alignment(64);
            }
        }
        // Strides may be 0 everywhere but along the keys of a tensor over pairs, which is loaded in vectors.
        for (const auto &[name, tensor] : optional_) {
            const bool pairs = name == "mask" || name == "score_bias", table = name.rfind("rope_", 0) == 0;
            const int broadcast = name == "mask" ? p.mask_broadcast : p.score_bias_broadcast;
            for (int i = 0; i < tensor->dimensions(); i++) {
                tensor->dim(i).set_min(0);
            }
            if (!(pairs && (broadcast & POLYHEAD_BROADCAST_KV) == 0) && !table) {
                tensor->dim(0).set_stride(Expr());
            }
        }
        for (Tensor *tensor : expression_tensors_) {
            for (int i = 0; i < tensor->dimensions(); i++) {
                tensor->dim(i).set_min(0);
            }
        }
    }

    void constrain_outputs(const Problem &p) {
        constrain(*out_, p.op == POLYHEAD_SDPA ? p.head_dim_v : p.op == POLYHEAD_MHA ? p.embed_dim : p.out_features, 1, p.seq_len_q);
        for (const auto &[name, result] : outputs_) {
            for (int i = 0; i < result->dimensions(); i++) {
                result->dim(i).set_min(0);
            }
        }
    }

    template <class Port> static void estimate_extents(Port &port, const std::vector<int> &extents) {
        for (int i = 0; i < port.dimensions(); i++) {
            port.dim(i).set_estimate(0, extents[size_t(i)]);
        }
    }

    // The sizes of every tensor that autoschedulers need: one batch row of the fixed lengths.
    void estimate(const Problem &p) {
        const bool self = p.op == POLYHEAD_MHA && !p.cross;
        _halide_user_assert(p.seq_len_q > 0 && (p.op == POLYHEAD_LINEAR || p.seq_len_kv > 0))
            << "an autoscheduler needs estimates: found a free length, expected seq_len_q and seq_len_kv to be fixed";
        _halide_user_assert(optional_.empty() && expression_tensors_.empty() && outputs_.empty())
            << "an autoscheduler has estimates of plain problems only: found an optional tensor";
        if (p.op == POLYHEAD_SDPA) {
            estimate_extents(*query_, {p.head_dim, p.seq_len_q, p.num_heads, 1});
            estimate_extents(*key_, {p.head_dim, p.seq_len_kv, p.num_kv_heads, 1});
            if (value_) {
                estimate_extents(*value_, {p.head_dim_v, p.seq_len_kv, p.num_kv_heads, 1});
            }
            estimate_extents(*out_, {p.head_dim_v, p.seq_len_q, p.num_heads, 1});
        } else {
            estimate_extents(*query_, {p.embed_dim, p.seq_len_q, 1});
            estimate_extents(*out_, {p.op == POLYHEAD_LINEAR ? p.out_features : p.embed_dim, p.seq_len_q, 1});
        }
        if (p.op == POLYHEAD_MHA && !self) {
            estimate_extents(*key_, {p.kdim, p.seq_len_kv, 1});
            estimate_extents(*value_, {p.vdim, p.seq_len_kv, 1});
        }
        const int heads[] = {p.num_heads * panels_of(p.head_dim), p.num_kv_heads * panels_of(p.head_dim),
                             p.num_kv_heads * panels_of(p.head_dim_v), panels_of(p.embed_dim)};
        for (size_t i = 0; i < weights_.size(); i++) {
            const int panels = p.op == POLYHEAD_LINEAR ? panels_of(p.out_features) : heads[i];
            estimate_extents(*weights_[i], {POLYHEAD_WEIGHT_PANEL, weight_depth(p, i), panels});
            if (biases_[i]) {
                estimate_extents(*biases_[i], {POLYHEAD_WEIGHT_PANEL * panels});
            }
        }
    }

    // An element of a tensor that the expression declares. Indices beyond the tensor read its last element; likely, so that loops are
    // divided into those where an index that follows keys or queries loads vectors, and the rest.
    Expr expression_element(size_t i, const std::vector<Expr> &outermost_first) const {
        Tensor *tensor = expression_tensors_[i];
        std::vector<Expr> index;
        for (auto at = outermost_first.rbegin(); at != outermost_first.rend(); ++at) {
            index.push_back(Halide::clamp(Halide::likely(*at), 0, tensor->dim(int(index.size())).extent() - 1));
        }
        if (index.empty()) {
            index.push_back(0);
        }
        const Expr value = (*tensor)(index);
        return tensor->type() == Halide::UInt(8) ? value != 0 : value;
    }

    AttentionInputs attention_inputs(const Problem &p) {
        AttentionInputs in;
        in.batch = query_->dim(query_->dimensions() - 1).extent();
        in.num_heads = p.num_heads > 0 ? Expr(p.num_heads) : query_->dim(2).extent();
        in.num_kv_heads = p.num_heads > 0 ? Expr(p.num_kv_heads) : key_->dim(2).extent();
        in.seq_len_q = p.seq_len_q > 0 ? Expr(p.seq_len_q) : query_->dim(1).extent();
        in.seq_len_kv = p.seq_len_kv > 0 ? Expr(p.seq_len_kv) : key_->dim(1).extent();
        in.element = [this](const char *tensor, const std::vector<Expr> &index) -> Expr { return (*optional_.at(tensor))(index); };
        in.extent = [this](const char *tensor, int dimension) -> Expr { return optional_.at(tensor)->dim(dimension).extent(); };
        in.number = [this](const char *name) { return scalars_.at(name)(); };
        in.expression_element = [this](size_t i, const std::vector<Expr> &index) { return expression_element(i, index); };
        return in;
    }

    auto reader(Tensor *tensor) const {
        return [=](const Expr &d, const Expr &t, const Expr &h, const Expr &b) { return load(tensor, d, t, h, b); };
    }

    // What the outputs beside out need of a row.
    std::vector<Statistic> statistics_of(const Problem &p) const {
        std::vector<Statistic> statistics;
        if (p.lse) {
            statistics.push_back(Statistic::lse);
        }
        if (p.scores == POLYHEAD_WEIGHTS || p.weights_mean) {
            statistics.push_back(Statistic::weight_reference);
        }
        return statistics;
    }

    // Attention through the chosen frame, into `result` (d, q, h, b), or (d, h, q, b) with heads inside, and the other requested outputs.
    void attend(const Problem &p, const AttentionInputs &in, const Halide::Func &result, bool heads_inside) {
        const AttentionFormulas formulas(p, expression_, numerics(), in);
        plan_.attention = frame().make(formulas, tiling(), machine());
        const std::shared_ptr<AttentionStages> attention = plan_.attention;
        AttentionOut &o = plan_.attention_out;
        const std::vector<Statistic> statistics = statistics_of(p);
        const bool joined = !statistics.empty() && attention->writes_one_output();
        o.func = joined && !heads_inside ? Halide::Func("attended") : result;
        o.statistics = joined ? statistics : std::vector<Statistic>();
        o.columns = p.head_dim_v + int(o.statistics.size());
        auto at = [&](const Expr &d, const Expr &q, const Expr &h, const Expr &b) {
            return heads_inside ? std::vector<Expr>{d, h, q, b} : std::vector<Expr>{d, q, h, b};
        };
        // What is an intermediate stays f32.
        const bool stored = !heads_inside && !joined;
        attention->write(
            o, formulas, [&](const Expr &d, const Expr &q) { return at(d, q, o.h, o.b); },
            stored ? storage().store : [](const Expr &x) { return x; });
        if (joined && !heads_inside) {
            plan_.copy = result;
            plan_.copy(o.d, o.q, o.h, o.b) = storage().store(o.func(at(o.d, o.q, o.h, o.b)));
        }
        auto statistic = [=](Statistic which, const Expr &q, const Expr &h, const Expr &b) -> Expr {
            if (!joined) {
                return attention->statistic(which, formulas, q, h, b);
            }
            const auto column = std::find(statistics.begin(), statistics.end(), which) - statistics.begin();
            return o.func(at(p.head_dim_v + int(column), q, h, b));
        };
        if (p.lse) {
            plan_.lse = *outputs_["lse"];
            plan_.lse(o.q, o.h, o.b) = statistic(Statistic::lse, o.q, o.h, o.b);
        }
        auto reference = [=](const Expr &q, const Expr &h, const Expr &b) { return statistic(Statistic::weight_reference, q, h, b); };
        const int lanes = score_output_tile(machine()).lanes;
        if (p.scores != POLYHEAD_NO_SCORES) {
            plan_.scores.push_back(score_output(formulas, ScoreStage(p.scores), false, reference, lanes, *outputs_["scores"]));
        }
        if (p.weights_mean) {
            plan_.scores.push_back(score_output(formulas, ScoreStage::weights, true, reference, lanes, *outputs_["weights_mean"]));
        }
    }

    void generate_sdpa(const Problem &p) {
        AttentionInputs in = attention_inputs(p);
        in.query = reader(query_);
        in.keys = {reader(key_), value_ ? KeySource::Element(reader(value_)) : nullptr, key_->dim(1).extent()};
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
