// Fuzzes a pool of pages: any sequence of takes, shares and releases, compared with a list of users.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include <polyhead/c_cache.h>

#include "edits.h"
#include "memory.h"

namespace polyhead::fuzz {

namespace {

struct Pool {
    explicit Pool(int32_t pages) : users(static_cast<size_t>(pages), 0) {
        if (polyhead_make_page_pool(pages, &pool).code != POLYHEAD_OK) {
            fail("a pool of %d pages cannot be made", pages);
        }
    }
    ~Pool() { polyhead_free_page_pool(pool); }
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    int64_t free() const { return std::count(users.begin(), users.end(), 0); }
    bool in_use(int32_t page) const { return page >= 0 && page < int32_t(users.size()) && users[size_t(page)] > 0; }
    // Whether the pool and the list agree.
    void compare() const {
        if (polyhead_free_pages(pool) != free()) {
            fail("%d pages are free, expected %lld", polyhead_free_pages(pool), static_cast<long long>(free()));
        }
        for (int32_t page = -1; page <= int32_t(users.size()); ++page) {
            const int64_t expected = in_use(page) ? users[size_t(page)] : 0;
            if (polyhead_page_users(pool, page) != expected) {
                fail("page %d has %d users, expected %lld", page, polyhead_page_users(pool, page), static_cast<long long>(expected));
            }
        }
    }

    void take(int32_t count) {
        // Exactly as many numbers as a call that is accepted writes.
        const std::unique_ptr<int32_t[]> pages(new int32_t[size_t(std::clamp<int64_t>(count, 0, free())) + 1]);
        const polyhead_status status = polyhead_take_pages(pool, count, pages.get());
        if ((status.code == POLYHEAD_OK) != (count >= 0 && count <= free())) {
            fail("take %d of %lld: status %d", count, static_cast<long long>(free()), status.code);
        }
        for (int32_t i = 0; status.code == POLYHEAD_OK && i < count; ++i) {
            if (pages[i] < 0 || pages[i] >= int32_t(users.size()) || users[size_t(pages[i])]++ != 0) {
                fail("take: page %d at index %d", pages[i], i);
            }
        }
    }

    // What happens if one page after the other gets one user more, or less: all of it, or nothing.
    void change(const std::vector<int32_t> &pages, int change) {
        std::vector<int64_t> after = users;
        bool right = true;
        for (const int32_t page : pages) {
            right = right && page >= 0 && page < int32_t(after.size()) && after[size_t(page)] > 0;
            if (right) {
                after[size_t(page)] += change;
            }
        }
        const auto call = change > 0 ? polyhead_share_pages : polyhead_release_pages;
        const polyhead_status status = call(pool, int32_t(pages.size()), pages.data());
        if ((status.code == POLYHEAD_OK) != right || right != (status.message[0] == 0)) {
            fail("%s: status %d: %s", change > 0 ? "share" : "release", status.code, status.message);
        }
        users = right ? after : users;
    }

    polyhead_page_pool *pool = nullptr;
    std::vector<int64_t> users;
};

} // namespace

void fuzz_pool(Bytes *bytes) {
    Pool pool(bytes->below(8));
    for (int i = 0; i < 64 && !bytes->empty(); ++i) {
        const int what = bytes->below(4);
        if (what == 0) {
            pool.take(bytes->below(8) == 0 ? static_cast<int32_t>(bytes->number()) : bytes->below(4));
        } else {
            std::vector<int32_t> pages(size_t(bytes->below(6)));
            for (int32_t &page : pages) {
                page = bytes->below(16) == 0 ? static_cast<int32_t>(bytes->number()) : bytes->below(8);
            }
            pool.change(pages, what == 1 ? 1 : -1);
        }
        pool.compare();
    }
}

} // namespace polyhead::fuzz
