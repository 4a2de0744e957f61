// The C++ API: thin wrappers over the C ABI.
#include <polyhead/polyhead.h>

#include <utility>

#include "call/dispatch.h"
#include "call/kernel_table.h"
#include "memory/memory.h"
#include "status.h"

namespace polyhead {

TensorView::TensorView(const void *data_, DType dtype_, int32_t rank_, const int64_t *shape_, const int64_t *stride_) noexcept
    : polyhead_tensor{} {
    data = const_cast<void *>(data_); // the C struct has one pointer for both; an input is never written through
    dtype = static_cast<int32_t>(dtype_);
    rank = rank_; // one that is too large, or negative, is kept, so that run() can name it
    if (rank > POLYHEAD_MAX_RANK) {
        return;
    }
    int64_t dense = 1;
    for (int32_t i = rank - 1; i >= 0; --i) {
        shape[i] = shape_[i];
        stride[i] = stride_ ? stride_[i] : dense;
        // An absurd extent is refused by run(); here it must only not overflow.
        if (__builtin_mul_overflow(dense, shape[i], &dense)) {
            dense = INT64_MAX;
        }
    }
}

TensorView::TensorView(const void *data_, DType dtype_, std::initializer_list<int64_t> shape_) noexcept
    : TensorView(data_, dtype_, static_cast<int32_t>(shape_.size()), shape_.begin()) {}

TensorView::TensorView(const void *data_, DType dtype_, std::initializer_list<int64_t> shape_,
                       std::initializer_list<int64_t> stride_) noexcept
    : TensorView(data_, dtype_, static_cast<int32_t>(shape_.size()), shape_.begin(),
                 stride_.size() == shape_.size() ? stride_.begin() : nullptr) {
    if (shape_.size() != stride_.size()) {
        static_cast<polyhead_tensor &>(*this) = polyhead_tensor{};
    }
}

MutableTensorView view(const Device &device, void *data, DType dtype, std::initializer_list<int64_t> shape, int64_t offset) noexcept {
    MutableTensorView tensor(data, dtype, shape);
    tensor.device = device.raw();
    tensor.offset = offset;
    return tensor;
}

namespace {

template <class View> View swapped_heads(const View &tensor) noexcept {
    if (tensor.rank != 4) {
        return {};
    }
    View swapped = tensor;
    std::swap(swapped.shape[1], swapped.shape[2]);
    std::swap(swapped.stride[1], swapped.stride[2]);
    return swapped;
}

template <class View> View split_heads(const View &tensor, int64_t num_heads) noexcept {
    if (tensor.rank != 3 || num_heads < 1 || tensor.shape[2] % num_heads != 0) {
        return {};
    }
    const int64_t head_dim = tensor.shape[2] / num_heads;
    View split = tensor;
    split.rank = 4;
    split.shape[1] = num_heads;
    split.stride[1] = head_dim * tensor.stride[2];
    split.shape[2] = tensor.shape[1];
    split.stride[2] = tensor.stride[1];
    split.shape[3] = head_dim;
    split.stride[3] = tensor.stride[2];
    return split;
}

template <class View> View unpacked(const View &tensor) noexcept {
    if (tensor.rank != 3) {
        return {};
    }
    View tokens = tensor;
    tokens.rank = 4;
    for (int from = 2; from >= 0; --from) { // [total,H,d] to [1,H,total,d]
        const int to = from == 0 ? 2 : from == 1 ? 1 : 3;
        tokens.shape[to] = tensor.shape[from];
        tokens.stride[to] = tensor.stride[from];
    }
    tokens.shape[0] = tokens.stride[0] = 1;
    return tokens;
}

} // namespace

TensorView from_bshd(const TensorView &tensor) noexcept {
    return swapped_heads(tensor);
}

TensorView from_bsd(const TensorView &tensor, int64_t num_heads) noexcept {
    return split_heads(tensor, num_heads);
}

TensorView from_packed(const TensorView &tensor) noexcept {
    return unpacked(tensor);
}

MutableTensorView from_bshd(const MutableTensorView &tensor) noexcept {
    return swapped_heads(tensor);
}

MutableTensorView from_bsd(const MutableTensorView &tensor, int64_t num_heads) noexcept {
    return split_heads(tensor, num_heads);
}

MutableTensorView from_packed(const MutableTensorView &tensor) noexcept {
    return unpacked(tensor);
}

Weights::~Weights() {
    raw_.device ? polyhead_weights_free(&raw_) : runtime::free_weights(raw_.data);
}

Weights::Weights(Weights &&other) noexcept : raw_(std::exchange(other.raw_, polyhead_weights{})) {}

Weights &Weights::operator=(Weights &&other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
}

Status Kernel::pack(const WeightTensors &tensors, Weights *weights) const noexcept {
    using namespace runtime;
    if (!weights) {
        return Status(failure(POLYHEAD_NULL_POINTER, "weights: null pointer, expected Weights to fill"));
    }
    Weights packed; // replaces the caller's only when all went well
    const size_t bytes = weights_bytes();
    void *memory = allocate_weights(bytes > 0 ? bytes : 1);
    if (!memory) {
        return Status(failure(POLYHEAD_OUT_OF_MEMORY, "weights: %zu bytes could not be allocated", bytes));
    }
    const polyhead_status status = polyhead_pack(this, &tensors, memory, &packed.raw_);
    if (status.code != POLYHEAD_OK) {
        free_weights(memory);
        return Status(status);
    }
    *weights = std::move(packed);
    return Status(status);
}

Status Device::put(const Weights &host, Weights *on_device) const noexcept {
    Weights moved; // replaces the caller's only when all went well
    const Status status(polyhead_weights_to_device(raw_, host.raw(), &moved.raw_));
    if (status.ok() && on_device) {
        *on_device = std::move(moved);
    }
    return status;
}

int64_t Kernel::scratch_bytes(const polyhead_args &args) const noexcept {
    polyhead_status status;
    const int64_t bytes = polyhead_scratch_bytes(this, &args, &status);
    return status.code == POLYHEAD_OK ? bytes : -1;
}

std::string Kernel::explain(const polyhead_args &args) const {
    constexpr size_t bytes_per_variant = 1024;
    polyhead_status status = runtime::success();
    runtime::KernelTable table;
    const int32_t variants_of_table = table.read(this, &status) ? table.num_variants : 0;
    std::string text(bytes_per_variant * (static_cast<size_t>(variants_of_table) + 1), '\0');
    polyhead_explain(this, &args, &text[0], text.size());
    text.resize(text.find('\0'));
    return text;
}

bool Kernel::supported(const Device *device) const noexcept {
    polyhead_status status = runtime::success();
    runtime::KernelTable table;
    return table.read(this, &status) && runtime::any_runs_on(table, device ? device->raw() : nullptr);
}

} // namespace polyhead
