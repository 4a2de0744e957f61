// A kernel as a generator of Halide: the argument list, algorithm and schedule of a planned variant.
#include "kernel_generator.h"

#include <algorithm>
#include <map>

#include <Halide.h>

#include "../contract/tensors.h"
#include "../generators/layer.h"
#include "../plan/scratch_terms.h"
#include "../schedules/autoschedule.h"
#include "../schedules/counted_loops.h"
#include "../schedules/lowered_code.h"
#include "../schedules/schedules.h"
#include "arguments.h"
#include "estimates.h"
#include "frames/frame_builder.h"
#include "halide_target.h"
#include "kernel_ports.h"
#include "layer_gradients.h"
#include "layer_outputs.h"
#include "linear_gradient_inputs.h"
#include "lowering.h"
#include "schedule_kernel.h"

namespace polyhead::gen {

using Halide::Expr;

namespace {

class KernelGenerator : public KernelPorts<KernelGenerator> {
public:
    // Before anything else.
    void make(const Problem &problem, const VariantPlan &plan) {
        variant_ = plan;
        expression_text_ = problem.expression ? problem.expression : "";
        problem_ = problem;
        problem_.expression = expression_text_.c_str();
    }

    void configure() { declare(problem()); }

    void generate() {
        const Problem p = problem();
        const int copied = WarpBlocking::copy / contract::dtype_bytes(p.dtype);
        constrain_inputs(p, contract::by_heads(p) ? tiling().load_width : tiling().warp_products != 0 ? copied : 1);
        if (contract::is_backward(p)) {
            !contract::attends(p)   ? generate_linear_backward(p)
            : contract::by_heads(p) ? generate_sdpa_backward(p)
                                    : generate_mha_backward(p);
        } else if (contract::by_heads(p)) {
            generate_sdpa(p);
        } else if (contract::attends(p)) {
            generate_mha(p);
        } else {
            generate_linear(p);
        }
    }

    void schedule() {
        constrain_outputs(problem(), tiling().warp_products != 0 && contract::writes_pairs(problem()));
        if (!variant_.autoscheduler.empty()) {
            estimate(problem());
            autoschedule(get_pipeline(), get_target(), variant_.autoscheduler);
        } else if (tiling().unscheduled) {
            schedule_nothing(&plan_);
        } else {
            schedule_kernel(&plan_, frame(), tiling(), machine());
        }
        adapt_lowered_code(get_pipeline());
        end_counted_loops(get_pipeline());
        keep_lowered(get_pipeline());
    }

private:
    Problem problem_{};
    VariantPlan variant_;
    std::string expression_text_; // what problem().expression points to
    KernelStages plan_;
    std::map<Tensor *, Halide::Func> staged_inputs_; // of layers

    Machine machine() const { return machine_of(parsed_target(variant_.target)); } // Halide has no name for some targets
    const Problem &problem() const { return problem_; }
    const Frame &frame() const { return *variant_.frame; }
    const Tiling &tiling() const { return variant_.tiling; }
    Numerics numerics() const {
        const Problem p = problem();
        // lse, scores and weights are f32, also beside probs of bf16.
        const bool coarse = tiling().pair == 2 && p.lse == 0 && p.weights_mean == 0 && p.scores == POLYHEAD_NO_SCORES;
        const DeviceFunctions functions = machine().device.functions;
        return frame().multiplies_by_warps()          ? cuda_warp_numerics()
               : functions == DeviceFunctions::cuda   ? cuda_numerics()
               : functions == DeviceFunctions::opencl ? opencl_numerics()
               : coarse                               ? bf16_numerics()
               : machine().gpu()                      ? portable_numerics()
                                                      : cpu_numerics();
    }
    Storage storage() const { return storage_of(problem().dtype, machine().converts_f16()); }
    Storage key_storage(const Problem &p) const { return storage_of(contract::key_dtype(p), machine().converts_f16()); }

    // What autoschedulers need.
    void estimate(const Problem &p) {
        _halide_user_assert(optional_.empty() && expression_tensors_.empty() && outputs_.empty())
            << "an autoscheduler has estimates of plain problems only: found an optional tensor";
        estimate_tensors(p, query_, key_, value_, out_, weights_, biases_);
    }

