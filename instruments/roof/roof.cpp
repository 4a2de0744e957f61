// The roofs of this machine: multiply-add loops per instruction set, and streaming reads.
#include "roof.h"

#include <polyhead/c_api.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "../../runtime/helpers/amx_tiles.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace roof {
namespace {

// Sixteen named accumulators (an array would be spilled) cover 4 cycles of latency on up to 4 ports; asm keeps them in registers.
#define EACH16(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11) M(12) M(13) M(14) M(15)
#define EACH12(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11)

#if defined(__x86_64__)
#define DECLARE(i) __m512 a##i = y;
#define STEP(i)                                                                                                                            \
    a##i = _mm512_fmadd_ps(a##i, x, y);                                                                                                    \
    asm volatile("" : "+v"(a##i));
__attribute__((target("avx512f"))) void fma_avx512(int64_t count) {
    __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-3f);
    EACH16(DECLARE)
    for (int64_t n = 0; n < count; n++) {
        EACH16(STEP)
    }
}
#undef DECLARE
#undef STEP

#define DECLARE(i) __m512 a##i = y;
#define STEP(i)                                                                                                                            \
    a##i = _mm512_dpbf16_ps(a##i, x, x);                                                                                                   \
    asm volatile("" : "+v"(a##i));
__attribute__((target("avx512f,avx512bf16"))) void dots_avx512(int64_t count) {
    __m512 y = _mm512_set1_ps(1e-3f);
    const __m512bh x = _mm512_cvtne2ps_pbh(y, y);
    EACH16(DECLARE)
    for (int64_t n = 0; n < count; n++) {
        EACH16(STEP)
    }
}
#undef DECLARE
#undef STEP

#define DECLARE(i) __m256 a##i = y;
#define STEP(i)                                                                                                                            \
    a##i = _mm256_fmadd_ps(a##i, x, y);                                                                                                    \
    asm volatile("" : "+x"(a##i));
__attribute__((target("avx2,fma"))) void fma_avx2(int64_t count) {
    __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-3f);
    EACH12(DECLARE) // 12 and not 16: there are only 16 registers
    for (int64_t n = 0; n < count; n++) {
        EACH12(STEP)
    }
}
#undef DECLARE
#undef STEP
#endif

#ifdef POLYHEAD_HAS_AMX
// Four accumulators of 16 x 16 floats, as kernels have them; nothing is loaded.
POLYHEAD_AMX void products_of_tiles(int64_t count) {
    polyhead::runtime::TileShapes shapes;
    std::fill_n(shapes.row_bytes, 8, uint16_t(64));
    std::fill_n(shapes.rows, 8, uint8_t(16));
    polyhead::runtime::use_tiles(shapes);
    for (int64_t n = 0; n < count; n++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
}
#endif

typedef float Vec4 __attribute__((vector_size(16)));
#if defined(__x86_64__)
#define KEEP(v) asm volatile("" : "+x"(v));
#elif defined(__aarch64__)
#define KEEP(v) asm volatile("" : "+w"(v));
#else
#define KEEP(v)
#endif
#define DECLARE(i) Vec4 a##i = y;
#define STEP(i)                                                                                                                            \
    a##i = a##i * x + y;                                                                                                                   \
    KEEP(a##i)
void fma_128(int64_t count) {
    Vec4 x = {0.999f, 0.999f, 0.999f, 0.999f}, y = {1e-3f, 1e-3f, 1e-3f, 1e-3f};
    EACH12(DECLARE)
    for (int64_t n = 0; n < count; n++) {
        EACH12(STEP)
    }
    Vec4 sum = a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7 + a8 + a9 + a10 + a11;
    volatile float sink = sum[0];
    (void)sink;
}
#undef DECLARE
#undef STEP

struct Loop {
    const char *name;
    void (*run)(int64_t);
    double flops;    // per step of the count
    double rate = 0; // steps per second of one thread, from the first use: only sets how long a slice is
};

Loop &loop_of(Peak peak) {
#if defined(__x86_64__)
    const uint64_t features = polyhead_cpu_features();
    const auto has = [&](uint64_t wanted) { return (features & wanted) == wanted; };
    static Loop fma = has(POLYHEAD_CPU_AVX512)                    ? Loop{"AVX-512 FMA", fma_avx512, 16 * 16 * 2}
                      : has(POLYHEAD_CPU_AVX2 | POLYHEAD_CPU_FMA) ? Loop{"AVX2 FMA", fma_avx2, 12 * 8 * 2}
                                                                  : Loop{"SSE multiply and add", fma_128, 12 * 4 * 2};
    static Loop pairs = {"AVX-512 BF16", dots_avx512, 16 * 32 * 2};
#ifdef POLYHEAD_HAS_AMX
    static Loop tiles = {"AMX BF16", products_of_tiles, 4 * 16 * 16 * 32 * 2};
    if (peak == Peak::bf16_tiles)
        return tiles;
#endif
    return peak == Peak::bf16_pairs ? pairs : fma;
#else
    static Loop fma = {"128-bit vectors", fma_128, 12 * 4 * 2};
    return fma;
#endif
}

// Two streams of loads: one alone does not fill the memory system. What lies behind `next`, unless it is null, is asked for meanwhile.
#if defined(__x86_64__)
__attribute__((target("avx2"))) void read_avx2(const char *data, size_t bytes, const char *next) {
    for (size_t i = 0; i + 256 <= bytes / 2; i += 256)
        for (const size_t at : {i, bytes / 2 + i}) {
            const char *stream = data + at;
            for (int j = 0; next && j < 256; j += 64)
                __builtin_prefetch(next + at + j, 0, 0);
            for (int j = 0; j < 256; j += 32) {
                __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(stream + j));
                asm volatile("" : : "x"(v));
            }
        }
}
#endif

void read_words(const char *data, size_t bytes) {
    uint64_t sum[4] = {0, 0, 0, 0};
    const uint64_t *one = reinterpret_cast<const uint64_t *>(data), *two = one + bytes / 16;
    for (size_t i = 0; i + 2 <= bytes / 16; i += 2) {
        sum[0] += one[i];
        sum[1] += one[i + 1];
        sum[2] += two[i];
        sum[3] += two[i + 1];
    }
    volatile uint64_t sink = sum[0] + sum[1] + sum[2] + sum[3];
    (void)sink;
}

void read(const char *data, size_t bytes, const char *next = nullptr) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return read_avx2(data, bytes, next);
#endif
    (void)next;
    read_words(data, bytes);
}

constexpr size_t page = size_t(2) << 20, stream_bytes = size_t(256) << 20;

// Memory beyond the caches. Kept: making it costs more than reading it.
char *stream_memory() {
    static char *data = [] {
        char *memory = static_cast<char *>(std::aligned_alloc(page, stream_bytes));
        if (memory) {
            madvise(memory, stream_bytes, MADV_HUGEPAGE);
            std::memset(memory, 1, stream_bytes);
        }
        return memory;
    }();
    return data;
}

// GB/s of all threads, the best of three, when each passes over `share` bytes.
double fastest(Workers &workers, size_t share, const std::function<void(int)> &pass) {
    double best = 1e30;
    for (int i = 0; i < 3; i++)
        best = std::min(best, workers.run(pass));
    return static_cast<double>(share) * workers.threads() / best / 1e9;
}

// CPU seconds that everybody but this process has used so far (stolen ones too); 0 where /proc/stat cannot say.
double others_cpu_seconds() {
    std::ifstream stat("/proc/stat");
    std::string word;
    double all = 0, value = 0;
    if (!(stat >> word) || word != "cpu")
        return 0;
    for (int field = 0; field < 8 && stat >> value; field++)
        if (field != 3 && field != 4)
            all += value; // idle, waiting for disks
    timespec own = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
    return all / static_cast<double>(sysconf(_SC_CLK_TCK)) - static_cast<double>(own.tv_sec) - 1e-9 * static_cast<double>(own.tv_nsec);
}

} // namespace

Peak peak_of(int32_t dtype) {
    if (dtype != POLYHEAD_BF16)
        return Peak::fma;
    const uint64_t features = polyhead_cpu_features();
    return features & POLYHEAD_CPU_AMX ? Peak::bf16_tiles : features & POLYHEAD_CPU_AVX512_BF16_VNNI ? Peak::bf16_pairs : Peak::fma;
}

const char *peak_name(Peak peak) {
    return loop_of(peak).name;
}

void until_helpers_sleep() {
    std::this_thread::sleep_for(std::chrono::microseconds(1500));
}

double peak_gflops(Workers &workers, double seconds, Peak peak) {
    if (workers.threads() > 1)
        until_helpers_sleep();
    Loop &loop = loop_of(peak);
    if (loop.rate == 0) {
        loop.run(2000000); // wakes the clocks
        double start = now();
        loop.run(2000000);
        loop.rate = 2000000 / (now() - start);
    }
    int64_t count = std::max<int64_t>(1000, static_cast<int64_t>(loop.rate * seconds));
    double taken = workers.run([&](int) { loop.run(count); });
    return static_cast<double>(count) * loop.flops * workers.threads() / taken / 1e9;
}

double read_gbs(Workers &workers) {
    const size_t share = stream_bytes / workers.threads() / page * page;
    const char *data = stream_memory();
    if (!data || share == 0)
        return 0;
    return fastest(workers, share, [=](int thread) { read(data + thread * share, share); });
}

constexpr size_t most_asked = 64 << 10; // bytes of a block: what is asked for has to stay in the first level of the cache until it is read

double read_seconds(Workers &workers, const std::vector<Block> &blocks) {
    return workers.run([&](int thread) {
        for (size_t i = 0; i < blocks.size(); i++) {
            const size_t share = blocks[i].bytes / workers.threads(), offset = thread * share;
            const bool more = blocks[i].bytes <= most_asked && i + 1 < blocks.size() && blocks[i + 1].bytes == blocks[i].bytes;
            read(static_cast<const char *>(blocks[i].data) + offset, share,
                 more ? static_cast<const char *>(blocks[i + 1].data) + offset : nullptr);
        }
    });
}

double copy_gbs(Workers &workers) {
    const size_t half = stream_bytes / 2, share = half / workers.threads() / page * page;
    char *data = stream_memory();
    if (!data || share == 0)
        return 0;
    return fastest(workers, share, [=](int thread) { std::memcpy(data + half + thread * share, data + thread * share, share); });
}

Spread spread(std::vector<double> values) {
    if (values.empty())
        return {};
    std::sort(values.begin(), values.end());
    auto at = [&](double part) {
        double place = part * static_cast<double>(values.size() - 1);
        size_t low = static_cast<size_t>(place), high = std::min(low + 1, values.size() - 1);
        return values[low] + (place - static_cast<double>(low)) * (values[high] - values[low]);
    };
    return {at(0.5), at(0.25), at(0.75)};
}

Round measure_round(Workers &workers, const std::vector<std::function<void()>> &calls, double min_seconds, int min_times, Peak peak,
                    Calls which) {
    std::vector<std::vector<double>> seconds(calls.size());
    std::vector<double> peaks;
    double slice = 0, least = 0;
    for (const auto &call : calls) { // warms caches and pool, and sets the length of the peak slices
        double start = now();
        call();
        slice += (now() - start) / static_cast<double>(calls.size());
    }
    slice = std::min(0.05, std::max(0.0005, slice));
    const double begin = now(), others = others_cpu_seconds();
    for (int times = 0; times < min_times || least < min_seconds; times++) {
        double shortest = 1e30;
        for (size_t i = 0; i < calls.size(); i++) {
            peaks.push_back(peak_gflops(workers, slice, peak));
            if (which == Calls::repeated)
                calls[i]();
            double start = now();
            calls[i]();
            seconds[i].push_back(now() - start);
            shortest = std::min(shortest, seconds[i].back());
        }
        least += shortest;
    }
    Round round;
    for (const auto &times : seconds) {
        round.seconds.push_back(spread(times).median);
        round.least.push_back(*std::min_element(times.begin(), times.end()));
    }
    round.peak_gflops = spread(peaks).median;
    round.others_busy = std::max(0.0, (others_cpu_seconds() - others) / (now() - begin));
    return round;
}

} // namespace roof
