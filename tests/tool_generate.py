"""Holds polyhead-generate to its contract: three files that fit together, or one sentence and no file."""
import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile

from tier import sampled

SDPA = "--op sdpa --num-heads 4 --head-dim 8 "
REFUSALS = [  # command line after the name, and what the sentence must name
    ("--op mha --embed-dim 770 --num-heads 12", "embed_dim 770 is not divisible by num_heads 12"),
    ("--op mha --embed-dim 768 --num-heads 0", "num_heads"),
    ("--op mha --embed-dim -768 --num-heads 12", "embed_dim"),
    ("--op mha --num-heads 12", "--embed-dim: missing"),
    ("--op mha --embed-dim 64 --num-heads 4 --kdim 32", "kdim"),
    ("--op sdpa --num-heads 4 --head-dim 577", "head_dim 577"),
    ("--op sdpa --num-heads 4 --head-dim 0", "head_dim"),
    ("--op sdpa --num-heads 4 --head-dim 8 --head-dim-v 577", "head_dim_v"),
    ("--op sdpa --num-heads 7 --num-kv-heads 2 --head-dim 8", "num_heads 7 is not a multiple of num_kv_heads 2"),
    ("--op sdpa --num-heads 4096 --head-dim 8", "num_heads"),
    ("--op conv", "conv"),
    ("", "op"),
    (SDPA + "--frobnicate 3", "--frobnicate: unknown option, expected one of those that --help prints"),
    (SDPA + "surplus", "found 'surplus', expected options behind one NAME"),
    (SDPA + "--num-kv-heads two", "num-kv-heads"),
    (SDPA + "--head-dim 99999999999999", "head-dim"),
    (SDPA + "--bias", "bias"),
    (SDPA + "--lse=66666666666666666666666", "lse: found value '66666666666666666666666', expected a flag without value"),
    (SDPA + "--no-bias=-1", "no-bias: found value '-1'"),
    (SDPA + "--causal sideways", "sideways"),
    (SDPA + "--dtype f64", "f64"),
    (SDPA + "--dtype f16 --target x86-64-linux-vulkan", "f16"),
    (SDPA + "--dtype bf16 --untested-target --target x86-64-linux-opencl,arm-64-osx-metal", "bf16"),
    (SDPA + "--tiling pair=2", "pair 2 needs bf16"),
    (SDPA + "--dtype bf16 --target x86-64-linux --tiling pair=2", "pair 2 needs bf16"),
    (SDPA + "--target x86-64-linux-cuda-cuda_capability_95", "cuda_capability_95"),
    (SDPA + "--seq-len-q 0", "seq_len_q"),
    (SDPA + "--seq-len-q -3", "seq_len_q"),
    (SDPA + "--seq-len-q-range 9:3", "9:3"),
    (SDPA + "--seq-len-q-range 1:x", "1:x"),
    (SDPA + "--target pdp-11", "pdp-11"),
    (SDPA + "--target x86-64-linux-trace_all", "trace_loads"),
    (SDPA + "--target host-no_asserts", "no_asserts"),
    (SDPA + "--target arm-64-linux-sve2-vector_bits_256", "sve2"),
    (SDPA + "--target arm-32-linux", "--untested-target"),
    (SDPA + "--target x86-64-linux-avx1024", "avx1024"),
    (SDPA + "--target x86-64-linux,nothing", "nothing"),
    (SDPA + "--tiling frobs=3", "frobs"),
    (SDPA + "--tiling q_tile=many", "q_tile"),
    (SDPA + "--tiling q_tile=4096", "q_tile is 4096, expected 1 to 256"),
    (SDPA + "--seq-len-q 100 --tiling frame=head_lanes", "head_lanes serves query lengths up to 16"),
    (SDPA + "--seq-len-q 100 --seq-len-q-range 1:16", "no variant serves query lengths 1:16 for seq_len_q 100"),
    ("--op linear --embed-dim 64 --out-features 64 --target x86-64-linux-opencl --tiling linear_columns=3", "linear_columns 3 does not divide"),
    (SDPA + "--emit pictures", "pictures"),
    (SDPA + "--causal top_left --causal bottom_right", "causal: found top_left and bottom_right, which conflict"),
    (SDPA + "--mask both", "mask: found 'both', expected none, bool or additive"),
    (SDPA + "--mask bool --mask additive", "which conflict"),
    (SDPA + "--mask-broadcast q", "mask_broadcast q is not allowed without mask"),
    (SDPA + "--mask bool --mask-broadcast h", "mask_broadcast: found 'h'"),
    (SDPA + "--rotary-dim 4", "rotary_dim 4 is not allowed without rope"),
    (SDPA + "--rope interleaved --rotary-dim 0", "rotary_dim: found 0"),
    (SDPA + "--rope interleaved --rotary-dim 10", "rotary_dim 10 is larger than head_dim 8"),
    (SDPA + "--scores all", "scores: found 'all'"),
    (SDPA + "--expression mask=kv", "expression:1:1: mask is int, expected bool"),
    (SDPA + "--expression mask=kv<biaz[q]", "expression:1:9: unknown name 'biaz'"),
    (SDPA + "--expression-file nowhere.txt", "cannot read 'nowhere.txt'"),
    (SDPA + "--expression-file nowhere.txt --expression mask=true", "found more than one of"),
    (SDPA + "--tuned nowhere.json", "tuned: cannot read 'nowhere.json', expected a file of tuning records"),
    (SDPA + "--tuned nowhere.json --no-tuned", "tuned: found both --tuned and --no-tuned"),
    ("--op linear --embed-dim 8 --out-features 8 --expression mask=true", "expression is not a parameter of op linear"),
    ("--op linear --embed-dim 8 --out-features 8 --softcap", "softcap is not a parameter of op linear"),
    ("--op linear --embed-dim 8", "--out-features: missing, expected 1 to "),
    ("--op sdpa --num-heads 8", "--head-dim: missing, expected 1 to 576"),
    ("--op mha --num-heads 8", "--embed-dim: missing, expected 1 to "),
    (SDPA + "--headdim 64", "--headdim: unknown option, expected --head-dim, or another that --help prints"),
    (SDPA + "--kv-length", "--kv-length: unknown option, expected --kv-lengths"),
    ("--op linear --embed-dim 8 --out-features 8 --num-heads 2", "num_heads"),
]
NAMES = ["2d", "with-dash", "", "a b", "../up", "__reserved", "class", "main", "features", "polyhead_x"]


