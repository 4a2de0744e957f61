"""Counts the instructions of layers whose projections are products of warps, in the machine code of each architecture; without a GPU.

For each kernel of a linear layer and of a layer of attention the shortest loop with products: instructions of a product (mma.sync), spills, and
the warps that a multiprocessor has at once by registers and shared memory. What machine_code.py does for attention alone.
"""
import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile

import check_ptx
import embedded
import listing
import machine_code

TARGET, ARCHITECTURES, QUICK = "x86-64-linux-cuda-cuda_capability_80", (80, 86, 87, 89, 90, 120), (80, 120)
LAYERS = {"linear": ["--op", "linear", "--embed-dim", "1024", "--out-features", "1024", "--bias", "--tiling", "frame=linear warp_products=1"],
          "mha": ["--op", "mha", "--embed-dim", "1024", "--num-heads", "8", "--bias", "--causal", "bottom_right", "--tiling", "frame=warp_tiles"]}
# At most so many instructions of a product: a weight of bf16, which lies in pairs, is loaded word by word. The context is attention.
MOST = {"f16": 2.5, "bf16": 3.0}
MOST_OF_ATTENTION, PRODUCT = 4.2, "HMMA"
SECTION, ENTRY = re.compile(r"\n\s*\.section\s+\.text\.(\w+)"), re.compile(r"\.entry (\w+)[^{]*?\.maxntid (\d+)")


def generated(generator, layer, dtype):
    """(PTX with products, bytes of shared memory of the kernel that has most) of a layer made here and now."""
    name = "%s_%s" % (layer, dtype)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([generator, name, "--dtype", dtype] + LAYERS[layer] + ["--target", TARGET, "--untested-target", "-o", folder], check=True,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        with open(os.path.join(folder, name + ".json"), encoding="utf-8") as file:
            shared_bytes = max(variant.get("shared_bytes", 0) for variant in json.load(file)["variants"])
        ptx = next(text for _, text in embedded.sources(os.path.join(folder, name + ".a"), "ptx") if check_ptx.PRODUCT_OF_WARPS in text)
    return ptx, shared_bytes


def compiled(ptx, architecture):
    """({kernel: its machine code}, {kernel: what ptxas says of it}), or a sentence in the place of the second."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kernels.ptx")
        with open(path, "w", encoding="utf-8") as file:
            file.write(ptx)
        done = subprocess.run([check_ptx.assembler(), "-v", "-arch=sm_%d" % architecture, path, "-o", path + ".cubin"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            return {}, done.stdout.strip().split("\n")[0]
        text = subprocess.run([listing.disassembler(), "-c", path + ".cubin"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True).stdout
    parts = SECTION.split(text)
    return dict(zip(parts[1::2], parts[2::2])), check_ptx.properties(done.stdout)


def count(code, numbers, architecture, shared_bytes, threads):
    """The numbers of one kernel's machine code, or None where it has no loop with products."""
    loops = [loop for loop in listing.loops(code) if any(opcode.startswith(PRODUCT) for opcode in loop)]
    if not loops:
        return None
    products, idle = (sum(opcode.startswith(kind) for opcode in loops[0]) for kind in (PRODUCT, machine_code.IDLE))
    memory, reserved = machine_code.shared_memory()
    by_registers = machine_code.REGISTERS // (math.ceil(numbers["registers"] / 8) * 8 * threads)
    by_memory = (memory[architecture] + reserved) // (shared_bytes + reserved)
    return {"instructions": (len(loops[0]) - idle) / products, "registers": numbers["registers"],
            "spilled": max(numbers["spill_stores"], numbers["spill_loads"]),
            "in_loop": sum(opcode.startswith(machine_code.LOCAL) for opcode in loops[0]),
            "warps": min(by_registers, by_memory) * threads // machine_code.WARP}


def faults_of(numbers, most):
    return [text for wrong, text in (
        (numbers["instructions"] > most, "%.2f instructions of a product, at most %.1f" % (numbers["instructions"], most)),
        (numbers["warps"] < machine_code.LEAST_WARPS, "%d warps of a multiprocessor, at least %d" % (numbers["warps"], machine_code.LEAST_WARPS)),
        (numbers["spilled"] > machine_code.MOST_SPILLED, "%d bytes of spills, at most %d" % (numbers["spilled"], machine_code.MOST_SPILLED)),
        (numbers["in_loop"] > 0, "%d accesses to local memory in the loop, expected 0" % numbers["in_loop"])) if wrong]


def check_layer(options, layer, dtype):
    """Prints the numbers of each kernel of a layer. Returns how many faults they have."""
    ptx, shared_bytes = generated(options.generate, layer, dtype)
    failed, threads = 0, {kernel: int(count_) for kernel, count_ in ENTRY.findall(ptx)}
    for architecture in ARCHITECTURES if options.all else QUICK:
        code, numbers = compiled(ptx, architecture)
        if not code:
            print("FAILED %s of %s, sm_%d: %s" % (layer, dtype, architecture, numbers))
            failed += 1
        for kernel in sorted(code):
            stage = re.sub(r"^_kernel_|_s\d+_.*$", "", kernel)
            found = count(code[kernel], numbers[kernel], architecture, shared_bytes, threads[kernel])
            faults = faults_of(found, MOST_OF_ATTENTION if stage == "context" else MOST[dtype]) if found else ["it has no loop with products"]
            for fault in faults:
                print("FAILED %s of %s, %s, sm_%d: %s" % (layer, dtype, stage, architecture, fault))
            failed += len(faults)
            if found:
                print("%s of %s, %s, sm_%d: %.2f, %d, %d, %d" % (layer, dtype, stage, architecture, found["instructions"], found["registers"],
                                                               found["spilled"], found["warps"]))
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generate", metavar="PROGRAM", required=True, help="polyhead-generate")
    parser.add_argument("--all", action="store_true", help="all architectures; else one of each instruction set")
    options = parser.parse_args()
    if check_ptx.assembler() is None or listing.disassembler() is None:
        print("FAILED: ptxas or nvdisasm was not found: ./polyhead setup --all installs them")
        return 1
    print("layer, kernel, architecture: instructions of a product, registers, bytes of spills, warps of a multiprocessor")
    return 1 if sum([check_layer(options, layer, dtype) for layer in LAYERS for dtype in MOST]) else 0


if __name__ == "__main__":
    sys.exit(main())
