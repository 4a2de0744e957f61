"""The truth: attention in float64 by polyhead.reference, for a sample of the rows of an answer."""

import importlib.util
import pathlib

import numpy as np

from . import cases, gradients

ROWS = {"sdpa": 48, "layer": 8, "layer_step": 8}
# Largest error of each type over sums this long, as a part of the largest value that a row may mix.
TOLERANCE = {"f32": 1e-4, "f16": 4e-3, "bf16": 3e-2}


def sample(case):
    """Index arrays of the rows that are checked: (b, h, q) of sdpa, (b, t) of a layer. First and last row are among them."""
    s = case.shape
    if s["kind"] in gradients.KINDS:
        return gradients.sample(s)
    sizes = (s["B"], s["H"], s["Tq"]) if s["kind"] == "sdpa" else (s["B"], s["T"])
    total = int(np.prod(sizes))
    random = np.random.default_rng(5)
    rows = np.unique(np.concatenate([[0, total - 1], random.integers(0, total, ROWS[s["kind"]])]))
    return np.unravel_index(rows, sizes)


def package_reference():
    """The module polyhead.reference, from its file: it needs NumPy alone, and the package need not be built."""
    path = pathlib.Path(__file__).resolve().parents[3] / "python" / "polyhead" / "reference.py"
    spec = importlib.util.spec_from_file_location("polyhead_reference", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sdpa_row(formulas, s, tensors, b, h, q):
    query, key, value = tensors[:3]
    extras = tensors[3] if len(tensors) > 3 else {}
    kv = h // (s["H"] // s["Hkv"])
    seen, add = cases.seen(s, [q], cases.key_lengths(s)[b])[0], 0.0
    if "mask" in extras:
        row = extras["mask"][..., h, q, :] if extras["mask"].ndim == 3 else extras["mask"][q]
        seen, add = (seen & row, add) if row.dtype == bool else (seen, row)
    sinks = extras["sinks"][h : h + 1] if "sinks" in extras else None
    tiles = query[b, h, q][None, None, None], key[b, kv][None, None], value[b, kv][None, None]
    return formulas.attention(*tiles, seen, add, softcap=s["softcap"], sinks=sinks).out[0, 0, 0]


def layer_rows(formulas, s, tensors, index):
    x, in_proj, in_bias, out_proj, out_bias = tensors
    weights, biases = np.split(in_proj, 3), np.split(in_bias, 3)
    rows = np.empty((len(index[0]), s["D"]))
    for b in np.unique(index[0]):
        here = index[0] == b
        inputs = (x[b : b + 1, index[1][here]], x[b : b + 1], x[b : b + 1])
        heads = [formulas.split_heads(formulas.linear(*one), s["H"]) for one in zip(inputs, weights, biases)]
        rows[here] = formulas.linear(formulas.join_heads(formulas.attention(*heads).out), out_proj, out_bias)[0]
    return rows


def truth(case, dtype):
    """The rows of sample(case), [rows, width], of inputs that the type has; None where each library draws other random numbers."""
    if case.shape["kind"] in gradients.KINDS:
        return gradients.truth(case.shape, cases.inputs(case, dtype), cases.seen(case.shape, range(case.shape["Tq"]), case.shape["Tkv"]))
    tensors, index, formulas = cases.inputs(case, dtype), sample(case), package_reference()
    if case.shape["kind"] == "layer_step":
        return gradients.layer_rows(case.shape, tensors, index)
    if case.shape["kind"] == "layer":
        return layer_rows(formulas, case.shape, tensors, index)
    return np.stack([sdpa_row(formulas, case.shape, tensors, *row) for row in zip(*index)])


def largest_error(found, expected, dtype):
    """(largest error, "" or what is wrong with it)."""
    if expected is None:
        return float("nan"), "" if np.isfinite(found).all() else "wrong answer: not all of it is finite"
    if found.shape != expected.shape:
        return float("inf"), "answer of %s, expected %s" % (list(found.shape), list(expected.shape))
    error = np.abs(found - expected)
    worst = float(error.max()) if np.isfinite(error).all() else float("inf")
    limit = TOLERANCE[dtype] * max(1.0, float(np.abs(expected).max()))
    return worst, "" if worst <= limit else "wrong answer: largest error %.3g, expected at most %.3g" % (worst, limit)
