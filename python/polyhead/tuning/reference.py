"""The expected answer in float64 at some rows of a call, computed with NumPy, and its tolerance."""
from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional

import numpy

from .inputs import Arrays, storage_of
from .problem import LINEAR, MHA, Shape

ROWS = 24
# Of f32, f16 and bf16.
ROUNDING = {0: 0.0, 1: 2.0 ** -10, 2: 2.0 ** -7}  # twice the largest relative error of rounding an answer
APART = {0: 2e-5, 1: 4e-3, 2: 2e-2}  # see apart()
Cut = Callable[[numpy.ndarray], numpy.ndarray]


class Expected(NamedTuple):
    """out[..., rows, :] of a call must equal `out` within `tolerance`."""

    rows: numpy.ndarray
    out: numpy.ndarray
    tolerance: numpy.ndarray


def rows_of(length: int) -> numpy.ndarray:
    """Rows at both ends and in the middle, and random ones."""
    picked = numpy.random.default_rng(3).integers(0, length, ROWS)
    return numpy.unique(numpy.clip(numpy.concatenate([[0, 1, length // 2, length - 2, length - 1], picked]), 0, length - 1))


def expected(fields: dict[str, int], shape: Shape, arguments: Arrays, weights: Arrays) -> Expected:
    """The rule of the tests: 1e-5 of the largest value, 5e-6 of the answer, and four times the error of the plain f32 formula. With 16-bit
    storage: twice the error of the plain formula that rounds to this type, or of rounding the answer. With keys of int8 the plain formula
    may also round the query likewise."""
    rows, storage = rows_of(shape.seq_len_q), storage_of(fields)
    exact, largest = _compute(fields, arguments, weights, rows, numpy.float64, lambda x: x)
    with numpy.errstate(over="ignore"):  # beyond f16: infinite, apart() is left
        plain, _ = _compute(fields, arguments, weights, rows, numpy.float32, lambda x: x.astype(storage).astype(numpy.float32))
        error = float(numpy.abs(plain - exact).max())
        if fields["int8_cache"]:
            query = {**arguments, "query": _in_steps(arguments["query"].astype(numpy.float32))}
            stepped, _ = _compute(fields, query, weights, rows, numpy.float32, lambda x: x.astype(storage).astype(numpy.float32))
            error = max(error, float(numpy.abs(stepped - exact).max()))
    size, allowed = numpy.abs(exact), 4 * error
    if fields["dtype"]:
        allowed = numpy.fmin(numpy.fmax(2 * error, ROUNDING[fields["dtype"]] * size), apart(fields, exact))
    return Expected(rows, exact, 1e-5 * max(1.0, largest) + 5e-6 * size + allowed)


def apart(fields: dict[str, int], out: numpy.ndarray) -> numpy.ndarray:
    """How far the answers of two tilings may be apart; with 16-bit storage the largest tolerance."""
    return APART[fields["dtype"]] * numpy.maximum(1, numpy.abs(out))


def _compute(fields: dict[str, int], arguments: Arrays, weights: Arrays, rows: numpy.ndarray, dtype: Any, cut: Cut) -> tuple[numpy.ndarray, float]:
    """(out at the rows, largest value that is averaged). cut() rounds what the plain formula keeps: heads, scores, probs, out."""

    def project(x: numpy.ndarray, name: str) -> numpy.ndarray:
        bias = weights.get(name.replace("out_proj", "out") + "_bias")
        return cut(x.astype(dtype) @ weights[name].astype(dtype).T + (0 if bias is None else bias.astype(dtype)))

    if fields["op"] == LINEAR:
        out = project(arguments["input"][rows], "out_proj")
        return out, float(numpy.abs(out).max())
    query, key, value = (arguments.get(n, arguments["query"]) for n in ("query", "key", "value"))
    if fields["int8_cache"]:
        key, value = (_scaled(x, arguments.get(name + "_scales"), dtype) for name, x in (("key", key), ("value", value)))
    if fields["page_size"]:
        key, value = (_without_pages(x, arguments["page_table"]) if x is not query else x for x in (key, value))
    if fields["value_in_key"]:
        value = key[..., :fields["head_dim_v"]]
    length = query.shape[-2]
    if fields["op"] == MHA:
        query = _heads(project(query[:, rows], "query"), fields["num_heads"])
        key, value = (_heads(project(x, n), fields["num_kv_heads"]) for x, n in ((key, "key"), (value, "value")))
    else:
        query, key, value = query[:, :, rows].astype(dtype), key.astype(dtype), value.astype(dtype)
    out = _attention(fields, arguments, query, key, value, rows, length, dtype, cut)
    if fields["op"] == MHA:
        batch, heads, count, width = out.shape
        out = project(out.transpose(0, 2, 1, 3).reshape(batch, count, heads * width), "out_proj")
    return out, float(numpy.abs(value).max())


def _scaled(integers: numpy.ndarray, scales: Optional[numpy.ndarray], dtype: Any) -> numpy.ndarray:
    """The numbers that a cache of int8 stands for; without scales the array as it is."""
    if scales is None:
        return integers
    return integers.astype(dtype) * numpy.repeat(scales.astype(dtype), integers.shape[-1] // scales.shape[-1], -1)


def _in_steps(query: numpy.ndarray) -> numpy.ndarray:
    """The query rounded to int8 and back, row by row."""
    step = numpy.abs(query).max(-1, keepdims=True) / numpy.float32(127)
    return numpy.rint(query / numpy.where(step > 0, step, 1)).astype(numpy.float32) * step


def _without_pages(pages: numpy.ndarray, table: numpy.ndarray) -> numpy.ndarray:
    """[B,H_kv,T_kv,d] of pages [pages,H_kv,page_size,d]."""
    _, heads, _, width = pages.shape
    return pages[table].transpose(0, 2, 1, 3, 4).reshape(len(table), heads, -1, width)


def _heads(x: numpy.ndarray, heads: int) -> numpy.ndarray:
    batch, length, width = x.shape
    return x.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)


def _attention(fields: dict[str, int], arguments: Arrays, query: numpy.ndarray, key: numpy.ndarray, value: numpy.ndarray, rows: numpy.ndarray,
               seq_len_q: int, dtype: Any, cut: Cut) -> numpy.ndarray:
    """[B,H,rows,d_v]; query has only these rows of seq_len_q."""
    batch, heads, _, d = query.shape
    seq_len_kv, group = key.shape[2], heads // key.shape[1]
    from_end = fields["causal"] != 2
    lengths = arguments.get("kv_lengths", numpy.full(batch, seq_len_kv))[:, None, None]
    p = rows[None, :, None] + (lengths - seq_len_q if from_end else 0)
    if "position_offsets" in arguments:
        p = p + arguments["position_offsets"][:, None, None]
    k = numpy.arange(seq_len_kv)[None, None, :]
    seen = (k < lengths) & numpy.ones_like(p, bool)
    if fields["causal"]:
        seen &= k <= p
    if "window" in arguments:
        seen &= (k >= p - arguments["window"][0]) & (k <= p + arguments["window"][1])
    seen = numpy.broadcast_to(seen[:, None], (batch, heads, len(rows), seq_len_kv))
    if fields["rope"]:
        query = _rotated(fields, arguments, query, numpy.maximum(p[:, :, 0], 0), dtype)
        key = _rotated(fields, arguments, key, numpy.tile(numpy.arange(seq_len_kv), (batch, 1)), dtype)
    out = numpy.empty((batch, heads, len(rows), value.shape[-1]), dtype)
    scale = dtype(d) ** dtype(-0.5)
    for b in range(batch):
        for h in range(heads):
            logits = (query[b, h] @ key[b, h // group].T) * scale
            if "softcap" in arguments:
                cap = dtype(arguments["softcap"])
                logits = cap * numpy.tanh(logits / cap)
            if "alibi_slopes" in arguments:
                logits = logits - dtype(arguments["alibi_slopes"][h]) * numpy.abs(p[b] - k[0]).astype(dtype)
            here = seen[b, h]
            for name in ("mask", "score_bias"):
                pairs = _pairs(arguments.get(name), b, h, rows)
                if pairs is not None and pairs.dtype == bool:
                    here = here & pairs
                elif pairs is not None:
                    logits = logits + pairs.astype(dtype)
            probs = cut(_softmax(numpy.where(here, cut(logits), -numpy.inf), _of(arguments, "sinks", h)))
            out[b, h] = (probs @ value[b, h // group]) * dtype(1 if "head_gate" not in arguments else arguments["head_gate"][h])
    return cut(out)


def _of(arguments: Arrays, name: str, h: int) -> Optional[float]:
    return None if name not in arguments else float(arguments[name][h])


def _pairs(tensor: Optional[numpy.ndarray], b: int, h: int, rows: numpy.ndarray) -> Optional[numpy.ndarray]:
    """The rows of a mask or bias for one head."""
    if tensor is None:
        return None
    plane = tensor[b % tensor.shape[0], h % tensor.shape[1]]
    return plane if plane.shape[0] == 1 else plane[rows]


def _softmax(logits: numpy.ndarray, sink: Optional[float]) -> numpy.ndarray:
    largest = logits.max(-1, keepdims=True)
    largest = numpy.where(numpy.isneginf(largest), 0, largest)
    probs = numpy.exp(logits - largest)
    total = probs.sum(-1, keepdims=True) + (0 if sink is None else numpy.exp(sink - largest))
    return probs / numpy.where(total == 0, 1, total)


def _rotated(fields: dict[str, int], arguments: Arrays, x: numpy.ndarray, at: numpy.ndarray, dtype: Callable[..., Any]) -> numpy.ndarray:
    n = fields["rotary_dim"]
    first, second = (slice(0, n, 2), slice(1, n, 2)) if fields["rope"] == 1 else (slice(0, n // 2), slice(n // 2, n))
    cos, sin = (arguments[name].astype(dtype)[at][:, None] for name in ("rope_cos", "rope_sin"))
    y = x.copy()
    y[..., first], y[..., second] = x[..., first] * cos - x[..., second] * sin, x[..., second] * cos + x[..., first] * sin
    return y