    // Keys of a batch row, a run-time value.
    Expr rows_in_memory(const Problem &p) const {
        return p.page_size > 0       ? optional_.at("page_table")->dim(0).extent() * p.page_size
               : p.shared_cache != 0 ? optional_.at("key_cache")->dim(1).extent()
               : p.cache             ? plan_.head_rows[0].extent(1)
                                     : Expr(key_->dim(1).extent());
    }

    AttentionInputs attention_inputs(const Problem &p) {
        AttentionInputs in;
        in.additive_storage = storage_of(contract::additive_dtype(p), machine().converts_f16());
        in.batch = query_->dim(query_->dimensions() - 1).extent();
        in.num_heads = p.num_heads > 0 ? Expr(p.num_heads) : query_->dim(2).extent();
        in.num_kv_heads = p.num_heads > 0 ? Expr(p.num_kv_heads) : key_->dim(2).extent();
        in.seq_len_q = p.seq_len_q > 0 ? Expr(p.seq_len_q) : query_->dim(1).extent();
        in.seq_len_kv = p.seq_len_kv > 0 ? Expr(p.seq_len_kv) : rows_in_memory(p);
        in.element = [this](const char *tensor, const std::vector<Expr> &index) -> Expr { return (*optional_.at(tensor))(index); };
        in.extent = [this](const char *tensor, int dimension) -> Expr { return optional_.at(tensor)->dim(dimension).extent(); };
        in.number = [this](const char *name) { return scalars_.at(name)(); };
        in.expression_element = [this](size_t i, const std::vector<Expr> &index) { return expression_element(i, index); };
        if (p.gate != POLYHEAD_NO_GATE && contract::by_heads(p)) {
            in.gate = loaded(optional_.at("gate"));
        }
        return in;
    }

    auto reader(Tensor *tensor) const {
        return [=](const Expr &d, const Expr &t, const Expr &h, const Expr &b) -> Expr { return (*tensor)(d, t, h, b); };
    }

    // Its elements as floats.
    KeySource::Element loaded(Tensor *tensor) const {
        return [own = storage(), read = reader(tensor)](const Expr &d, const Expr &t, const Expr &h, const Expr &b) {
            return own.load(read(d, t, h, b));
        };
    }

    std::map<std::string, Halide::Func> results() const { // beside out
        std::map<std::string, Halide::Func> funcs;
        for (const auto &[name, result] : outputs_) {
            funcs[name] = *result;
        }
        return funcs;
    }