class Tool:
    def __init__(self, options, folder):
        self.options, self.folder, self.failures = options, folder, 0

    def fail(self, text):
        self.failures += 1
        print("FAILED: " + text)

    def generate(self, name, arguments, out):
        command = [self.options.generate] + name + arguments + ["-o", out]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def refused(self, name, arguments, named):
        out = os.path.join(self.folder, "refused")
        done = self.generate([name], arguments, out)
        lines = done.stderr.splitlines()
        if done.returncode != 1 or len(lines) != 1 or named not in done.stderr or done.stdout:
            self.fail("'%s %s': status %d, said '%s', expected one sentence naming '%s'" % (name, arguments, done.returncode, done.stderr, named))
        if os.path.exists(out):
            self.fail("'%s' left %s" % (arguments, os.listdir(out)))

    def written(self, name, arguments):
        """The manifest of a kernel that must come out, its header compiled as C and as C++."""
        out = os.path.join(self.folder, name)
        done = self.generate([name], shlex.split(arguments), out)
        if done.returncode != 0:
            self.fail("'%s': %s" % (arguments, done.stderr))
            return None
        for suffix in (".a", ".h", ".json"):
            if not os.path.exists(os.path.join(out, name + suffix)):
                self.fail("%s%s is missing" % (name, suffix))
        for compiler, language in ((self.options.cc, "c"), (self.options.cxx, "c++")):
            text = '#include "%s.h"\nint main(void) { return %s.num_variants > 0 && %s.num_declarations >= 0 ? 0 : 1; }\n' % (name, name, name)
            command = compiler.split() + ["-x", language, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I" + out,
                                          "-I" + self.options.include, "-"]
            compiled = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if compiled.returncode != 0:
                self.fail("%s.h as %s:\n%s" % (name, language, compiled.stdout))
        with open(os.path.join(out, name + ".json"), encoding="utf-8") as file:
            manifest = json.load(file)
        if manifest["library_bytes"] != os.path.getsize(os.path.join(out, name + ".a")):
            self.fail("library_bytes %d is not the size of the archive" % manifest["library_bytes"])
        return manifest

    def equal(self, what, found, expected):
        if found != expected:
            self.fail("%s: found %s, expected %s" % (what, found, expected))


