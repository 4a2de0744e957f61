// The request of a user to polyhead-generate, read from its command line.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <polyhead/c_api.h>

#include "compile_process.h"

namespace polyhead::tools {

struct Request {
    std::string name;
    polyhead_problem problem{};
    std::shared_ptr<const std::string> expression; // owns the text that problem.expression points to
    ExpressionSource source;                       // the C++ behind it, if it is C++
    Limits limits;                                 // of the compiler
    std::vector<std::string> targets;              // full Halide target strings, best first
    std::string tiling;                            // "key=value ...", overrides of the defaults
    std::string tuned;                             // the user's own tuning records
    bool use_records = true;                       // false: the default tilings
    int32_t min_seq_len_q = 0;                     // variants outside this range are left out
    int32_t max_seq_len_q = 0;                     // 0 = no limit
    std::string directory = ".";
    std::vector<std::string> emit; // "stmt", "assembly": compiler listings beside the library
    std::string runtime_path;      // not empty: write the Halide runtime there and nothing else
    bool backward = false;         // the kernel of its gradients, NAME_backward, is in the same library
    bool list_tilings = false;     // print the planned variants and write nothing
    bool list_lowered = false;     // print the lowered code of the planned variants and write nothing
    bool list_space = false;       // print what a tuner may try and write nothing
};

// Reads the command line. Returns one sentence when it cannot be done. When the user requested help, *help has the text.
std::string parse_request(int argc, const char *const *argv, Request *request, std::string *help);

// The kernels of a library, their problems complete: that of the request, and with `backward` that of its gradients. Returns one sentence
// when there is none.
std::string complete_requests(const Request &given, std::vector<Request> *kernels);

} // namespace polyhead::tools