    // Attention through the chosen frame, into `result` (d, q, h, b), or (d, h, q, b) with heads inside, and the other requested outputs.
    void attend(const Problem &p, AttentionInputs in, const Halide::Func &result, bool heads_inside) {
        const bool floats = in.keys.storage().type == Halide::Float(32) && !in.keys.is_scaled(); // such as normalised ones
        if ((contract::by_heads(p) || p.cache != 0) && !floats && frame().stages_keys(p, tiling(), machine())) {
            in.keys = widen_keys(in.keys, p.head_dim, p.head_dim_v, in.num_kv_heads * in.batch, &plan_.widened);
        }
        const AttentionFormulas formulas(p, expression_, numerics(), in);
        plan_.attention = builder_of(frame()).make(formulas, tiling(), machine());
        const std::shared_ptr<AttentionStages> attention = plan_.attention;
        AttentionOut &o = plan_.attention_out;
        const std::vector<Statistic> statistics = statistics_of(p);
        const bool joined = !statistics.empty() && attention->writes_one_output();
        const Storage kept = heads_inside ? context_storage() : storage();
        // Statistics are f32: beside elements of another type they are copied from, and so are rows that warps read in whole copies.
        const bool copied = joined && (!heads_inside || kept.type != Halide::Float(32) || tiling().warp_products != 0);
        o.func = copied ? Halide::Func("attended") : result;
        o.statistics = joined ? statistics : std::vector<Statistic>();
        o.columns = p.head_dim_v + int(o.statistics.size());
        auto at = [&](const Expr &d, const Expr &q, const Expr &h, const Expr &b) {
            return heads_inside ? std::vector<Expr>{d, h, q, b} : std::vector<Expr>{d, q, h, b};
        };
        attention->write(
            o, formulas, [&](const Expr &d, const Expr &q) { return at(d, q, o.h, o.b); },
            joined ? [](const Expr &x) { return x; } : kept.store);
        if (copied) {
            plan_.copy = result;
            plan_.copy_is_kept = heads_inside;
            const std::vector<Halide::Var> place =
                heads_inside ? std::vector<Halide::Var>{o.d, o.h, o.q, o.b} : std::vector<Halide::Var>{o.d, o.q, o.h, o.b};
            plan_.copy(place) = kept.store(o.func(at(o.d, o.q, o.h, o.b)));
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
        const int lanes = score_output_tile(machine(), tiling()).lanes;
        if (p.scores != POLYHEAD_NO_SCORES) {
            plan_.scores.push_back(score_output(formulas, ScoreKind(p.scores), false, reference, lanes, *outputs_["scores"]));
        }
        if (p.weights_mean) {
            plan_.scores.push_back(score_output(formulas, ScoreKind::weights, true, reference, lanes, *outputs_["weights_mean"]));
        }
    }

    void generate_sdpa(Problem p) {
        AttentionInputs in = attention_inputs(p);
        in.query_storage = storage();
        in.stored_query = reader(query_);
        const auto elements = [&](Tensor *tensor) { return tensor ? KeySource::Element(reader(tensor)) : nullptr; };
        in.keys = {key_storage(p), elements(key_), elements(value_), rows_in_memory(p)};
        if (p.int8_cache) {
            const auto scales = [&](const char *name) { return elements(optional_.at(name)); };
            in.keys = in.keys.scaled(scales("key_scales"), value_ ? scales("value_scales") : nullptr, p.scale_channels);
        }
        if (p.page_size > 0) {
            const Expr num_pages = key_->dim(3).extent();
            in.keys = in.keys.in_pages(page_table(p, in, value_ ? Halide::min(num_pages, value_->dim(3).extent()) : num_pages));
        }
        const bool stages = frame().stages_keys(p, tiling(), machine());
        const bool own_keys = p.key_norm == POLYHEAD_NO_NORM && p.value_norm == 0; // otherwise rows that were written just now are read
        if (!machine().gpu() && !stages && !using_autoscheduler() && own_keys) {
            const Expr out = statistics_of(p).empty() ? whole(*query_, Halide::Func(*out_).name()) : no_buffer();
            const Expr key = whole(*key_), value = whole(value_ ? *value_ : *key_), none = no_buffer();
            in.whole = {whole(*query_), p.page_size ? none : key, p.page_size ? none : value, out, whole_pairs(p, optional_), {}, {}, {}};
            in.whole->key_row = row_addresses(*key_, key);
            in.whole->value_row = row_addresses(value_ ? *value_ : *key_, value);
            in.whole->scale_rows = scale_rows(optional_);
        }
        keep_rows_of_heads(&p, &in, stages || machine().gpu() ? storage_of(POLYHEAD_F32, false) : storage()); // a GPU reads elements
        attend(p, in, *out_, false);
    }

    // What a backward call reads, as floats. query and so on: names of the heads that the forward call attended with.
    BackwardCall backward_call(const Problem &p, const char *query, const char *key, const char *value, const char *out) {
        const Storage floats = storage_of(POLYHEAD_F32, false);
        BackwardCall call{p,  expression_, numerics(),          storage(), tiling(), machine().lanes, machine().fused, nullptr, {}, {},
                          {}, {},          attention_inputs(p), {},        {}};
        AttentionInputs &in = call.in;
        in.query_storage = floats;
        in.stored_query = loaded(operands_.at(query));
        Tensor *const key_heads = operands_.at(key);
        in.keys = {floats, loaded(key_heads), p.value_in_key ? nullptr : loaded(operands_.at(value)), Expr(key_heads->dim(1).extent())};
        in.out = loaded(operands_.at(out));
        in.lse = [lse = operands_.at("lse")](const Expr &q, const Expr &h, const Expr &b) -> Expr { return (*lse)(q, h, b); };
        call.results = results();
        call.keep_rows = [this, floats](Problem *attended, AttentionInputs *inputs) { keep_rows_of_heads(attended, inputs, floats); };
        if (p.gate != POLYHEAD_NO_GATE && !contract::by_heads(p)) {
            in.gate = loaded(operands_.at("gate_heads"));
        }
        return call;
    }

    void generate_sdpa_backward(const Problem &p) {
        BackwardCall call = backward_call(p, "query", "key", "value", "out");
        call.in.given_grad_out = loaded(operands_.at("grad_out"));
        call.product = tiling().pair > 1 ? machine().lane_product(p.dtype) : nullptr;
        call.query = reader(query_);
        call.key = reader(key_);
        call.value = value_ ? reader(value_) : KeySource::Element();
        call.grad_out = reader(operands_.at("grad_out"));
        make_gradients(call, &plan_);
    }

    void generate_mha_backward(const Problem &p) {
        const Storage weights = storage_of(contract::weight_dtype(p), machine().converts_f16());
        const auto operand = [=, own = storage()](const std::string &name) -> LayerBackwardCall::Element {
            Tensor *const tensor = operands_.at(name);
            const Storage stored = name.rfind("weight_", 0) == 0 ? weights : own;
            return [=](const std::vector<Expr> &place) { return stored.load((*tensor)(place)); };
        };
        make_layer_gradients({backward_call(p, "query_heads", "key_heads", "value_heads", "attended"), weights, operand}, &plan_);
    }

    // Norms and rotation of heads that nothing else makes rows of.
    void keep_rows_of_heads(Problem *p, AttentionInputs *in, const Storage &key_and_value) {
        const bool rotates = rotates_rows(*p, tiling(), machine());
        if (rotates || contract::normalises(*p)) {
            const KeySource given = in->keys;
            normalise_heads(*p, machine().gpu() ? 1 : machine().lanes, given.rows(), in, &plan_.norms);
            Problem rotating = *p;
            if (!rotates) { // frames rotate both query and key, or none
                rotating.rope = POLYHEAD_NO_ROPE;
            }
            // Of bare attention both frames multiply pairs where the machine does.
            const bool pairs = contract::by_heads(*p) && !contract::is_backward(*p) && multiplies_pairs(p->dtype);
            const Storage query = contract::is_backward(*p) ? key_and_value : pairs ? storage() : heads_storage();
            keep_rows(p, in, AttentionFormulas(rotating, expression_, numerics(), *in), query, key_and_value, given, machine().gpu(),
                      &plan_.head_rows);
            if (!contract::is_backward(*p)) { // which reads them again
                give_norms_to_rows(&plan_.norms, &plan_.head_rows);
            }
        }
    }

    // Layers multiply pairs of bf16 where the machine does.
    bool multiplies_pairs(int dtype) const { return machine().multiplies_pairs(dtype) && !tiling().unscheduled; }
    bool multiplies_weight_pairs() const { return multiplies_pairs(contract::weight_dtype(problem())); }
    const Product *layer_product() const {
        return multiplies_weight_pairs() ? machine().lane_product(contract::weight_dtype(problem())) : nullptr;
    }
    const Product *layer_tiles() const { return tiling().amx == 1 ? machine().core_product(contract::weight_dtype(problem())) : nullptr; }
    // Projected heads and context: f32 but where products take them as they are stored.
    Storage heads_storage() const { return as_stored(frame().keeps_heads_as_stored(tiling())); }
    Storage context_storage() const { return as_stored(frame().keeps_context_as_stored(tiling())); }
    Storage as_stored(bool products) const {
        const bool takes = machine().gpu() || multiplies_pairs(problem().dtype);
        return products && takes ? storage() : storage_of(POLYHEAD_F32, false);
    }

    LinearWeight layer_weight(const Problem &p, size_t i) const {
        Tensor *const weight = weights_[i], *const bias = biases_[i];
        const int pair = int(contract::weight_pair(p));
        LinearWeight w;
        w.storage = storage_of(contract::weight_dtype(p), machine().converts_f16());
        w.pair = pair;
        w.tensor = *weight;
        w.wide = pair == 2 && !machine().gpu();
        w.stored = [=](const Expr &column, const Expr &k, const Expr &panel) -> Expr {
            return pair == 1 ? (*weight)(column, k, panel) : (*weight)(column * pair + k % pair, k / pair, panel);
        };
        if (bias) {
            w.bias = [bias](const Expr &column) -> Expr { return (*bias)(column); };
        }
        return w;
    }

    // Rows of an input of a layer: 16-bit elements that are multiplied as floats become floats on a CPU, once for all layers that read
    // them.
    LayerRows layer_rows(Tensor *tensor, int width, const Expr &count, bool batched) {
        const auto stored = [=](const Expr &k, const Expr &t, const Expr &b) -> Expr {
            return batched ? (*tensor)(k, t, b) : (*tensor)(k, t);
        };
        if (storage().type == Halide::Float(32) || machine().gpu() || multiplies_weight_pairs()) {
            return {storage(), stored, width, count, *tensor};
        }
        const std::string name = "input_" + std::to_string(staged_inputs_.size());
        Halide::Func &floats = staged_inputs_[tensor];
        if (!floats.defined()) {
            const Storage own = storage();
            const Expr batch = batched ? Expr(tensor->dim(2).extent()) : Expr(1);
            plan_.widened.push_back(widen(
                name, [=](const Expr &k, const Expr &t, const Expr &, const Expr &b) { return own.load(stored(k, t, b)); }, width,
                count * batch));
            floats = plan_.widened.back().floats;
        }
        return {storage_of(POLYHEAD_F32, false), [=](const Expr &k, const Expr &t, const Expr &b) -> Expr { return floats(k, t, 0, b); },
                width, count};
    }

    // Not with weights in pairs: the output projection widens them, because the context is kept as floats, and LLVM adds up both products
    // in another order in another row of a tile. Neighbours would change the bits of a row.
    JoinedRows joined_rows(const Problem &p, const AttentionInputs &in) const {
        return frame().joins_rows() && contract::weight_pair(p) == 1 ? JoinedRows{in.seq_len_q, in.batch} : JoinedRows();
    }

    // Weights of the problem, by the name of their row.
    size_t weight_named(const Problem &p, const std::string &name) const {
        size_t i = 0;
        for (const contract::WeightRow &row : contract::weight_rows) {
            if (takes(p, row) && row.weight == name) {
                break;
            }
            i += takes(p, row) ? 1 : 0;
        }
        return i;
    }

    void generate_mha(Problem p) {
        if (p.cache != 0 && p.shared_cache == 0) { // first, because attention_inputs() asks for their sizes
            plan_.head_rows = define_caches(*outputs_["key_cache"], *outputs_["value_cache"], storage().type);
        }
        AttentionInputs in = attention_inputs(p);
        const Expr new_keys = p.cache != 0 ? in.seq_len_q : in.seq_len_kv;
        const LayerNumbers numbers{tiling().reduction_block,
                                   layer_product(),
                                   layer_tiles(),
                                   thread_blocking(tiling(), machine()),
                                   warp_blocking(tiling(), p, machine()),
                                   frame().multiplies_by_warps(),
                                   heads_storage(),
                                   context_storage(),
                                   joined_rows(p, in)};
        auto project = [&](const char *name, const char *weight, Tensor *tensor, int width, const Expr &count, int head_dim,
                           int num_heads) {
            plan_.projections.push_back(project_heads(name, layer_rows(tensor, width, count, true),
                                                      layer_weight(p, weight_named(p, weight)), head_dim, num_heads, numbers));
            return plan_.projections.back();
        };
        read_queries(&in, numbers.heads, project("query_heads", "weight_q", query_, p.embed_dim, in.seq_len_q, p.head_dim, p.num_heads));
        if (contract::projects_key(p)) {
            const HeadProjection key = project("key_heads", "weight_k", key_, p.kdim, new_keys, p.head_dim, p.num_kv_heads);
            read_keys(&in, numbers.heads, key,
                      contract::projects_value(p)
                          ? project("value_heads", "weight_v", value_, p.vdim, new_keys, p.head_dim_v, p.num_kv_heads)
                          : key);
        }
        if (p.gate != POLYHEAD_NO_GATE) {
            const bool entries = p.gate == POLYHEAD_GATE_OF_ENTRIES; // otherwise all heads lie side by side
            const HeadProjection gate = project("gate_heads", "weight_gate", query_, p.embed_dim, in.seq_len_q,
                                                entries ? p.head_dim_v : p.num_heads, entries ? p.num_heads : 1);
            in.gate = [=, own = numbers.heads](const Expr &d, const Expr &q, const Expr &h, const Expr &b) {
                return own.load(gate.at(entries ? d : h, q, entries ? h : Expr(0), b));
            };
        }
        p.cache != 0 ? attend_cache(&p, &in, numbers.heads) : keep_rows_of_heads(&p, &in, numbers.heads);
        Halide::Func context("context");
        attend(p, in, context, true);
        if (p.keep_heads != 0) {
            keep_heads(&plan_, p, results(), context, numbers.heads, storage());
        }
        plan_.has_linear = true;
        plan_.linear = project_out(p, context, in.seq_len_q, layer_weight(p, weight_named(p, "weight_out")), numbers);
        if (numbers.joined.joined()) { // and copied to out
            write_joined(&plan_, *out_, p.embed_dim, numbers.joined, numbers.threads, storage());
        } else {
            write_linear(&plan_, *out_, p.embed_dim, true, numbers.threads, storage());
        }
    }

    // Keys and values of the call go into the cache, unless another layer wrote them, and are read from there.
    void attend_cache(Problem *p, AttentionInputs *in, const Storage &heads) {
        normalise_heads(*p, machine().gpu() ? 1 : machine().lanes, in->seq_len_q, in, &plan_.norms);
        const AttentionFormulas formulas(*p, expression_, numerics(), *in);
        const bool gpu = machine().gpu();
        if (p->shared_cache != 0) {
            Tensor *const key = optional_.at("key_cache"), *const value = optional_.at("value_cache");
            const KeySource keys(storage(), reader(key), reader(value), rows_in_memory(*p));
            read_cache(p, in, formulas, heads, keys, key->dim(3).extent(), gpu, &plan_.head_rows);
            if (!gpu) { // decoding asks for rows ahead
                in->whole = {{}, {}, {}, {}, {}, row_addresses(*key, whole(*key)), row_addresses(*value, whole(*value)), {}};
            }
            return;
        }
        write_cache(*p, formulas, storage(), &plan_.head_rows);
        const HeadRows key = plan_.head_rows[0], value = plan_.head_rows[1];
        const KeySource keys(storage(), key.reader(gpu), value.reader(gpu), rows_in_memory(*p));
        read_cache(p, in, formulas, heads, keys, key.extent(3), gpu, &plan_.head_rows);
        if (!gpu) {
            const auto rows = [&](const Result &cache) { return row_addresses(cache, whole(*query_, Halide::Func(cache).name())); };
            in->whole = {{}, {}, {}, {}, {}, rows(*outputs_["key_cache"]), rows(*outputs_["value_cache"]), {}};
        }
    }

    void generate_linear(const Problem &p) {
        LinearInputs in;
        in.num_rows = p.seq_len_q > 0 ? Expr(p.seq_len_q) : query_->dim(1).extent();
        const LayerRows rows = layer_rows(query_, p.embed_dim, in.num_rows, false);
        in.weight = layer_weight(p, 0);
        in.inner = reduction_block(p.embed_dim, tiling().reduction_block, in.weight.pair);
        in.outer = p.embed_dim / in.inner;
        in.storage = rows.storage;
        in.stored_rows = [&](const Expr &k, const Expr &block, const Expr &m, const Expr &) {
            return rows.stored(block * in.inner + k, m, 0);
        };
        in.product = layer_product();
        in.tiles = layer_tiles();
        in.warps = warp_blocking(tiling(), p, machine());
        in.tensor = rows.tensor;
        in.panels = panels_of(p.out_features);
        plan_.has_linear = true;
        plan_.linear = linear("linear", in);
        write_linear(&plan_, *out_, p.out_features, false, thread_blocking(tiling(), machine()), storage());
    }

    void generate_linear_backward(const Problem &p) {
        const Halide::Func bias = p.bias ? Halide::Func(*outputs_.at("grad_bias")) : Halide::Func();
        plan_.linear_gradients.push_back(linear_gradients(gradient_inputs(p, tiling(), machine(), operands_, &plan_.widened),
                                                          *outputs_.at("grad_input"), *outputs_.at("grad_weight"), bias));
    }
};

} // namespace

Halide::Internal::AbstractGeneratorPtr kernel_generator(const Problem &problem, const VariantPlan &plan, const Halide::Target &target) {
    auto generator = KernelGenerator::create(Halide::GeneratorContext(target));
    generator->make(problem, plan);
    return generator;
}

} // namespace polyhead::gen
