// What a generator says of its arguments: types, extents, strides, estimates.
#pragma once

#include <string>
#include <vector>

#include "../contract/dtypes.h"
#include "../generators/formulas.h"
#include "../generators/storage.h"
#include <Halide.h>

namespace polyhead::gen {

template <class Port> void starts_at_0(Port &port) {
    for (int i = 0; i < port.dimensions(); i++) {
        port.dim(i).set_min(0);
    }
}

// A tensor of this width and length, where they are fixed (not 0).
template <class Port> void constrain(Port &port, int width, int length_dimension, int length) {
    starts_at_0(port);
    if (width > 0) {
        port.dim(0).set_extent(width);
    }
    if (length > 0) {
        port.dim(length_dimension).set_extent(length);
    }
}

// Addresses and outer strides are multiples of so many elements.
template <class Port> void align(Port &tensor, int elements) {
    tensor.set_host_alignment(elements * tensor.type().bytes());
    for (int i = 1; i < tensor.dimensions(); i++) {
        tensor.dim(i).set_stride(tensor.dim(i).stride() / elements * elements);
    }
}

inline Halide::Type type_of(int dtype) {
    const contract::DTypeRow *const row = contract::find_dtype(dtype);
    const int bits = row->bytes * 8;
    return row->carrier == contract::Carrier::real      ? Halide::Float(bits)
           : row->carrier == contract::Carrier::integer ? Halide::Type(Halide::Int(bits))
                                                        : Halide::Type(Halide::UInt(bits));
}

// The whole buffer of an argument, by its name or another's. A variable with a parameter counts as bound in Halide.
template <class Port> Halide::Expr whole(const Port &port, const std::string &name = "") {
    const Halide::Expr stride = port.dim(1).stride();
    const Halide::Parameter parameter = stride.as<Halide::Internal::Variable>()->param; // the port's own is protected
    return Halide::Internal::Variable::make(Halide::type_of<halide_buffer_t *>(), (name.empty() ? parameter.name() : name) + ".buffer",
                                            parameter);
}

// The addresses of rows of key or value, as numbers. buffer: the whole of the port.
template <class Port> KeySource::Element row_addresses(const Port &port, const Halide::Expr &buffer) {
    using Halide::Expr;
    const Expr host = Halide::Internal::Call::make(Halide::type_of<void *>(), Halide::Internal::Call::buffer_get_host, {buffer},
                                                   Halide::Internal::Call::PureExtern);
    const Expr strides[] = {port.dim(1).stride(), port.dim(2).stride(), port.dim(3).stride()};
    return [=, bytes = port.type().bytes()](const Expr &, const Expr &row, const Expr &kv_head, const Expr &b) -> Expr {
        const auto elements = [](const Expr &index, const Expr &stride) { return Halide::cast<int64_t>(index) * stride; };
        const Expr at = elements(row, strides[0]) + elements(kv_head, strides[1]) + elements(b, strides[2]);
        return Halide::reinterpret<uint64_t>(host) + Halide::cast<uint64_t>(at * bytes);
    };
}

// Of a tensor, as it lies in memory: a dimension without a stride is there once.
template <class Port> Halide::Expr bytes_of(const Port &port) {
    Halide::Expr bytes = Halide::cast<int64_t>(port.type().bytes());
    for (int i = 0; i < port.dimensions(); i++) {
        bytes *= Halide::select(port.dim(i).stride() == 0, 1, port.dim(i).extent());
    }
    return bytes;
}

// The tensors over pairs of a problem that differ by query. ports: by name.
template <class Ports> std::vector<AttentionInputs::Whole::Pairs> whole_pairs(const Problem &p, const Ports &ports) {
    std::vector<AttentionInputs::Whole::Pairs> pairs;
    for (const auto &[name, broadcast] : {std::pair("mask", p.mask_broadcast), std::pair("score_bias", p.score_bias_broadcast)}) {
        if (ports.count(name) != 0 && (broadcast & POLYHEAD_BROADCAST_Q) == 0) {
            pairs.push_back({whole(*ports.at(name)), bytes_of(*ports.at(name))});
        }
    }
    return pairs;
}

// Of an int8 cache. ports: by name.
template <class Ports> std::vector<KeySource::Element> scale_rows(const Ports &ports) {
    std::vector<KeySource::Element> rows;
    for (const char *name : {"key_scales", "value_scales"}) {
        if (ports.count(name) != 0) {
            rows.push_back(row_addresses(*ports.at(name), whole(*ports.at(name))));
        }
    }
    return rows;
}

// What the outputs beside out need of a row.
inline std::vector<Statistic> statistics_of(const Problem &p) {
    std::vector<Statistic> statistics;
    if (p.lse) {
        statistics.push_back(Statistic::lse);
    }
    if (p.scores == POLYHEAD_WEIGHTS || p.weights_mean) {
        statistics.push_back(Statistic::weight_reference);
    }
    return statistics;
}

inline Halide::Expr no_buffer() {
    return Halide::reinterpret(Halide::type_of<halide_buffer_t *>(), Halide::cast<uint64_t>(0));
}

// A number, and what an autoscheduler takes it for.
template <class Port, class Number> Halide::Expr estimated(Port *port, Number number) {
    port->set_estimate(number);
    return Halide::Expr(*port);
}

template <class Port> void estimate_extents(Port &port, const std::vector<int> &extents) {
    for (int i = 0; i < port.dimensions(); i++) {
        port.dim(i).set_estimate(0, extents[size_t(i)]);
    }
}

} // namespace polyhead::gen
