"""The gradients of a call in float64, beside what its forward call wrote, and their tolerance."""
from __future__ import annotations

import shlex
from typing import Any, Iterator

import numpy

from .. import _core
from ..reference import Cut, positions, sigmoid, whole
from . import inputs
from .inputs import Arrays, storage_of
from .problem import LINEAR_BACKWARD, Shape, Task
from .reference import ROUNDING, Expected, normalised_heads, pairs, rotated_heads

# Dimensions of the tensors of a call: batch rows, heads, key/value heads.
DIMENSIONS = {**dict.fromkeys(("query", "out", "lse", "grad_out", "gate", "mask", "score_bias", "grad_query", "grad_gate", "grad_score_bias"), "bh"),
              **dict.fromkeys(("key", "value", "grad_key", "grad_value"), "bk"),
              **dict.fromkeys(("alibi_slopes", "sinks", "head_gate", "grad_alibi_slopes", "grad_sinks"), "h"),
              **dict.fromkeys(("kv_lengths", "position_offsets", "positions_q", "positions_kv"), "b")}


def forward_results(task: Task, arguments: Arrays, shape: Shape) -> Arrays:
    """out and lse of the forward kernel with its default tiling, and a gradient of out."""
    if task.fields["op"] == LINEAR_BACKWARD:
        return {}
    words = [word for word in shlex.split(task.problem) if not word.startswith("--grad-")]
    words[words.index("--op") + 1] = "sdpa"
    kernel = _core.kernel_of_flags([*words, "--lse", "--target", task.target, "--no-tuned"])
    fields, batch = task.fields, shape.batch
    out = numpy.zeros((batch, fields["num_heads"], shape.seq_len_q, fields["head_dim_v"]), storage_of(fields))
    lse = numpy.zeros(out.shape[:3], numpy.float32)
    kernel.run({**arguments, **inputs.expression_tensors(kernel.declarations, fields, shape), "out": out, "lse": lse}, None)
    grad_out = numpy.random.default_rng(9).standard_normal(out.shape, numpy.float32).astype(out.dtype)
    return {"out": out, "lse": lse, "grad_out": grad_out}


def flat(tensors: Arrays) -> numpy.ndarray:
    """The results of a call, one after another, in float64."""
    return numpy.concatenate([x.astype(numpy.float64).ravel() for name, x in tensors.items() if name.startswith("grad_") and name != "grad_out"])


def expected(fields: dict[str, int], shape: Shape, arguments: Arrays) -> Expected:
    """The rule of the tests, with the largest gradient and the largest error of the plain formula in a tensor in place of a head."""
    storage = storage_of(fields)
    exact = _compute(fields, shape, arguments, numpy.float64, whole)
    with numpy.errstate(over="ignore"):
        plain = _compute(fields, shape, arguments, numpy.float32, lambda x: x.astype(storage).astype(numpy.float32))
    allowed = {}
    for name, truth in exact.items():
        error, size = float(numpy.abs(plain[name] - truth).max(initial=0)), numpy.abs(truth)
        rounding = numpy.fmax(2 * error, ROUNDING[fields["dtype"]] * size) if fields["dtype"] else 4 * error
        allowed[name] = 1e-5 * max(1.0, float(size.max(initial=0))) + 5e-6 * size + rounding
    return Expected(numpy.empty(0, int), flat(exact), flat(allowed))


