"""Types that tensors are stored in: bytes of an element, and f32 arrays of numbers that a type has."""

import numpy as np

BYTES = {"f32": 4, "bf16": 2, "f16": 2}


def rounded(array, dtype):
    """A float32 array with, for each number, the nearest that the type has; ties go to the even one."""
    if dtype == "f16":
        return array.astype(np.float16).astype(np.float32)
    if dtype == "bf16":
        bits = array.view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32)
    return array


def upper_halves(array):
    """The bits of bf16 numbers, which are the upper halves of f32 numbers, as uint16."""
    return (np.ascontiguousarray(array).view(np.uint32) >> 16).astype(np.uint16)


def from_upper_halves(bits):
    """float32 of the bits of bf16 numbers."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
