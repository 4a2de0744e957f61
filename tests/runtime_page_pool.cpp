// The pool that gives out pages: all or none, counts of users, several threads, children of fork.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <polyhead/cache.h>

#include "../runtime/caches/page_pool.h"
#include "child_process.h"
#include "instruments/calls/random.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

TEST_CASE("page pool: random histories agree with a count of users", "[runtime]") {
    constexpr int32_t pages = 20;
    PagePool pool;
    REQUIRE(PagePool::make(pages, &pool).ok());
    std::map<int32_t, int32_t> users;
    Random random(3);
    for (int step = 0; step < 3000; step++) {
        std::vector<int32_t> some(size_t(random.below(5)));
        const int64_t what = random.below(3);
        const auto count = int32_t(some.size()), unused = pages - int32_t(users.size());
        if (what == 0) {
            const Status status = pool.take(count, some.data());
            CHECK(status.ok() == (count <= unused));
            for (int32_t i = 0; status.ok() && i < count; i++) {
                CHECK(users.count(some[size_t(i)]) == 0);
                users[some[size_t(i)]] = 1;
            }
        } else {
            std::map<int32_t, int32_t> changed = users;
            bool good = true;
            for (int32_t &page : some) { // some of them free, or listed twice, or no pages at all
                page = int32_t(random.between(-1, pages));
                good = good && changed.count(page) != 0 && changed[page] > 0;
                if (good) {
                    changed[page] += what == 1 ? 1 : -1;
                }
            }
            const Status status = what == 1 ? pool.share(count, some.data()) : pool.release(count, some.data());
            INFO(status.message());
            CHECK(status.ok() == good);
            if (good) {
                users.clear();
                std::copy_if(changed.begin(), changed.end(), std::inserter(users, users.end()),
                             [](const auto &one) { return one.second > 0; });
            }
        }
        CHECK(pool.free() == pages - int32_t(users.size()));
        for (int32_t page = -1; page <= pages; page++) {
            REQUIRE(pool.users(page) == (users.count(page) != 0 ? users[page] : 0));
        }
    }
}

TEST_CASE("page pool: what is refused", "[runtime]") {
    PagePool pool, none;
    int32_t pages[3] = {7, 7, 7};
    REQUIRE(PagePool::make(2, &pool).ok());
    CHECK(std::string(pool.take(3, pages).message()) == "pool: 2 pages are free, 3 were asked for");
    CHECK(pages[0] == 7);
    CHECK(std::string(pool.take(-1, pages).message()) == "count: value -1, expected 0 or more");
    CHECK(std::string(pool.take(1, nullptr).message()) == "pages: null pointer, expected an array of page numbers");
    CHECK(std::string(none.take(1, pages).message()) == "pool: null pointer, expected a page pool");
    CHECK(std::string(pool.release(1, pages).message()) == "pages: page 7 at index 0 does not exist, expected a page in use");
    pages[0] = 1;
    CHECK(std::string(pool.share(1, pages).message()) == "pages: page 1 at index 0 is free, expected a page in use");
    CHECK(std::string(PagePool::make(-1, &none).message()) == "pages: value -1, expected 0 or more");
    CHECK(none.free() == 0);
    CHECK(pool.free() == 2);
}