def _compute(fields: dict[str, int], shape: Shape, arguments: Arrays, dtype: Any, cut: Cut) -> Arrays:
    """Every result. cut() rounds what the plain formula keeps: weights, their gradients, those of scores, and results."""
    if fields["op"] == LINEAR_BACKWARD:
        x, weight, gradient = (arguments[name].astype(dtype) for name in ("input", "weight", "grad_out"))
        found = {"grad_input": cut(gradient @ weight), "grad_weight": cut(gradient.T @ x)}
        return {**found, "grad_bias": gradient.sum(0)} if fields["bias"] else found
    totals = {name: numpy.zeros(x.shape, dtype) for name, x in inputs.outputs_of(fields, shape).items()}
    for b in range(shape.batch):
        for h in range(fields["num_heads"]):
            at = {"b": b, "h": h, "k": h * fields["num_kv_heads"] // fields["num_heads"]}
            for name, part in _head(fields, shape, {name: _slice(name, x, at) for name, x in arguments.items()}, dtype, cut):
                total = _slice(name, totals[name], at)
                total += part.sum(tuple(i for i in range(part.ndim) if total.shape[i] < part.shape[i]), keepdims=True)
    return {name: cut(x) for name, x in totals.items()}


def _slice(name: str, x: Any, at: dict[str, int]) -> Any:
    """The part of a tensor that belongs to a head, with all its dimensions."""
    for i, letter in enumerate(DIMENSIONS.get(name, "")):
        first = at[letter] if x.shape[i] > 1 else 0
        x = x[(slice(None),) * i + (slice(first, first + 1),)]
    return x


def _head(fields: dict[str, int], shape: Shape, a: Arrays, dtype: Any, cut: Cut) -> Iterator[tuple[str, numpy.ndarray]]:
    """The results of one head of one batch row, by name; what heads share is to be added up."""
    rows, lengths = numpy.arange(shape.seq_len_q), (shape.seq_len_q, shape.seq_len_kv)
    given = {"query": a["query"].astype(dtype), "key": a["key"].astype(dtype)}
    given["value"] = given["key"][..., :fields["head_dim_v"]] if fields["value_in_key"] else a["value"].astype(dtype)
    query, key = (rotated_heads(fields, a, of, normalised_heads(fields, a, of, given[of], 0, dtype), rows, lengths, dtype) for of in ("query", "key"))
    value = normalised_heads(fields, a, "value", given["value"], 0, dtype)
    seen, add = pairs(fields, a, 1, rows, lengths, dtype)
    scale, cap, lse = dtype(fields["head_dim"]) ** dtype(-0.5), dtype(a.get("softcap", 0.0)), a["lse"].astype(dtype)[..., None]
    scores = query @ key.swapaxes(-1, -2) * scale
    bent = numpy.tanh(scores / cap) if cap else numpy.zeros_like(scores)
    seen = seen & numpy.isfinite(lse)
    logits = (cap * bent if cap else scores) + add
    weights = cut(numpy.exp(numpy.where(seen, logits - numpy.where(numpy.isfinite(lse), lse, 0), -numpy.inf)))
    gradient, out = (a[name].astype(dtype) for name in ("grad_out", "out"))
    gate = sigmoid(a["gate"], dtype) if "gate" in a else dtype(1)
    before_gates = gradient * gate * (a["head_gate"].astype(dtype)[:, None, None] if "head_gate" in a else dtype(1))
    delta = (gradient * out).sum(-1, keepdims=True)
    of_logits = weights * (cut(before_gates @ value.swapaxes(-1, -2)) - delta)
    of_scores = cut(of_logits * (1 - bent * bent)) * scale
    of_value = _before_norm(fields, a, "value", given["value"], weights.swapaxes(-1, -2) @ before_gates, dtype)[0]
    for of, dy in (("query", of_scores @ key), ("key", of_scores.swapaxes(-1, -2) @ query)):
        dy = rotated_heads(fields, a, of, dy, rows, lengths, dtype, back=True)
        dx, factors = _before_norm(fields, a, of, given[of], dy, dtype)
        if of == "key" and fields["value_in_key"]:
            dx[..., :fields["head_dim_v"]] += of_value
        yield "grad_" + of, dx
        if fields["grad_%s_norm" % of]:
            yield "grad_%s_norm_weight" % of, (dy * factors).sum((0, 1, 2))
            if _kind(fields, of) == "layer":
                yield "grad_%s_norm_bias" % of, dy.sum((0, 1, 2))
    if not fields["value_in_key"]:
        yield "grad_value", of_value
    if fields["grad_score_bias"]:
        yield "grad_score_bias", of_logits
    if fields["grad_alibi"]:
        place = positions(*lengths, a.get("kv_lengths"), fields["causal"] != 2, a.get("position_offsets"), 1)
        yield "grad_alibi_slopes", -(of_logits * numpy.abs(place[:, None, :, None] - numpy.arange(lengths[1]))).sum((0, 2, 3))
    if fields["grad_sinks"]:
        yield "grad_sinks", -numpy.where(numpy.isfinite(lse), numpy.exp(a["sinks"].astype(dtype)[:, None, None] - lse) * delta, 0).sum((0, 2, 3))
    if fields["grad_gate"]:
        yield "grad_gate", gradient * out * (1 - gate)


def _kind(fields: dict[str, int], of: str) -> str:
    return ("rms" if fields["value_norm"] else "none") if of == "value" else _core.problem_fields[of + "_norm"][fields[of + "_norm"]]


def _before_norm(fields: dict[str, int], a: Arrays, of: str, x: numpy.ndarray, dy: numpy.ndarray, dtype: Any) -> tuple[numpy.ndarray, numpy.ndarray]:
    """(the gradient of x, x before weight and bias), where dy is that of the result of the norm."""
    kind = _kind(fields, of)
    if kind == "none":
        return dy, x
    x = x - x.mean(-1, keepdims=True) if kind == "layer" else x
    factor = 1 / numpy.sqrt((x * x).mean(-1, keepdims=True) + dtype(a["norm_epsilon"]))
    weight = a[of + "_norm_weight"].astype(dtype) if of + "_norm_weight" in a else dtype(kind != "rms_plus_one")
    g, before = dy * (1 + weight if kind == "rms_plus_one" else weight), x * factor
    rest = g - before * (g * before).mean(-1, keepdims=True)
    return factor * (rest - g.mean(-1, keepdims=True) if kind == "layer" else rest), before
