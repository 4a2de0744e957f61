"""Counts the instructions of layers whose projections are products of warps, in the machine code of each architecture; without a GPU.

For each kernel of a linear layer and of a layer of attention the shortest loop with products: instructions of a product (mma.sync), spills, and
the warps that a multiprocessor has at once by registers and shared memory. What machine_code.py does for attention alone.
"""
import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile

import check_ptx
import embedded
import listing
import machine_code

sys.path.insert(0, os.path.join(machine_code.HERE, ".."))
from tier import sampled  # noqa: E402

WARPS = machine_code.WARPS
TARGET = machine_code.TARGET + WARPS.feature
LAYERS = {"linear": ["--op", "linear", "--embed-dim", "1024", "--out-features", "1024", "--bias", "--tiling", "frame=linear warp_products=1"],
          "mha": ["--op", "mha", "--embed-dim", "1024", "--bias", "--causal", "bottom_right", "--tiling", "frame=warp_tiles"],
          "mha with a cache": ["--op", "mha", "--embed-dim", "1024", "--bias", "--cache", "--causal", "bottom_right", "--tiling", "frame=warp_tiles"]}
# Heads of a layer, and at most so many instructions of a product of a projection and of attention, which is the context. A weight of bf16, which
# lies in pairs, is loaded word by word. A float is taken apart, and what three products make of it is added to a sum.
Type = collections.namedtuple("Type", "heads most most_of_attention")
TYPES = {"f16": Type("8", 2.5, 4.2), "bf16": Type("8", 3.0, 4.2), "f32": Type("16", 5.6, 5.8)}
SECTION, ENTRY = re.compile(r"\n\s*\.section\s+\.text\.(\w+)"), re.compile(r"\.entry (\w+)[^{]*?\.maxntid (\d+)")


def generated(generator, layer, dtype):
    """(PTX with products, bytes of shared memory of the kernel that has most) of a layer made here and now."""
    name = "%s_%s" % (layer.replace(" ", "_"), dtype)
    with tempfile.TemporaryDirectory() as folder:
        heads = ["--num-heads", TYPES[dtype].heads] if layer != "linear" else []
        subprocess.run([generator, name, "--dtype", dtype, "--precision", "tf32x3"] + LAYERS[layer] + heads + ["--target", TARGET, "--untested-target", "-o", folder], check=True,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        with open(os.path.join(folder, name + ".json"), encoding="utf-8") as file:
            shared_bytes = max(variant.get("shared_bytes", 0) for variant in json.load(file)["variants"])
        ptx = next(text for _, text in embedded.sources(os.path.join(folder, name + ".a"), "ptx") if check_ptx.PRODUCT_OF_WARPS in text)
    return ptx, shared_bytes


def compiled(ptx, architecture):
    """({kernel: its machine code}, {kernel: what ptxas says of it}), or a sentence in the place of the second."""
    told, listed = machine_code.assembled(ptx, architecture)
    if listed is None:
        return {}, told.strip().split("\n")[0]
    parts = SECTION.split(listed)
    return dict(zip(parts[1::2], parts[2::2])), check_ptx.properties(told)


def check_layer(options, layer, dtype):
    """Prints the numbers of each kernel of a layer. Returns how many faults they have."""
    ptx, shared_bytes = generated(options.generate, layer, dtype)
    failed, threads = 0, {kernel: int(count_) for kernel, count_ in ENTRY.findall(ptx)}
    for architecture in WARPS.architectures if options.all else WARPS.quick:
        code, numbers = compiled(ptx, architecture)
        if not code:
            print("FAILED %s of %s, sm_%s: %s" % (layer, dtype, architecture, numbers))
            failed += 1
        for kernel in sorted(code.keys() & threads.keys()):  # others write to the cache
            stage = re.sub(r"^_kernel_|_s\d+_.*$", "", kernel)
            made = machine_code.Kernel(ptx, shared_bytes, threads[kernel], 0)
            found = machine_code.numbers_of(WARPS, made, architecture, code[kernel], numbers[kernel])
            most = TYPES[dtype].most_of_attention if stage == "context" else TYPES[dtype].most
            faults = machine_code.faults_of(WARPS, found, most) if found else ["it has no loop with products"]
            for fault in faults:
                print("FAILED %s of %s, %s, sm_%s: %s" % (layer, dtype, stage, architecture, fault))
            failed += len(faults)
            if found:
                print("%s of %s, %s, sm_%s: %.2f, %d, %d, %d" % (layer, dtype, stage, architecture, found["instructions"], found["registers"],
                                                               found["spilled"], found["warps"]))
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generate", metavar="PROGRAM", required=True, help="polyhead-generate")
    parser.add_argument("--all", action="store_true", help="all architectures; else one of each instruction set, and a third of the layers, chosen by commit")
    options = parser.parse_args()
    if check_ptx.assembler() is None or listing.disassembler() is None:
        print("FAILED: ptxas or nvdisasm was not found: ./polyhead setup --all installs them")
        return 1
    print("layer, kernel, architecture: instructions of a product, registers, bytes of spills, warps of a multiprocessor")
    pairs = [(layer, dtype) for layer in LAYERS for dtype in TYPES]
    return 1 if sum([check_layer(options, *pair) for pair in (pairs if options.all else sampled("linear_code", pairs, 3))]) else 0


if __name__ == "__main__":
    sys.exit(main())
