"""Counts the instructions of linear layers whose products warps make, in the machine code of each architecture; without a GPU.

As machine_code.py, for the loop over chunks of inputs.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

import check_ptx
import embedded
import machine_code

FLAGS = ["--op", "linear", "--embed-dim", "1024", "--out-features", "1024", "--bias", "--tiling", "frame=linear warp_products=1"]
# At most so many instructions of a product: a weight of bf16, which lies in pairs, is loaded word by word.
MOST_PER_PRODUCT = {"f16": 2.5, "bf16": 3.0}


def generated(generator, dtype):
    """(PTX, bytes of shared memory, threads of a block) of a layer made here and now."""
    name = "linear_" + dtype
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([generator, name, "--dtype", dtype] + FLAGS + ["--target", machine_code.TARGET, "--untested-target", "-o", folder],
                       check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        with open(os.path.join(folder, name + ".json"), encoding="utf-8") as file:
            shared_bytes = max(variant.get("shared_bytes", 0) for variant in json.load(file)["variants"])
        ptx = next(text for _, text in embedded.sources(os.path.join(folder, name + ".a"), "ptx") if check_ptx.PRODUCT_OF_WARPS in text)
    return ptx, shared_bytes, int(re.search(r"\.maxntid (\d+)", ptx).group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generate", metavar="PROGRAM", required=True, help="polyhead-generate")
    parser.add_argument("--all", action="store_true", help="all architectures; else one of each instruction set")
    options = parser.parse_args()
    if check_ptx.assembler() is None or machine_code.disassembler() is None:
        print("FAILED: ptxas or nvdisasm was not found: ./polyhead setup --all installs them")
        return 1
    failed = 0
    print("layer, architecture: instructions of a product (with idle ones), registers, bytes of spills, warps of a multiprocessor")
    for dtype, most in MOST_PER_PRODUCT.items():
        ptx, shared_bytes, threads = generated(options.generate, dtype)
        for architecture in machine_code.ARCHITECTURES if options.all else (80, 90, 120):
            numbers, error = machine_code.count(ptx, architecture, shared_bytes, threads)
            for fault in [error] if error else machine_code.faults_of(numbers, most):
                print("FAILED %s, sm_%d: %s" % (dtype, architecture, fault))
                failed += 1
            if numbers:
                print("%s, sm_%d: %.2f (%.2f), %d, %d, %d" %
                      (dtype, architecture, numbers["instructions"] / numbers["products"],
                       (numbers["instructions"] + numbers["idle"]) / numbers["products"], numbers["registers"], numbers["spilled"],
                       numbers["warps"]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
