// Counts the users of pages, and keeps the numbers of those that have none.
#include <mutex>
#include <new>
#include <vector>

#include <polyhead/c_cache.h>

#include "process.h"
#include "status.h"

struct polyhead_page_pool {
    explicit polyhead_page_pool(int32_t pages) : users(static_cast<size_t>(pages), 0) {
        unused.reserve(static_cast<size_t>(pages)); // nothing allocates later
        for (int32_t page = pages - 1; page >= 0; --page) {
            unused.push_back(page);
        }
    }
    std::mutex mutex;
    std::vector<int32_t> users, unused; // the next page to give out is the last of them
    const int generation = polyhead::runtime::fork_generation();
};

namespace polyhead::runtime {
namespace {

// Another thread of the parent may have held the mutex when the process was forked.
bool of_this_process(const polyhead_page_pool &pool) noexcept {
    return pool.generation == fork_generation();
}

bool check_pool(const polyhead_page_pool *pool, int32_t count, const int32_t *pages, polyhead_status *status) noexcept {
    if (!pool || (!pages && count > 0)) {
        return refuse(status, POLYHEAD_NULL_POINTER, "%s: null pointer, expected %s", pool ? "pages" : "pool",
                      pool ? "an array of page numbers" : "a page pool");
    }
    if (!of_this_process(*pool)) {
        return refuse(status, POLYHEAD_UNSUPPORTED, "pool: made before fork by the parent of this process, expected one of its own");
    }
    return count >= 0 || refuse(status, POLYHEAD_BAD_VALUE, "count: value %d, expected 0 or more", count);
}

// Adds `change` to the users of each page; takes it back when one of them is not in use.
polyhead_status change_users(polyhead_page_pool *pool, int32_t count, const int32_t *pages, int32_t change) noexcept {
    polyhead_status status = success();
    if (!check_pool(pool, count, pages, &status)) {
        return status;
    }
    const std::lock_guard<std::mutex> lock(pool->mutex);
    const size_t unused = pool->unused.size();
    for (int32_t i = 0; i < count; ++i) {
        const int32_t page = pages[i];
        const bool known = page >= 0 && page < static_cast<int32_t>(pool->users.size());
        if (!known || pool->users[static_cast<size_t>(page)] == 0) {
            refuse(&status, POLYHEAD_BAD_VALUE, "pages: page %d at index %d %s, expected a page in use", page, i,
                   known ? "is free" : "does not exist");
            while (i-- > 0) {
                pool->users[static_cast<size_t>(pages[i])] -= change;
            }
            pool->unused.resize(unused);
            break;
        }
        int32_t &users = pool->users[static_cast<size_t>(page)];
        users += change;
        if (users == 0) {
            pool->unused.push_back(page);
        }
    }
    return status;
}

} // namespace
} // namespace polyhead::runtime

polyhead_status polyhead_make_page_pool(int32_t pages, polyhead_page_pool **pool) {
    using namespace polyhead::runtime;
    polyhead_status status = success();
    if (!pool || pages < 0) {
        pool ? refuse(&status, POLYHEAD_BAD_VALUE, "pages: value %d, expected 0 or more", pages)
             : refuse(&status, POLYHEAD_NULL_POINTER, "pool: null pointer, expected where to put a page pool");
        return status;
    }
    try {
        *pool = new polyhead_page_pool(pages);
    } catch (const std::bad_alloc &) {
        *pool = nullptr;
        refuse(&status, POLYHEAD_OUT_OF_MEMORY, "pool: %zu bytes for %d pages could not be allocated",
               2 * sizeof(int32_t) * static_cast<size_t>(pages), pages);
    }
    return status;
}

void polyhead_free_page_pool(polyhead_page_pool *pool) {
    delete pool;
}

polyhead_status polyhead_take_pages(polyhead_page_pool *pool, int32_t count, int32_t *pages) {
    using namespace polyhead::runtime;
    polyhead_status status = success();
    if (!check_pool(pool, count, pages, &status)) {
        return status;
    }
    const std::lock_guard<std::mutex> lock(pool->mutex);
    const size_t wanted = static_cast<size_t>(count), there = pool->unused.size();
    if (wanted > there) {
        refuse(&status, POLYHEAD_OUT_OF_MEMORY, "pool: %zu pages are free, %d were asked for", there, count);
        return status;
    }
    for (int32_t i = 0; i < count; ++i) {
        pages[i] = pool->unused.back();
        pool->unused.pop_back();
        pool->users[static_cast<size_t>(pages[i])] = 1;
    }
    return status;
}

polyhead_status polyhead_share_pages(polyhead_page_pool *pool, int32_t count, const int32_t *pages) {
    return polyhead::runtime::change_users(pool, count, pages, 1);
}

polyhead_status polyhead_release_pages(polyhead_page_pool *pool, int32_t count, const int32_t *pages) {
    return polyhead::runtime::change_users(pool, count, pages, -1);
}

int32_t polyhead_free_pages(polyhead_page_pool *pool) {
    if (!pool || !polyhead::runtime::of_this_process(*pool)) {
        return 0;
    }
    const std::lock_guard<std::mutex> lock(pool->mutex);
    return static_cast<int32_t>(pool->unused.size());
}

int32_t polyhead_page_users(polyhead_page_pool *pool, int32_t page) {
    if (!pool || !polyhead::runtime::of_this_process(*pool)) {
        return 0;
    }
    const std::lock_guard<std::mutex> lock(pool->mutex);
    return page >= 0 && page < static_cast<int32_t>(pool->users.size()) ? pool->users[static_cast<size_t>(page)] : 0;
}