TEST_CASE("page pool: threads never get the same page", "[runtime]") {
    constexpr int32_t pages = 64, workers = 4;
    PagePool pool;
    REQUIRE(PagePool::make(pages, &pool).ok());
    std::vector<int> owner(pages, -1); // written by the thread that has the page
    std::vector<int> wrong(workers, 0);
    std::vector<std::thread> threads;
    for (int worker = 0; worker < workers; worker++) {
        threads.emplace_back([&, worker] {
            for (int i = 0; i < 2000; i++) {
                int32_t mine[16];
                if (!pool.take(16, mine).ok()) {
                    wrong[size_t(worker)]++;
                    continue;
                }
                for (const int32_t page : mine) {
                    wrong[size_t(worker)] += owner[size_t(page)] != -1;
                    owner[size_t(page)] = worker;
                }
                for (const int32_t page : mine) {
                    wrong[size_t(worker)] += owner[size_t(page)] != worker;
                    owner[size_t(page)] = -1;
                }
                wrong[size_t(worker)] += !pool.release(16, mine).ok();
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    CHECK(wrong == std::vector<int>(workers, 0));
    CHECK(pool.free() == pages);
}

TEST_CASE("page pool: a page has at most 2^31 - 1 users", "[runtime]") {
    polyhead_page_pool *pool = nullptr;
    REQUIRE(polyhead_make_page_pool(2, &pool).code == POLYHEAD_OK);
    int32_t page = -1;
    REQUIRE(polyhead_take_pages(pool, 1, &page).code == POLYHEAD_OK);
    const std::vector<int32_t> three(3, page);
    pool->of[size_t(page)].users = INT32_MAX - 2; // as after so many calls
    const polyhead_status status = polyhead_share_pages(pool, 3, three.data());
    CHECK(status.code == POLYHEAD_BAD_VALUE);
    CHECK(std::string(status.message) == "pages: page 0 at index 2 has 2147483647 users, expected fewer");
    CHECK(polyhead_page_users(pool, page) == INT32_MAX - 2);
    CHECK(polyhead_share_pages(pool, 2, three.data()).code == POLYHEAD_OK);
    CHECK(polyhead_page_users(pool, page) == INT32_MAX);
    CHECK(polyhead_share_pages(pool, 1, three.data()).code == POLYHEAD_BAD_VALUE);
    CHECK(polyhead_release_pages(pool, 3, three.data()).code == POLYHEAD_OK);
    CHECK(polyhead_page_users(pool, page) == INT32_MAX - 3);
    CHECK(polyhead_free_pages(pool) == 1);
    polyhead_free_page_pool(pool);
}

TEST_CASE("page pool: a page that is named again behind its last user", "[runtime]") {
    PagePool pool;
    int32_t pages[2];
    REQUIRE(PagePool::make(2, &pool).ok());
    REQUIRE(pool.take(2, pages).ok());
    const int32_t names[] = {pages[0], pages[1], pages[0]};
    CHECK(std::string(pool.release(3, names).message()) == "pages: page 0 at index 2 is free, expected a page in use");
    CHECK(pool.users(pages[0]) == 1);
    CHECK(pool.users(pages[1]) == 1);
    CHECK(pool.free() == 0);
    CHECK(pool.share(3, names).ok());
    CHECK(pool.users(pages[0]) == 3);
    CHECK(pool.release(3, names).ok());
    CHECK(pool.release(2, pages).ok());
    CHECK(pool.free() == 2);
}

TEST_CASE("page pool: a thread that holds the lock keeps all others out", "[runtime]") {
    polyhead_page_pool *pool = nullptr;
    REQUIRE(polyhead_make_page_pool(4, &pool).code == POLYHEAD_OK);
    int32_t page = -1;
    REQUIRE(polyhead_take_pages(pool, 1, &page).code == POLYHEAD_OK);
    const std::function<void()> calls[] = {[&] {
                                               int32_t more = 0;
                                               polyhead_take_pages(pool, 1, &more);
                                           },
                                           [&] { polyhead_share_pages(pool, 1, &page); }, [&] { polyhead_release_pages(pool, 1, &page); },
                                           [&] { polyhead_free_pages(pool); }, [&] { polyhead_page_users(pool, page); }};
    for (const auto &call : calls) {
        std::atomic<bool> done{false};
        std::thread other;
        {
            const std::lock_guard<std::mutex> lock(pool->mutex);
            other = std::thread([&] {
                call();
                done = true;
            });
            std::this_thread::sleep_for(std::chrono::milliseconds(20)); // long enough for a call that does not wait
            CHECK(!done);
        }
        other.join();
        CHECK(done);
    }
    polyhead_free_page_pool(pool);
}

TEST_CASE("page pool: a child of fork gets a status", "[runtime]") {
    PagePool pool;
    REQUIRE(PagePool::make(4, &pool).ok());
    int32_t page = 0;
    REQUIRE(pool.take(1, &page).ok());
    CHECK(in_child(End::at_once, [&] {
              int32_t more = 0;
              const Status status = pool.take(1, &more);
              PagePool own;
              const bool told =
                  std::string(status.message()) == "pool: made before fork by the parent of this process, expected one of its own";
              const bool works = PagePool::make(2, &own).ok() && own.take(1, &more).ok();
              return told && works && pool.free() == 0 && pool.users(page) == 0 ? 0 : 1;
          }) == 0);
    CHECK(pool.users(page) == 1);
}
