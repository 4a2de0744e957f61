// Norms over the entries of one head of one token. For functions around kernels.
#ifndef POLYHEAD_RUNTIME_HEAD_NORM_H
#define POLYHEAD_RUNTIME_HEAD_NORM_H

#include <cstdint>

#include <polyhead/c_api.h>

namespace polyhead::runtime {

// What the fields of a norm are called in sentences.
struct NormNames {
    const char *norm, *weight, *bias;
};

class HeadNorm {
public:
    // kind: polyhead_norm. The tensors may be absent.
    HeadNorm(int32_t kind, const polyhead_tensor &weight, const polyhead_tensor &bias, float epsilon) noexcept
        : kind_(kind), weight_(weight), bias_(bias), epsilon_(epsilon) {}
    // The kind, and the tensors for rows of this width.
    bool check(const NormNames &names, int64_t width, polyhead_status *status) const noexcept;
    bool normalizes() const noexcept { return kind_ != POLYHEAD_NO_NORM; }
    void apply(float *row, int64_t width) const noexcept;

private:
    const int32_t kind_;
    const polyhead_tensor &weight_, &bias_;
    const float epsilon_;
};

// Above 0 and finite where something is normalized, otherwise 0.
bool check_epsilon(const char *name, float epsilon, bool normalizes, polyhead_status *status) noexcept;

} // namespace polyhead::runtime
#endif
