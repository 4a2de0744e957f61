"""Counts the instructions of kernels whose warps multiply, in the machine code of each architecture; without a GPU.

For each kernel the loop over the chunks that no mask cuts: instructions of a product (mma.sync), or of a warp and 128 keys where four warps
multiply (wgmma); spills, and the warps that a multiprocessor has at once by registers and shared memory. Of wgmma besides: how many powers of 2
are computed while products are under way, that is between the two waits, and whether ptxas says that it serialises products.
"""
import argparse
import collections
import concurrent.futures
import json
import math
import os
import re
import subprocess
import sys
import tempfile

import check_ptx
import embedded
from listing import disassembler, main_loop

HERE = os.path.dirname(os.path.abspath(__file__))
TARGET = "x86-64-linux-cuda-"
# The tiling, the feature of the target, architectures (all, and one of each instruction set), the opcode of its products, at most how many
# instructions by head dim, and of what.
Frame = collections.namedtuple("Frame", "tiling feature architectures quick product most unit")
ALL, QUICK, OF_PRODUCT = ("80", "86", "87", "89", "90", "120"), ("80", "120"), "instructions of a product"
WARPS = Frame("frame=warp_tiles", "cuda_capability_80", ALL, QUICK, "HMMA", {64: 4.5, 128: 4.1}, OF_PRODUCT)
GROUPS = Frame("frame=group_tiles", "cuda_capability_90a", ("90a",), ("90a",), "HGMMA", {64: 510, 128: 600},
               "instructions of a warp and 128 keys")
# A kernel of each dtype, head dim and mask.
KERNELS = [("%s_d%d%s" % (dtype, dim, "_causal" if causal else ""), dim,
            ["--dtype", dtype, "--head-dim", str(dim)] + (["--causal", "bottom_right"] if causal else []))
           for dtype in ("f16", "bf16") for dim in (64, 128) for causal in (False, True)]
# Of these no number of instructions is asked.
TOLD = [("f16_d%d_pages" % dim, 0, ["--dtype", "f16", "--head-dim", str(dim), "--page-size", "16", "--kv-lengths"]) for dim in (64, 128)]
LEAST_WARPS, MOST_SPILLED, REGISTERS, WARP, KEYS, LEAST_OVERLAPPED = 8, 96, 65536, 32, 128, 0.95
PROGRAMS_AT_ONCE = 2
IDLE, LOCAL, POWER, WAIT = "NOP", ("LDL", "STL"), "MUFU.EX2", "WARPGROUP.DEPBAR"
SERIALISED = re.compile(r"\bC75\d\d\b")  # warnings of ptxas


def shared_memory():
    """{architecture: bytes that a block may ask for}, and the bytes that the system takes for each block: from machines/machine.h."""
    with open(os.path.join(HERE, "..", "..", "machines", "machine.h"), encoding="utf-8") as file:
        text = file.read()
    table = re.search(r"shared_on_request\[\] = \{(.*?)\};", text, re.S).group(1)
    reserved = re.search(r"reserved_shared_bytes = (\d+) << 10;", text).group(1)
    return {int(a): int(kilo) << 10 for a, kilo in re.findall(r"\{(\d+), (\d+) << 10\}", table)}, int(reserved) << 10


def overlapped(loop):
    """How many powers of 2 stand between the two waits for products of four warps, and how many there are; where there are not two, none do."""
    waits = [i for i, opcode in enumerate(loop) if opcode.startswith(WAIT)]
    powers = [i for i, opcode in enumerate(loop) if opcode.startswith(POWER)]
    return sum(len(waits) == 2 and waits[0] < i < waits[1] for i in powers), len(powers)


Kernel = collections.namedtuple("Kernel", "ptx shared_bytes threads keys")  # keys: of a step of the loop


def assembled(ptx, architecture):
    """(what ptxas says, the listing of the machine code), or (what ptxas says, None) where it refuses."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kernel.ptx")
        with open(path, "w", encoding="utf-8") as file:
            file.write(ptx)
        done = subprocess.run([check_ptx.assembler(), "-v", "-arch=sm_" + architecture, path, "-o", path + ".cubin"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            return done.stdout, None
        listed = subprocess.run([disassembler(), "-c", path + ".cubin"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True).stdout
    return done.stdout, listed


def numbers_of(frame, kernel, architecture, code, properties, warnings=()):
    """The numbers of one kernel's machine code, or None where it has no loop with products."""
    loop = main_loop(code, frame.product)
    if not loop:
        return None
    memory, reserved = shared_memory()
    by_registers = REGISTERS // (math.ceil(properties["registers"] / 8) * 8 * kernel.threads)
    by_memory = (memory[int(architecture.rstrip("a"))] + reserved) // (kernel.shared_bytes + reserved)
    idle = sum(opcode.startswith(IDLE) for opcode in loop)
    of = kernel.keys / KEYS if frame is GROUPS else sum(opcode.startswith(frame.product) for opcode in loop)
    return {"instructions": (len(loop) - idle) / of, "with_idle": len(loop) / of, "registers": properties["registers"],
            "spilled": max(properties["spill_stores"], properties["spill_loads"]),
            "spills_in_loop": sum(opcode.startswith(LOCAL) for opcode in loop),
            "warps": min(by_registers, by_memory) * kernel.threads // WARP,
            "overlapped": overlapped(loop) if frame is GROUPS else None, "serialised": list(warnings),
            "kinds": collections.Counter(opcode.split(".")[0] for opcode in loop)}


