"""Attention with NumPy, in float64: what the kernels of polyhead are held against. It needs NumPy alone, and is slow.

B batch, H heads, H_kv key/value heads (a divisor of H), T_q and T_kv lengths, d and d_v entries of a head. Arrays of every numeric type are
taken, and computed with in `dtype`. `cut` rounds what a formula in 16 bits keeps: heads, logits, probs and out; by default nothing.
"""
from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional, Sequence, Union

import numpy

Array = Any  # numpy.ndarray, of any type
Cut = Callable[[Array], Array]


class Attention(NamedTuple):
    """The result of attention()."""

    out: Array      # [B,H,T_q,d_v]
    weights: Array  # [B,H,T_q,T_kv]: the softmax
    lse: Array      # [B,H,T_q]: natural logarithm of the sum of exp(logits), sinks included; -inf where a query sees no key
    scores: Array   # [B,H,T_q,T_kv]: scaled products, before softcap and masks


def whole(x: Array) -> Array:
    """The cut that keeps everything."""
    return x


def _lengths(lengths: Optional[Array], seq_len_kv: int, batch: int) -> Array:
    return numpy.full(batch, seq_len_kv) if lengths is None else numpy.asarray(lengths)


def positions(seq_len_q: int, seq_len_kv: int, lengths: Optional[Array] = None, from_end: bool = False, offsets: Optional[Array] = None,
              batch: int = 1, rows: Optional[Array] = None) -> Array:
    """int [B,rows]: the place of each query among the keys; of all queries, or of `rows` of them.

    from_end: the last query stands at the last of its `lengths` keys, and not the first query at the first key. offsets: [B], added.
    """
    lengths = _lengths(lengths, seq_len_kv, batch)
    rows = numpy.arange(seq_len_q) if rows is None else numpy.asarray(rows)
    p = rows[None, :] + (lengths[:, None] - seq_len_q if from_end else numpy.zeros((len(lengths), 1), int))
    return p if offsets is None else p + numpy.asarray(offsets)[:, None]


def visible(seq_len_q: int, seq_len_kv: int, lengths: Optional[Array] = None, causal: bool = False, window: Sequence[int] = (-1, -1),
            from_end: bool = False, batch: int = 1, offsets: Optional[Array] = None, rows: Optional[Array] = None) -> Array:
    """bool [B,1,rows,T_kv]: which keys a query sees by length, causal rule and window (keys to its left and right; below 0: all)."""
    lengths = _lengths(lengths, seq_len_kv, batch)
    p = positions(seq_len_q, seq_len_kv, lengths, from_end, offsets, batch, rows)[:, :, None]
    k = numpy.arange(seq_len_kv)[None, None, :]
    seen = (k < lengths[:, None, None]) & numpy.ones_like(p, bool)
    if causal:
        seen &= k <= p
    if window[0] >= 0:
        seen &= k >= p - window[0]
    if window[1] >= 0:
        seen &= k <= p + window[1]
    return seen[:, None]


