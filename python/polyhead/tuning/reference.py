"""The expected answer in float64 at some rows of a call, by polyhead.reference, and its tolerance."""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy

from .. import _core
from ..reference import (Cut, attention, from_int8, join_heads, linear, normalised, positions, rotated, sigmoid, split_heads, visible, whole,
                         without_pages)
from .inputs import Arrays, storage_of
from .problem import LINEAR, MHA, Shape

ROWS = 24
# Of f32, f16 and bf16.
ROUNDING = {0: 0.0, 1: 2.0 ** -10, 2: 2.0 ** -7}  # twice the largest relative error of rounding an answer
APART = {0: 2e-5, 1: 4e-3, 2: 2e-2}  # see tuning_tolerance()


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
    exact, largest = _compute(fields, arguments, weights, rows, numpy.float64, whole)
    with numpy.errstate(over="ignore"):  # beyond f16: infinite, tuning_tolerance() is left
        plain, _ = _compute(fields, arguments, weights, rows, numpy.float32, lambda x: x.astype(storage).astype(numpy.float32))
        error = float(numpy.abs(plain - exact).max())
        if fields["int8_cache"]:
            query = {**arguments, "query": _in_steps(arguments["query"].astype(numpy.float32))}
            stepped, _ = _compute(fields, query, weights, rows, numpy.float32, lambda x: x.astype(storage).astype(numpy.float32))
            error = max(error, float(numpy.abs(stepped - exact).max()))
    size, allowed = numpy.abs(exact), 4 * error
    if fields["dtype"]:
        allowed = numpy.fmin(numpy.fmax(2 * error, ROUNDING[fields["dtype"]] * size), tuning_tolerance(fields, exact))
    return Expected(rows, exact, 1e-5 * max(1.0, largest) + 5e-6 * size + allowed)


def tuning_tolerance(fields: dict[str, int], out: numpy.ndarray) -> numpy.ndarray:
    """How far the answers of two tilings may be apart; with 16-bit storage the largest tolerance."""
    return APART[fields["dtype"]] * numpy.maximum(1, numpy.abs(out))


def _compute(fields: dict[str, int], arguments: Arrays, weights: Arrays, rows: numpy.ndarray, dtype: Any, cut: Cut) -> tuple[numpy.ndarray, float]:
    """(out at the rows, largest value that is averaged). cut() rounds what the plain formula keeps: heads, scores, probs, out."""

    def project(x: numpy.ndarray, name: str) -> numpy.ndarray:
        return linear(x, weights[name], weights.get(name.replace("out_proj", "out") + "_bias"), dtype, cut)

    if fields["op"] == LINEAR:
        out = project(arguments["input"][rows], "out_proj")
        return out, float(numpy.abs(out).max())
    query, key, value = (arguments.get(n, arguments["query"]) for n in ("query", "key", "value"))
    if fields["int8_cache"]:
        key, value = (x if name + "_scales" not in arguments else from_int8(x, arguments[name + "_scales"], dtype)
                      for name, x in (("key", key), ("value", value)))
    if fields["page_size"]:
        key, value = (without_pages(x, arguments["page_table"]) if x is not query else x for x in (key, value))
    if fields["value_in_key"]:
        value = key[..., :fields["head_dim_v"]]
    length = query.shape[-2]
    gate = arguments["gate"][:, :, rows] if "gate" in arguments else None
    if fields["op"] == MHA:
        gate = split_heads(project(query[:, rows], "gate"), fields["num_heads"]) if fields["gate"] else None
        query, key = project(query[:, rows], "query"), project(key, "key")
        value = key if fields["value_from_key"] else project(value, "value")
        query, key = (normalised_heads(fields, arguments, of, x, heads, dtype)
                      for of, x, heads in (("query", query, fields["num_heads"]), ("key", key, fields["num_kv_heads"])))
        value = split_heads(value, fields["num_kv_heads"])
    else:
        query, key, value = query[:, :, rows].astype(dtype), key.astype(dtype), value.astype(dtype)
        query, key = (normalised_heads(fields, arguments, of, x, 0, dtype) for of, x in (("query", query), ("key", key)))
    value = normalised_heads(fields, arguments, "value", value, 0, dtype)
    out = _attention(fields, arguments, query, key, value, rows, length, dtype, cut)
    out = out if gate is None else cut(out * sigmoid(gate, dtype))
    if fields["op"] == MHA:
        out = project(join_heads(out), "out_proj")
    return out, float(numpy.abs(value).max())