def check_manifests(tool):
    sdpa = tool.written("one_sdpa", "--op sdpa --num-heads 4 --head-dim 8 --seq-len-q 5 --seq-len-kv 9 --causal top_left")
    if sdpa:
        tool.equal("flops of causal pairs", sdpa["flops"]["batch_1"], 2 * 4 * (1 + 2 + 3 + 4 + 5) * 16)
        tool.equal("bytes", sdpa["bytes_moved"]["batch_1"], 4 * 4 * (5 + 9) * 16)
        tool.equal("parameters", sdpa["parameters"], 0)
    layer = tool.written("one_layer", "--op mha --embed-dim 24 --num-heads 2 --bias --target x86-64-linux-avx2-fma-f16c,x86-64-linux")
    if layer:
        tool.equal("parameters", layer["parameters"], 4 * 24 * 24 + 4 * 24)
        # Four weights of 2 panels with 24 rows, four biases of 2 panels: each begins at a multiple of 512 bytes.
        tool.equal("packed bytes", layer["weights_bytes"], 4 * (4 * 16 * 2 * 24) + 3 * 512 + 4 * 16 * 2)
        targets = {variant["target"] for variant in layer["variants"]}
        tool.equal("targets", len(targets), 2)
        tool.equal("features of the plain target", layer["variants"][-1]["cpu_features"], [])
        tool.equal("seq_len_q", layer["problem"]["seq_len_q"], "free")
    levels = tool.written("levels", "--op sdpa --num-heads 1 --head-dim 16 --target x86-64-v4,x86-64-v3,x86-64")
    if levels:
        found = [variant["psabi_level"] for variant in levels["variants"]]
        tool.equal("levels of the psABI", list(dict.fromkeys(found)), ["x86-64-v4", "x86-64-v3", "x86-64"])
        features = {variant["psabi_level"]: variant["cpu_features"] for variant in levels["variants"]}
        tool.equal("features of level 3", features["x86-64-v3"], ["sse41", "avx", "f16c", "fma", "avx2"])
    portable = tool.written("of_any_cpu", "--op linear --embed-dim 32 --out-features 16 --dtype bf16 --target portable")
    if portable:
        found = [variant.get("psabi_level", "beyond") for variant in portable["variants"]]
        tool.equal("portable", list(dict.fromkeys(found)), ["beyond", "x86-64-v4", "x86-64-v3", "x86-64-v2", "x86-64"])
    linear = tool.written("one_linear", "--op linear --embed-dim 7 --out-features 20")
    if linear:
        tool.equal("packed bytes", linear["weights_bytes"], 4 * 32 * 7)
    foreign = tool.written("one_foreign", "--op sdpa --num-heads 1 --head-dim 16 --target arm-64-linux")
    if foreign:
        tool.equal("a CPU needs no runtime of Halide's", "runtime_archives" in foreign, False)
    metal = tool.written("one_metal", "--op sdpa --num-heads 1 --head-dim 16 --target arm-64-osx-metal,arm-64-osx --untested-target")
    if metal:
        tool.equal("runtime", metal["runtime_archives"], ["halide_runtime_arm-64-osx-metal.a"])
        tool.equal("runtime archive", os.path.exists(os.path.join(tool.folder, "one_metal", metal["runtime_archives"][0])), True)
    riscv = tool.written("one_riscv", "--op sdpa --num-heads 1 --head-dim 16 --target riscv-64-linux-rvv-vector_bits_256 --untested-target")
    if riscv:
        tool.equal("features", {tuple(variant["cpu_features"]) for variant in riscv["variants"]}, {("riscv_vector",)})


EXPRESSION = """# A bias that a user learned, é, "quoted" */ ??/
tensor bias: f32[h, 129]
tensor last: i32[b] ; tensor on: bool
let far = clamp(p - kv, 0,
                128)   # goes on inside brackets
score = select(on, score + bias[h, far], score)
mask = kv <= last[b] and
"""