def count(frame, kernel, architecture):
    """The numbers of the one kernel in a text of PTX, or a sentence."""
    told, listed = assembled(kernel.ptx, architecture)
    if listed is None:
        return {}, told.strip().split("\n")[0]
    properties = list(check_ptx.properties(told).values())
    warnings = sorted(set(SERIALISED.findall(told)))
    numbers = numbers_of(frame, kernel, architecture, listed, properties[0], warnings) if len(properties) == 1 else None
    return (numbers, "") if numbers else ({}, "no loop with products, or not one kernel")


def faults_of(frame, numbers, most):
    faults = ["%s: ptxas serialises products" % warning for warning in numbers["serialised"]]
    if numbers["instructions"] > most:
        faults.append("%.2f %s, at most %.1f" % (numbers["instructions"], frame.unit, most))
    if numbers["warps"] < LEAST_WARPS:
        faults.append("%d warps of a multiprocessor, at least %d" % (numbers["warps"], LEAST_WARPS))
    if numbers["spilled"] > MOST_SPILLED:
        faults.append("%d bytes of spills, at most %d" % (numbers["spilled"], MOST_SPILLED))
    if numbers["spills_in_loop"]:
        faults.append("%d accesses to local memory in the loop, expected 0" % numbers["spills_in_loop"])
    if numbers["overlapped"] and numbers["overlapped"][0] < LEAST_OVERLAPPED * numbers["overlapped"][1]:
        faults.append("%d of %d powers of 2 between the two waits, at least %d %%" % (*numbers["overlapped"], 100 * LEAST_OVERLAPPED))
    return faults


def generated(generator, frame, name, flags):
    """A kernel made here and now."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([generator, name, "--op", "sdpa", "--num-heads", "16"] + flags +
                       ["--tiling", frame.tiling, "--target", TARGET + frame.feature, "--untested-target", "-o", folder],
                       check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        with open(os.path.join(folder, name + ".json"), encoding="utf-8") as file:
            variant, = json.load(file)["variants"]
        found = [text for _, text in embedded.sources(os.path.join(folder, name + ".a"), "ptx") if check_ptx.PRODUCT_OF_WARPS in text]
    return Kernel(found[0], variant["shared_bytes"], int(re.search(r"\.maxntid (\d+)", found[0]).group(1)),
                  int(re.search(r"kv_tile=(\d+)", variant["tiling"]).group(1)))


def counted(options, frame, name, dim, flags):
    """(lines, whether all is well) of one kernel on the architectures of its frame."""
    kernel, lines, well = generated(options.generate, frame, name, flags), [], True
    for architecture in frame.architectures if options.all else frame.quick:
        numbers, error = count(frame, kernel, architecture)
        for fault in [error] if error else faults_of(frame, numbers, frame.most.get(dim, math.inf)):
            lines.append("FAILED %s, sm_%s: %s" % (name, architecture, fault))
            well = False
        if numbers:
            lines.append("%s, sm_%s: %.2f (%.2f), %d, %d, %d" % (name, architecture, numbers["instructions"], numbers["with_idle"],
                                                                numbers["registers"], numbers["spilled"], numbers["warps"]) +
                         (", %d of %d" % numbers["overlapped"] if numbers["overlapped"] else ""))
        if numbers and options.kinds:
            lines.append("    " + ", ".join("%s %d" % kind for kind in numbers["kinds"].most_common()))
    return lines, well


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generate", metavar="PROGRAM", required=True, help="polyhead-generate")
    parser.add_argument("--all", action="store_true", help="all architectures and dtypes; else one of each instruction set, f16")
    parser.add_argument("--kinds", action="store_true", help="print how many instructions of each kind the loops have")
    options = parser.parse_args()
    if check_ptx.assembler() is None or disassembler() is None:
        print("FAILED: ptxas or nvdisasm was not found: ./polyhead setup --all installs them")
        return 1
    print("kernel, architecture: instructions of a product, or of a warp and %d keys (with idle ones), registers, bytes of spills, warps of a "
          "multiprocessor, powers of 2 between two waits" % KEYS)
    kernels = [(frame, *kernel) for frame in (GROUPS, WARPS) for kernel in (KERNELS + TOLD if options.all else KERNELS[:4])]
    with concurrent.futures.ThreadPoolExecutor(PROGRAMS_AT_ONCE) as pool:
        all_well = True
        for lines, well in pool.map(lambda kernel: counted(options, *kernel), kernels):
            print("\n".join(lines))
            all_well = all_well and well
    return 0 if all_well else 1


if __name__ == "__main__":
    sys.exit(main())
