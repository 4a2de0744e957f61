"""The code of every CPU kernel of the table: dot products of bf16 pairs and calls of libpolyhead where they should be, no conversions called."""
import argparse
import json
import os
import re
import subprocess
import sys

MEMBER = re.compile(r"^(\S+)\.o: +file format", re.M)
CONVERSION = re.compile(r"R_X86_64_\w+\s+((?!polyhead_)\S*(?:extend|trunc|gnu_[fh]2|f16)\S*)")
AMX = ("polyhead_amx_linear", "polyhead_amx_scores", "polyhead_amx_values")
FETCH, FETCH_PAIRS = "polyhead_fetch", "polyhead_fetch_pairs"


def members(archive, objdump):
    """Name of each object -> its disassembly, relocations between the lines."""
    text = subprocess.run([objdump, "-dr", archive], check=True, stdout=subprocess.PIPE, text=True).stdout
    starts = list(MEMBER.finditer(text))
    return {start.group(1): text[start.end():behind] for start, behind in zip(starts, [m.start() for m in starts[1:]] + [len(text)])}


def expected(problem, variant):
    """Whether pairs are multiplied, and what is called: stages of AMX, and fetch where query lanes read tensors as they lie (of pairs where
    masks or biases differ by query). Weights of bf16 lie in pairs, so layers multiply them with every frame."""
    knobs = dict(word.split("=") for word in variant["tiling"].split())
    int8 = problem.get("int8_cache", False)
    has_pairs = problem["dtype"] == "bf16" and not int8 and "avx512_bf16_vnni" in variant["cpu_features"]
    layer = problem["op"] != "sdpa" and not problem.get("f32_weights")
    amx, as_stored = set(), ((problem["dtype"] == "f32" and not int8) or knobs.get("pair") == "2") and reads_tensors(problem)
    if problem["op"] == "sdpa" and variant["frame"] == "query_lanes" and as_stored and knobs.get("amx", "0") == "0" and not (has_pairs and problem.get("page_size")):
        over_pairs = [name for name in ("mask", "score_bias") if problem.get(name, "none") not in (0, "none", False)]
        by_query = any("q" not in str(problem.get(name + "_broadcast", "none")).split(",") for name in over_pairs)
        return has_pairs and knobs.get("pair") == "2", {FETCH} | ({FETCH_PAIRS} if by_query else set())
    if problem["op"] == "sdpa" and variant["frame"] == "head_lanes":
        whole_vectors = problem["head_dim"] % 32 == 0 and problem["head_dim_v"] % 32 == 0 and problem["rope"] == "none"
        return has_pairs and whole_vectors, set()
    if knobs.get("amx") == "1":
        amx |= {AMX[0]} if layer else set()
        amx |= set(AMX[1:]) if problem["op"] != "linear" and problem["rope"] == "none" else set()
    pairs = has_pairs and (knobs.get("pair") == "2" or (layer and not amx))
    return pairs, amx


def reads_tensors(problem):
    """Keys and values are those of the caller, and not rows that were normalised just before."""
    return problem.get("key_norm", "none") == "none" and not problem.get("value_norm")


def faults_of(problem, variant, code):
    pairs, amx = expected(problem, variant)
    count = len(re.findall(r"\tvdpbf16ps\s", code))
    called = {stage for stage in (*AMX, FETCH, FETCH_PAIRS) if re.search(r"R_X86_64_\w+\s+%s\b" % stage, code)}
    if (count > 0) != pairs:
        yield "%d of vdpbf16ps, expected %s" % (count, "some" if pairs else "none")
    if problem["op"] == "sdpa" and variant["frame"] == "head_lanes":
        yield from faults_of_decoding(problem, variant, code)
    if called != amx:
        yield "calls %s, expected %s" % (sorted(called), sorted(amx))
    for name in sorted(set(CONVERSION.findall(code))):
        yield "refers to a conversion: %s" % name


def faults_of_decoding(problem, variant, code):
    """Rows are asked from memory ahead; keys of int8 are multiplied as they are stored where the machine does it; no loop over keys takes memory
    from the heap. The sums of heads as wide as 512 lie there, once for each split."""
    widest = 256
    for function in re.split(r"^[0-9a-f]+ <", code, flags=re.M):
        if problem.get("head_dim_v", 0) <= widest and "par_for_partial" in function.partition(">:")[0] and "halide_malloc" in function:
            yield "a split takes memory from the heap"
    if reads_tensors(problem) and not re.search(r"\tprefetch\w+\s", code):
        yield "no prefetch"
    as_stored = problem.get("int8_cache") and not problem.get("scale_channels") and problem["rope"] == "none"
    features = variant["cpu_features"]
    four = "avx512_bf16_vnni" in features
    floats = 16 if "avx512" in features else 8 if "avx" in features else 4 if "sse41" in features else 0
    wanted = {r"vpdpbusd": four and problem["head_dim"] % 16 == 0, r"v?pmaddwd": not four and floats > 0 and problem["head_dim"] % (2 * floats) == 0}
    for instruction, condition in wanted.items():
        some = bool(as_stored and condition)
        if bool(re.search(r"\t%s\s" % instruction, code)) != some:
            yield "%s: expected %s" % (instruction, "some" if some else "none")


def check_planted():
    """The search finds what it looks for."""
    problem = {"dtype": "bf16", "op": "sdpa", "rope": "none"}
    variant = {"frame": "query_lanes", "tiling": "pair=2 amx=1", "cpu_features": ["avx512_bf16_vnni"]}
    code = "\t\t\t12: R_X86_64_PLT32\t__extendhfsf2-0x4\n\t\t\t19: R_X86_64_PLT32\tpolyhead_amx_scores-0x4\n"
    found = list(faults_of(problem, variant, code))
    assert len(found) == 3, found
    decoding = dict(variant, frame="head_lanes", tiling="row_tile=4")
    assert len(list(faults_of(dict(problem, dtype="f32", int8_cache=True, head_dim=64, head_dim_v=64), decoding, ""))) == 2, "no prefetch, no vpdpbusd"
    assert list(faults_of(dict(problem, dtype="f32"), dict(variant, tiling="pair=1"), "")), "no fetch"
    assert list(faults_of(dict(problem, dtype="f16"), dict(variant, tiling="pair=1"), "\tvdpbf16ps %zmm1\n")), "pairs that nobody promised"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", required=True, help="where the kernels are")
    parser.add_argument("--objdump", required=True)
    parser.add_argument("kernels", nargs="+")
    options = parser.parse_args()
    check_planted()
    variants = failed = 0
    for name in options.kernels:
        with open(os.path.join(options.folder, name + ".json"), encoding="utf-8") as file:
            manifest = json.load(file)
        code = members(os.path.join(options.folder, name + ".a"), options.objdump)
        for variant in manifest["variants"]:
            variants += 1
            for fault in faults_of(manifest["problem"], variant, code[variant["name"]]):
                print("FAILED: %s on %s: %s" % (variant["name"], variant["target"], fault))
                failed += 1
    print("%d variants of %d kernels" % (variants, len(options.kernels)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