def check_expressions(tool):
    file = os.path.join(tool.folder, "my expression.txt")
    with open(file, "w", encoding="utf-8") as handle:
        handle.write(EXPRESSION)
    tool.refused("refused", SDPA.split() + ["--expression-file", file], file + ":7:25: found the end of the line")
    tool.refused("refused", SDPA.split() + ["--expression", "tensor t: f64; score = t"], "expression:1:11: found 'f64'")
    for words, named in ((["--num-\r\x1b[2J\rheads", "3"], "--num-"), (["--tuned", "no\r\nwhere"], "cannot read 'no  where'"),
                         (["--target", "x86\n64"], "target 'x86 64'"), (["--tiling", "q\x1btile=1"], "knob 'q tile'"),
                         (["--expression-file", "no\rwhere"], "cannot read 'no where'")):
        tool.refused("refused", SDPA.split() + words, named)
    closed = os.path.join(tool.folder, "a\nfile")
    with open(closed, "w", encoding="utf-8"):
        pass
    done = tool.generate(["refused"], SDPA.split(), os.path.join(closed, "out"))
    tool.equal("lines about a folder that cannot be made", (done.returncode, len(done.stderr.splitlines())), (1, 1))
    text = EXPRESSION.replace(" and\n", " and kv > p - 7\n")
    with open(file, "w", encoding="utf-8") as handle:
        handle.write(text)
    flags = (SDPA + "--window --position-offsets --mask additive --mask-broadcast q --score-bias --score-bias-broadcast q,kv --softcap "
             "--alibi --sinks --rope half_split --head-gate --scores logits --weights-mean --lse --seq-len-q 5 --seq-len-kv 9 "
             "--target x86-64-linux ")
    first = tool.written("one_expression", flags + "--expression-file '%s'" % file)
    if not first:
        return
    problem = first["problem"]
    expected = {"window": True, "position_offsets": True, "mask": "additive", "mask_broadcast": "q", "score_bias": True,
                "score_bias_broadcast": "q,kv", "softcap": True, "alibi": True, "sinks": True, "rope": "half_split", "rotary_dim": 8,
                "head_gate": True, "scores": "logits", "weights_mean": True, "lse": True, "causal": "none", "expression": text}
    for name, value in expected.items():
        tool.equal(name, problem.get(name), value)
    tool.equal("tensors", problem["expression_tensors"], [{"name": "bias", "dtype": "f32", "shape": ["h", 129]},
                                                          {"name": "last", "dtype": "i32", "shape": ["b"]},
                                                          {"name": "on", "dtype": "bool", "shape": []}])
    tool.equal("bytes", first["bytes_moved"]["batch_1"], 4 * 4 * (5 + 9) * 16 + 4 * (4 * 5 + 4 * 5 * 9 + 5 * 9))
    # The line of the manifest makes the same kernel again.
    line = first["generate"].split(" ", 2)[2].replace("one_expression", "one_again", 1).split(" ", 1)
    again = tool.written(line[0], line[1])
    if again:
        tool.equal("the line of the kernel made again", again["generate"], first["generate"].replace("one_expression", "one_again", 1))
        tool.equal("its tensors", again["problem"]["expression_tensors"], problem["expression_tensors"])
        for name in expected.keys() - {"expression"}:
            tool.equal(name, again["problem"][name], problem[name])


def check_devices(tool):
    mixed = tool.written("one_device", "--op linear --embed-dim 7 --out-features 20 --seq-len-q 3 --dtype f16 "
                         "--target x86-64-linux-cuda-cuda_capability_80,x86-64-linux-opencl")
    if mixed:
        tool.equal("apis", [variant["api"] for variant in mixed["variants"]], ["cuda", "opencl"])
        tool.equal("capabilities", [variant.get("capability") for variant in mixed["variants"]], [80, None])
        tool.equal("shared memory", [variant.get("shared_bytes") for variant in mixed["variants"]], [None, None])
        tool.equal("dtype", mixed["problem"]["dtype"], "f16")
        tool.equal("packed bytes", mixed["weights_bytes"], 2 * 32 * 7)
        tool.equal("bytes", mixed["bytes_moved"]["batch_1"], 2 * (3 * (7 + 20) + 7 * 20))
    tiles = tool.written("one_block", "--op sdpa --num-heads 1 --head-dim 8 --target x86-64-linux-opencl --tiling 'frame=block_tiles row_groups=4'")
    if tiles:
        # Exactly, in tests/gpu_sources/check.py: what the code asks for.
        tool.equal("has shared memory", 0 < tiles["variants"][0].get("shared_bytes", 0) <= 32 << 10, True)


