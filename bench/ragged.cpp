// How fast calls with packed tokens are: sequences of different lengths against a batch of equal ones, per useful FLOP; and a call with
// prefill and decoding against two calls.
#include "commands.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "../instruments/calls/random.h"
#include "../instruments/reference/half.h"
#include "../instruments/roof/roof.h"
#include "table.h"

namespace bench {
namespace {

using polyhead::Problem;

constexpr int64_t sequences = 32;

// Elements of f32 or of 16 bits, all from 0.5 to 1 or from -1 to -0.5.
class Memory {
public:
    Memory(int64_t elements, int32_t dtype)
        : dtype_(dtype), words_(static_cast<size_t>(elements * polyhead::test::dtype_bytes(dtype) + 3) / 4) {
        polyhead::test::Random random(static_cast<uint64_t>(elements));
        for (uint32_t &word : words_)
            word = 0x3f003f00u | (static_cast<uint32_t>(random.bits()) & 0x807f807fu);
    }
    polyhead_tensor view(const std::vector<int64_t> &shape) {
        return polyhead::MutableTensorView(words_.data(), static_cast<polyhead::DType>(dtype_), static_cast<int32_t>(shape.size()),
                                           shape.data());
    }
    // [1,H,total,d] of tokens [total,H,d].
    polyhead_tensor packed(int64_t total, int64_t heads, int64_t dim) {
        polyhead::MutableTensorView tokens;
        static_cast<polyhead_tensor &>(tokens) = view({total, heads, dim});
        return from_packed(tokens);
    }

private:
    int32_t dtype_;
    std::vector<uint32_t> words_;
};

struct Call {
    const polyhead::Kernel *kernel;
    polyhead_args args = polyhead_args_of(POLYHEAD_SDPA);
    polyhead::Status run() const { return polyhead::Status(polyhead_run(kernel, &args)); }
};

// Sums of lengths, from 0.
std::vector<int32_t> begins_of(const std::vector<int32_t> &lengths) {
    std::vector<int32_t> begins = {0};
    for (int32_t length : lengths)
        begins.push_back(begins.back() + length);
    return begins;
}

struct Measured {
    std::vector<double> ratio, milliseconds;
    std::string error;
};

// ratio: seconds of all `apart` / seconds of `one`, times `factor`.
Measured measure(roof::Workers &workers, int rounds, const Call &one, const std::vector<Call> &apart, double factor) {
    Measured m;
    std::vector<Call> all = apart;
    all.insert(all.begin(), one);
    std::vector<std::function<void()>> calls;
    for (const Call &call : all) {
        if (const polyhead::Status status = call.run(); !status.ok()) {
            m.error = status.message();
            return m;
        }
        calls.push_back([&call] { (void)call.run(); });
    }
    for (int i = 0; i < rounds; i++) {
        const roof::Round round = roof::measure_round(workers, calls, 0.1);
        double seconds = 0;
        for (size_t j = 1; j < calls.size(); j++)
            seconds += round.seconds[j];
        m.ratio.push_back(factor * seconds / round.seconds[0]);
        m.milliseconds.push_back(1e3 * round.seconds[0]);
    }
    return m;
}

// Speed per useful FLOP of packed sequences of 1 to 700 tokens / that of as many sequences of the mean length.
Measured lengths(const polyhead::Kernel &kernel, roof::Workers &workers, int rounds) {
    const Problem &p = kernel.problem;
    polyhead::test::Random random(1);
    std::vector<int32_t> each(sequences);
    double pairs = 0;
    for (int32_t &length : each) {
        length = static_cast<int32_t>(random.between(1, 700));
        pairs += double(length) * length;
    }
    const std::vector<int32_t> begins = begins_of(each);
    const int64_t total = begins.back(), mean = total / sequences;
    Memory query(total * p.num_heads * p.head_dim, p.dtype), key(total * p.num_kv_heads * p.head_dim, p.dtype),
        value(total * p.num_kv_heads * p.head_dim_v, p.dtype), out(total * p.num_heads * p.head_dim_v, p.dtype);
    Call packed{&kernel}, equal{&kernel};
    packed.args.query = query.packed(total, p.num_heads, p.head_dim);
    packed.args.key = key.packed(total, p.num_kv_heads, p.head_dim);
    packed.args.value = value.packed(total, p.num_kv_heads, p.head_dim_v);
    packed.args.out = out.packed(total, p.num_heads, p.head_dim_v);
    packed.args.cu_seqlens_q = packed.args.cu_seqlens_kv = polyhead::view(begins.data(), {sequences + 1});
    equal.args.query = query.view({sequences, p.num_heads, mean, p.head_dim});
    equal.args.key = key.view({sequences, p.num_kv_heads, mean, p.head_dim});
    equal.args.value = value.view({sequences, p.num_kv_heads, mean, p.head_dim_v});
    equal.args.out = out.view({sequences, p.num_heads, mean, p.head_dim_v});
    return measure(workers, rounds, packed, {equal}, pairs / (double(sequences) * double(mean) * double(mean)));
}

// Time of a prefill and a decoding call / time of one call with both, over caches of 1,024 keys.
Measured mixed(const polyhead::Kernel &kernel, roof::Workers &workers, int rounds) {
    constexpr int64_t prefills = 4, queries = 256, capacity = 1024;
    const Problem &p = kernel.problem;
    const int64_t page_size = p.page_size > 0 ? p.page_size : capacity, columns = capacity / page_size;
    polyhead::test::Random random(2);
    std::vector<int32_t> each(sequences, 1), valid(sequences), table(static_cast<size_t>(sequences * columns));
    std::fill_n(each.begin(), prefills, static_cast<int32_t>(queries));
    for (int32_t &length : valid)
        length = static_cast<int32_t>(random.between(300, capacity));
    for (size_t i = 0; i < table.size(); i++) // any order
        table[i] = static_cast<int32_t>(i * 7919 % table.size());
    const std::vector<int32_t> begins = begins_of(each);
    const int64_t total = begins.back(), decoded = sequences - prefills;
    Memory query(total * p.num_heads * p.head_dim, p.dtype), out(total * p.num_heads * p.head_dim_v, p.dtype),
        key(sequences * p.num_kv_heads * capacity * p.head_dim, p.dtype),
        value(sequences * p.num_kv_heads * capacity * p.head_dim_v, p.dtype);
    Call packed{&kernel};
    packed.args.query = query.packed(total, p.num_heads, p.head_dim);
    packed.args.out = out.packed(total, p.num_heads, p.head_dim_v);
    packed.args.key = key.view({sequences * columns, p.num_kv_heads, page_size, p.head_dim});
    packed.args.value = value.view({sequences * columns, p.num_kv_heads, page_size, p.head_dim_v});
    packed.args.kv_lengths = polyhead::view(valid.data(), {sequences});
    if (p.page_size > 0)
        packed.args.page_table = polyhead::view(table.data(), {sequences, columns});
    std::vector<Call> apart(2, packed);
    packed.args.cu_seqlens_q = polyhead::view(begins.data(), {sequences + 1});
    for (const bool prefill : {true, false}) {
        polyhead_args &args = apart[prefill ? 0 : 1].args;
        const int64_t rows = prefill ? prefills : decoded, length = prefill ? queries : 1, first = prefill ? 0 : prefills;
        for (polyhead_tensor *tensor : {&args.query, &args.out}) {
            tensor->offset = prefill ? 0 : prefills * queries * tensor->stride[2];
            tensor->shape[0] = rows;
            tensor->shape[2] = length;
            tensor->stride[0] = length * tensor->stride[2];
        }
        std::vector<polyhead_tensor *> by_row = {&args.kv_lengths};
        if (p.page_size > 0)
            by_row.push_back(&args.page_table);
        else
            by_row.insert(by_row.end(), {&args.key, &args.value});
        for (polyhead_tensor *tensor : by_row) {
            tensor->offset = first * tensor->stride[0];
            tensor->shape[0] = rows;
        }
    }
    return measure(workers, rounds, packed, apart, 1);
}

struct Line {
    const char *kernel, *call;
    Measured (*run)(const polyhead::Kernel &, roof::Workers &, int);
    double least;
};
constexpr Line ragged_lines[] = {
    {"sdpa_h12_d64", "1 to 700 tokens", lengths, 0.90},           {"prefill_h12_d64_bf16", "1 to 700 tokens", lengths, 0.90},
    {"causal_h8_d64", "1 to 700 tokens", lengths, 0.90},          {"gqa_h32_kv8_d128", "prefill + decoding", mixed, 0.95},
    {"gqa_h32_kv8_d128_bf16", "prefill + decoding", mixed, 0.95}, {"pages16_h32_kv8_d128", "prefill + decoding", mixed, 0.95},
};

} // namespace

int run_ragged(const Options &options) {
    const int threads = most_threads(options), rounds = options.rounds;
    int broken = 0;
    std::printf(
        "packed tokens of %lld sequences: speed per useful FLOP / that of equal lengths, and time of two calls / time of one; medians "
        "(interquartile range) of %d rounds\n",
        static_cast<long long>(sequences), rounds);
    std::printf("%-24s  %-18s  %7s  %14s  %10s  at least\n", "kernel", "call", "threads", "ratio", "ms");
    for (const int count : thread_counts(threads)) {
        polyhead::set_num_threads(count);
        roof::Workers workers(count);
        for (const Line &line : ragged_lines) {
            std::string missing;
            const polyhead::Kernel *kernel = kernel_named(line.kernel, &missing);
            const Measured m = kernel ? line.run(*kernel, workers, rounds) : Measured{{}, {}, missing};
            if (!m.error.empty()) {
                std::printf("%-24s  %-18s  %s\n", line.kernel, line.call, m.error.c_str());
                broken++;
                continue;
            }
            const roof::Spread ratio = roof::spread(m.ratio);
            const bool within = ratio.median >= line.least;
            std::printf("%-24s  %-18s  %7d  %6.3f (%.3f)  %10.3f  %.2f%s\n", line.kernel, line.call, count, ratio.median, ratio.iqr(),
                        roof::spread(m.milliseconds).median, line.least, within ? "" : "  BELOW");
            std::fflush(stdout);
            broken += within ? 0 : 1;
        }
    }
    return broken ? 1 : 0;
}

} // namespace bench
