// The plain kernel of another checkout, compiled with that checkout's headers, behind C functions that each checkout can have.
// ./polyhead bench features --against makes a shared library of it.
#include <plain.h>
#include <polyhead/polyhead.h>

namespace {

polyhead_tensor tensor_of(const void *data, int64_t heads, int64_t tokens, int64_t head_dim) {
    polyhead_tensor tensor{};
    tensor.data = const_cast<void *>(data);
    tensor.dtype = POLYHEAD_F32;
    tensor.rank = 4;
    const int64_t shape[] = {1, heads, tokens, head_dim};
    int64_t stride = 1;
    for (int i = 3; i >= 0; i--) {
        tensor.shape[i] = shape[i];
        tensor.stride[i] = stride;
        stride *= shape[i];
    }
    return tensor;
}

} // namespace

extern "C" __attribute__((visibility("default"))) void plain_set_threads(int32_t threads) {
    polyhead_set_num_threads(threads);
}

// Contiguous f32 tensors [1, heads, tokens, head_dim]. Returns 0, or 1 when the call is refused.
extern "C" __attribute__((visibility("default"))) int32_t plain_run(const void *query, const void *key, const void *value, void *out,
                                                                    int64_t heads, int64_t tokens, int64_t head_dim) {
    polyhead_args args = polyhead_args_of(POLYHEAD_SDPA);
    args.query = tensor_of(query, heads, tokens, head_dim);
    args.key = tensor_of(key, heads, tokens, head_dim);
    args.value = tensor_of(value, heads, tokens, head_dim);
    args.out = tensor_of(out, heads, tokens, head_dim);
    return polyhead_run(&plain, &args).code == POLYHEAD_OK ? 0 : 1;
}
