"""Kernels of this project for the model: generates them, assembles their PTX and reads the steps of their main loop."""
import json
import math
import os
import re
import subprocess
import tempfile

import embedded
from listing import assembler, disassembler, properties, steady_loop
from model import Kernel, steps_of

ROWS_OF_PRODUCT = 16
# Frame -> target of the generator, architectures for ptxas by machine, the product of its loop.
FRAMES = {
    "warp_tiles": ("x86-64-linux-cuda-cuda_capability_80", {"h100": "sm_90", "a100": "sm_80"}, "HMMA"),
    "group_tiles": ("x86-64-linux-cuda-cuda_capability_90a", {"h100": "sm_90a"}, "HGMMA"),
}


class NotRead(Exception):
    """A sentence: why a kernel could not be made or read."""


def cases(machine, tiling=""):
    """[(name, frame, flags)] for the generator."""
    found = []
    for frame, (_, architectures, _) in FRAMES.items():
        for dtype in ("f16", "bf16") if machine in architectures else ():
            for dim in (64, 128):
                for causal in (False, True):
                    flags = ["--op", "sdpa", "--num-heads", "16", "--dtype", dtype, "--head-dim", str(dim)]
                    flags += ["--causal", "bottom_right"] if causal else []
                    flags += ["--tiling", " ".join(["frame=" + frame, tiling]).strip()]
                    found.append(("%s_%s_d%d%s" % (frame, dtype, dim, "_causal" if causal else ""), frame, flags))
    return found


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise NotRead("%s: %s" % (os.path.basename(command[0]), (done.stdout.strip() or "failed").splitlines()[0]))
    return done.stdout


def manifest_of(folder, name):
    with open(os.path.join(folder, name + ".json"), encoding="utf-8") as file:
        return json.load(file)


def is_modelled(manifest):
    """Bare attention of 16 bits with a variant that multiplies by tensor cores: a layer has other loops, floats have other products."""
    of_16_bits = manifest["problem"]["op"] == "sdpa" and manifest["problem"]["dtype"] in ("f16", "bf16")
    return of_16_bits and any(variant["frame"] in FRAMES for variant in manifest["variants"])


def variant_of(manifest):
    """(problem, frame, shared bytes, knobs) of the first variant of a frame above."""
    if not is_modelled(manifest):
        raise NotRead("found another kernel, expected attention of 16 bits with a variant that multiplies by tensor cores")
    variant = next(one for one in manifest["variants"] if one["frame"] in FRAMES)
    knobs = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", variant["tiling"])}
    return manifest["problem"], variant["frame"], variant["shared_bytes"], knobs


def blocks_at_once(registers, threads, shared_bytes, machine):
    """Blocks of a multiprocessor; registers are given out in steps of 8 of a thread."""
    by_registers = machine["registers"] // (math.ceil(registers / 8) * 8 * threads)
    return min(by_registers, machine["shared_bytes"] // (shared_bytes + machine["reserved_bytes"]))


def read(folder, name, machine_name, machine):
    """(Kernel, {registers, bytes spilled} of a thread, instructions of the loop) of a kernel that was generated into this folder."""
    if assembler() is None or disassembler() is None:
        raise NotRead("ptxas or nvdisasm was not found: ./polyhead setup --all installs them")
    problem, frame, shared_bytes, knobs = variant_of(manifest_of(folder, name))
    _, architectures, product = FRAMES[frame]
    texts = [text for _, text in embedded.sources(os.path.join(folder, name + ".a"), "ptx") if "mma." in text]
    with tempfile.TemporaryDirectory() as scratch:
        ptx, cubin = os.path.join(scratch, "kernel.ptx"), os.path.join(scratch, "kernel.cubin")
        with open(ptx, "w", encoding="utf-8") as file:
            file.write(texts[0])
        told = properties(run([assembler(), "-v", "-arch=" + architectures[machine_name], ptx, "-o", cubin]))
        loop = steady_loop(run([disassembler(), "-c", cubin]), product)
    if not loop or len(told) != 1:
        raise NotRead("no loop with products, or not one kernel")
    numbers = next(iter(told.values()))
    warps, rows = knobs["row_groups"], knobs["row_groups"] * knobs["thread_rows"] * ROWS_OF_PRODUCT
    blocks = blocks_at_once(numbers["registers"], warps * 32, shared_bytes, machine)
    try:
        steps = steps_of(loop, machine)
    except ValueError as sentence:
        raise NotRead(str(sentence)) from sentence
    made = Kernel(name, problem["head_dim"], rows, knobs["kv_tile"], warps, blocks, steps, causal=problem["causal"] != "none")
    return made, {"registers": numbers["registers"], "spilled": max(numbers["spill_stores"], numbers["spill_loads"])}, len(loop)


def kernel(generator, name, frame, flags, machine_name, machine):
    """What read() says of one case, generated here and now."""
    with tempfile.TemporaryDirectory() as folder:
        run([generator, name] + flags + ["--target", FRAMES[frame][0], "--untested-target", "-o", folder])
        return read(folder, name, machine_name, machine)
