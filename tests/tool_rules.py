"""The rule checker itself: each rule must fire on a line that breaks it and stay silent on one that does not."""
import functools
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tools"))
import check_fields  # noqa: E402
import check_rules  # noqa: E402

NESTS = functools.partial(check_rules.check_loop_nests, names={"q_tile", "scores"})

VARIABLES = functools.partial(check_rules.check_variables, documented=check_rules.documented_variables("| `HL_A`, `POLYHEAD_B` | x |\nPOLYHEAD_C"))

CASES = [  # check, file name, text, complaints
    (VARIABLES, "runtime/x.cpp", 'getenv("POLYHEAD_B") && getenv("HL_A")', 0),
    (VARIABLES, "runtime/x.cpp", 'getenv("POLYHEAD_C")', 1),
    (VARIABLES, "runtime/x.cpp", '"POLYHEAD_KERNEL_" + name + "_H" // POLYHEAD_C', 0),
    (check_rules.check_tables, "contract/x.h", "constexpr Row rows[] = {", 1),
    (check_rules.check_tables, "contract/x.h", "inline constexpr Row rows[] = {", 0),
    (check_rules.check_tables, "contract/x.h", "    constexpr Row rows[] = {", 0),
    (check_rules.check_tables, "runtime/x.cpp", "constexpr Row rows[] = {", 0),
    (check_rules.check_generators, "generators/x.cpp", "scores.compute_at(out, t);", 1),
    (check_rules.check_generators, "generators/x.cpp", "scores.bound(d, 0, 64); // not vectorize()", 0),
    (check_rules.check_generators, "generators/x.cpp", "if (target.has_feature(Target::AVX2)) return;", 2),
    (check_rules.check_generators, "generators/x.cpp", 'refuse("Target");', 0),
    (check_rules.check_schedules, "schedules/x.cpp", 'Func extra("extra");', 1),
    (check_rules.check_schedules, "schedules/x.cpp", "extra(x, y) = query(x, y);", 1),
    (check_rules.check_schedules, "schedules/x.cpp", "extra(x, y) += query(x, y);", 1),
    (check_rules.check_schedules, "schedules/x.cpp", "Halide::Func staged = stages.key.in(stages.scores);", 0),
    (check_rules.check_schedules, "schedules/x.cpp", "Halide::Func out = o.func;", 0),
    (check_rules.check_schedules, "schedules/x.cpp", "Func extra(expression);", 1),
    (check_rules.check_schedules, "schedules/x.cpp", 'staged = Func("staged");', 1),
    (check_rules.check_schedules, "schedules/x.cpp", "void schedule(const Halide::Func &out);", 0),
    (check_rules.check_schedules, "schedules/x.cpp", "if (f(x) == 3) {}", 0),
    (check_rules.check_schedules, "schedules/x.cpp", "out(at(o.d, o.q)) = store(value);", 1),
    (check_rules.check_schedules, "schedules/x.cpp", "stages.out(at(o.d,\n   o.q),\n   b) += value;", 1),
    (check_rules.check_schedules, "schedules/x.cpp", "s.result.split(q, outer, inner, tile(8) == 8 ? 8 : 4);", 0),
    (check_rules.check_generators, "generators/x.cpp", "const int lanes = machine_of(get_target()).lanes;", 2),
    (check_rules.check_generators, "generators/x.cpp", "void f(const Machine &machine);", 1),
    (check_rules.check_numbers, "schedules/x.cpp", "f.split(x, outer, inner, 32);", 1),
    (check_rules.check_numbers, "schedules/x.cpp", "const int rows = whole.queries / 5;", 1),
    (check_rules.check_numbers, "schedules/x.cpp", "constexpr int most_keys = 4; // one load each", 0),
    (check_rules.check_numbers, "schedules/x.cpp", "stage.gpu_threads(w[3], w[4]); // of 5", 0),
    (check_rules.check_includes, "generators/frames/x.cpp", '#include "../../schedules/tiling.h"', 1),
    (check_rules.check_includes, "generators/x.cpp", '#include "../contract/tensors.h"', 0),
    (check_rules.check_includes, "schedules/x.cpp", '#include "../compile/frames/frame_builder.h"', 1),
    (check_rules.check_includes, "schedules/x.cpp", '#include "compile/arguments.h"', 1),
    (check_rules.check_includes, "plan/x.cpp", "#include <Halide.h>", 1),
    (check_rules.check_includes, "load/x.cpp", '#include "../compile/compile.h"', 1),
    (check_rules.check_includes, "python/src/x.cpp", "#include <Halide.h>", 1),
    (check_rules.check_includes, "runtime/x.cpp", '#include "../generators/problem.h"', 1),
    (check_rules.check_includes, "contract/x.h", '#include "../runtime/status.h"', 1),
    (check_rules.check_includes, "contract/x.h", "#include <Halide.h>", 1),
    (check_rules.check_includes, "contract/x.h", "#include <polyhead/c_api.h>", 0),
    (check_rules.check_includes, "machines/x.h", "#include <Halide.h>", 1),
    (check_rules.check_includes, "runtime/x.cpp", '#include "../machines/machine.h"', 1),
    (check_rules.check_machines, "compile/x.cpp", "const bool many = machine.registers == 32;", 1),
    (check_rules.check_machines, "schedules/x.cpp", "if (machine.registers >= 32) {", 1),
    (check_rules.check_machines, "schedules/x.cpp", "const int sums = machine.registers - vectors - 1; // of registers == 32", 0),
    (check_rules.check_machines, "compile/x.cpp", "return machine.device.api == POLYHEAD_CUDA ? 32 : 8;", 1),
    (check_rules.check_machines, "compile/x.cpp", "return machine.device.api != POLYHEAD_CPU;", 0),
    (check_rules.check_machines, "generators/x.cpp", 's.scores.define_extern("polyhead_amx_scores", inputs);', 1),
    (check_rules.check_machines, "generators/x.cpp", 'return pure_call("dpbf16ps", {sum, a, b}); // vdpbf16ps', 1),
    (check_rules.check_machines, "generators/x.cpp", "// as vpmaddwd", 0),
    (check_rules.check_machines, "plan/target.cpp", "{Target::CUDA, POLYHEAD_CUDA},", 0),
    (check_rules.check_includes, "examples/x/main.cpp", '#include "../../bench/shapes.h"', 1),
    (check_rules.check_includes, "bench/x.cpp", '#include "../tests/support/check.h"', 1),
    (check_rules.check_includes, "bench/x.cpp", '#include "shapes.h"', 0),
    (check_rules.check_includes, "tests/x.cpp", '#include "../bench/shapes.h"', 1),
    (check_rules.check_includes, "tests/x.cpp", '#include "instruments/reference/reference.h"', 0),
    (check_rules.check_includes, "instruments/calls/x.cpp", '#include "../../tests/support/check.h"', 1),
    (check_rules.check_operations, "runtime/rules/x.cpp", "if (problem.op == POLYHEAD_SDPA) {", 1),
    (check_rules.check_operations, "runtime/rules/x.cpp", "if (kernel.op != wanted.op) { // POLYHEAD_SDPA", 0),
    (check_rules.check_operations, "python/polyhead/x.py", 'if fields["op"] == "linear":', 1),
    (check_rules.check_operations, "python/polyhead/x.py", 'if op in ("sdpa", "mha"):', 1),
    (check_rules.check_operations, "python/polyhead/x.py", 'return kernel("sdpa", **fields)', 0),
    (check_rules.check_bytes, "runtime/x.cpp", "const int bytes = problem.dtype == POLYHEAD_F32 ? 4 : 2;", 1),
    (check_rules.check_bytes, "plan/x.cpp", "const int64_t bytes = rows * (is_16_bit(t.dtype) ? 2 : 4);", 1),
    (check_rules.check_bytes, "python/polyhead/x.py", 'size = 2 if dtype == "bf16" else 4', 1),
    (check_rules.check_bytes, "runtime/x.cpp", "const int bytes = dtype_bytes(problem.dtype); // 4 or 2", 0),
    (check_rules.check_bytes, "runtime/x.cpp", "const int rank = by_heads(p) ? 4 : 2;", 0),
    (check_rules.check_links, "docs/x.md", "[design](internals/design.md), [a](https://example.org), [b](#there)", 0),
    (check_rules.check_links, "docs/x.md", "[design](design.md#part)", 1),
    (NESTS, "docs/internals/schedules.md", "    parallel (batch, tile of q_tile queries)\n      scores: sums          with lane_count", 0),
    (NESTS, "docs/internals/schedules.md", "    parallel (batch, tile of lane_rows queries)\n      scores: sums", 1),
    (NESTS, "docs/internals/schedules.md", "    blocks (batch)\n      scores, sums", 1),
    (NESTS, "docs/internals/schedules.md", "A text with other_names\n\n    and a command: with_flags", 0),
    (check_rules.check_frame_names, "compile/x.cpp", 'if (frame == "head_lanes") {', 1),
    (check_rules.check_locale, "compile/x.cpp", "std::ostringstream text;", 1),
    (check_rules.check_locale, "compile/x.cpp", "TextWriter text; // not std::ostringstream", 0),
    (check_rules.check_locale, "tools/x.cpp", "*value = std::strtod(text.c_str(), &end);", 1),
    (check_rules.check_locale, "tools/x.cpp", "if (std::isalpha(c) != 0) {", 1),
    (check_rules.check_locale, "tools/x.cpp", "const long long low = std::atoll(text);", 0),
    (check_rules.check_locale, "runtime/x.cpp", 'return refuse(status, code, "%s: value %g", name, value);', 1),
    (check_rules.check_locale, "runtime/x.cpp", 'std::snprintf(text, size, "%.2f ms", ms);', 1),
    (check_rules.check_locale, "runtime/x.cpp", 'std::snprintf(text, size, "%.0f bytes of %d", bytes, count);', 0),
    (check_rules.check_locale, "bench/x.cpp", 'std::printf("%g", 1.5);', 0),
    (check_rules.check_frame_names, "python/x.py", "[v for v in variants if v['frame'] != 'head_lanes']", 1),
    (check_rules.check_frame_names, "bench/x.cpp", 'compile("frame=query_lanes");', 0),
    (check_rules.check_excluded, "tests/x.cpp", "if (odd(p)) {\n    continue;\n}", 1),
    (check_rules.check_excluded, "tests/x.cpp", "// EXCLUDED: odd dims: c_problem.h\nif (odd(p)) {\n    continue;\n}", 1),
    (check_rules.check_excluded, "tests/x.cpp", "    continue; // EXCLUDED: odd dims: c_problem.h", 0),
    (check_rules.check_excluded, "tests/x.cpp", "    continue; // EXCLUDED: odd dims", 1),
    (check_rules.check_excluded, "tests/x.cpp", "while (p.rope == 0) {", 1),
    (check_rules.check_excluded, "tests/x.cpp", "// EXCLUDED: no rope: another case has it,\n// in another file\nwhile (p.rope == 0) {", 0),
    (check_rules.check_excluded, "tests/x.cpp", "while (static_cast<int>(rows.size()) < count) {", 0),
    (check_rules.check_excluded, "tests/x.cpp", "for (int n = random.below(8); n > 0 || sum == 1; n--) {", 1),
    (check_rules.check_excluded, "tests/x.cpp", "for (int n = 0; n < 8; n++) { // continue", 0),
    (check_rules.check_excluded, "tests/x.cpp", "q = std::min<int64_t>(random.pick(queries), most);", 1),
    (check_rules.check_excluded, "tests/x.py", "    n = min(self.random.choice(steps), room)", 1),
    (check_rules.check_excluded, "tests/x.py", "    # EXCLUDED: more than there is room for: c_cache.h\n    n = min(self.random.choice(steps), room)", 0),
    (check_rules.check_file, "runtime/x.cpp", "int main() {}", 1),
    (check_rules.check_file, "runtime/x.cpp", "// One job.\n" + "int x;\n" * 500, 1),
    (check_rules.check_file, "runtime/x.cpp", "// One job.\nint main() {\n" + "    step();\n" * 60 + "}\n", 1),
    (check_rules.check_file, "runtime/x.cpp", "// One job.\nint main() {\n" + "    step();\n" * 58 + "}\n", 0),
    (check_rules.check_file, "runtime/include/polyhead/polyhead.h", "// One job.\n" + "int x;\n" * 250, 1),
    (check_rules.check_file, "docs/x.md", "see /ho" "me/someone/file", 1),
    (check_rules.check_file, "docs/x.md", "TO" "DO later", 1),
    (check_rules.check_file, "docs/x.md", "a/work/b and /usr/include", 0),
    (check_rules.check_file, "tools/x.py", '"""One job."""\ndef f():\n' + "    g()\n" * 60, 1),
]

