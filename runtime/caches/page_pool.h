// Which pages of a cache are in use, and by how many.
#ifndef POLYHEAD_RUNTIME_PAGE_POOL_H
#define POLYHEAD_RUNTIME_PAGE_POOL_H

#include <cstdint>
#include <mutex>
#include <vector>

#include <polyhead/c_cache.h>

#include "../threads/process.h"

struct polyhead_page_pool {
    explicit polyhead_page_pool(int32_t pages);

    // `change` belongs to the call that runs: how often it has named the page. 0 between calls.
    struct Page {
        int32_t users = 0, change = 0;
    };
    std::mutex mutex;
    std::vector<Page> of;        // by page number
    std::vector<int32_t> unused; // the next page to give out is the last of them
    std::vector<int32_t> named;  // the pages that the call that runs has named, once each
    const int generation = polyhead::runtime::fork_generation();
};

#endif
