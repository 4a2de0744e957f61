"""Arrays of one call: random, with every optional tensor that the problem takes, each of the type that the problem gives it."""
from __future__ import annotations

from typing import Any, Iterator

import numpy

from .. import _arrays, _core
from .problem import LINEAR, LINEAR_BACKWARD, MHA, SDPA, SDPA_BACKWARD, Shape

Arrays = dict[str, Any]
ENTRIES, LAYER = _core.problem_fields["gate"].index("entries"), _core.problem_fields["query_norm"].index("layer")
STORED = ("input", "query", "key", "value", "gate", "out", "grad_out")  # what a call has in the type of the problem; its other tensors are float32, int32 or bool


_FIELD_OF = {"dropout_p": "dropout"}  # where a number has another name; the epsilon is of all norms


def storage_of(fields: dict[str, int]) -> numpy.dtype[Any]:
    """float32, float16 or bfloat16."""
    name, = (name for name, number in _arrays.DTYPES.items() if number == fields["dtype"])
    return numpy.dtype(_arrays.numpy_dtype(name))


def arguments_of(fields: dict[str, int], shape: Shape) -> tuple[Arrays, Arrays]:
    """(tensors and numbers of a call, tensors to pack), by the names of polyhead_args."""
    arguments, weights = _inputs(fields, shape)
    storage = storage_of(fields)
    additive = {"score_bias", "mask"} if fields["additive_in_storage"] else set()
    weight = set() if fields["f32_weights"] else {"weight"}
    for name in arguments.keys() & {*STORED, *additive, *weight}:
        if arguments[name].dtype not in (bool, numpy.int8):  # masks, and keys of a cache of int8
            arguments[name] = arguments[name].astype(storage)
    for name, value in weights.items():  # biases are packed as float32
        if value.ndim == 2 and not fields["f32_weights"]:
            weights[name] = value.astype(storage)
    return arguments, weights


def outputs_of(fields: dict[str, int], shape: Shape) -> Arrays:
    """The tensors that a call writes."""
    found: Arrays = {}
    if fields["op"] in (SDPA_BACKWARD, LINEAR_BACKWARD):
        return {name: numpy.zeros(extents, dtype) for name, extents, dtype in _gradients(fields, shape)}
    if fields["op"] == LINEAR:
        out: tuple[int, ...] = (shape.seq_len_q, fields["out_features"])
    else:
        heads, (batch, seq_len_q, seq_len_kv) = fields["num_heads"], shape
        out = (batch, heads, seq_len_q, fields["head_dim_v"]) if fields["op"] == SDPA else (batch, seq_len_q, fields["embed_dim"])
        extents = {"lse": (heads, seq_len_q), "weights_mean": (seq_len_q, seq_len_kv), "scores": (heads, seq_len_q, seq_len_kv)}
        found = {name: numpy.zeros((batch, *size), numpy.float32) for name, size in extents.items() if fields[name]}
    return {"out": numpy.zeros(out, storage_of(fields)), **found}


def _gradients(fields: dict[str, int], shape: Shape) -> Iterator[tuple[str, tuple[int, ...], Any]]:
    """(name, extents, type) of each result of a backward call."""
    storage, (batch, rows, keys), floats = storage_of(fields), shape, numpy.float32
    if fields["op"] == LINEAR_BACKWARD:
        yield "grad_input", (rows, fields["embed_dim"]), storage
        yield "grad_weight", (fields["out_features"], fields["embed_dim"]), floats if fields["f32_weights"] else storage
        if fields["bias"]:
            yield "grad_bias", (fields["out_features"],), floats
        return
    heads, kv_heads, d, d_v = (fields[n] for n in ("num_heads", "num_kv_heads", "head_dim", "head_dim_v"))
    yield "grad_query", (batch, heads, rows, d), storage
    yield "grad_key", (batch, kv_heads, keys, d), storage
    if not fields["value_in_key"]:
        yield "grad_value", (batch, kv_heads, keys, d_v), storage
    if fields["grad_score_bias"]:
        pairs = _pair_extents(fields["score_bias_broadcast"], rows, keys)
        yield "grad_score_bias", (1, heads, *pairs), storage if fields["additive_in_storage"] else floats
    for name in [name for name, field in (("grad_alibi_slopes", "grad_alibi"), ("grad_sinks", "grad_sinks")) if fields[field]]:
        yield name, (heads,), floats
    if fields["grad_gate"]:
        yield "grad_gate", (batch, heads, rows, d_v if fields["gate"] == ENTRIES else 1), storage
    for of in [of for of in ("query", "key") if fields["grad_%s_norm" % of]]:
        for kind in ("weight", "bias") if fields[of + "_norm"] == LAYER else ("weight",):
            yield "grad_%s_norm_%s" % (of, kind), (d,), floats


