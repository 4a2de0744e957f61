"""The truth: attention in float64 with NumPy, for a sample of the rows of an answer."""

import numpy as np

from . import cases

ROWS = {"sdpa": 48, "layer": 8}
# Largest error of each type over sums this long, as a part of the largest value that a row may mix.
TOLERANCE = {"f32": 1e-4, "f16": 4e-3, "bf16": 3e-2}


def sample(case):
    """Index arrays of the rows that are checked: (b, h, q) of sdpa, (b, t) of a layer. First and last row are among them."""
    s = case.shape
    sizes = (s["B"], s["H"], s["Tq"]) if s["kind"] == "sdpa" else (s["B"], s["T"])
    total = int(np.prod(sizes))
    random = np.random.default_rng(5)
    rows = np.unique(np.concatenate([[0, total - 1], random.integers(0, total, ROWS[s["kind"]])]))
    return np.unravel_index(rows, sizes)


def softmax(logits, sink=None):
    largest = max(logits.max(), -np.inf if sink is None else sink)
    weights = np.exp(logits - largest)
    return weights / (weights.sum() + (0.0 if sink is None else np.exp(sink - largest)))


def sdpa_row(s, tensors, b, h, q):
    query, key, value = tensors[:3]
    extras = tensors[3] if len(tensors) > 3 else {}
    group = s["H"] // s["Hkv"]
    keys, values = key[b, h // group].astype(np.float64), value[b, h // group].astype(np.float64)
    logits = keys @ query[b, h, q].astype(np.float64) / np.sqrt(s["d"])
    if s["softcap"]:
        logits = s["softcap"] * np.tanh(logits / s["softcap"])
    visible = cases.seen(s, [q], cases.key_lengths(s)[b])[0]
    if "mask" in extras:
        row = extras["mask"][..., h, q, :] if extras["mask"].ndim == 3 else extras["mask"][q]
        visible, logits = (visible & row, logits) if row.dtype == bool else (visible, logits + row)
    sink = float(extras["sinks"][h]) if "sinks" in extras else None
    return softmax(np.where(visible, logits, -np.inf), sink) @ values


def layer_rows(s, tensors, index):
    x, in_proj, in_bias, out_proj, out_bias = (t.astype(np.float64) for t in tensors)
    size, heads = s["D"], s["H"]
    rows = np.empty((len(index[0]), size))
    for b in np.unique(index[0]):
        here = index[0] == b
        key, value = (x[b] @ in_proj[i * size : (i + 1) * size].T + in_bias[i * size : (i + 1) * size] for i in (1, 2))
        query = x[b][index[1][here]] @ in_proj[:size].T + in_bias[:size]
        key, value, query = (t.reshape(len(t), heads, -1).swapaxes(0, 1) for t in (key, value, query))
        logits = query @ key.swapaxes(1, 2) / np.sqrt(size // heads)
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        joined = (weights / weights.sum(-1, keepdims=True) @ value).swapaxes(0, 1).reshape(-1, size)
        rows[here] = joined @ out_proj.T + out_bias
    return rows


def truth(case, dtype):
    """The rows of sample(case), [rows, width], of inputs that the type has."""
    tensors, index = cases.inputs(case, dtype), sample(case)
    if case.shape["kind"] == "layer":
        return layer_rows(case.shape, tensors, index)
    return np.stack([sdpa_row(case.shape, tensors, *row) for row in zip(*index)])


def largest_error(found, expected, dtype):
    """(largest error, "" or what is wrong with it)."""
    if found.shape != expected.shape:
        return float("inf"), "answer of %s, expected %s" % (list(found.shape), list(expected.shape))
    error = np.abs(found - expected)
    worst = float(error.max()) if np.isfinite(error).all() else float("inf")
    limit = TOLERANCE[dtype] * max(1.0, float(np.abs(expected).max()))
    return worst, "" if worst <= limit else "wrong answer: largest error %.3g, expected at most %.3g" % (worst, limit)
