// Fuzzes the command line of polyhead-generate: one argument a line. It is refused with one sentence, answered with help, or becomes a
// request whose problem and variants can be planned or are refused in turn.
#include <cstdint>

#include "plan/plan.h"
#include "sentence.h"
#include "tools/request.h"

namespace {

// Opening a library runs its code, which is what that argument is for.
bool opens_a_library(const std::string &argument) {
    return argument.rfind("--expression-l", 0) == 0;
}

std::vector<std::string> arguments_of(const std::string &text) {
    std::vector<std::string> words = {"polyhead-generate"};
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find('\n', at), text.size());
        words.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return words;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    using namespace polyhead;
    const std::string text(reinterpret_cast<const char *>(data), size);
    const std::vector<std::string> words = arguments_of(text);
    std::vector<const char *> argv;
    for (const std::string &word : words) {
        if (opens_a_library(word) || word.find('\0') != std::string::npos) {
            return 0;
        }
        argv.push_back(word.c_str());
    }
    tools::Request request;
    std::string help;
    const std::string refusal = tools::parse_request(static_cast<int>(argv.size()), argv.data(), &request, &help);
    if (!refusal.empty()) {
        fuzz::expect_sentence(refusal);
        return 0;
    }
    if (!help.empty() || !request.runtime_path.empty()) {
        return 0;
    }
    if (request.min_seq_len_q < 0 || request.max_seq_len_q < 0 ||
        (request.max_seq_len_q != 0 && request.max_seq_len_q < request.min_seq_len_q)) {
        fuzz::fail("a range without a length", std::to_string(request.min_seq_len_q) + ":" + std::to_string(request.max_seq_len_q));
    }
    if (const std::string sentence = gen::complete(&request.problem); !sentence.empty()) {
        fuzz::expect_sentence(sentence);
        return 0;
    }
    std::string error;
    std::vector<std::string> complaints;
    const auto plans =
        gen::plan_variants(request.problem, request.targets, request.tiling, &error, {request.tuned, request.use_records}, &complaints);
    if (plans.empty() != !error.empty()) {
        fuzz::fail("neither variants nor a sentence, or both", error);
    }
    if (!error.empty()) {
        fuzz::expect_sentence(error);
    }
    for (const std::string &complaint : complaints) {
        fuzz::expect_sentence(complaint);
    }
    return 0;
}