def attention(query: Array, key: Array, value: Array, seen: Array = True, add: Array = 0.0, scale: Optional[float] = None,
              softcap: float = 0.0, sinks: Optional[Array] = None, gate: Optional[Array] = None, dtype: Any = numpy.float64,
              cut: Cut = whole, change: Callable[[Array], Array] = whole) -> Attention:
    """softmax(change(softcap(scale · query keyᵀ) + add)) value, for query [B,H,T_q,d], key [B,H_kv,T_kv,d] and value [B,H_kv,T_kv,d_v].

    seen, add: broadcast as [B,H,T_q,T_kv]; keys that are not seen take no part. scale: 1/sqrt(d) if None. softcap 0: none. sinks, gate: [H].
    change: any further function of the logits. A query that sees no key gives 0.
    """
    query, key, value = (numpy.asarray(x).astype(dtype) for x in (query, key, value))
    (batch, heads, rows, width), kv_heads = query.shape, key.shape[1]
    factor = dtype(width) ** dtype(-0.5) if scale is None else dtype(scale)
    grouped = query.reshape(batch, kv_heads, heads // kv_heads, rows, width)
    scores = (grouped @ key[:, :, None].swapaxes(-1, -2)).reshape(batch, heads, rows, -1) * factor
    capped = dtype(softcap) * numpy.tanh(scores / dtype(softcap)) if softcap else scores
    logits = numpy.where(seen, cut(change(capped + add)), -numpy.inf)
    largest = logits.max(-1, keepdims=True, initial=-numpy.inf)
    empty = numpy.isneginf(largest)
    largest = numpy.where(empty, 0, largest)
    probs = numpy.exp(logits - largest)
    total = probs.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + numpy.exp(numpy.asarray(sinks, dtype)[:, None, None] - largest)
    weights = cut(numpy.where(empty, 0, probs / numpy.where(empty, 1, total)))
    with numpy.errstate(divide="ignore"):
        lse = numpy.where(empty, -numpy.inf, numpy.log(numpy.where(empty, 1, total)) + largest)[..., 0]
    out = (weights.reshape(*grouped.shape[:4], -1) @ value[:, :, None]).reshape(batch, heads, rows, -1)
    return Attention(cut(out if gate is None else out * numpy.asarray(gate, dtype)[:, None, None]), weights, lse, scores)


def normalised(x: Array, kind: Optional[str], weight: Optional[Array] = None, bias: Optional[Array] = None, epsilon: float = 1e-6,
               dtype: Any = numpy.float64) -> Array:
    """x over its last dimension: "rms", "rms_plus_one" (the factor is 1 + weight) or "layer"; None changes nothing."""
    x = numpy.asarray(x).astype(dtype)
    if kind is None:
        return x
    x = x - x.mean(-1, keepdims=True) if kind == "layer" else x
    factor: Any = dtype(0 if kind == "rms_plus_one" else 1) if weight is None else numpy.asarray(weight).astype(dtype)
    factor = dtype(1) + factor if kind == "rms_plus_one" else factor
    y = x / numpy.sqrt((x * x).mean(-1, keepdims=True) + dtype(epsilon)) * factor
    return y if bias is None else y + numpy.asarray(bias).astype(dtype)


def sigmoid(x: Array, dtype: Any = numpy.float64) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    x = numpy.asarray(x).astype(dtype)
    power = numpy.exp(-numpy.abs(x))
    return numpy.where(x >= 0, dtype(1), power) / (dtype(1) + power)


def linear(x: Array, weight: Array, bias: Optional[Array] = None, dtype: Any = numpy.float64, cut: Cut = whole) -> Array:
    """x weightᵀ + bias, for weight [N,K] and bias [N]."""
    y = numpy.asarray(x).astype(dtype) @ numpy.asarray(weight).astype(dtype).T
    return cut(y if bias is None else y + numpy.asarray(bias).astype(dtype))


def split_heads(x: Array, heads: int) -> Array:
    """[B,H,T,d] of [B,T,H·d]."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def join_heads(x: Array) -> Array:
    """[B,T,H·d] of [B,H,T,d]."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def layer(state: dict[str, Array], heads: int, query: Array, key: Optional[Array] = None, value: Optional[Array] = None, seen: Array = True,
          add: Array = 0.0, kv_heads: Optional[int] = None) -> tuple[Array, Array]:
    """torch.nn.MultiheadAttention with its state_dict, batch first: out [B,T_q,D] and weights [B,H,T_q,T_kv].

    seen and add broadcast as in attention(). kv_heads: grouped heads, whose projections have fewer rows.
    """
    key = query if key is None else key
    value = key if value is None else value
    kv_heads = kv_heads or heads
    width = state["out_proj.weight"].shape[0]
    bounds = (width, width + kv_heads * (width // heads))
    if "in_proj_weight" in state:
        matrices = numpy.split(state["in_proj_weight"], bounds)
    else:
        matrices = [state[name + "_proj_weight"] for name in "qkv"]
    biases: Sequence[Union[Array, None]] = numpy.split(state["in_proj_bias"], bounds) if "in_proj_bias" in state else (None, None, None)
    inputs, counts = (query, key, value), (heads, kv_heads, kv_heads)
    parts = [split_heads(linear(*one), count) for *one, count in zip(inputs, matrices, biases, counts)]
    found = attention(*parts, seen=seen, add=add)
    return linear(join_heads(found.out), state["out_proj.weight"], state.get("out_proj.bias")), found.weights


class Pairs(NamedTuple):
    """Where the pairs of a rotation lie, each [pairs]."""

    first: Array      # entry of the rotated ones
    second: Array
    direction: Array  # whose position it takes


def pairs_of(count: int, interleaved: bool, rope_sections: Optional[str] = None, sections: Sequence[int] = ()) -> Pairs:
    """So many pairs: entries 2i and 2i+1 (interleaved), or i and i + count. With rope_sections "contiguous", "interleaved" or "parts" of two or
    three directions, which have sections[0], sections[1] ... pairs; in parts the entries of a direction lie together.
    """
    i, zero = numpy.arange(count), numpy.zeros(count, int)
    direction, before, half = zero, zero, zero + count
    if rope_sections == "interleaved":
        for n in (1, 2):
            direction = numpy.where((i % 3 == n) & (i < 3 * sections[n]), n, direction)
    elif rope_sections is not None:
        direction = numpy.repeat(numpy.arange(len(sections)), sections)
    if rope_sections == "parts":
        sizes = numpy.asarray(sections)
        before, half = (numpy.cumsum(sizes) - sizes)[direction], sizes[direction]
    return Pairs(2 * i, 2 * i + 1, direction) if interleaved else Pairs(i + before, i + before + half, direction)


def rotated(x: Array, cos: Array, sin: Array, at: Array, interleaved: bool = True, dtype: Any = numpy.float64, trailing: bool = False,
            rope_sections: Optional[str] = None, sections: Sequence[int] = ()) -> Array:
    """Rotary embedding of the leading entries of x [B,H,T,d] at the positions `at` [B,T], with tables [positions, entries / 2].

    interleaved: entries 2i and 2i+1 turn together, and not i and i + entries / 2. trailing: of the last entries. rope_sections, sections: as in
    pairs_of(), with positions [B,directions,T].
    """
    count = cos.shape[-1]
    pairs = pairs_of(count, interleaved, rope_sections, sections)
    at = numpy.asarray(at)
    rows = at[:, None] if at.ndim == 2 else at[:, pairs.direction]  # [B,1 or pairs,T]
    begin = x.shape[-1] - 2 * count if trailing else 0
    first, second = begin + pairs.first, begin + pairs.second
    cos, sin = (table.astype(dtype)[rows, numpy.arange(count)[:, None]].swapaxes(1, 2)[:, None] for table in (cos, sin))
    y = numpy.array(x, dtype)
    y[..., first], y[..., second] = x[..., first] * cos - x[..., second] * sin, x[..., second] * cos + x[..., first] * sin
    return y


def without_pages(pages: Array, table: Array) -> Array:
    """[B,H_kv,T_kv,d] of pages [pages,H_kv,page_size,d] and a table [B,pages of a row]."""
    _, heads, _, width = pages.shape
    return pages[table].transpose(0, 2, 1, 3, 4).reshape(len(table), heads, -1, width)


def from_int8(integers: Array, scales: Array, dtype: Any = numpy.float64) -> Array:
    """What int8 [...,d] with scales [...,d / channels] stands for."""
    return integers.astype(dtype) * numpy.repeat(scales.astype(dtype), integers.shape[-1] // scales.shape[-1], -1)
