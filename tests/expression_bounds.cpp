// User expressions: the keys that a mask leaves to a row, derived from its text. Bounds must hold, must not fall with q, and where the
// text allows it be tight.
#include <climits>
#include <map>

#include "support/catch.h"
#include "support/environment.h"
#include "support/expression_probe.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

enum Derived { nothing = 0, begins = 1, ends = 2, both = 3, tight = 4 };

struct Case {
    const char *mask;
    int derived; // which bounds, and whether each is met by some key of rows that see one
};

const Case cases[] = {
    {"true", nothing},
    {"false", nothing},
    {"kv < 5", ends | tight},
    {"kv <= q", ends | tight},
    {"kv <= p", ends | tight},
    {"p >= kv", ends | tight},
    {"not (kv > p)", ends | tight},
    {"not kv > p", ends | tight},
    {"kv > p - 3", begins | tight},
    {"p - kv < 3", begins | tight},
    {"p - kv < 3 and kv <= p", both | tight},
    {"abs(p - kv) <= 2", both | tight},
    {"abs(kv - p) < 2", both | tight},
    {"max(p - kv, kv - p - 1) <= 2", both | tight},
    {"min(kv - p, 100) >= -2", begins | tight},
    {"kv == q", both | tight},
    {"not (kv != q)", both | tight},
    {"kv != q", nothing},
    {"-kv >= -q", ends | tight},
    {"kv + 2 <= q * 2 + b", ends | tight},
    {"2 * kv <= q + 5", ends | tight},
    {"kv * 3 >= q", begins | tight},
    {"kv / 4 <= q / 4", ends},
    {"kv / 4 == q / 4", both},
    {"kv / 3 > q / 2 - 1", begins},
    {"kv <= q or kv < 3", ends | tight},      // a prefix that every row sees
    {"kv <= q or kv > 6", nothing},           // the end is open
    {"kv <= q or b == 1", nothing},           // holds for whole rows
    {"kv <= q and (kv > 6 or b == 1)", ends}, // one bound of two
    {"not (kv > q and kv >= 3)", ends | tight},
    {"kv < kv_length - 1", ends | tight},
    {"kv >= seq_len_kv - seq_len_q", begins | tight},
    {"kv <= max(q, 2) and kv >= min(q - 1, 3)", both | tight},
    {"kv <= clamp(q * 2 - 3, 1, 6)", ends | tight},
    {"kv <= select(b == 0, q, p)", ends | tight},
    {"kv < limit[b]", ends | tight},
    {"kv < limit[b] + q and kv - limit[b] >= 0", both | tight},
    {"kv - limit[b] * 2 <= q", ends | tight},
    {"kv < limit[b % 2] * 2 + 3", ends | tight},
    {"(kv + limit[0]) / 4 <= limit[b]", nothing}, // how large limit is, is not known
    {"kv <= huge[b]", ends},
    {"kv - huge[b] <= q", ends},
    {"kv + huge[b] >= q", begins},
    {"kv / 2 <= huge[b]", ends},
    {"kv <= 2147483647", ends},
    {"kv - 2147483647 < q", ends},
    {"kv < 8 - q", nothing}, // falls with q
    {"q + kv < 8", nothing},
    {"kv <= q * q", nothing},
    {"kv <= q % 3", nothing},
    {"kv <= 6 / (q + 1)", nothing},
    {"6 / kv <= 2", nothing},
    {"kv <= q + h", nothing},
    {"kv <= limit[q]", nothing},
    {"kv <= limit[h]", nothing},
    {"kv <= p - q", nothing},
    {"kv + kv <= q", nothing},
    {"kv % 2 == 0", nothing},
    {"kv * 1.0 <= q", nothing},
    {"score > 0.0", nothing},
    {"score > 0.0 and kv <= p", ends},
    {"limit[kv] == limit[q]", nothing},
    {"limit[kv] == limit[q] and kv <= p", ends},
    {"limit[floor(b * 0.5) + 2] > kv", ends | tight},
};

gen::Expression parsed(const std::string &mask) {
    gen::Expression expression;
    const std::string text = "tensor limit: i32[12]\ntensor small: i32[b]\nlet far = 2147483600\n"
                             "mask = " +
                             mask;
    REQUIRE(gen::Expression::parse(text, "expression", &expression) == "");
    return expression;
}

// `huge` is an element near the end of int32, which probes cannot hold.
std::string written_out(std::string mask) {
    for (size_t at = mask.find("huge[b]"); at != std::string::npos; at = mask.find("huge[b]")) {
        mask.replace(at, 7, "(small[b] * 0 + far + b * 40)");
    }
    return mask;
}

struct Row {
    ProbeResult bounds{};
    int first_seen = INT_MAX, last_seen = INT_MIN;
};

// Rows of one batch row and head, by q; keys that the bounds hide although the mask lets them take part are counted.
std::map<std::pair<int, int>, std::map<int, Row>> rows_of(const gen::Expression &expression, int *hidden) {
    std::map<std::pair<int, int>, std::map<int, Row>> rows;
    probe(expression, [&](const ProbePoint &x, const ProbeResult &result) {
        Row &row = rows[{x.b, x.h}][x.q];
        row.bounds = result;
        if (result.mask) {
            *hidden += (result.has_begin && x.kv < result.begin) || (result.has_end && x.kv >= result.end);
            row.first_seen = std::min(row.first_seen, x.kv);
            row.last_seen = std::max(row.last_seen, x.kv);
        }
    });
    return rows;
}

} // namespace

TEST_CASE("expressions: bounds of keys hold, never fall, and are tight where they can be") {
    for (const Case &c : cases) {
        if (!in_sample(static_cast<size_t>(&c - cases), 2)) {
            continue;
        }
        INFO(c.mask);
        const gen::Expression expression = parsed(written_out(c.mask));
        int hidden = 0, falls = 0, begins_met = 0, ends_met = 0, derived = 0;
        for (const auto &head : rows_of(expression, &hidden)) {
            ProbeResult before{};
            for (const auto &[q, row] : head.second) {
                const ProbeResult &now = row.bounds;
                derived |= (now.has_begin ? begins : 0) | (now.has_end ? ends : 0);
                falls += q > 0 && (now.begin < before.begin || now.end < before.end);
                begins_met += now.has_begin && row.first_seen == now.begin;
                ends_met += now.has_end && row.last_seen + 1 == now.end;
                before = now;
            }
        }
        CHECK(hidden == 0);
        CHECK(falls == 0);
        CHECK(derived == (c.derived & both));
        if ((c.derived & tight) != 0) {
            CHECK((begins_met > 0) == ((c.derived & begins) != 0));
            CHECK((ends_met > 0) == ((c.derived & ends) != 0));
        }
    }
}

TEST_CASE("expressions: a text without a mask bounds nothing") {
    gen::Expression expression;
    REQUIRE(gen::Expression::parse("score = score * (kv < 3)", "expression", &expression) != "");
    REQUIRE(gen::Expression::parse("score = select(kv < 3, score, 0)", "expression", &expression) == "");
    const gen::KeyBounds bounds = gen::key_bounds(expression, {});
    CHECK(!bounds.begin.defined());
    CHECK(!bounds.end.defined());
    CHECK(!gen::key_bounds(gen::Expression(), {}).end.defined());
}
