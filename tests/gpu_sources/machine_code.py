"""Counts the instructions of kernels whose warps multiply, in the machine code of each architecture; without a GPU.

For each kernel the loop over the chunks that no mask cuts: instructions of a product (mma.sync), spills, and the warps that a multiprocessor has
at once by registers and shared memory.
"""
import argparse
import collections
import json
import math
import os
import re
import subprocess
import sys
import tempfile

import check_ptx
import embedded
from listing import PRODUCT, disassembler, main_loop

HERE = os.path.dirname(os.path.abspath(__file__))
TARGET, FLAGS = "x86-64-linux-cuda-cuda_capability_80", ["--op", "sdpa", "--num-heads", "16", "--tiling", "frame=warp_tiles"]
# A kernel of each dtype, head dim and mask, and at most how many instructions a product may have.
KERNELS = [("%s_d%d%s" % (dtype, dim, "_causal" if causal else ""), dim,
            ["--dtype", dtype, "--head-dim", str(dim)] + (["--causal", "bottom_right"] if causal else []))
           for dtype in ("f16", "bf16") for dim in (64, 128) for causal in (False, True)]
MOST_PER_PRODUCT = {64: 4.5, 128: 4.1}
LEAST_WARPS, MOST_SPILLED, REGISTERS, WARP = 8, 96, 65536, 32
ARCHITECTURES = (80, 86, 87, 89, 90, 120)
IDLE, LOCAL = "NOP", ("LDL", "STL")


def shared_memory():
    """{architecture: bytes that a block may ask for}, and the bytes that the system takes for each block: from machines/machine.h."""
    with open(os.path.join(HERE, "..", "..", "machines", "machine.h"), encoding="utf-8") as file:
        text = file.read()
    table = re.search(r"shared_on_request\[\] = \{(.*?)\};", text, re.S).group(1)
    reserved = re.search(r"reserved_shared_bytes = (\d+) << 10;", text).group(1)
    return {int(a): int(kilo) << 10 for a, kilo in re.findall(r"\{(\d+), (\d+) << 10\}", table)}, int(reserved) << 10


def count(ptx, architecture, shared_bytes, threads):
    """The numbers of one kernel's machine code, or a sentence."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kernel.ptx")
        with open(path, "w", encoding="utf-8") as file:
            file.write(ptx)
        done = subprocess.run([check_ptx.assembler(), "-v", "-arch=sm_%d" % architecture, path, "-o", path + ".cubin"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            return {}, done.stdout.strip().split("\n")[0]
        listing = subprocess.run([disassembler(), "-c", path + ".cubin"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True).stdout
    loop, numbers = main_loop(listing), list(check_ptx.properties(done.stdout).values())
    products = sum(opcode.startswith(PRODUCT) for opcode in loop)
    if products == 0 or len(numbers) != 1:
        return {}, "no loop with products, or not one kernel"
    memory, reserved = shared_memory()
    by_registers = REGISTERS // (math.ceil(numbers[0]["registers"] / 8) * 8 * threads)
    by_memory = (memory[architecture] + reserved) // (shared_bytes + reserved)
    idle = sum(opcode.startswith(IDLE) for opcode in loop)
    return {"products": products, "instructions": len(loop) - idle, "idle": idle, "registers": numbers[0]["registers"],
            "spilled": max(numbers[0]["spill_stores"], numbers[0]["spill_loads"]),
            "spills_in_loop": sum(opcode.startswith(LOCAL) for opcode in loop),
            "warps": min(by_registers, by_memory) * threads // WARP,
            "kinds": collections.Counter(opcode.split(".")[0] for opcode in loop)}, ""


def faults_of(numbers, most):
    per_product = numbers["instructions"] / numbers["products"]
    faults = []
    if per_product > most:
        faults.append("%.2f instructions of a product, at most %.1f" % (per_product, most))
    if numbers["warps"] < LEAST_WARPS:
        faults.append("%d warps of a multiprocessor, at least %d" % (numbers["warps"], LEAST_WARPS))
    if numbers["spilled"] > MOST_SPILLED:
        faults.append("%d bytes of spills, at most %d" % (numbers["spilled"], MOST_SPILLED))
    if numbers["spills_in_loop"]:
        faults.append("%d accesses to local memory in the loop, expected 0" % numbers["spills_in_loop"])
    return faults


def generated(generator, name, flags):
    """(PTX with products, bytes of shared memory, threads of a block) of a kernel made here and now."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([generator, name] + FLAGS + flags + ["--target", TARGET, "--untested-target", "-o", folder], check=True,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        with open(os.path.join(folder, name + ".json"), encoding="utf-8") as file:
            shared_bytes = max(variant.get("shared_bytes", 0) for variant in json.load(file)["variants"])
        found = [text for _, text in embedded.sources(os.path.join(folder, name + ".a"), "ptx") if check_ptx.PRODUCT_OF_WARPS in text]
    return found[0], shared_bytes, int(re.search(r"\.maxntid (\d+)", found[0]).group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generate", metavar="PROGRAM", required=True, help="polyhead-generate")
    parser.add_argument("--all", action="store_true", help="all architectures and dtypes; else one of each instruction set, f16")
    parser.add_argument("--kinds", action="store_true", help="print how many instructions of each kind the loops have")
    options = parser.parse_args()
    if check_ptx.assembler() is None or disassembler() is None:
        print("FAILED: ptxas or nvdisasm was not found: ./polyhead setup --all installs them")
        return 1
    failed = 0
    print("kernel, architecture: instructions of a product (with idle ones), registers, bytes of spills, warps of a multiprocessor")
    for name, dim, flags in KERNELS if options.all else KERNELS[:4]:
        ptx, shared_bytes, threads = generated(options.generate, name, flags)
        for architecture in ARCHITECTURES if options.all else (80, 90, 120):
            numbers, error = count(ptx, architecture, shared_bytes, threads)
            for fault in [error] if error else faults_of(numbers, MOST_PER_PRODUCT[dim]):
                print("FAILED %s, sm_%d: %s" % (name, architecture, fault))
                failed += 1
            if numbers:
                print("%s, sm_%d: %.2f (%.2f), %d, %d, %d" %
                      (name, architecture, numbers["instructions"] / numbers["products"],
                       (numbers["instructions"] + numbers["idle"]) / numbers["products"], numbers["registers"], numbers["spilled"],
                       numbers["warps"]))
            if numbers and options.kinds:
                print("    " + ", ".join("%s %d" % kind for kind in numbers["kinds"].most_common()))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
