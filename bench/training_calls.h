// An attention call with its gradients, ready to be timed: tensors, the forward call that keeps lse, and the backward call.
#ifndef BENCH_TRAINING_CALLS_H
#define BENCH_TRAINING_CALLS_H

#include <cstddef>
#include <new>
#include <string>
#include <vector>

#include <polyhead/polyhead.h>

namespace bench {

// Self-attention: as many queries as keys.
struct TrainingShape {
    int batch, heads, kv_heads, length, dim;
    bool causal;

    // Of query and key, all heads.
    double pairs() const;
    // Two for a multiply-add: two products forward, five backward.
    double forward_flops() const { return 4 * pairs() * dim; }
    double backward_flops() const { return 10 * pairs() * dim; }
};

// Floats that begin on a cache line, as those of frameworks do: vectors that lie on two lines cost a call some percent.
template <class T> struct OnCacheLines {
    using value_type = T;
    static constexpr std::align_val_t line{64};
    OnCacheLines() = default;
    template <class U> explicit OnCacheLines(const OnCacheLines<U> &) {}
    T *allocate(size_t count) { return static_cast<T *>(::operator new(count * sizeof(T), line)); }
    void deallocate(T *data, size_t) { ::operator delete(data, line); }
    bool operator==(const OnCacheLines &) const { return true; }
    bool operator!=(const OnCacheLines &) const { return false; }
};
using Floats = std::vector<float, OnCacheLines<float>>;
Floats normal(int64_t elements, uint64_t seed);

// What a call has beside query, key and value.
enum class Extra { none, dropout, bias, bias_gradient, table, table_gradient, index, index_gradient };

// The inputs of a shape, for all calls of it.
class TrainingInputs {
public:
    explicit TrainingInputs(const TrainingShape &shape);
    const TrainingShape &shape() const { return shape_; }
    // Views of [B,H,T,d] and [B,H_kv,T,d].
    template <class T> auto of_queries(T &elements) const {
        return polyhead::view(elements.data(), {shape_.batch, shape_.heads, shape_.length, shape_.dim});
    }
    template <class T> auto of_keys(T &elements) const {
        return polyhead::view(elements.data(), {shape_.batch, shape_.kv_heads, shape_.length, shape_.dim});
    }
    polyhead::TensorView query() const { return of_queries(query_); }
    polyhead::TensorView key() const { return of_keys(key_); }
    polyhead::TensorView value() const { return of_keys(value_); }
    polyhead::TensorView grad_out() const { return of_queries(grad_out_); }
    polyhead::TensorView bias() const; // [1,H,T,T]
    // What the expression of a table reads: one of distances in buckets, as in T5, or one by an index of pairs of a window, as in Swin.
    std::vector<polyhead::TensorView> tensors(Extra extra) const;

private:
    TrainingShape shape_;
    Floats query_, key_, value_, grad_out_;
    mutable Floats bias_, table_; // made when they are asked for
    mutable std::vector<int32_t> index_;
};

// The two kernels of a training step, with all they write. The inputs must live as long.
class TrainingCalls {
public:
    TrainingCalls(const TrainingInputs &inputs, bool causal, Extra extra);
    // "" or why there is nothing to time: no kernel, a refusal, or gradients of one head that are not those of float64 (not with dropout).
    const std::string &error() const { return error_; }
    void forward() const; // without lse, as inference has it
    void backward() const;

private:
    std::string compile(bool causal);
    std::string check() const;

    const TrainingInputs &inputs_;
    Extra extra_;
    std::string error_, expression_;
    std::vector<polyhead::TensorView> tensors_;
    polyhead::MutableTensorView grad_table_view_;
    const polyhead::Kernel *forward_ = nullptr, *with_lse_ = nullptr, *backward_ = nullptr;
    Floats out_, lse_, grad_query_, grad_key_, grad_value_, grad_bias_, grad_table_;
    polyhead_args forward_args_{}, backward_args_{};
};

} // namespace bench
#endif
