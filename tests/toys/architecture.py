"""The toy architecture, RISC-V with vectors of 256 bits: kernels are generated, and their tiles are those of 8 lanes."""
import json
import os
import subprocess
import sys
import tempfile

GENERATE = os.path.join("build", "release", "tools", "polyhead-generate")
RISCV = 243  # e_machine of ELF


def generated(folder, target, *flags):
    """(manifest, e_machine of the first object) of a kernel."""
    subprocess.run([GENERATE, "k", *flags, "--target", target, "--untested-target", "-o", folder], check=True)
    subprocess.run(["ar", "x", "k.a"], cwd=folder, check=True)
    with open(os.path.join(folder, "k.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    first = sorted(name for name in os.listdir(folder) if name.endswith(".o"))[0]
    with open(os.path.join(folder, first), "rb") as file:
        return manifest, int.from_bytes(file.read(20)[18:], "little")


def main():
    for bits, queries in ((256, 16), (128, 8)):
        for flags in (["--op", "sdpa", "--num-heads", "2", "--head-dim", "64"], ["--op", "mha", "--embed-dim", "32", "--num-heads", "2"]):
            with tempfile.TemporaryDirectory() as folder:
                manifest, machine = generated(folder, "riscv-64-linux-rvv-vector_bits_%d" % bits, *flags)
                variant = manifest["variants"][-1]
                print(variant["target"], variant["tiling"])
                tile = int(dict(word.split("=") for word in variant["tiling"].split() if "=" in word)["q_tile"])
                if machine != RISCV or variant["cpu_features"] != ["riscv_vector"] or tile not in (queries, queries // 2):
                    return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
