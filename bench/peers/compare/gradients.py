"""Cases with gradients: backward alone, whole training steps, and the gradients in float64.

An answer holds the gradients of query, key and value, joined along the heads: [B, H + 2 H_kv, T, d]. A step with a bias computes its
gradient too; the answer does not hold it. That of a layer (kind "layer_step") is the gradient of x; those of weights are computed, too.
"""

import numpy as np

DROPOUT = 0.1
KINDS = ("backward", "step")
ROWS = 8  # of each gradient of a head that are checked


def shapes():
    """Name of a case, then what cases.sdpa() takes."""
    return {"t128": (1, 12, 128, 64), "b8_t128": (8, 12, 128, 64), "t197": (1, 12, 197, 64), "t512": (1, 12, 512, 64), "t2048": (1, 12, 2048, 64),
            "d128_t1024": (1, 12, 1024, 128), "gqa_d128_t512": (1, 32, 512, 128)}  # fmt: skip


def all_cases(sdpa, layer, case):
    """Backward alone of each shape; steps that are plain, with dropout, with a bias that needs a gradient; all with and without causal."""

    def made(kind, name, size, title, **more):
        for causal in (False, True):
            yield case("%s_%s%s" % (kind, name, "_causal" if causal else ""), kind, title + (", causal" if causal else ""), sdpa(*size, kind=kind, causal=causal, **more))

    found = []
    for name, size in shapes().items():
        found += made("backward", name, size, "backward", **(dict(Hkv=8) if name.startswith("gqa") else {}))
    for name in ("t512", "t2048"):
        size = shapes()[name]
        found += made("step", name, size, "forward and backward")
        found += made("step", "dropout_" + name, size, "with dropout", dropout=DROPOUT)
        found += made("step", "bias_" + name, size, "with a bias [H,T,T]", mask="additive_heads")
    for name, size in (("t512", (1, 512, 768, 12)), ("b8_t128", (8, 128, 768, 12))):
        found.append(case("layer_step_" + name, "step", "forward and backward of a layer", layer(*size, kind="layer_step")))
    return found


def small_cases(sdpa, layer, case):
    return [
        case("small_backward", "backward", "small", sdpa(1, 4, 20, 16, kind="backward", Hkv=2, causal=True)),
        case("small_step", "step", "small", sdpa(1, 4, 20, 16, kind="step", mask="additive_heads")),
        case("small_layer_step", "step", "small", layer(1, 12, 32, 2, kind="layer_step")),
    ]


def heads_of(s):
    """(b, key/value head) of the heads that are checked."""
    return sorted({(0, 0), (s["B"] - 1, s["Hkv"] - 1)})


def sample(s):
    """Index arrays of the checked rows of an answer."""
    random, group, rows = np.random.default_rng(5), s["H"] // s["Hkv"], []
    for b, kv in heads_of(s):
        for head in (kv * group, kv * group + group - 1, s["H"] + kv, s["H"] + s["Hkv"] + kv):
            rows += [(b, head, t) for t in sorted({0, s["Tq"] - 1, *random.integers(0, s["Tq"], ROWS).tolist()})]
    return tuple(np.array(column) for column in zip(*rows))


def of_heads(s, tensors, b, kv, seen):
    """{head of the answer: its gradient} of a key/value head and its group."""
    query, key, value, extras = tensors
    group, scale = s["H"] // s["Hkv"], s["d"] ** -0.5
    k, v = key[b, kv].astype(np.float64), value[b, kv].astype(np.float64)
    found = {s["H"] + kv: np.zeros_like(k), s["H"] + s["Hkv"] + kv: np.zeros_like(v)}
    for h in range(kv * group, (kv + 1) * group):
        q, out = query[b, h].astype(np.float64), extras["grad_out"][b, h].astype(np.float64)
        scores = scale * q @ k.T + (extras["mask"][h] if "mask" in extras else 0.0)
        weights = np.where(seen, np.exp(scores - np.max(scores, axis=1, keepdims=True, where=seen, initial=-np.inf)), 0.0)
        weights /= weights.sum(1, keepdims=True)
        slope = out @ v.T
        slope = weights * (slope - (weights * slope).sum(1, keepdims=True))
        found[h] = scale * slope @ k
        found[s["H"] + kv] += scale * slope.T @ q
        found[s["H"] + s["Hkv"] + kv] += weights.T @ out
    return found


def truth(s, tensors, seen):
    """The rows of sample(), or None: what is dropped is another choice in each library."""
    if s.get("dropout"):
        return None
    found = {(b, head): rows for b, kv in heads_of(s) for head, rows in of_heads(s, tensors, b, kv, seen).items()}
    return np.stack([found[b, head][t] for b, head, t in zip(*sample(s))])


def layer_rows(s, tensors, index):
    """Rows (b, t) of the gradient of x."""
    x, in_proj, in_bias, out_proj, _, grad_out = (array.astype(np.float64) for array in tensors)
    rows = np.empty((len(index[0]), s["D"]))
    width = s["D"] // s["H"]
    for b in np.unique(index[0]):
        q, k, v = (part.reshape(s["T"], s["H"], width).swapaxes(0, 1) for part in np.split(x[b] @ in_proj.T + in_bias, 3, 1))
        weights = np.exp(width**-0.5 * q @ k.swapaxes(1, 2))
        weights /= weights.sum(2, keepdims=True)
        out = (grad_out[b] @ out_proj).reshape(s["T"], s["H"], width).swapaxes(0, 1)
        slope = out @ v.swapaxes(1, 2)
        slope = width**-0.5 * weights * (slope - (weights * slope).sum(2, keepdims=True))
        heads = slope @ k, slope.swapaxes(1, 2) @ q, weights.swapaxes(1, 2) @ out
        grad_x = np.concatenate([one.swapaxes(0, 1).reshape(s["T"], s["D"]) for one in heads], 1) @ in_proj
        here = index[0] == b
        rows[here] = grad_x[index[1][here]]
    return rows
