// A kernel on its way to disk: its compiled variants, and the texts and archive made of them.
#pragma once

#include <string>
#include <vector>

#include "../plan/language/expression.h"
#include "../plan/plan.h"
#include "../plan/variant_facts.h"
#include "request.h"

namespace polyhead::tools {

struct LibraryVariant {
    gen::VariantPlan plan;
    gen::CompiledVariant compiled;
    std::string name; // what explain() and the manifest call it
};

struct Library {
    std::string name;
    polyhead_problem problem{}; // its text belongs to the request
    gen::Expression expression;
    std::string expression_source; // C++ behind the expression
    std::string tuned;             // the user's file of tuning records that was used
    std::vector<LibraryVariant> variants;
    std::vector<std::string> runtime_archives; // file names of the runtimes for other machines
    int64_t library_bytes = 0;                 // with other kernels of the archive
};

// The variants that serve this request, best first; *error has one sentence when there are none.
std::vector<gen::VariantPlan> plan_request(const Request &request, std::string *error);

// Compiles everything and moves NAME.a, and NAME.h and NAME.json of each kernel, into the directory: all of them or none. NAME.a, of the
// first one's name, has all kernels. Returns one sentence on failure.
std::string write_library(const std::vector<Request> &kernels);

// Writes the Halide runtime of the request's target as an object (.o) or archive (anything else), whole or not at all.
std::string write_runtime(const std::string &path, const std::string &target, const Limits &limits);

// "polyhead_NAME_0": the name of a variant for people, and of its object and listings.
std::string variant_name(const std::string &kernel, size_t index);

// "polyhead_NAME_HASH_0": the symbol of its code. HASH differs between two kernels whose tables or calls differ, so the header
// of one cannot be linked with the library of another, even with the same name.
std::string variant_symbol(const std::string &kernel, const polyhead_problem &problem, const std::vector<gen::VariantPlan> &plans,
                           size_t index);

// NAME.h, for C and C++.
std::string header_text(const Library &library);

// A text as JSON can hold it: bytes that are no UTF-8 as \xNN. Paths and comments may have any.
std::string readable(const std::string &text);

// NAME.json.
std::string manifest_text(const Library &library);

} // namespace polyhead::tools