def normalised_heads(fields: dict[str, int], arguments: Arrays, of: str, x: numpy.ndarray, heads: int, dtype: Any) -> numpy.ndarray:
    """Heads after their norm; x has all heads of a token in a row, or, with heads 0, one head."""
    if of == "value":
        return normalised(x, "rms", None, None, arguments["norm_epsilon"], dtype) if fields["value_norm"] else x
    kind = _core.problem_fields[of + "_norm"][fields[of + "_norm"]]
    if heads and not fields["norm_of_projection"]:
        x, heads = split_heads(x, heads), 0
    if kind != "none":
        x = normalised(x, kind, arguments.get(of + "_norm_weight"), arguments.get(of + "_norm_bias"), arguments["norm_epsilon"], dtype)
    return split_heads(x, heads) if heads else x


def _in_steps(query: numpy.ndarray) -> numpy.ndarray:
    """The query rounded to int8 and back, row by row."""
    step = numpy.abs(query).max(-1, keepdims=True) / numpy.float32(127)
    return numpy.rint(query / numpy.where(step > 0, step, 1)).astype(numpy.float32) * step


def _place(fields: dict[str, int], arguments: Arrays, batch: int, rows: numpy.ndarray) -> dict[str, Any]:
    return {"lengths": arguments.get("kv_lengths"), "from_end": fields["causal"] != 2, "offsets": arguments.get("position_offsets"), "batch": batch,
            "rows": rows}


def rotated_heads(fields: dict[str, int], arguments: Arrays, of: str, x: numpy.ndarray, rows: numpy.ndarray, lengths: tuple[int, int], dtype: Any,
                  back: bool = False) -> numpy.ndarray:
    """query (of these rows) or key after its rotation, or by the opposite angle; lengths: of all queries and keys."""
    if not fields["rope"]:
        return x
    tables = (arguments["rope_cos"], -arguments["rope_sin"] if back else arguments["rope_sin"])
    interleaved, trailing = fields["rope"] in (1, 3), fields["rope"] > 2
    sections = (_core.problem_fields["rope_sections"][fields["rope_sections"]], [fields[n] for n in ("section_1", "section_2", "section_3")])
    if of == "key":
        at = arguments.get("positions_kv", numpy.tile(numpy.arange(lengths[1]), (len(x), 1)))
    elif "positions_q" in arguments:
        at = arguments["positions_q"][..., rows]
    else:
        at = numpy.maximum(positions(*lengths, **_place(fields, arguments, len(x), rows)), 0)
    return rotated(x, *tables, at, interleaved, dtype, trailing, *(sections if fields["rope_sections"] else ()))


def pairs(fields: dict[str, int], arguments: Arrays, batch: int, rows: numpy.ndarray, lengths: tuple[int, int], dtype: Any) -> tuple[Any, Any]:
    """(which keys a query sees, what is added to logits), both broadcast as [B,H,rows,T_kv]."""
    place = _place(fields, arguments, batch, rows)
    seen = visible(*lengths, causal=fields["causal"] != 0, window=arguments.get("window", (-1, -1)), **place)
    add: Any = 0.0
    if "alibi_slopes" in arguments:
        apart_by = numpy.abs(positions(*lengths, **place)[:, None, :, None] - numpy.arange(lengths[1])).astype(dtype)
        add = -arguments["alibi_slopes"].astype(dtype)[:, None, None] * apart_by
    for name in ("mask", "score_bias"):
        given = arguments.get(name)
        if given is not None:
            given = given if given.shape[2] == 1 else given[:, :, rows]
            seen, add = (seen & given, add) if given.dtype == bool else (seen, add + given.astype(dtype))
    return seen, add


def _attention(fields: dict[str, int], arguments: Arrays, query: numpy.ndarray, key: numpy.ndarray, value: numpy.ndarray, rows: numpy.ndarray,
               seq_len_q: int, dtype: Any, cut: Cut) -> numpy.ndarray:
    """[B,H,rows,d_v]; query has only these rows of seq_len_q."""
    lengths = (seq_len_q, key.shape[2])
    query, key = (rotated_heads(fields, arguments, of, x, rows, lengths, dtype) for of, x in (("query", query), ("key", key)))
    seen, add = pairs(fields, arguments, query.shape[0], rows, lengths, dtype)
    return attention(query, key, value, seen, add, None, arguments.get("softcap", 0.0), arguments.get("sinks"), arguments.get("head_gate"),
                     dtype, cut).out
