"""Reads the machine code of GPU kernels: finds the assembler and the disassembler, and the loops in a listing; without a GPU."""
import glob
import os
import re
import shutil
import sys

INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([\w.]+)(.*?);")
LABEL, JUMP = re.compile(r"\s*(\.L\w+):"), re.compile(r"`\((\.L\w+)\)")
PRODUCT = "HMMA"
PROPERTIES = re.compile(
    r"Function properties for (\w+)\s*\n\s*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
    r"\n.*?Used (\d+) registers(.*)")


def assembler():
    """ptxas of PyPI's nvidia-cuda-nvcc in .venv, else the one in the path."""
    folders = [os.path.join(folder, "nvidia", "cu*", "bin", "ptxas") for folder in sys.path if folder.endswith("-packages")]
    found = [path for pattern in folders for path in sorted(glob.glob(pattern))]
    return found[0] if found else shutil.which("ptxas")


def disassembler():
    """nvdisasm of PyPI's nvidia-cuda-nvdisasm, which lies beside ptxas."""
    beside = [os.path.join(os.path.dirname(assembler() or ""), "nvdisasm")]
    folders = [os.path.join(folder, "nvidia", "cu*", "bin", "nvdisasm") for folder in sys.path if folder.endswith("-packages")]
    found = [path for pattern in beside + folders for path in sorted(glob.glob(pattern))]
    return found[0] if found else None


def properties(text):
    """{kernel: its numbers} out of what ptxas -v says."""
    found = {}
    for name, stack, stores, loads, registers, rest in PROPERTIES.findall(text):
        static = re.search(r"(\d+) bytes smem", rest)
        found[name] = {"registers": int(registers), "stack_bytes": int(stack), "spill_stores": int(stores), "spill_loads": int(loads),
                       "static_shared_bytes": int(static.group(1)) if static else 0}
    return found


def read(listing):
    """([(opcode, operands)], {label: place})."""
    code, labels = [], {}
    for line in listing.split("\n"):
        label, instruction = LABEL.match(line), INSTRUCTION.match(line)
        if label:
            labels[label.group(1)] = len(code)
        elif instruction:
            code.append(instruction.groups())
    return code, labels


def jumps(code, labels):
    """[(place, target)] of the branches within the code."""
    found = [(place, JUMP.search(operands)) for place, (opcode, operands) in enumerate(code) if opcode.startswith("BRA")]
    return [(place, labels[to.group(1)]) for place, to in found if to and to.group(1) in labels]


def spans(code, labels):
    """[(first, last)] of the loops: what lies between a label and the last branch back to it, innermost first."""
    ends = {target: place for place, target in jumps(code, labels) if target <= place}
    return sorted(ends.items(), key=lambda loop: loop[1] - loop[0])


def loops(listing):
    """[[opcode]] of what lies between a label and the last branch back to it, innermost first."""
    code, labels = read(listing)
    return [[opcode for opcode, _ in code[first:last + 1]] for first, last in spans(code, labels)]


def main_loop(listing, product=PRODUCT):
    """The opcodes of the shortest loop with products: masks make one longer."""
    found = [loop for loop in loops(listing) if any(opcode.startswith(product) for opcode in loop)]
    return found[0] if found else []


def steady_loop(listing, product=PRODUCT):
    """[(opcode, operands)] of the shortest loop with products, without what its forward branches leave out: references that move."""
    code, labels = read(listing)
    for first, last in spans(code, labels):
        if any(opcode.startswith(product) for opcode, _ in code[first:last + 1]):
            left_out = {place for start, end in jumps(code, labels) if first <= start < end <= last for place in range(start + 1, end)}
            return [code[place] for place in range(first, last + 1) if place not in left_out and code[place][0] != "NOP"]
    return []
