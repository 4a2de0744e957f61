// The tensors of a call by name: what tests copy to devices, narrow, compare and damage one after another.
#ifndef POLYHEAD_INSTRUMENTS_CALL_TENSORS_H
#define POLYHEAD_INSTRUMENTS_CALL_TENSORS_H

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include <polyhead/polyhead.h>

#include "../../contract/tensors.h"
#include "../reference/half.h"

namespace polyhead::test {

struct CallTensor {
    const char *name;
    polyhead_tensor polyhead_args::*tensor;
};

// The tensors of the rows (contract/tensors.h) of which this is true, each once, in their order.
template <size_t count> using CallTensors = std::array<CallTensor, count>;
template <size_t most> struct Found {
    CallTensor tensors[most]{};
    size_t count = 0;
};
template <class Wanted> constexpr auto find_tensors(Wanted wanted) {
    Found<contract::num_tensors> found;
    for (const contract::TensorRow &row : contract::tensors) {
        bool known = !wanted(row);
        for (size_t i = 0; i < found.count; i++) {
            known = known || found.tensors[i].tensor == row.tensor;
        }
        if (!known) {
            found.tensors[found.count++] = {row.name, row.tensor};
        }
    }
    return found;
}
template <size_t count, size_t most> constexpr CallTensors<count> first_of(const Found<most> &found) {
    CallTensors<count> tensors{};
    for (size_t i = 0; i < count; i++) {
        tensors[i] = found.tensors[i];
    }
    return tensors;
}

// Also where the problem only reads it.
constexpr bool is_cache(const contract::TensorRow &row) {
    bool updated = false;
    for (const contract::TensorRow &other : contract::tensors) {
        updated = updated || (other.updated && other.tensor == row.tensor);
    }
    return updated;
}
constexpr bool is_input(const contract::TensorRow &row) {
    return row.place != contract::Place::result && row.place != contract::Place::host && !is_cache(row);
}
constexpr bool is_output(const contract::TensorRow &row) {
    return row.place == contract::Place::result && !is_cache(row);
}

// The outputs of every operation. Some of them are inputs of another one.
constexpr auto output_tensors = first_of<find_tensors(is_output).count>(find_tensors(is_output));
// Of a layer with a cache: a call writes some of their rows, and reads others.
constexpr auto cache_tensors = first_of<find_tensors(is_cache).count>(find_tensors(is_cache));

// Those of one operation (polyhead_op): what it reads, beside the tensors of a user expression, and what it writes.
template <class Wanted> std::vector<CallTensor> tensors_of(int32_t op, Wanted wanted) {
    const auto found = find_tensors([&](const contract::TensorRow &row) { return (row.ops & contract::op_bit(op)) != 0 && wanted(row); });
    return {found.tensors, found.tensors + found.count};
}
inline std::vector<CallTensor> inputs_of(int32_t op) {
    return tensors_of(op, is_input);
}
inline std::vector<CallTensor> outputs_of(int32_t op) {
    return tensors_of(op, is_output);
}

// Tensors of keys and values, which lie in pages where the problem has them.
inline bool lies_in_pages(polyhead_tensor polyhead_args::*tensor) {
    return std::any_of(std::begin(contract::tensors), std::end(contract::tensors),
                       [&](const contract::TensorRow &row) { return row.tensor == tensor && row.extents[0] == contract::extent_blocks; });
}

// Of the elements of a tensor, without what lies between them.
inline double tensor_bytes(const polyhead_tensor &tensor) {
    double bytes = tensor.rank == 0 ? 0 : static_cast<double>(dtype_bytes(tensor.dtype));
    for (int dim = 0; dim < tensor.rank; dim++) {
        bytes *= static_cast<double>(tensor.shape[dim]);
    }
    return bytes;
}

} // namespace polyhead::test
#endif
