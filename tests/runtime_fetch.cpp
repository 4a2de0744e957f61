// What tiles ask from memory ahead of time: every row that comes next, once, and none that does not exist.
#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

#include "../runtime/helpers/fetch.h"

#include "support/catch.h"

using namespace polyhead::runtime;

namespace {

using Row = std::tuple<int, int, int>; // batch row, head, row

struct Asked {
    std::map<Row, int> out, query, keys;
    int silent = 0, lost = 0; // panels that kernels do not call for; those of them that had something to ask for
};

void add(std::map<Row, int> *asked, const FetchRows &rows) {
    for (int row = rows.first; row < rows.end; row++) {
        (*asked)[{rows.batch_row, rows.head, row}]++;
    }
}

Asked asked_by(FetchPlace place) {
    Asked asked;
    for (place.batch_row = 0; place.batch_row < place.batch; place.batch_row++) {
        for (place.head = 0; place.head < place.heads; place.head++) {
            for (place.tile = 0; place.tile < place.tiles; place.tile++) {
                for (place.panel = 0; place.panel < place.panels; place.panel++) {
                    const FetchPart part = fetch_part(place);
                    if (!may_ask<int64_t>(place.tile, place.tiles, place.panel, place.panels, place.q_tile)) { // kernels do not call then
                        asked.silent++;
                        asked.lost += part.out.first < part.out.end || part.query.first < part.query.end || part.keys.first < part.keys.end;
                    }
                    add(&asked.out, part.out);
                    add(&asked.query, part.query);
                    add(&asked.keys, part.keys);
                }
            }
        }
    }
    return asked;
}

// All rows of all heads; those of the first head of the first batch row only if they are wanted.
std::map<Row, int> each_once(int batch, int heads, int rows, bool all_of_first) {
    std::map<Row, int> expected;
    for (int b = 0; b < batch; b++) {
        for (int h = 0; h < heads; h++) {
            for (int row = 0; row < rows; row++) {
                if (all_of_first || b > 0 || h > 0) {
                    expected[{b, h, row}] = 1;
                }
            }
        }
    }
    return expected;
}

} // namespace

#if defined(__x86_64__)
namespace {

// Instructions from the family of prefetcht0 in so many bytes of code: 0f 18 and a place in memory.
int prefetches(const unsigned char *code, int bytes) {
    int count = 0;
    for (int i = 0; i + 2 < bytes; i++) {
        const int hint = code[i + 2] >> 3 & 7, kind = code[i + 2] >> 6;
        count += code[i] == 0x0f && code[i + 1] == 0x18 && hint >= 1 && hint <= 3 && kind < 3 ? 1 : 0;
    }
    return count;
}

} // namespace

// Without effect on any result, so that a compiler may drop it and every other test still passes.
TEST_CASE("fetch: the requests are in the code") {
    constexpr int around = 8192; // sanitizers make code long
    // Hidden from GCC 12, which refuses to read around a function when it instruments memory.
    const volatile uintptr_t place = reinterpret_cast<uintptr_t>(&polyhead_fetch);
    const auto *code = reinterpret_cast<const unsigned char *>(place);
    CHECK(prefetches(code - around, 2 * around) >= 2); // rows that are written, rows that are read
}
#endif

TEST_CASE("fetch: every row that comes next is asked for once, and no other") {
    int silent = 0;
    for (const int queries : {1, 7, 16, 17, 100, 300}) {
        for (const int keys : {1, 5, 8, 40, 256, 300, 1000}) {
            for (const int group_size : {1, 2, 4}) {
                for (const auto &[q_tile, key_panel] : {std::pair(16, 8), std::pair(32, 8), std::pair(24, 4), std::pair(16, 6)}) {
                    CAPTURE(queries, keys, group_size, q_tile, key_panel);
                    const int batch = 2, heads = 4;
                    const int tiles = (queries + q_tile - 1) / q_tile, panels = (keys + key_panel - 1) / key_panel;
                    const Asked asked = asked_by({queries, keys, heads, batch, group_size, q_tile, tiles, panels, 0, 0, 0, 0});
                    silent += asked.silent;
                    CHECK(asked.lost == 0);
                    CHECK(asked.out == each_once(batch, heads, queries, true));
                    std::map<Row, int> next = each_once(batch, heads, queries, false);
                    for (int row = q_tile; row < queries; row++) { // tiles of the first head behind its first
                        next[{0, 0, row}] = 1;
                    }
                    CHECK(asked.query == next);
                    CHECK(asked.keys == each_once(batch, heads / group_size, std::min(keys, most_fetched_keys), false));
                }
            }
        }
    }
    CHECK(silent > 0);
}

TEST_CASE("fetch: pieces of a part of a tensor over pairs are its rows that exist, each once") {
    for (const int count : {8, 16, 32}) {
        for (const int pieces : {1, 5, 16, 32, 43}) {
            for (const int first : {0, 16, 96}) {
                for (const int existing : {1, 17, 100, 200}) {
                    CAPTURE(count, pieces, first, existing);
                    std::map<Row, int> asked, expected;
                    for (int piece = 0; piece < pieces; piece++) {
                        add(&asked, pairs_part(first, count, existing, piece, pieces));
                    }
                    for (int row = first; row < std::min(first + count, existing); row++) {
                        expected[{0, 0, row}] = 1;
                    }
                    CHECK(asked == expected);
                }
            }
        }
    }
}

// A head's keys and values are one stream: keys of a split, its values, keys of the next split.
