// Command line of polyhead-generate: CLI11 options into a Request, with refusals in one sentence.
#include "request.h"

#include <cctype>
#include <map>
#include <sstream>

#include <CLI/CLI.hpp>
#include <Halide.h>

#include "../generators/compile.h"

namespace polyhead::tools {
namespace {

// Option values as text, before they are checked.
struct Words {
    std::string op, dtype = "f32", causal, targets, range, emit;
    bool bias = false, no_bias = false, causal_given = false;
    int32_t seq_len_q = 0, seq_len_kv = 0;
    CLI::Option *causal_option = nullptr, *seq_len_q_option = nullptr, *seq_len_kv_option = nullptr;
};

void declare(CLI::App &app, Request *request, Words *words) {
    polyhead_problem &p = request->problem;
    app.add_option("NAME", request->name, "C identifier of the kernel; also the name of its files");
    app.add_option("--op", words->op, "sdpa, mha or linear");
    app.add_option("--embed-dim", p.embed_dim, "mha: width of input and output; linear: width of the input");
    app.add_option("--num-heads", p.num_heads, "query heads");
    app.add_option("--num-kv-heads", p.num_kv_heads, "key/value heads; divides --num-heads (default: --num-heads)");
    app.add_option("--head-dim", p.head_dim, "query/key head dimension, 1..576 (mha default: embed_dim / num_heads)");
    app.add_option("--head-dim-v", p.head_dim_v, "value head dimension, 1..576 (default: --head-dim)");
    app.add_option("--kdim", p.kdim, "mha --cross: width of the key input (default: --embed-dim)");
    app.add_option("--vdim", p.vdim, "mha --cross: width of the value input (default: --embed-dim)");
    app.add_option("--out-features", p.out_features, "linear: width of the output");
    app.add_flag("--cross", p.cross, "mha: key and value are inputs of their own");
    app.add_flag("--bias", words->bias, "mha, linear: with biases");
    app.add_flag("--no-bias", words->no_bias, "without biases (the default)");
    words->causal_option =
        app.add_option("--causal", words->causal, "bottom_right (the default of a bare --causal) or top_left")->expected(0, 1);
    app.add_flag("--kv-lengths", p.kv_lengths, "takes valid key lengths per batch row");
    app.add_flag("--lse", p.lse, "also writes the log-sum-exp [B,H,T_q]");
    words->seq_len_q_option = app.add_option("--seq-len-q", words->seq_len_q, "fixed query length (default: free at run time)");
    words->seq_len_kv_option = app.add_option("--seq-len-kv", words->seq_len_kv, "fixed key length (default: free at run time)");
    app.add_option("--dtype", words->dtype, "storage type: f32; f16 or bf16 for GPU targets");
    app.add_option("--target", words->targets, "Halide targets, comma-separated, best first (default: host)");
    app.add_option("--tiling", request->tiling, "\"key=value ...\": overrides of the default tiling");
    app.add_option("--seq-len-q-range", words->range, "MIN:MAX query lengths to make variants for (MAX empty: no limit)");
    app.add_option("--emit", words->emit, "stmt,assembly: compiler listings beside the library");
    app.add_option("-o,--output-directory", request->directory, "where the files go (default: here)");
    app.add_option("--runtime", request->runtime_path, "write the Halide runtime of --target to this .o or .a, and no kernel");
    app.add_flag("--list-tilings", request->list_tilings, "print the variants that would be made");
}

std::vector<std::string> split(const std::string &text, char separator) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);) {
        if (!part.empty()) {
            parts.push_back(part);
        }
    }
    return parts;
}

