// Inputs with one entry per row: an entry that lands in a wrong place says which layout is wrong.
#include "one_hot.h"

#include <cmath>
#include <vector>

#include "../../contract/dtypes.h"
#include "elements.h"

namespace bench {
namespace {

// So large that the probs of all other keys are 0, and exact in 16 bits.
constexpr float large = 512;
constexpr int code_bits = 12;

struct Call {
    const polyhead::Kernel &kernel;
    const polyhead::Device &device;
    const polyhead::Problem &p;
    int64_t rows, keys; // of a head
    size_t width;       // bytes of an element
    std::vector<char> query, key, value, out;

    Call(const polyhead::Kernel &k, const polyhead::Device &d, int64_t seq_len_q, int64_t seq_len_kv)
        : kernel(k), device(d), p(k.problem), rows(seq_len_q), keys(seq_len_kv),
          width(static_cast<size_t>(polyhead::contract::dtype_bytes(p.dtype))) {
        query.resize(static_cast<size_t>(p.num_heads * rows * p.head_dim) * width);
        key.resize(static_cast<size_t>(p.num_kv_heads * keys * p.head_dim) * width);
        value.resize(static_cast<size_t>(p.num_kv_heads * keys * p.head_dim_v) * width);
        out.resize(static_cast<size_t>(p.num_heads * rows * p.head_dim_v) * width);
    }
    // The same in every head.
    template <class Entry> void fill(std::vector<char> *tensor, int64_t length, int64_t dims, Entry entry) const {
        for (size_t i = 0; i < tensor->size() / width; i++)
            store_element(p.dtype, entry(static_cast<int64_t>(i) / dims % length, static_cast<int64_t>(i) % dims), &(*tensor)[i * width]);
    }
    polyhead::Status run() {
        const auto dtype = static_cast<polyhead::DType>(p.dtype);
        polyhead::SdpaArgs args;
        args.query = polyhead::TensorView(query.data(), dtype, {1, p.num_heads, rows, p.head_dim});
        args.key = polyhead::TensorView(key.data(), dtype, {1, p.num_kv_heads, keys, p.head_dim});
        args.value = polyhead::TensorView(value.data(), dtype, {1, p.num_kv_heads, keys, p.head_dim_v});
        args.out = polyhead::MutableTensorView(out.data(), dtype, {1, p.num_heads, rows, p.head_dim_v});
        args.device = &device;
        return kernel.run(args);
    }
    template <class Entry> std::string compare(const char *probe, Entry expected) {
        const polyhead::Status status = run();
        if (!status.ok())
            return status.message();
        std::string first;
        int64_t wrong = 0;
        const size_t entries = out.size() / width;
        for (size_t i = 0; i < entries; i++) {
            const int64_t at = static_cast<int64_t>(i), row = at / p.head_dim_v % rows, column = at % p.head_dim_v;
            const float found = load_element(p.dtype, &out[i * width]), wanted = expected(row, column);
            if (std::fabs(found - wanted) <= 1e-3f)
                continue;
            if (wrong++ == 0)
                first = "out[" + std::to_string(at / p.head_dim_v / rows) + ", " + std::to_string(row) + ", " + std::to_string(column) +
                        "]: found " + std::to_string(found) + ", expected " + std::to_string(wanted);
        }
        return wrong == 0 ? ""
                          : std::string(probe) + ": " + first + "; " + std::to_string(wrong) + " of " + std::to_string(entries) +
                                " entries are wrong";
    }
};

} // namespace

std::string check_layouts(const polyhead::Kernel &kernel, const polyhead::Device &device, int64_t seq_len_q, int64_t seq_len_kv) {
    Call call(kernel, device, seq_len_q, seq_len_kv);
    const polyhead::Problem &p = call.p;
    // Every row sees the key of its own column.
    const auto hot = [](int64_t row, int64_t column, int64_t dims) { return row % dims == column ? 1.0f : 0.0f; };
    call.fill(&call.query, call.rows, p.head_dim, [&](int64_t row, int64_t column) { return large * hot(row, column, p.head_dim); });
    call.fill(&call.key, call.keys, p.head_dim, [&](int64_t row, int64_t column) { return hot(row, column, p.head_dim); });
    call.fill(&call.value, call.keys, p.head_dim_v,
              [&](int64_t row, int64_t column) { return hot(row % p.head_dim, column, p.head_dim_v); });
    std::string error =
        call.compare("columns of query and key", [&](int64_t row, int64_t column) { return hot(row % p.head_dim, column, p.head_dim_v); });
    if (!error.empty())
        return error;
    // Every row chooses one key by the bits of its number, and value says which one it was.
    const bool causal = p.causal != POLYHEAD_NOT_CAUSAL;
    const auto chosen = [&](int64_t row) { return causal ? row * 37 % (row + 1) : (row * 37 + 11) % call.keys; };
    const auto code = [](int64_t number, int64_t bit) { return bit >= code_bits ? 0.0f : (number >> bit & 1) ? 1.0f : -1.0f; };
    const auto mark = [&](int64_t key, int64_t column) {
        const int64_t round = 1 + key / p.head_dim_v;
        return hot(key, column, p.head_dim_v) * static_cast<float>(round);
    };
    call.fill(&call.query, call.rows, p.head_dim, [&](int64_t row, int64_t column) { return large / 2 * code(chosen(row), column); });
    call.fill(&call.key, call.keys, p.head_dim, code);
    call.fill(&call.value, call.keys, p.head_dim_v, mark);
    return call.compare("rows of key and value", [&](int64_t row, int64_t column) { return mark(chosen(row), column); });
}

} // namespace bench
