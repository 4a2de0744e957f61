// The matrix of features: every pair occurs, the rows are always the same, and few of them reach every setting.
#include <map>
#include <set>

#include "instruments/calls/problems.h"
#include "support/catch.h"
#include "support/feature_matrix.h"
#include "support/pairwise.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

// Pairs of settings that do not occur in the rows.
int missing_pairs(const std::vector<int> &settings, const std::vector<std::vector<int>> &rows) {
    int missing = 0;
    for (size_t f = 0; f < settings.size(); f++) {
        for (size_t g = 0; g < f; g++) {
            std::set<std::pair<int, int>> found;
            for (const std::vector<int> &row : rows) {
                found.insert({row[f], row[g]});
            }
            missing += settings[f] * settings[g] - static_cast<int>(found.size());
        }
    }
    return missing;
}

std::vector<int> settings_of(const std::vector<Feature> &of) {
    std::vector<int> settings;
    for (const Feature &feature : of) {
        settings.push_back(static_cast<int>(feature.settings.size()));
    }
    return settings;
}

} // namespace

TEST_CASE("pairwise: every pair occurs, in little more than the product of the two largest features") {
    for (const std::vector<int> &settings :
         std::vector<std::vector<int>>{{2, 2}, {3, 1, 4}, {2, 2, 2, 2, 2, 2, 2, 2}, {9, 5, 4, 3, 2, 2, 2}}) {
        const std::vector<std::vector<int>> rows = pairwise_rows(settings, 0, 7);
        CHECK(missing_pairs(settings, rows) == 0);
        CHECK(rows == pairwise_rows(settings, 0, 7));
        CHECK(rows.size() <= 60);
    }
    CHECK(pairwise_rows({2, 2}, 0, 7).size() == 4);
    CHECK(pairwise_rows({2, 2}, 11, 7).size() == 11);
}

TEST_CASE("features: all pairs occur within 128 rows, every setting within 16") {
    const std::vector<FeatureRow> &rows = feature_rows();
    REQUIRE(rows.size() == 160);
    CHECK(missing_pairs(settings_of(features()), rows) == 0);
    CHECK(missing_pairs(settings_of(features()), {rows.begin(), rows.begin() + 128}) == 0);
    for (size_t f = 0; f < features().size(); f++) {
        std::set<int> found;
        for (size_t i = 0; i < 16; i++) {
            found.insert(rows[i][f]);
        }
        INFO(features()[f].name);
        CHECK(found.size() == features()[f].settings.size());
    }
}

TEST_CASE("features of gradients: all pairs occur, no problem twice, and each storage type in a fourth of each half") {
    const std::vector<FeatureRow> &rows = gradient_rows();
    REQUIRE(rows.size() == 216);
    CHECK(gradient_features().size() == 22);
    CHECK(missing_pairs(settings_of(gradient_features()), rows) == 0);
    std::set<std::string> lines;
    std::map<std::pair<int32_t, size_t>, int> types;
    for (size_t i = 0; i < rows.size(); i++) {
        const Problem p = gradient_problem(rows[i]);
        lines.insert(generate_line(p));
        types[{p.dtype, i % 2}]++; // ./polyhead test --all takes a half
    }
    CHECK(lines.size() == rows.size());
    for (const auto &[type, count] : types) {
        INFO(type.first << " " << type.second);
        CHECK(count * 4 >= static_cast<int>(rows.size()) / 2);
    }
}

TEST_CASE("features: no problem occurs twice") {
    std::set<std::string> lines;
    for (const FeatureRow &row : feature_rows()) {
        lines.insert(generate_line(feature_problem(row)));
    }
    CHECK(lines.size() == feature_rows().size());
}
