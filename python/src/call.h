// One call of a kernel from Python: keyword arguments into polyhead_args, and results back.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "../../contract/tensors.h"
#include "arrays.h"
#include "kernel_cache.h"

namespace polyhead::python {

// Packed weights with the device that they lie on, if any, which must be open when they are freed: it is destroyed last.
struct PackedWeights {
    DevicePointer device;
    Weights weights;
};

// How query, key, value and out lie in memory.
enum class Layout { bhsd, bshd, bsd };
Layout layout_named(const std::string &name);

class CallArguments {
public:
    // Reads every argument; unknown names and wrong Python types are a TypeError. None means absent. A dict under the name "tensors" has
    // tensors of the expression, which may be called as arguments are.
    CallArguments(const LoadedKernel &kernel, nb::dict arguments, DevicePointer device, Layout layout);

    // What a call of this kernel may be given, by name: tensors, then numbers and weights.
    static std::vector<std::string> names(const LoadedKernel &kernel);

    // These touch no Python object and may run without the interpreter's lock. They throw a Refusal.
    void run(const polyhead::Plan *plan = nullptr); // one of plan(), of the same kernel
    std::string explain();
    int64_t scratch_bytes();
    std::unique_ptr<polyhead::Plan> plan();

private:
    bool read_number(const std::string &name, nb::handle value);
    bool read_attention_number(const std::string &name, nb::handle value);
    bool read_tensor(const std::string &name, nb::handle value);
    bool read_expression_tensor(const std::string &name, nb::handle value);
    bool read_gradient(const std::string &name, nb::handle value);
    void fill(); // what the runtime reads: key lengths, among others
    // What the runtime cannot see, because it gets converted copies: an output that lies over another tensor or over itself.
    void check_converted() const;
    void read_heads(Array *array, const contract::TensorRow &row);
    static std::vector<std::string> tensor_names(const polyhead_kernel &table);
    [[noreturn]] void unexpected(const std::string &name) const;

    const polyhead_kernel &table_;
    DevicePointer device_;
    nb::object weights_; // others may take them out of the caller's dict while the call runs
    Layout layout_;
    std::deque<Array> arrays_;
    std::vector<polyhead_tensor> expression_tensors_, expression_gradients_;
    polyhead_args args_;
};

// Packs nn.Linear weights for a kernel: names as in polyhead_weight_tensors.
std::unique_ptr<PackedWeights> pack(const LoadedKernel &kernel, nb::dict tensors, DevicePointer device);

// Forgets the forms of plain calls, and their kernels.
void clear_plain();

void bind_kernels(nb::module_ &module);
void bind_plain_calls(nb::module_ &module);
void bind_cache(nb::module_ &module);

} // namespace polyhead::python
