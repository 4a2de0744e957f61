// Counts the users of pages, and keeps the numbers of those that have none.
#include "page_pool.h"

#include <new>

#include "../call/call_guard.h"
#include "../status.h"

polyhead_page_pool::polyhead_page_pool(int32_t pages) : of(static_cast<size_t>(pages)) {
    unused.reserve(of.size()); // nothing allocates later
    named.reserve(of.size());
    for (int32_t page = pages - 1; page >= 0; --page) {
        unused.push_back(page);
    }
}

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

using Page = polyhead_page_pool::Page;

// What is wrong with one change more of a page; null when nothing is.
const char *fault_of(const polyhead_page_pool &pool, int32_t page, int32_t change) noexcept {
    if (page < 0 || page >= static_cast<int32_t>(pool.of.size())) {
        return "does not exist, expected a page in use";
    }
    const Page &of = pool.of[static_cast<size_t>(page)];
    if (of.users == 0 || (change < 0 && of.change >= of.users)) {
        return "is free, expected a page in use";
    }
    return change > 0 && of.change == INT32_MAX - of.users ? "has 2147483647 users, expected fewer" : nullptr;
}

// Adds `change`, 1 or -1, to the users of each page, or changes none of them when one cannot be. Each number is read once: another thread
// may write them meanwhile.
polyhead_status change_users(polyhead_page_pool *pool, int32_t count, const int32_t *pages, int32_t change) noexcept {
    const CallGuard guard;
    polyhead_status status = success();
    if (!check_pool(pool, count, pages, &status)) {
        return status;
    }
    const std::lock_guard<std::mutex> lock(pool->mutex);
    for (int32_t i = 0; i < count; ++i) {
        const int32_t page = static_cast<const volatile int32_t *>(pages)[i];
        if (const char *fault = fault_of(*pool, page, change)) {
            refuse(&status, POLYHEAD_BAD_VALUE, "pages: page %d at index %d %s", page, i, fault);
            break;
        }
        if (pool->of[static_cast<size_t>(page)].change++ == 0) {
            pool->named.push_back(page);
        }
    }
    for (const int32_t page : pool->named) {
        Page &of = pool->of[static_cast<size_t>(page)];
        of.users += status.code == POLYHEAD_OK ? change * of.change : 0;
        of.change = 0;
        if (of.users == 0) {
            pool->unused.push_back(page);
        }
    }
    pool->named.clear();
    return status;
}

} // namespace
} // namespace polyhead::runtime

polyhead_status polyhead_make_page_pool(int32_t pages, polyhead_page_pool **pool) {
    using namespace polyhead::runtime;
    const CallGuard guard;
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
               (sizeof(Page) + 2 * sizeof(int32_t)) * static_cast<size_t>(pages), pages);
    }
    return status;
}

void polyhead_free_page_pool(polyhead_page_pool *pool) {
    const polyhead::runtime::CallGuard guard;
    delete pool;
}

polyhead_status polyhead_take_pages(polyhead_page_pool *pool, int32_t count, int32_t *pages) {
    using namespace polyhead::runtime;
    const CallGuard guard;
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
        const int32_t page = pool->unused.back();
        pool->unused.pop_back();
        pool->of[static_cast<size_t>(page)].users = 1;
        pages[i] = page;
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
    const polyhead::runtime::CallGuard guard;
    if (!pool || !polyhead::runtime::of_this_process(*pool)) {
        return 0;
    }
    const std::lock_guard<std::mutex> lock(pool->mutex);
    return static_cast<int32_t>(pool->unused.size());
}

int32_t polyhead_page_users(polyhead_page_pool *pool, int32_t page) {
    const polyhead::runtime::CallGuard guard;
    if (!pool || !polyhead::runtime::of_this_process(*pool)) {
        return 0;
    }
    const std::lock_guard<std::mutex> lock(pool->mutex);
    return page >= 0 && page < static_cast<int32_t>(pool->of.size()) ? pool->of[static_cast<size_t>(page)].users : 0;
}
