// A C++ locale that groups digits and has a decimal comma changes nothing that the generator reads or writes. (C's locale: tool_places.py.)
#include <locale>
#include <sstream>

#include "instruments/calls/compiled_kernel.h"
#include "plan/tuning/tuned_records.h"
#include "tools/library.h"
#include "tools/limits.h"
#include "tools/space.h"

#include "instruments/calls/problems.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

struct Grouped : std::numpunct<char> {
    char do_thousands_sep() const override { return '.'; }
    char do_decimal_point() const override { return ','; }
    std::string do_grouping() const override { return "\3"; }
};

class LocaleWhileAlive {
public:
    explicit LocaleWhileAlive(const std::locale &locale) : before_(std::locale::global(locale)) {}
    ~LocaleWhileAlive() { std::locale::global(before_); }
    LocaleWhileAlive(const LocaleWhileAlive &) = delete;
    LocaleWhileAlive &operator=(const LocaleWhileAlive &) = delete;

private:
    std::locale before_;
};

// A library with large numbers in every column of its tables.
tools::Library library() {
    tools::Library made;
    made.name = "k";
    made.problem = sdpa_problem(12, 64);
    made.problem.seq_len_q = 1024;
    std::string error;
    for (const gen::VariantPlan &plan : gen::plan_variants(made.problem, {"x86-64-linux-avx2-fma-f16c-sse41-avx"}, "", &error)) {
        tools::LibraryVariant variant{plan, {}, "polyhead_k_1234"};
        variant.compiled.cpu_features = 1023;
        variant.compiled.symbol = tools::variant_symbol("k", made.problem, {plan}, 0);
        variant.compiled.scratch.per_thread = 1234567;
        variant.compiled.scratch.terms[0] = {7654321, 4096, 2048, 0};
        made.variants.push_back(variant);
    }
    CHECK(error == "");
    CHECK_FALSE(made.variants.empty());
    made.library_bytes = 123456789;
    return made;
}

std::string job() {
    tools::Request request;
    request.problem = sdpa_problem(12, 64);
    request.targets = {"x86-64-linux-avx2-fma-f16c-sse41-avx"};
    std::string error;
    const std::string space = tools::space_text(request, &error);
    return error + space;
}

std::string numbers_read() {
    std::string text;
    for (const char *word : {"60.5", "1e3", "1.000", "1,5", "60,5", " 1", "1 ", "", "nan", "inf", "-1", "0x10"}) {
        double value = -1;
        text += tools::read_limit(word, &value) ? word + std::string("; ") : "";
    }
    for (const char *word : {"score = 1.5 * score + 12345.25", "score = 1,5 * score", "tensor b: f32[h, 1025]\nscore = score + b[h, kv]"}) {
        gen::Expression expression;
        text += gen::Expression::parse(word, "expression", &expression) + "; ";
    }
    gen::Tiling tiling;
    text += tiling.set_all("q_tile=1024 kv_tile=4096") + tiling.to_string();
    const gen::TunedRecords records = gen::parse_records(R"({"format": 1, "records": [{"median_ms": 1.25}, {"median_ms": "1,25"}]})", "f");
    for (const std::string &complaint : records.complaints) {
        text += "; " + complaint;
    }
    return text;
}

} // namespace

TEST_CASE("locales: texts, numbers and sentences do not follow the locale") {
    const std::string header = header_text(library()), manifest = manifest_text(library()), space = job(), read = numbers_read();
    CHECK(header.find("1023") != std::string::npos);
    CHECK(read.rfind("60.5; 1e3; 1.000; ", 0) == 0);
    const LocaleWhileAlive grouped(std::locale(std::locale::classic(), new Grouped));
    std::ostringstream groups;
    groups << 1023;
    CHECK(groups.str() == "1.023"); // or nothing is tested
    CHECK(header_text(library()) == header);
    CHECK(manifest_text(library()) == manifest);
    CHECK(job() == space);
    CHECK(numbers_read() == read);
}
