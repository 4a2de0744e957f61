// One kernel with one shape on a device: its tensors and its call.
#include "racer.h"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "../../contract/dtypes.h"
#include "elements.h"

namespace bench {
namespace {

// So many random numbers are made; longer tensors repeat them. More than what a block of threads has at the same time.
constexpr size_t different_elements = size_t(1) << 22;

std::vector<char> random_elements(int32_t dtype) {
    std::mt19937 numbers(1);
    std::normal_distribution<float> normal;
    const size_t width = static_cast<size_t>(polyhead::contract::dtype_bytes(dtype));
    std::vector<char> elements(different_elements * width);
    for (size_t at = 0; at < elements.size(); at += width)
        store_element(dtype, normal(numbers), &elements[at]);
    return elements;
}

} // namespace

Racer::Racer(const polyhead::Kernel &kernel, const Lengths &lengths, const polyhead::Device &device) : kernel_(kernel), device_(device) {
    const polyhead::Problem &problem = kernel.problem;
    if (problem.op == POLYHEAD_SDPA) {
        allocate(problem, lengths);
        return;
    }
    layer_ = std::make_unique<Workload>(kernel, lengths, &device);
    flops_ = layer_->flops();
}

Racer::~Racer() {
    if (memory_)
        device_.free(memory_);
}

void Racer::allocate(const polyhead::Problem &p, const Lengths &lengths) {
    const int64_t rows = lengths.batch * p.num_heads * lengths.seq_len_q, keys = lengths.batch * p.num_kv_heads * lengths.seq_len_kv;
    const int64_t query = rows * p.head_dim, key = keys * p.head_dim, value = keys * p.head_dim_v, out = rows * p.head_dim_v;
    const size_t width = static_cast<size_t>(polyhead::contract::dtype_bytes(p.dtype));
    const size_t inputs = static_cast<size_t>(query + key + value);
    polyhead::Status status = device_.allocate((inputs + static_cast<size_t>(out)) * width, &memory_);
    static std::map<int32_t, std::vector<char>> of_type;
    std::vector<char> &numbers = of_type[p.dtype];
    if (numbers.empty())
        numbers = random_elements(p.dtype);
    for (size_t at = 0; at < inputs * width && status.ok(); at += numbers.size())
        status = device_.copy_to_device(numbers.data(), std::min(numbers.size(), inputs * width - at), memory_, at);
    if (!status.ok()) {
        error_ = status.message();
        return;
    }
    const auto dtype = static_cast<polyhead::DType>(p.dtype);
    args_.query = polyhead::view(device_, memory_, dtype, {lengths.batch, p.num_heads, lengths.seq_len_q, p.head_dim});
    args_.key = polyhead::view(device_, memory_, dtype, {lengths.batch, p.num_kv_heads, lengths.seq_len_kv, p.head_dim}, query);
    args_.value = polyhead::view(device_, memory_, dtype, {lengths.batch, p.num_kv_heads, lengths.seq_len_kv, p.head_dim_v}, query + key);
    args_.out = polyhead::view(device_, memory_, dtype, {lengths.batch, p.num_heads, lengths.seq_len_q, p.head_dim_v}, query + key + value);
    args_.device = &device_;
    // Published figures count half of the pairs where attention is causal.
    flops_ = 2.0 * double(rows) * double(lengths.seq_len_kv) * (p.head_dim + p.head_dim_v) * (p.causal == POLYHEAD_NOT_CAUSAL ? 1 : 0.5);
}

polyhead::Status Racer::run() const {
    return layer_ ? layer_->run() : kernel_.run(args_);
}

std::string Racer::variant() const {
    return layer_ ? kernel_.explain(layer_->args()) : kernel_.explain(args_);
}

} // namespace bench
