"""Assembles PTX with ptxas and checks it against the project's limits; without a GPU."""
import os
import re
import subprocess
import sys
import tempfile

import ptx

# What reads archives and machine code, for the modules that import this one, too.
sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "instruments", "gpu_code"))
from listing import assembler, properties

NEWER = "sm_90"  # besides the architecture that the PTX was made for
MAX_THREADS, MAX_SHARED_BYTES, REGISTERS_OF_BLOCK = 1024, 48 * 1024, 65536
# Kernels whose warps multiply ask for more shared memory, as much as every device from capability 8.0 on has, and keep scores and sums in all
# the registers that there are.
PRODUCT_OF_WARPS, MAX_SHARED_ON_REQUEST, MAX_SHARED_ALONE, MOST_SPILLED_BESIDE_PRODUCTS = "mma.sync", 99 * 1024, 227 * 1024, 96
# Heads of more dimensions may spill: a row of them does not fit into 255 registers. Others may by a few registers: on an H100 8 keys of a chunk
# with up to 16 bytes of spills are faster than 4 without (docs/measured/schedules_gpu.md).
STRICT_HEAD_DIM, MOST_SPILLED_BYTES = 128, 32


def assemble(text, architecture):
    """({kernel: numbers}, error) of one module."""
    tool = assembler()
    if tool is None:
        return {}, "ptxas was not found: ./polyhead setup --all installs it (PyPI's nvidia-cuda-nvcc)"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "module.ptx")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        done = subprocess.run([tool, "-v", "-arch=" + architecture, path, "-o", os.path.join(folder, "module.cubin")],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        return {}, "ptxas -arch=%s: %s" % (architecture, (done.stdout.strip() or "failed").splitlines()[0])
    return properties(done.stdout), ""


def launch_faults(numbers, most_shared):
    """Sentences about one kernel's block: threads, shared memory, and whether its registers fit into a multiprocessor."""
    threads, shared = numbers["threads"], numbers["shared_bytes"]
    if threads is None or shared is None:
        return ["threads per block %s and shared bytes %s are not constants" % (threads, shared)]
    faults = []
    if threads > MAX_THREADS:
        faults.append("%d threads per block, at most %d" % (threads, MAX_THREADS))
    if shared > most_shared:
        faults.append("%d bytes of shared memory, at most %d" % (shared, most_shared))
    # Registers are given out to whole warps, in steps of 8 per thread.
    block = (numbers["registers"] + 7) // 8 * 8 * ((threads + 31) // 32 * 32)
    if block > REGISTERS_OF_BLOCK:
        faults.append("%d registers for a block of %d threads, at most %d" % (block, threads, REGISTERS_OF_BLOCK))
    return faults


def check(text, strict, launches):
    """(sentences, records) of one PTX module; a record per architecture and kernel."""
    counts, faults, records = ptx.kernels(text), [], []
    if not counts:
        faults.append("no kernel in the PTX")
    by_warps = PRODUCT_OF_WARPS in text
    most_shared, most_spilled = (MAX_SHARED_ON_REQUEST, MOST_SPILLED_BESIDE_PRODUCTS) if by_warps else (MAX_SHARED_BYTES, MOST_SPILLED_BYTES)
    made_for = re.findall(r"^\.target (sm_\d+a?)", text, re.M)[:1]
    alone = made_for and made_for[0].endswith("a")  # no other architecture runs it
    most_shared = MAX_SHARED_ALONE if alone else most_shared
    for architecture in made_for if alone else made_for + [NEWER]:
        assembled, error = assemble(text, architecture)
        if error:
            faults.append(error)
            continue
        if sorted(assembled) != sorted(counts):
            faults.append("%s: ptxas names %s, the PTX %s" % (architecture, sorted(assembled), sorted(counts)))
        for name, numbers in sorted(assembled.items()):
            launch = launches.get(name)
            if launch is None:
                faults.append("%s: never launched" % name)
                continue
            axes = [launch["threads_" + axis] for axis in "xyz"]
            numbers["threads"] = None if None in axes else axes[0] * axes[1] * axes[2]
            numbers["shared_bytes"] = None if launch["shared_bytes"] is None else launch["shared_bytes"] + numbers["static_shared_bytes"]
            told = launch_faults(numbers, most_shared)
            if strict:
                told += ["%d %s, expected at most %d" % (numbers[key], key.replace("_", " "), most_spilled)
                         for key in ("stack_bytes", "spill_stores", "spill_loads") if numbers[key] > most_spilled]
                told += ["%d accesses to local memory, expected 0" % n for n in [counts[name]["whole"]["local"]] if n]
            faults += ["%s %s: %s" % (architecture, name, sentence) for sentence in told]
            records.append(dict(numbers, architecture=architecture, kernel=name, **counts.get(name, {})))
    return faults, records