# A door that lacks a field of polyhead_args or polyhead_problem: file, text, what stands there instead, complaints.
FIELDS = [
    (check_fields.ARGUMENTS, "polyhead_tensor scores;", "polyhead_tensor scores, newcomer;", 3),
    (check_fields.PROBLEM, "int32_t rotary_dim;", "int32_t rotary_dim, newcomer;", 1),
    (check_fields.CMAKE, "VALUE_IN_KEY", "VALUE", 1),
    (check_fields.WORDS, "yes_no(\"sinks\"", "yes_no(\"sink\"", 2),
    (check_fields.PYTHON_CALL, "args_.softmax_scale =", "args_.scale =", 1),
    (check_fields.CPP, "args.sinks =", "args.sink =", 1),
    (check_fields.CPP, "Window> window", "Window> span", 3),
]


def text_with(path, found, instead):
    """Reads files of the project, one of them with a change."""
    def read(name):
        text = "\n".join(check_rules.lines_of(name))
        return text.replace(found, instead) if name == path else text
    return read


def main():
    failures = 0
    for path, found, instead, expected in FIELDS:
        complaints = list(check_fields.complaints(text_with(path, found, instead)))
        if len(complaints) != expected:
            failures += 1
            print("%s with %r: found %s, expected %d complaints" % (path, instead, complaints, expected))
    for check, name, text, expected in CASES:
        found = list(check(name, text.split("\n")))
        if len(found) != expected:
            failures += 1
            print("%s on %r: found %s, expected %d complaints" % (check.__name__, text[:60], found, expected))
    print("%d failures" % failures)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