def check_knobs(tool):
    """docs/guides/tuning.md shows the table of knobs that the program has, and --help names them all."""
    table = subprocess.run([tool.options.generate, "--list-knobs"], stdout=subprocess.PIPE, text=True, check=True).stdout
    with open(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs", "guides", "tuning.md"), encoding="utf-8") as file:
        tool.equal("the table of knobs in docs/guides/tuning.md (polyhead generate --list-knobs prints it)", table in file.read(), True)
    help_text = subprocess.run([tool.options.generate, "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
    for line in table.splitlines()[2:]:
        tool.equal("a knob in --help", line.split("|")[2].strip() in help_text and line.split("|")[1].strip(" `") in help_text, True)


def check_limits(tool):
    """What the compiler may take: one sentence, no file, and 0 lifts a limit."""
    small = SDPA + "--target x86-64-linux "
    tool.refused("limited", (small + "--limit-seconds 0.001").split(), "limit_seconds: the compiler took more than 0.001 s")
    tool.refused("limited", (small + "--limit-megabytes 2").split(), "limit_megabytes: the compiler took more than 2 MB")
    tool.refused("limited", (small + "--limit-seconds soon").split(), "limit_seconds: found 'soon', expected a number from 0")
    tool.refused("limited", (small + "--limit-megabytes -1").split(), "limit_megabytes: found '-1', expected a number from 0")
    os.environ["POLYHEAD_LIMIT_SECONDS"] = "0.001"
    tool.refused("limited", small.split(), "limit_seconds: the compiler took more than 0.001 s")
    os.environ["POLYHEAD_LIMIT_SECONDS"] = "never"
    tool.refused("limited", small.split(), "POLYHEAD_LIMIT_SECONDS: found 'never'")
    os.environ["POLYHEAD_LIMIT_SECONDS"] = "0.001"  # the command line wins
    tool.written("not_limited", small + "--limit-seconds 0 --limit-megabytes 0")
    del os.environ["POLYHEAD_LIMIT_SECONDS"]


def check_deep_records(tool):
    """JSON as deep as no stack is warns in one line, and the kernel gets its default tiling."""
    deep = os.path.join(tool.folder, "deep.json")
    with open(deep, "w", encoding="utf-8") as file:
        file.write('{"format": 1, "records": ' + "[" * 200000 + "]" * 200000 + "}")
    done = tool.generate(["deep"], SDPA.split() + ["--list-tilings", "--tuned", deep], tool.folder)
    tool.equal("status with deep records", done.returncode, 0)
    tool.equal("what is said", "more than 16 levels" in done.stderr and len(done.stderr.splitlines()) == 1, True)


def check_leftovers(tool):
    """A failure leaves an earlier library unchanged, and no other file."""
    out = os.path.join(tool.folder, "one_sdpa")
    before = {name: os.path.getmtime(os.path.join(out, name)) for name in os.listdir(out)}
    tool.generate(["one_sdpa"], ["--op", "sdpa", "--num-heads", "4", "--head-dim", "600"], out)
    tool.equal("files after a refusal", {name: os.path.getmtime(os.path.join(out, name)) for name in os.listdir(out)}, before)
    blocked = os.path.join(tool.folder, "file")
    with open(blocked, "w", encoding="utf-8"):
        pass
    done = tool.generate(["x"], SDPA.split(), os.path.join(blocked, "below"))
    tool.equal("status for an output directory below a file", done.returncode, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("generate", "include", "cxx", "cc"):
        parser.add_argument("--" + name, required=True)
    with tempfile.TemporaryDirectory() as folder:
        tool = Tool(parser.parse_args(), folder)
        for arguments, named in sampled("refusals", REFUSALS, 3):
            tool.refused("refused", arguments.split(), named)
        for name in NAMES:
            tool.refused(name, SDPA.split(), "name: found '%s'" % name)
        check_manifests(tool)
        check_expressions(tool)
        check_devices(tool)
        check_knobs(tool)
        check_deep_records(tool)
        check_limits(tool)
        check_leftovers(tool)
        print("%d failures" % tool.failures)
        return 1 if tool.failures else 0


if __name__ == "__main__":
    sys.exit(main())
