// One line about one call: what polyhead_explain() says of it, and how long it took.
#include "told_call.h"

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>

#include "../../contract/problem_fields.h"
#include "../status.h"
#include "given_call.h"

namespace polyhead::runtime {
namespace {

// The lines of an explanation as one.
std::string joined(const char *text) {
    std::string line;
    for (const char *at = text; *at; ++at) {
        if (*at != '\n') {
            line += *at;
            continue;
        }
        while (at[1] == ' ' || at[1] == '\n') {
            ++at;
        }
        line += at[1] ? "; " : "";
    }
    return line;
}

std::string flags_of_kernel(const polyhead_kernel *table, const polyhead_args *args) {
    GivenCall call;
    polyhead_status status = success();
    return call.read(table, args, &status) ? contract::flags_of(call.kernel->problem) : "";
}

} // namespace

polyhead_status run_and_tell(const polyhead_kernel *table, const polyhead_args *args,
                             polyhead_status (*run)(const polyhead_kernel *, const polyhead_args *) noexcept) noexcept {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    const polyhead_status status = run(table, args);
    const auto time = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin).count();
    try {
        char text[4096] = "";
        std::string line = std::string("refused: ") + status.message;
        if (status.code == POLYHEAD_OK) {
            polyhead_explain(table, args, text, sizeof text);
            line = joined(text);
        }
        line = "polyhead: " + line + " (" + flags_of_kernel(table, args) + ")";
        std::fprintf(stderr, "%s, %lld us\n", line.c_str(), static_cast<long long>(time));
    } catch (const std::exception &) { // no memory for the line
    }
    return status;
}

} // namespace polyhead::runtime
