#include "cold_caches.h"

#include <algorithm>

#include "../instruments/calls/call_tensors.h"

namespace bench {
namespace {

constexpr polyhead_tensor polyhead_args::*tensors_of_cache[] = {&polyhead_args::key, &polyhead_args::value, &polyhead_args::key_scales,
                                                                &polyhead_args::value_scales};
constexpr double cold_bytes = 256e6; // of all copies together, so that none is in a cache when it is used again
constexpr size_t least_turns = 5;
constexpr int64_t keys_of_split = 1024; // a step reads about so many keys of one head, then of the next

// What the heads have of `count` pages, one head after another. Dense behind the dimension of heads.
void add_pages(const polyhead_tensor &t, const int32_t *pages, int64_t count, std::vector<roof::Block> *blocks) {
    const auto bytes = [&t](int64_t elements) { return static_cast<size_t>(elements * polyhead::test::dtype_bytes(t.dtype)); };
    for (int64_t head = 0; head < t.shape[1]; head++)
        for (int64_t i = 0; i < count; i++)
            blocks->push_back({static_cast<const char *>(t.data) + bytes(pages[i] * t.stride[0] + head * t.stride[1]), bytes(t.stride[1])});
}

std::vector<roof::Block> blocks_of_cache(const polyhead_args &args) {
    std::vector<roof::Block> blocks;
    for (const auto tensor : tensors_of_cache) {
        const polyhead_tensor &t = args.*tensor;
        if (t.rank == 0)
            continue;
        if (args.page_table.rank == 0) {
            blocks.push_back({t.data, static_cast<size_t>(polyhead::test::tensor_bytes(t))});
            continue;
        }
        const int32_t *table = static_cast<const int32_t *>(args.page_table.data);
        const int64_t all = args.page_table.shape[1], some = std::max<int64_t>(keys_of_split / t.shape[2], 1);
        for (int64_t first = 0; first < all; first += some)
            add_pages(t, table + first, std::min(some, all - first), &blocks);
    }
    return blocks;
}

} // namespace

std::string ColdCaches::make(const polyhead::Kernel &kernel, int64_t keys) {
    do {
        auto workload = std::make_unique<Workload>(kernel, Lengths{1, 1, keys, 0});
        std::vector<roof::Block> blocks = blocks_of_cache(workload->args());
        copies_.push_back({std::move(workload), std::move(blocks)});
    } while (static_cast<double>(copies_.size()) * bytes() < cold_bytes || copies_.size() < 2);
    return copies_[0].workload->check();
}

double ColdCaches::bytes() const {
    double bytes = 0;
    for (const roof::Block &block : copies_[0].blocks)
        bytes += static_cast<double>(block.bytes);
    return bytes;
}

size_t ColdCaches::turns() const {
    return std::max(copies_.size(), least_turns);
}

ColdCaches::Turn ColdCaches::turn(roof::Workers &workers) {
    roof::until_helpers_sleep();
    (void)roof::read_seconds(workers, another().blocks);
    Turn turn;
    turn.read = roof::read_seconds(workers, another().blocks);
    (void)another().workload->run();
    const Workload &step = *another().workload;
    const double start = roof::now();
    (void)step.run();
    turn.step = roof::now() - start;
    return turn;
}

} // namespace bench
