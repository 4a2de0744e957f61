// The arguments of a kernel: what the rows of its problem declare, and what is known of each of them.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "../contract/tensors.h"
#include "../generators/formulas.h"
#include "arguments.h"
#include <Halide.h>

namespace polyhead::gen {

// The part of a generator (Kernel) that has its arguments.
template <class Kernel> class KernelPorts : public Halide::Generator<Kernel> {
protected:
    using Base = Halide::Generator<Kernel>;
    using Expr = Halide::Expr;
    template <class T> using Buffer = Halide::Buffer<T>;
    using Tensor = typename Base::template Input<Buffer<void>>;
    using Result = typename Base::template Output<Buffer<void>>;
    std::map<std::string, Tensor *> operands_;
    Tensor *query_ = nullptr, *key_ = nullptr, *value_ = nullptr;
    std::vector<Tensor *> weights_, biases_, expression_tensors_; // weights and biases: of the rows that the problem has
    std::map<std::string, Tensor *> optional_;
    std::map<std::string, std::function<Expr()>> scalars_; // read in generate()
    std::map<std::string, Result *> outputs_;              // beside out
    Result *out_ = nullptr;
    Expression expression_;

    // In the order of contract/tensors.h.
    void declare(const Problem &p) {
        declare_tensors(p, contract::Place::operand);
        for (const contract::WeightRow &row : contract::weight_rows) {
            if (takes(p, row)) {
                weights_.push_back(this->template add_input<Buffer<void>>(row.weight, type_of(contract::weight_dtype(p)), 3));
            }
        }
        for (const contract::WeightRow &row : contract::weight_rows) {
            if (takes(p, row)) {
                biases_.push_back(p.bias ? this->template add_input<Buffer<void>>(row.bias, Halide::Float(32), 1) : nullptr);
            }
        }
        declare_tensors(p, contract::Place::option);
        declare_expression_tensors(p);
        declare_numbers(p);
        declare_tensors(p, contract::Place::result);
        for (const ExpressionTensor &t : expression_.tensors()) {
            if (t.gradient && contract::is_backward(p)) {
                const std::string name = "expression_grad_" + t.name;
                outputs_[name] = this->template add_output<Buffer<void>>(port_name(name), Halide::Float(32), std::max(t.rank, 1));
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

    // load_width: elements that one load of query, key or value may take, in a layer of its rows.
    void constrain_inputs(const Problem &p, int load_width) {
        for (const contract::TensorRow &row : contract::taken_by(p) & contract::operand_rows) {
            Tensor *const tensor = operands_.at(row.name);
            constrain_extents(p, row, *tensor);
            if (load_width > 1) {
                align(*tensor, load_width);
            }
        }
        const contract::WeightLayout layout = contract::weight_layout(p);
        size_t i = 0;
        for (const contract::WeightRow &row : contract::weight_rows) {
            if (takes(p, row)) {
                constrain_weight(*weights_[i++], layout.*row.section);
            }
        }
        for (Tensor *bias : biases_) {
            if (bias) {
                bias->dim(0).set_min(0);
                bias->set_host_alignment(64);
            }
        }
        // Strides may be 0 everywhere but along the keys of a tensor over pairs, which is loaded in vectors.
        for (const auto &[name, tensor] : optional_) {
            const bool pairs = name == "mask" || name == "score_bias";
            const bool rows = name.rfind("rope_", 0) == 0 || name == "gate" || name == "key_cache" || name == "value_cache";
            const int broadcast = name == "mask" ? p.mask_broadcast : p.score_bias_broadcast;
            starts_at_0(*tensor);
            if (!(pairs && (broadcast & POLYHEAD_BROADCAST_KV) == 0) && !rows) {
                tensor->dim(0).set_stride(Expr());
            }
        }
        std::for_each(expression_tensors_.begin(), expression_tensors_.end(), [](Tensor *tensor) { starts_at_0(*tensor); });
    }

    // pairs: out is written by pairs of neighbours, and aligned to them.
    void constrain_outputs(const Problem &p, bool pairs) {
        for (const contract::TensorRow &row : contract::taken_by(p) & contract::result_rows) {
            Result &result = row.tensor == &polyhead_args::out ? *out_ : *outputs_.at(row.name);
            if (pairs && row.tensor == &polyhead_args::out) {
                align(result, 2);
            }
            row.updated || !row.feature ? constrain_extents(p, row, result) : starts_at_0(result);
        }
        for (const ExpressionTensor &t : expression_.tensors()) {
            if (const auto gradient = outputs_.find("expression_grad_" + t.name); gradient != outputs_.end()) {
                starts_at_0(*gradient->second);
            }
        }
    }

private:
    // Arguments and Funcs share a namespace in the code.
    static std::string port_name(const std::string &name) { return name + "_arg"; }

    void declare_tensors(const Problem &p, contract::Place place) {
        for (const contract::TensorRow &row : contract::taken_by(p) & contract::rows_at(place)) {
            const Halide::Type type = type_of(row.dtype(p));
            if (row.tensor == &polyhead_args::out && place == contract::Place::result) {
                out_ = this->template add_output<Buffer<void>>(row.name, type, row.rank);
            } else if (place == contract::Place::result) {
                outputs_[row.name] = this->template add_output<Buffer<void>>(port_name(row.name), type, row.rank);
            } else if (place == contract::Place::option) {
                optional_[row.name] = this->template add_input<Buffer<void>>(port_name(row.name), type, row.rank);
            } else {
                // out is a result elsewhere, and Funcs have its name.
                const std::string name = row.tensor == &polyhead_args::out ? port_name(row.name) : row.name;
                Tensor *const tensor = operands_[row.name] = this->template add_input<Buffer<void>>(name, type, row.rank);
                const bool first = row.tensor == &polyhead_args::query, self = first && contract::attends_itself(p);
                query_ = first ? tensor : query_;
                key_ = self || row.tensor == &polyhead_args::key ? tensor : key_;
                value_ = self || row.tensor == &polyhead_args::value ? tensor : value_;
            }
        }
    }

    void declare_expression_tensors(const Problem &p) {
        const std::string text = p.expression ? p.expression : "",
                          refused = text.empty() ? "" : Expression::parse(text, "expression", &expression_);
        _halide_user_assert(refused.empty()) << refused;
        for (const ExpressionTensor &t : expression_.tensors()) {
            expression_tensors_.push_back(
                this->template add_input<Buffer<void>>("expression_" + t.name, type_of(t.dtype), std::max(t.rank, 1)));
        }
    }

    void declare_numbers(const Problem &p) {
        for (const contract::NumberRow &row : contract::numbers) {
            if (!takes(p, row)) {
                continue;
            }
            if (row.dtype == POLYHEAD_F32) {
                scalars_[row.name] = [port = this->template add_input<float>(port_name(row.name))] { return estimated(port, 1.0f); };
            } else {
                scalars_[row.name] = [port = this->template add_input<int32_t>(port_name(row.name))] { return estimated(port, 1); };
            }
        }
    }

    // Width and length of a tensor, where the problem fixes them.
    template <class Port> static void constrain_extents(const Problem &p, const contract::TensorRow &row, Port &port) {
        constrain(port, contract::fixed_extent(row.extents[row.rank - 1], p), 1, contract::fixed_extent(row.extents[row.rank - 2], p));
    }

    static void constrain_weight(Tensor &weight, const contract::WeightSection &section) {
        const int word = POLYHEAD_WEIGHT_PANEL * int(section.pair);
        constrain(weight, word, 0, 0);
        weight.dim(1).set_stride(word);
        weight.dim(2).set_stride(word * int(section.words())); // as packed: the alignment of wide loads is known
        weight.set_host_alignment(64);
    }
};

} // namespace polyhead::gen