bool is_identifier(const std::string &name) {
    bool good = !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0;
    for (char c : name) {
        good = good && (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_');
    }
    return good && name.find("__") == std::string::npos && name[0] != '_';
}

// "host" and "host-asan" become the full string, so that the manifest says what was compiled.
std::string read_targets(const std::string &text, std::vector<std::string> *targets) {
    for (const std::string &word : split(text.empty() ? "host" : text, ',')) {
        if (!Halide::Target::validate_target_string(word)) {
            return "target: '" + word +
                   "' is not a Halide target; expected host or arch-bits-os[-feature...] such as x86-64-linux-avx2-fma-f16c";
        }
        const Halide::Target target(gen::resolve_target(word));
        if (target.has_unknowns()) {
            return "target: '" + word + "' does not name architecture, bits and operating system";
        }
        targets->push_back(target.to_string());
    }
    return targets->empty() ? "target: found no target, expected at least one" : "";
}

std::string read_range(const std::string &text, Request *request) {
    if (text.empty()) {
        return "";
    }
    const std::string refusal = "seq-len-q-range: found '" + text + "', expected MIN:MAX with 0 <= MIN <= MAX, or MIN:";
    const size_t colon = text.find(':');
    if (colon == std::string::npos || colon == 0 || text.find_first_not_of("0123456789:") != std::string::npos || text.size() > 20) {
        return refusal;
    }
    const std::string upper = text.substr(colon + 1);
    const long long low = std::atoll(text.c_str()), high = upper.empty() ? 0 : std::atoll(upper.c_str());
    if (low > INT32_MAX || high > INT32_MAX || (!upper.empty() && high < std::max(low, 1LL))) {
        return refusal;
    }
    request->min_seq_len_q = static_cast<int32_t>(low);
    request->max_seq_len_q = static_cast<int32_t>(high);
    return "";
}

std::string read_problem_words(const Words &words, polyhead_problem *p) {
    static const std::map<std::string, int32_t> ops = {{"sdpa", POLYHEAD_SDPA}, {"mha", POLYHEAD_MHA}, {"linear", POLYHEAD_LINEAR}};
    static const std::map<std::string, int32_t> dtypes = {{"f32", POLYHEAD_F32}, {"f16", POLYHEAD_F16}, {"bf16", POLYHEAD_BF16}};
    static const std::map<std::string, int32_t> causals = {
        {"", POLYHEAD_BOTTOM_RIGHT}, {"bottom_right", POLYHEAD_BOTTOM_RIGHT}, {"top_left", POLYHEAD_TOP_LEFT}};
    const auto op = ops.find(words.op);
    if (op == ops.end()) {
        return "op: found '" + words.op + "', expected sdpa, mha or linear";
    }
    p->op = op->second;
    const auto dtype = dtypes.find(words.dtype);
    if (dtype == dtypes.end()) {
        return "dtype: found '" + words.dtype + "', expected f32, f16 or bf16";
    }
    p->dtype = dtype->second;
    if (words.bias && words.no_bias) {
        return "bias: found both --bias and --no-bias, expected one of them";
    }
    p->bias = words.bias ? 1 : 0;
    if (words.causal_option->count() > 0) {
        const auto causal = causals.find(words.causal);
        if (causal == causals.end()) {
            return "causal: found '" + words.causal + "', expected bottom_right or top_left";
        }
        p->causal = causal->second;
    }
    for (const auto &[option, value, name] : {std::tuple{words.seq_len_q_option, words.seq_len_q, "seq_len_q"},
                                              std::tuple{words.seq_len_kv_option, words.seq_len_kv, "seq_len_kv"}}) {
        if (option->count() > 0 && value < 1) {
            return std::string(name) + ": found " + std::to_string(value) + ", expected at least 1 (leave it out for a free length)";
        }
    }
    p->seq_len_q = words.seq_len_q;
    p->seq_len_kv = words.seq_len_kv;
    return "";
}

// A zero written by the user is refused; a zero that he did not write means "the default".
std::string refuse_zeros(const CLI::App &app) {
    for (const char *name :
         {"--embed-dim", "--num-heads", "--num-kv-heads", "--head-dim", "--head-dim-v", "--kdim", "--vdim", "--out-features"}) {
        const CLI::Option *option = app.get_option(name);
        if (option->count() > 0 && option->as<int32_t>() < 1) {
            std::string parameter = std::string(name).substr(2);
            for (char &c : parameter) {
                c = c == '-' ? '_' : c;
            }
            return parameter + ": found " + std::to_string(option->as<int32_t>()) + ", expected at least 1";
        }
    }
    return "";
}

std::string read_emit(const std::string &text, std::vector<std::string> *emit) {
    for (const std::string &word : split(text, ',')) {
        if (word != "stmt" && word != "assembly") {
            return "emit: found '" + word + "', expected stmt or assembly";
        }
        emit->push_back(word);
    }
    return "";
}

std::string first_line(const std::string &text) {
    return text.substr(0, text.find('\n'));
}

} // namespace

std::string parse_request(int argc, const char *const *argv, Request *request, std::string *help) {
    CLI::App app("Writes NAME.a, NAME.h and NAME.json: an attention kernel compiled for one problem and the given targets.",
                 "polyhead generate");
    Words words;
    declare(app, request, &words);
    try {
        app.parse(argc, argv);
    } catch (const CLI::CallForHelp &) {
        *help = app.help();
        return "";
    } catch (const CLI::ParseError &error) {
        return first_line(error.what());
    }
    std::string refusal = read_targets(words.targets, &request->targets);
    if (!refusal.empty() || !request->runtime_path.empty()) {
        return refusal;
    }
    if (!is_identifier(request->name)) {
        return "name: found '" + request->name + "', expected a C identifier without leading or double underscores";
    }
    for (const std::string &step : {read_problem_words(words, &request->problem), refuse_zeros(app), read_range(words.range, request),
                                    read_emit(words.emit, &request->emit)}) {
        if (!step.empty()) {
            return step;
        }
    }
    return "";
}

std::string flags_of(const polyhead_problem &p) {
    static const char *ops[] = {"sdpa", "mha", "linear"};
    std::ostringstream text;
    text << "--op " << ops[p.op];
    const std::pair<const char *, int32_t> numbers[] = {
        {"embed-dim", p.embed_dim},   {"num-heads", p.num_heads},     {"num-kv-heads", p.num_kv_heads}, {"head-dim", p.head_dim},
        {"head-dim-v", p.head_dim_v}, {"kdim", p.cross ? p.kdim : 0}, {"vdim", p.cross ? p.vdim : 0},   {"out-features", p.out_features},
        {"seq-len-q", p.seq_len_q},   {"seq-len-kv", p.seq_len_kv}};
    for (const auto &[name, value] : numbers) {
        if (value != 0) {
            text << " --" << name << " " << value;
        }
    }
    if (p.causal != POLYHEAD_NOT_CAUSAL) {
        text << " --causal " << (p.causal == POLYHEAD_TOP_LEFT ? "top_left" : "bottom_right");
    }
    if (p.dtype != POLYHEAD_F32) {
        text << " --dtype " << (p.dtype == POLYHEAD_F16 ? "f16" : "bf16");
    }
    text << (p.cross ? " --cross" : "") << (p.bias ? " --bias" : "") << (p.kv_lengths ? " --kv-lengths" : "") << (p.lse ? " --lse" : "");
    return text.str();
}

} // namespace polyhead::tools
