"""Reads the machine code of GPU kernels: finds the assembler and the disassembler, and the loops in a listing; without a GPU."""
import glob
import os
import re
import shutil
import sys

INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([\w.]+)(.*?);")
LABEL, JUMP = re.compile(r"\s*(\.L\w+):"), re.compile(r"`\((\.L\w+)\)")
PRODUCT = "HMMA"


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


def loops(listing):
    """[[opcode]] of what lies between a label and the last branch back to it, innermost first."""
    opcodes, labels, ends = [], {}, {}
    for line in listing.split("\n"):
        label, instruction = LABEL.match(line), INSTRUCTION.match(line)
        if label:
            labels[label.group(1)] = len(opcodes)
        elif instruction:
            jump = JUMP.search(instruction.group(2)) if instruction.group(1).startswith("BRA") else None
            if jump and jump.group(1) in labels:
                ends[labels[jump.group(1)]] = len(opcodes)
            opcodes.append(instruction.group(1))
    return [opcodes[first:last + 1] for first, last in sorted(ends.items(), key=lambda loop: loop[1] - loop[0])]


def main_loop(listing):
    """The opcodes of the shortest loop with products: masks make one longer."""
    found = [loop for loop in loops(listing) if any(opcode.startswith(PRODUCT) for opcode in loop)]
    return found[0] if found else []
