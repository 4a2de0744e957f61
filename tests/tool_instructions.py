"""The instructions of 16-bit kernels: dot products of pairs where they are promised, no others, and no call of a conversion."""
import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile

from tier import sampled

ZEN4 = "x86-64-linux-avx512_zen4-avx512_cannonlake-avx512_skylake-avx512-avx2-avx-fma-f16c-sse41"
SKYLAKE = "x86-64-linux-avx512_skylake-avx512-avx2-avx-fma-f16c-sse41"
INTEL = "x86-64-linux-avx512_sapphirerapids-avx512_cannonlake-avx512_skylake-avx512-avx2-avx-fma-f16c-sse41"
AVX2 = "x86-64-linux-avx2-avx-fma-f16c-sse41"
SDPA = "--op sdpa --num-heads 4 --head-dim 64 --tiling frame=query_lanes"
DECODE = "--op sdpa --num-heads 4 --head-dim 64 --tiling frame=head_lanes"
LAYER = "--op mha --embed-dim 128 --num-heads 2"
LINEAR = "--op linear --embed-dim 64 --out-features 64"
DOTS, HALVES = "vdpbf16ps", "vcvtph2ps"
WIDENED = r"vpmovzxwd\s+[^%]*\("  # bf16 loaded as one number a lane; a query's two halves are widened in a register
AMX_LINEAR, AMX_SCORES, AMX_VALUES = (r"callq\s+polyhead_amx_" + stage for stage in ("linear", "scores", "values"))
AMX = r"callq\s+polyhead_amx_"
# flags, target, instructions that must be there and how many at least, instructions that must not
CASES = [
    (SDPA + " --dtype bf16", ZEN4, {DOTS: 17}, [HALVES]),
    (SDPA + " --dtype bf16 --causal bottom_right --kv-lengths", ZEN4, {DOTS: 33}, [HALVES]),
    (SDPA + " --dtype bf16 --rope half_split", ZEN4, {DOTS: 16, "vfmadd": 16}, [HALVES]),
    (SDPA + " --dtype bf16", SKYLAKE, {"vfmadd": 32}, [DOTS, HALVES]),
    (SDPA + " --dtype bf16", AVX2, {"vfmadd": 16}, [DOTS, HALVES]),
    (SDPA + " --dtype f16", AVX2, {"vfmadd": 16, HALVES: 1}, [DOTS]),
    (SDPA, ZEN4, {"vfmadd": 16}, [DOTS, HALVES]),
    (DECODE + " --dtype bf16", ZEN4, {DOTS: 4, "vfmadd": 8}, [HALVES]),
    (DECODE + " --dtype bf16 --rope half_split", ZEN4, {"vfmadd": 8}, [DOTS, HALVES]),
    (DECODE + " --dtype bf16", SKYLAKE, {"vfmadd": 8, "vpand": 4}, [DOTS, HALVES, WIDENED]),
    (DECODE + " --dtype bf16", AVX2, {"vfmadd": 8}, [DOTS, HALVES]),
    (DECODE + " --dtype f16", AVX2, {"vfmadd": 8, HALVES: 2}, [DOTS]),
    (LAYER + " --dtype bf16", ZEN4, {DOTS: 100}, [HALVES, "vpinsrw"]),
    (LAYER + " --dtype bf16", AVX2, {"vfmadd": 32}, [DOTS, HALVES]),
    (LAYER + " --dtype bf16 --f32-weights", ZEN4, {DOTS: 17, "vfmadd": 32}, [HALVES]),
    (SDPA + " --dtype bf16 --mask additive --additive-in-storage", ZEN4, {DOTS: 17, "vpermt2w": 16}, [HALVES]),
    (SDPA + " --dtype f16 --score-bias --additive-in-storage", AVX2, {HALVES: 2}, [DOTS]),
    (LINEAR + " --dtype bf16", ZEN4, {DOTS: 16}, [HALVES]),
    (SDPA + " --dtype bf16", INTEL, {DOTS: 17, r"v\w+\s.*zmm": 100}, [HALVES, AMX]),
    ("--op sdpa --num-heads 4 --head-dim 64 --dtype bf16", INTEL, {DOTS: 17, AMX_SCORES: 1, AMX_VALUES: 1}, [HALVES]),
    (LINEAR + " --dtype bf16", INTEL, {DOTS: 16, AMX_LINEAR: 1}, [HALVES]),
    ("--op sdpa --num-heads 4 --head-dim 64 --dtype bf16 --tiling 'frame=query_lanes amx=1'", INTEL, {AMX_SCORES: 1, AMX_VALUES: 1}, [HALVES]),
    (LAYER + " --dtype bf16 --tiling 'frame=query_lanes amx=1'", INTEL, {AMX_LINEAR: 4, AMX_SCORES: 1, AMX_VALUES: 1}, [HALVES]),
    (LINEAR + " --dtype bf16 --tiling amx=1", INTEL, {AMX_LINEAR: 1}, [HALVES, DOTS]),
    (LINEAR + " --dtype f16", AVX2, {"vfmadd": 12, HALVES: 2}, [DOTS]),
]
# Flags and targets whose loops of multiply-adds keep every sum in a register. Not those over keys that some rows do not see: on AVX2
# they need one register more, as keys of int8 do there, which become floats.
IN_REGISTERS = [
    (SDPA + flags, target)
    for target in (ZEN4, SKYLAKE, AVX2)
    for flags in (
        " --dtype f16",
        " --dtype bf16 --lse",
        " --softcap",
        " --alibi",
        " --causal bottom_right --kv-lengths",
        " --causal bottom_right --mask bool",
        " --kv-lengths --mask additive",
        " --rope half_split",
        " --causal bottom_right --window",
        " --dtype f16 --sinks",
    )
] + [
    ("--op sdpa --num-heads 4 --num-kv-heads 1 --head-dim 128 --tiling frame=head_lanes" + flags, target)
    for target in (ZEN4, SKYLAKE, AVX2)
    for flags in ("", " --page-size 16", " --page-size 16 --dtype f16", " --page-size 64 --dtype bf16", " --page-size 16 --int8-cache")
    if not (target == AVX2 and "int8" in flags)
]
LEAST_SUMS = 6  # of a loop that counts
CONVERSIONS = re.compile(r"\b(?:call|jmp)q?\s+(?!polyhead_)\S*(?:dpbf16|__extend|__trunc|__gnu_[fh]2|f16|bf16)")


