// Tiling: the table of knobs as data, and its text form.
#include "tiling.h"

#include <algorithm>
#include <cstdlib>

#include "text.h"

namespace polyhead::gen {

std::string Tiling::to_string() const {
    TextWriter text;
    const char *space = "";
#define POLYHEAD_PRINT(name, meaning, ...)                                                                                                 \
    if (name != 0) {                                                                                                                       \
        text << space << #name << '=' << name;                                                                                             \
        space = " ";                                                                                                                       \
    }
    POLYHEAD_TILING_KNOBS(POLYHEAD_PRINT)
#undef POLYHEAD_PRINT
    return text.str();
}

std::string Tiling::set(const std::string &knob, const std::string &value) {
    char *end = nullptr;
    const long number = std::strtol(value.c_str(), &end, 10);
    if (value.empty() || *end != 0 || number < 0 || number > (1 << 20)) {
        return "tiling: " + knob + " is '" + value + "', expected a whole number from 0 to 1048576";
    }
#define POLYHEAD_SET(name, meaning, ...)                                                                                                   \
    if (knob == #name) {                                                                                                                   \
        name = static_cast<int>(number);                                                                                                   \
        return "";                                                                                                                         \
    }
    POLYHEAD_TILING_KNOBS(POLYHEAD_SET)
#undef POLYHEAD_SET
    std::string known;
#define POLYHEAD_NAME(name, meaning, ...) known += std::string(known.empty() ? "" : ", ") + #name;
    POLYHEAD_TILING_KNOBS(POLYHEAD_NAME)
#undef POLYHEAD_NAME
    return "tiling: unknown knob '" + knob + "', expected one of " + known;
}

std::string Tiling::set_all(const std::string &text) {
    TextReader words(text);
    std::string word;
    while (words >> word) {
        const size_t equals = word.find('=');
        if (equals == std::string::npos) {
            return "tiling: '" + word + "' is not knob=value";
        }
        const std::string refusal = set(word.substr(0, equals), word.substr(equals + 1));
        if (!refusal.empty()) {
            return refusal;
        }
    }
    return "";
}

const std::vector<Knob> &knobs() {
#define POLYHEAD_KNOB(name, meaning, ...) {#name, meaning, &Tiling::name, {__VA_ARGS__}},
    static const auto *const table = new std::vector<Knob>{POLYHEAD_TILING_KNOBS(POLYHEAD_KNOB)};
#undef POLYHEAD_KNOB
    return *table;
}

std::optional<ThreadBlocking> thread_blocking(const Tiling &t, const Machine &machine) {
    if (!machine.gpu()) {
        return std::nullopt;
    }
    return ThreadBlocking{t.linear_columns, t.linear_rows, t.linear_panels, std::max(1, t.linear_block / t.linear_rows)};
}

std::optional<WarpBlocking> warp_blocking(const Tiling &t, const Problem &p, const Machine &machine) {
    const Product *product = product_for(p, machine);
    if (t.warp_products == 0 || !product) {
        return std::nullopt;
    }
    // A lane has of each matrix of sums 2 rows and 2 columns.
    const int row_tiles = std::max(1, t.linear_rows / 2), column_tiles = std::max(1, t.linear_columns / 2);
    const bool few_rows = t.linear_block <= product->m; // such a block waits for its weight: more of it is under way
    return WarpBlocking{product,
                        machine.warp(),
                        row_tiles,
                        column_tiles,
                        t.linear_block / (row_tiles * product->m),
                        t.linear_panels * POLYHEAD_WEIGHT_PANEL / (column_tiles * product->n),
                        (few_rows ? 128 : 64) / product->element_bytes(),
                        few_rows ? 4 : 3};
}

} // namespace polyhead::gen