def _inputs(fields: dict[str, int], shape: Shape) -> tuple[Arrays, Arrays]:
    """arguments_of() in float32."""
    rng = numpy.random.default_rng(7)

    def normal(*extents: int) -> numpy.ndarray:
        return rng.standard_normal(extents, numpy.float32)

    def matrix(rows: int, columns: int) -> numpy.ndarray:  # scaled so that sums stay near 1
        return normal(rows, columns) / numpy.float32(columns) ** numpy.float32(0.5)

    if fields["op"] == LINEAR:
        weights = {"out_proj": matrix(fields["out_features"], fields["embed_dim"])}
        if fields["bias"]:
            weights["out_bias"] = normal(fields["out_features"])
        return {"input": normal(shape.seq_len_q, fields["embed_dim"])}, weights
    if fields["op"] == LINEAR_BACKWARD:
        rows, width, out = shape.seq_len_q, fields["embed_dim"], fields["out_features"]
        return {"input": normal(rows, width), "weight": matrix(out, width), "grad_out": normal(rows, out)}, {}
    heads, kv_heads, d, d_v = (fields[n] for n in ("num_heads", "num_kv_heads", "head_dim", "head_dim_v"))
    weights = {}
    if fields["op"] == MHA:
        arguments = {"query": normal(shape.batch, shape.seq_len_q, fields["embed_dim"])}
        if fields["cross"]:
            arguments.update(key=normal(shape.batch, shape.seq_len_kv, fields["kdim"]), value=normal(shape.batch, shape.seq_len_kv, fields["vdim"]))
        rows = {"query": (heads * d, "embed_dim"), "key": (kv_heads * d, "kdim"), "value": (kv_heads * d_v, "vdim")}
        if fields["value_from_key"]:
            del rows["value"]
        if fields["gate"]:
            rows["gate"] = (heads * (d_v if fields["gate"] == ENTRIES else 1), "embed_dim")
        for name, (width, columns) in rows.items():
            weights[name] = matrix(width, fields[columns])
            if fields["bias"]:
                weights[name + "_bias"] = normal(width)
        weights["out_proj"] = matrix(fields["embed_dim"], heads * d_v)
        if fields["bias"]:
            weights["out_bias"] = normal(fields["embed_dim"])
    else:
        outermost, rows = shape.batch, shape.seq_len_kv
        arguments = {"query": normal(shape.batch, heads, shape.seq_len_q, d)}
        if fields["page_size"]:
            columns, rows = -(-shape.seq_len_kv // fields["page_size"]), fields["page_size"]
            outermost = shape.batch * columns
            arguments["page_table"] = rng.permutation(outermost).astype(numpy.int32).reshape(shape.batch, columns)
        arguments["key"] = normal(outermost, kv_heads, rows, d)
        if not fields["value_in_key"]:
            arguments["value"] = normal(outermost, kv_heads, rows, d_v)
        if fields["int8_cache"]:
            for name in [n for n in ("key", "value") if n in arguments]:
                arguments[name], arguments[name + "_scales"] = _integers(arguments[name], fields["scale_channels"])
    arguments.update(_features(fields, shape, rng, normal))
    return arguments, weights


def _integers(x: numpy.ndarray, channels: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """int8 and float32 scales [...,n], as append() makes them."""
    shared = x.reshape(*x.shape[:-1], -1, channels or x.shape[-1])
    scales = numpy.abs(shared).max(-1, keepdims=True) / numpy.float32(127)
    return numpy.rint(shared / scales).astype(numpy.int8).reshape(x.shape), scales[..., 0]


def _features(fields: dict[str, int], shape: Shape, rng: numpy.random.Generator, normal: Any) -> Arrays:
    heads, (batch, seq_len_q, seq_len_kv) = fields["num_heads"], shape
    found: Arrays = {}
    if fields["kv_lengths"]:
        found["kv_lengths"] = numpy.full(batch, seq_len_kv, numpy.int32)
    if fields["position_offsets"]:
        found["position_offsets"] = numpy.zeros(batch, numpy.int32)
    if fields["window"]:
        found["window"] = (256, 0)
    norms = fields["query_norm"] or fields["key_norm"] or fields["value_norm"]
    found.update({name: usual for name, usual in _core.usual_numbers.items() if fields.get(_FIELD_OF.get(name, name), norms)})
    if fields["mask"]:
        extents = _pair_extents(fields["mask_broadcast"], seq_len_q, seq_len_kv)
        found["mask"] = rng.random((1, 1, *extents)) < 0.9 if fields["mask"] == 1 else normal(1, 1, *extents)
    if fields["score_bias"]:
        found["score_bias"] = normal(1, heads, *_pair_extents(fields["score_bias_broadcast"], seq_len_q, seq_len_kv))
    if fields["alibi"]:
        found["alibi_slopes"] = (2.0 ** (-8.0 * numpy.arange(1, heads + 1) / heads)).astype(numpy.float32)
    if fields["sinks"]:
        found["sinks"] = normal(heads)
    if fields["head_gate"]:
        found["head_gate"] = rng.random(heads, numpy.float32)
    if fields["gate"] and fields["op"] in (SDPA, SDPA_BACKWARD):
        found["gate"] = normal(batch, heads, seq_len_q, fields["head_dim_v"] if fields["gate"] == ENTRIES else 1)
    for of, of_heads in (("query", heads), ("key", fields["num_kv_heads"])):
        if fields[of + "_norm"]:
            found[of + "_norm_weight"] = rng.random(fields["head_dim"] * (of_heads if fields["norm_of_projection"] else 1), numpy.float32)
    if fields["rope"]:
        half = fields["rotary_dim"] // 2
        angle = numpy.arange(seq_len_q + seq_len_kv)[:, None] * 10000.0 ** (-numpy.arange(half) / half)
        found.update(rope_cos=numpy.cos(angle).astype(numpy.float32), rope_sin=numpy.sin(angle).astype(numpy.float32))
        if fields["rope_sections"]:  # without positions all directions would have the same
            for name, length in (("positions_q", seq_len_q), ("positions_kv", seq_len_kv)):
                found[name] = rng.integers(0, len(angle), (batch, 3 if fields["section_3"] else 2, length), numpy.int32)
    return found


def _pair_extents(broadcast: int, seq_len_q: int, seq_len_kv: int) -> tuple[int, int]:
    return (1 if broadcast & 1 else seq_len_q, 1 if broadcast & 2 else seq_len_kv)


def expression_tensors(declarations: list[tuple[str, str, tuple[int, ...]]], fields: dict[str, int], shape: Shape) -> Arrays:
    """The tensors that the expression declares. Extents: above 0 a number of elements, 0 free, below 0 a dimension of the call."""
    rng = numpy.random.default_rng(8)
    extents = {0: shape.seq_len_q + shape.seq_len_kv, -1: shape.batch, -2: fields["num_heads"], -3: shape.seq_len_q, -4: shape.seq_len_kv}
    found: Arrays = {}
    for name, dtype, dimensions in declarations:
        size = tuple(extents.get(n, n) for n in dimensions) or (1,)
        if dtype.startswith("f"):
            found[name] = rng.standard_normal(size, numpy.float32)
        else:
            found[name] = rng.integers(0, 2, size).astype(bool if dtype == "bool" else numpy.int32)
    return found