def assembly(generate, flags, target, folder):
    command = [generate, "kernel", *shlex.split(flags), "--target", target, "--no-tuned", "--emit", "assembly", "-o", folder]
    if "--tiling" in flags:
        command.remove("--no-tuned")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    text = ""
    for name in sorted(os.listdir(folder)):
        if name.endswith(".s"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                text += file.read()
    return text


def faults_of(text, promised, forbidden):
    faults = []
    for instruction, least in promised.items():
        count = len(re.findall(r"^\s+%s" % instruction, text, re.M))
        if count < least:
            faults.append("%d of %s, expected at least %d" % (count, instruction, least))
    for instruction in forbidden:
        count = len(re.findall(r"^\s+%s" % instruction, text, re.M))
        if count:
            faults.append("%d of %s, expected none" % (count, instruction))
    for call in CONVERSIONS.findall(text):
        faults.append("calls a conversion: %s" % call.strip())
    return faults


def loops_of(text):
    """The innermost loops of a listing: (name, lines)."""
    lines, labels = text.splitlines(), {}
    for place, line in enumerate(lines):
        label, jump = re.match(r"(\.LBB\w+):", line), re.match(r"\s+j\w+\s+(\.LBB\w+)", line)
        if label:
            labels[label[1]] = place
        elif jump and jump[1] in labels:
            body = lines[labels[jump[1]] : place]
            if not any(line.startswith(".LBB") for line in body[1:]):
                yield (re.findall(r'"(.*?)"', body[0]) or [""])[0], body


def spills_of(text):
    """Loops over all keys, or over head_dim, that store a sum or a factor of their products at every turn."""
    for name, body in loops_of(text):
        sums = sum(bool(re.search(r"\s(vfmadd|vdpbf16ps)", line)) for line in body)
        # A sum in memory is stored to its own place; one that has lost its register is spilled.
        stored = sum(bool(re.search(r"\svmov\w+\s+%[xyz]mm\d+, \S*\(", line)) for line in body if "whole_keys" in name or "-byte Spill" in line)
        if sums >= LEAST_SUMS and stored and ("scores" in name or "whole_keys" in name):
            yield "loop %s stores %d vectors for %d multiply-adds" % (name, stored, sums)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generate", required=True)
    parser.add_argument("--library", required=True, help="libpolyhead.a, which multiplies by AMX")
    parser.add_argument("--objdump", required=True)
    options = parser.parse_args()
    failed = 0
    planted = "\tvdpbf16ps\t%zmm0\n\tcallq\t__extendhfsf2@PLT\n"  # the search finds what it looks for
    if len(faults_of(planted, {HALVES: 1}, [DOTS])) != 3:
        print("FAILED: faults of a planted listing: %s" % faults_of(planted, {HALVES: 1}, [DOTS]))
        failed += 1
    for flags, target, promised, forbidden in sampled("instructions", CASES, 6):
        with tempfile.TemporaryDirectory() as folder:
            for fault in faults_of(assembly(options.generate, flags, target, folder), promised, forbidden):
                print("FAILED: %s on %s: %s" % (flags, target, fault))
                failed += 1
    planted = '.LBB0_1: # %"for_scores"\n' + "\tvfmadd231ps\t%zmm0\n" * 8 + "\tvmovaps\t%zmm3, 64(%rsp) # 64-byte Spill\n\tjne\t.LBB0_1\n"
    stored = '.LBB0_2: # %"for_whole_keys"\n' + "\tvfmadd231ps\t%zmm1, %zmm2, %zmm0\n\tvmovaps\t%zmm0, (%r8)\n" * 8 + "\tjne\t.LBB0_2\n"
    if len(list(spills_of(planted))) != 1 or len(list(spills_of(stored))) != 1:
        print("FAILED: no spill in a planted listing")
        failed += 1
    for flags, target in sampled("registers", IN_REGISTERS, 8):
        with tempfile.TemporaryDirectory() as folder:
            for fault in spills_of(assembly(options.generate, flags, target, folder)):
                print("FAILED: %s on %s: %s" % (flags, target, fault))
                failed += 1
    # 2 x 2, 2 x 1, 1 x 2 and 1 x 1 tiles, each for whole and for last words.
    listing = subprocess.run([options.objdump, "-d", options.library], check=True, stdout=subprocess.PIPE, text=True).stdout
    tiles = len(re.findall(r"\stdpbf16ps\s", listing))
    if tiles < 18:
        print("FAILED: %d of tdpbf16ps in %s, expected at least 18" % (tiles, options.library))
        failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
