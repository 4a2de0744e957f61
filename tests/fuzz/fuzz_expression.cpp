// Fuzzes user expressions: a text is read, or refused with a sentence that has line and column. What is read means the same on one line,
// has values and bounds in Halide, and from time to time goes through the generator, which must write a library or say why not.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <regex>
#include <sstream>

#include <polyhead/c_problem.h>

#include "contract/expression_text.h"
#include "generators/expressions/values.h"
#include "generators/random_words.h"
#include "plan/language/expression.h"
#include "sentence.h"

namespace polyhead::fuzz {
namespace {

using Clock = std::chrono::steady_clock;
using Halide::Expr;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

gen::ExpressionScope scope() {
    gen::ExpressionScope s;
    s.b = Halide::Var("b");
    s.h = Halide::Var("h");
    s.q = Halide::Var("q");
    s.kv = Halide::Var("kv");
    s.seq_len_q = 3;
    s.seq_len_kv = 7;
    s.kv_length = 7 - s.b;
    s.position = s.q + s.kv_length - s.seq_len_q;
    s.score = Halide::cast<float>(s.kv * 3 + s.q);
    s.exp = [](const Expr &x) { return Halide::exp(x); };
    s.tanh = [](const Expr &x) { return Halide::tanh(x); };
    s.uniform = [](const std::vector<Expr> &x) { return gen::uniform(gen::product_of_64_bits, x); };
    return s;
}

// Values and bounds; if Halide refuses to build one, the generator reports it in a sentence.
void evaluate(const gen::Expression &expression) {
    gen::ExpressionScope s = scope();
    s.element = [&](size_t tensor, const std::vector<Expr> &index) -> Expr {
        Expr sum = 0;
        for (const Expr &i : index) {
            sum = sum * 5 + i;
        }
        const int dtype = expression.tensors().at(tensor).dtype;
        return dtype == POLYHEAD_F32 ? Halide::cast<float>(sum) : dtype == POLYHEAD_BOOL ? sum > 2 : sum;
    };
    try {
        (void)score_of(expression, s);
        (void)mask_of(expression, s);
        s.score = s.h = s.kv = Expr();
        (void)key_bounds(expression, s);
    } catch (const Halide::Error &error) {
        (void)error;
    }
}

std::string content(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

// The status of `polyhead-generate`, whose standard error goes to a file; killed when it outlives its own limit by far.
int generate(const char *program, const std::string &text, const std::string &folder) {
    constexpr double most_seconds = 400; // generation ends itself after 60
    const std::string errors = folder + "/stderr";
    std::vector<std::string> words = {program,      "fuzzed", "--op", "sdpa",          "--num-heads",  "2",
                                      "--head-dim", "16",     "-o",   folder + "/out", "--expression", text};
    std::vector<char *> argv;
    for (std::string &word : words) {
        argv.push_back(word.data());
    }
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    pid_t child = 0;
    if (posix_spawn(&child, program, &actions, nullptr, argv.data(), environ) != 0) {
        fail("polyhead-generate was not started", program);
    }
    posix_spawn_file_actions_destroy(&actions);
    const Clock::time_point start = Clock::now();
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (seconds_since(start) > most_seconds) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            fail("generation went on and on", text);
        }
        usleep(5000);
    }
    return status;
}

void compile(const char *program, const std::string &text) {
    char folder[] = "/tmp/polyhead_fuzz_XXXXXX";
    if (!mkdtemp(folder)) {
        return;
    }
    const int status = generate(program, text, folder);
    const std::string said = content(std::string(folder) + "/stderr"), out = std::string(folder) + "/out/fuzzed";
    const bool written = access((out + ".a").c_str(), R_OK) == 0 && access((out + ".h").c_str(), R_OK) == 0;
    if (!WIFEXITED(status) || (WEXITSTATUS(status) == 0) != written || (!written && said.empty())) {
        fail("polyhead-generate ended with status " + std::to_string(status) + " and said '" + said + "' to", text);
    }
    for (const char *end : {".a", ".h", ".json"}) {
        unlink((out + end).c_str());
    }
    unlink((std::string(folder) + "/stderr").c_str());
    rmdir((std::string(folder) + "/out").c_str());
    if (rmdir(folder) != 0) {
        fail("polyhead-generate left files in " + std::string(folder), text);
    }
}

// Compiling takes a second: a quarter of the time goes there. POLYHEAD_FUZZ_COMPILE=1: whatever is accepted, to repeat a finding.
void compile_sometimes(const std::string &text) {
    static const char *const program = std::getenv("POLYHEAD_FUZZ_GENERATE");
    static const bool always = std::getenv("POLYHEAD_FUZZ_COMPILE") != nullptr;
    static const Clock::time_point start = Clock::now();
    static double compiling = 0;
    if (program && text.find('\0') == std::string::npos && (always || compiling < 0.25 * seconds_since(start) - 1)) {
        const Clock::time_point now = Clock::now();
        compile(program, text);
        compiling += seconds_since(now);
    }
}

} // namespace
} // namespace polyhead::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    using namespace polyhead;
    const std::string text(reinterpret_cast<const char *>(data), size);
    gen::Expression expression, again;
    const std::string refusal = gen::Expression::parse(text, "fuzzed", &expression);
    if (!refusal.empty()) {
        static const std::regex place("fuzzed:[0-9]+:[0-9]+: .*");
        fuzz::expect_sentence(refusal);
        if (!std::regex_match(refusal.substr(0, 60), place)) {
            fuzz::fail("expected line and column", refusal);
        }
        return 0;
    }
    const std::string one_line = contract::one_line(text.c_str());
    const std::string second = gen::Expression::parse(one_line, "one line", &again);
    if (text.find('\0') == std::string::npos && !second.empty()) {
        fuzz::fail("accepted, but not on one line", second + "\n" + one_line);
    }
    fuzz::evaluate(expression);
    fuzz::compile_sometimes(text);
    return 0;
}
