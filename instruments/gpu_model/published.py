"""Published kernels whose structure is known, and what they reach on an H100: what the model is compared with."""
from dataclasses import dataclass

from machines import numbers
from model import Kernel, Shape, common_shape, group_cycles


@dataclass
class Published:
    kernel: Kernel
    shape: Shape
    tflops: float
    structure: str
    source: str


# Counts and order are those of the published source: an instruction for each element that it touches. Arithmetic of addresses is not counted.
# What need not wait for something else is one step: powers wait for the maxima of their rows, products for both.
def maxima(elements, rows):
    """Of a thread and a chunk."""
    return ("work", {"FMNMX": elements, "SHFL": 2 * rows})


def powers(elements, rows):
    """Differences in units of log2 e, powers of them and of how far the maxima have moved, sums."""
    return {"FFMA": elements, "MUFU": elements + rows, "FADD": elements}


def by_warps(name, dim, keys, causal, **more):
    """FlashAttention-2: 4 warps of 32 rows; products of query and key, softmax, products of probs and value."""
    tiles, of_product = 2, 16
    elements, rows = tiles * keys // 2, 2 * tiles
    scores = {"HMMA": tiles * keys // 8 * dim // of_product,
              "LDSM": tiles * dim // of_product + keys // 16 * dim // of_product, "LDGSTS": 2 * keys * dim * 2 // 16 // 128}
    acc = {"HMMA": tiles * dim // 8 * keys // of_product, "LDSM": keys // 16 * dim // of_product}
    probs = dict(powers(elements, rows), F2FP=elements // 2, FMUL=tiles * dim // 2)
    steps = [("barrier",), ("work", scores), maxima(elements, rows), ("work", probs), ("barrier",), ("work", acc)]
    return Kernel(name, dim, 128, keys, 4, 2, steps, causal=causal, longest_first=False, **more)


def by_groups(name, dim, rows, keys, causal=False, overlap=True, apart=True, groups=None, blocks=1, **more):
    """wgmma: groups of 64 rows or more; apart: copies are made by warps of their own, and no barrier of the block is waited for."""
    groups = groups or rows // 64
    rows_of_group = rows // groups
    elements, own_rows = rows_of_group * keys // 128, rows_of_group // 32
    product = ("product", rows_of_group // 64 * dim // 16 * group_cycles("HGMMA.64x%dx16" % keys, numbers("h100")))
    found, exponentials = maxima(elements, own_rows), powers(elements, own_rows)
    rescale, convert = {"FMUL": rows_of_group * dim // 128}, {"F2FP": elements // 2}
    begin = [] if apart else [("barrier",), ("work", {"LDGSTS": 2 * keys * dim * 2 // 16 // (groups * 128)})]
    if overlap:
        steps = begin + [product, ("work", rescale), product, ("wait", 1), found, ("work", exponentials), ("wait", 0), ("work", convert)]
    else:
        steps = begin + [product, ("wait", 0), found, ("work", {**exponentials, **convert, **rescale}), product, ("wait", 0)]
    return Kernel(name, dim, rows, keys, 4 * groups, blocks, steps, causal=causal, **more)


FA2 = "flash_fwd_launch_template.h of FlashAttention-2: 128 x %d, 4 warps, 2 blocks"
FA3 = "hopper/flash_fwd_launch_template.h of July 2024: %s"
FIGURE, ABLATION = "arXiv 2407.08608, figure of the forward pass", "arXiv 2407.08608, table of the ablation"
LONG = Shape(4, 16, 8448)

PUBLISHED = [
    Published(by_warps("FlashAttention-2, d 64", 64, 128, False), common_shape(64), 321, FA2 % 128, FIGURE),
    Published(by_warps("FlashAttention-2, d 64, causal", 64, 128, True), common_shape(64), 284, FA2 % 128, FIGURE),
    Published(by_warps("FlashAttention-2, d 128", 128, 64, False), common_shape(128), 368, FA2 % 64, FIGURE),
    Published(by_warps("FlashAttention-2, d 128, causal", 128, 64, True), common_shape(128), 319, FA2 % 64, FIGURE),
    Published(by_groups("Triton, d 128", 128, 128, 64, overlap=False, apart=False, groups=1), common_shape(128), 458,
              "tutorial 06: 128 x 64, 4 warps, one block", "pytorch/benchmark pull request 2391"),
    Published(by_groups("FlashAttention-3, d 64", 64, 192, 128), common_shape(64), 476, FA3 % "192 x 128, 3 groups of warps beside the copying one", FIGURE),
    Published(by_groups("FlashAttention-3, d 64, causal", 64, 192, 128, causal=True), common_shape(64), 420,
              FA3 % "192 x 128, 3 groups beside the copying one", FIGURE),
    Published(by_groups("FlashAttention-3, d 128", 128, 128, 176, shared_copies=2), common_shape(128), 638,
              FA3 % "128 x 176, 2 groups beside the copying one, copies for 2 blocks", FIGURE),
    Published(by_groups("FlashAttention-3, d 128, causal", 128, 128, 128, causal=True), common_shape(128), 579,
              FA3 % "128 x 128, 2 groups beside the copying one", FIGURE),
    Published(by_groups("FlashAttention-3, ablation: both", 128, 128, 176, shared_copies=2), LONG, 661, FA3 % "128 x 176", ABLATION),
    Published(by_groups("FlashAttention-3, ablation: no overlap", 128, 128, 176, overlap=False, shared_copies=2), LONG, 582,
              FA3 % "128 x 176, products of a chunk one after the other", ABLATION),
    Published(by_groups("FlashAttention-3, ablation: no specialisation", 128, 128, 176, apart=False, shared_copies=2), LONG, 570,
              FA3 % "128 x 176, all warps copy, one barrier of a chunk", ABLATION),
]
