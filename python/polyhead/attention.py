"""polyhead.sdpa: attention of given query, key and value, with every mask, modifier and output of the runtime."""
from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence, Union

import numpy

from . import _arrays, _core, options
from .error import Error, refuse, renamed
from .expressions import text_of
from .kernel import kernel_of
from .past import concatenate

# What the runtime calls arguments that have other names here.
WORDS = {"mask": "attn_mask", "score_bias": "bias", "softmax_scale": "scale", "window_left": "window", "window_right": "window"}
SCORES = {"scaled": 1, "capped": 2, "logits": 3}  # polyhead_scores; the fourth kind is the weights
TIME_AXIS = {"bhsd": -2, "bshd": -3, "bsd": -2}


def sdpa(query: Any, key: Any, value: Any, attn_mask: Any = None, *, is_causal: bool = False, causal_alignment: str = "top_left",
         scale: Optional[float] = None, kv_lengths: Any = None, window: tuple[int, int] = (-1, -1), softcap: float = 0.0, bias: Any = None,
         alibi_slopes: Any = None, sinks: Any = None, past_key: Any = None, past_value: Any = None, layout: str = "bhsd",
         return_lse: bool = False, return_weights: Union[bool, str] = False, out: Any = None, num_heads: Optional[int] = None,
         rope: Optional[tuple[Any, Any]] = None, rope_interleaved: bool = False, rope_trailing: bool = False,
         rope_sections: Optional[str] = None, sections: Optional[Sequence[int]] = None,
         positions_q: Any = None, positions_kv: Any = None, position_offsets: Any = None, head_gate: Any = None, expression: Union[None, str, Callable[..., Any]] = None,
         tensors: Optional[Mapping[str, Any]] = None, return_scores: Optional[str] = None, return_present: bool = False,
         page_table: Any = None, cu_seqlens_q: Any = None, cu_seqlens_kv: Any = None, key_scales: Any = None, value_scales: Any = None,
         gate: Any = None, query_norm: Optional[str] = None, key_norm: Optional[str] = None, value_norm: bool = False,
         query_norm_weight: Any = None, query_norm_bias: Any = None, key_norm_weight: Any = None, key_norm_bias: Any = None,
         norm_epsilon: float = 1e-6, dropout_p: float = 0.0, dropout_seed: int = 0, dropout_offset: int = 0, device: Any = None, precision: str = "ieee") -> Any:
    """softmax(scale * query key^T + mask) value, per head. B batch, H heads, H_kv key/value heads, T_q and T_kv lengths.

    query [B,H,T_q,d], key [B,H_kv,T_kv,d], value [B,H_kv,T_kv,d_v] -> out [B,H,T_q,d_v]. H is a multiple of H_kv. layout "bshd":
    [B,T,H,d]; "bsd": [B,T,H*d] with num_heads. Leading dimensions may be left out with "bhsd". Arrays: numpy, or DLPack.
    float32, float16 and bfloat16 are used as they are if query, key, value and out have the same. Otherwise the CPU converts to float32.

    attn_mask         bool (True takes part) or float (added), broadcast as [B,H,T_q,T_kv]
    is_causal         query q sees keys up to its position p: q, or with causal_alignment "bottom_right" q + kv_length - T_q
    kv_lengths        int [B]: the number of valid keys of each batch row
    window            (left, right): keys p - left .. p + right take part, -1 is unbounded
    softcap           scores become softcap * tanh(score / softcap)
    bias              float, broadcast as [B,H,T_q,T_kv], is added, also together with a mask
    alibi_slopes      float [H] or [B,H]: -slope * |p - key| is added
    sinks             float [H]: a logit of each head that takes part in the softmax without a value
    past_key, _value  are put before key and value; the positions of the queries start after them
    page_table        int [B, max_pages]: key and value are pages [pages,H_kv,page_size,d] (with "bshd" [pages,page_size,H_kv,d]), and key
                      n of batch row b is row n % page_size of page page_table[b][n // page_size]. Give kv_lengths, too: entries behind
                      the valid keys are not read. page_size is a power of two
    key_scales        float32 [B,H_kv,T_kv,n], with page_table [pages,H_kv,page_size,n] (in the layout of key), and value_scales likewise:
                      key and value are int8, and entry e of a row counts as its integer times scale e * n // d of the row. n is 1, d / 32
                      or d / 64, the same number of entries for key and value. query and out keep their dtype
    cu_seqlens_q      int [B+1], from 0 to the number of all queries: packed tokens of B sequences. query, out and lse lose their B:
                      [H,total,d], with "bshd" [total,H,d]. Sequence b has queries cu_seqlens_q[b] up to cu_seqlens_q[b+1]
    cu_seqlens_kv     the same for key and value; without it they have a batch row for each sequence, or pages. Other arrays over queries
                      or keys have all tokens in that dimension, and 1 in place of B
    rope              (cos, sin), each [P, rotary_dim / 2]; rotates the pairs (i, i + rotary_dim / 2), with rope_interleaved (2i, 2i + 1),
                      of the leading rotary_dim entries, with rope_trailing of the trailing ones
    positions_q, _kv  int [B,T_q], [B,T_kv]: rows of the rope tables; position_offsets int [B] is added to p
    rope_sections     "contiguous", "interleaved" or "parts": pairs take their positions from two or three directions, which have sections=
                      (16, 24, 24) pairs. positions_q and positions_kv are then [B,S,T_q] and [B,S,T_kv], S = 2 or 3
    gate              [B,H,T_q,d_v], or [B,H,T_q,1], in the layout of query: its sigmoid is a factor of out; head_gate float [H] is one, too
    query_norm        "rms" (x / sqrt(mean(x^2) + norm_epsilon) * weight), "rms_plus_one" (the factor is 1 + weight) or "layer" ((x - mean)
                      / sqrt(variance + norm_epsilon) * weight + bias), of each head of query before its rotation; key_norm the same of key.
                      query_norm_weight, query_norm_bias, key_norm_weight, key_norm_bias: float [d]; left out, they change nothing
    value_norm        value is divided by the root of its mean square, without a weight
    dropout_p         each weight is 0 with this probability, by dropout_seed and dropout_offset, or divided by 1 - p; in out alone
    expression        text of docs/guides/expressions.md or a function (polyhead.expressions), with tensors={name: array}

    Returns out, or a tuple: out, lse [B,H,T_q] (return_lse), weights [B,H,T_q,T_kv] (return_weights) or their mean over heads
    [B,T_q,T_kv] (return_weights="mean"), scores [B,H,T_q,T_kv] (return_scores "scaled", "capped" or "logits"), present_key and
    present_value (return_present). out has query's dtype; lse, weights and scores are float32. out= is an array to write to.
    device= runs numpy arrays on "cuda" or "opencl:1". precision="tf32x3": GPUs may multiply float32 as three products of tf32.
    """
    given = locals()
    options.check("sdpa", given)
    call = _prepare(given)
    _run(call)
    return call.results[0] if len(call.results) == 1 else call.results


def explain(query: Any, key: Any, value: Any, attn_mask: Any = None, **words: Any) -> str:
    """Which kernel and variant sdpa() runs for these arguments: the generate line, then why each variant was chosen or not."""
    bound = _SIGNATURE.bind(query, key, value, attn_mask, **words)
    bound.apply_defaults()
    options.check("sdpa", bound.arguments)
    call = _prepare(dict(bound.arguments))
    line = "polyhead generate NAME %s\n" % _core.generate_flags(call.kernel.problem)
    return line + call.kernel.explain(call.arguments, call.device, call.layout)


_SIGNATURE = inspect.signature(sdpa)
_sdpa = sdpa  # with every argument


@functools.wraps(_sdpa)
def sdpa(*arguments: Any, **keywords: Any) -> Any:  # to bind thirty keywords takes as long as a part of a small kernel
    if len(arguments) == 3 and keywords.keys() <= _PLAIN_WORDS:
        causal, out = keywords.get("is_causal", False), keywords.get("out")
        if causal is False or causal is True:
            query = arguments[0]
            device = None if type(query) is numpy.ndarray else _arrays.device_of(query)
            result = _core.plain_call(*arguments, causal, out, device)
            return _run_plain(*arguments, causal, out) if result is None else result
    return _sdpa(*arguments, **keywords)


_PLAIN_WORDS = frozenset(("is_causal", "out"))


def _run_plain(query: Any, key: Any, value: Any, is_causal: bool, out: Any) -> Any:
    """sdpa() with these arguments alone; the core keeps the form of the call, if its arrays are NumPy's, or on a device, of one type that the kernel has, too."""
    bound = _SIGNATURE.bind(query, key, value, is_causal=is_causal, out=out)
    bound.apply_defaults()
    options.check("sdpa", bound.arguments)
    call = _prepare(dict(bound.arguments))
    _run(call)
    result = call.results[0]
    if len(query.shape) == 4 and call.arguments["query"] is query:
        _core.keep_plain(call.kernel, query, key, value, is_causal, result, out is not None, call.device)
    return result


class _Call(NamedTuple):
    """Everything that a call needs, and what it returns."""

    kernel: _core.Kernel
    arguments: dict[str, Any]
    device: Any
    layout: str
    results: tuple[Any, ...]


class _Sizes(NamedTuple):
    batch: int
    num_heads: int
    num_kv_heads: int
    seq_len_q: int
    seq_len_kv: int
    head_dim: int
    head_dim_v: int


def _run(call: _Call) -> None:
    try:
        call.kernel.run(call.arguments, call.device, call.layout)
    except Error as error:
        raise renamed(error, WORDS) from None


def _prepare(o: dict[str, Any]) -> _Call:
    """Makes the kernel and its arguments from the arguments of sdpa()."""
    shortest, longest = add_batch_of_packed(o)
    missing = 1 if o["cu_seqlens_q"] is not None else add_leading_dimensions(o)
    present = _add_past(o)
    sizes = sizes_of(o)
    page_size = 0
    if o["page_table"] is not None:
        o["page_table"], page_size = _page_table(o), sizes.seq_len_kv
        sizes = sizes._replace(seq_len_kv=o["page_table"].shape[1] * page_size)
    device = _arrays.device_of(o["query"], o["device"])
    fields, arguments = problem_of(o, sizes, device)
    if page_size:
        fields["page_size"], arguments["page_table"] = page_size, o["page_table"]
    results = _add_outputs(o, sizes, fields, arguments)
    if missing:
        results = [x[(0,) * missing] for x in results]
    returned = tuple(results) + (present if o["return_present"] else ())
    if longest < 0:
        shortest = longest = sizes.seq_len_q
    return _Call(kernel_of(fields, device, shortest, longest), arguments, device, o["layout"], returned)


def add_batch_of_packed(o: dict[str, Any]) -> tuple[int, int]:
    """Packed arrays get a batch of 1. Returns the lengths of the shortest and the longest sequence of packed queries, or -1."""
    expected = 2 if o["layout"] == "bsd" else 3
    for begins, names in (("cu_seqlens_q", ("query", "gate", "out")), ("cu_seqlens_kv", ("key", "value", "key_scales", "value_scales"))):
        if o[begins] is None:
            continue
        o[begins] = _arrays.small(begins, o[begins], "int32")
        _refuse_past(o, begins)
        for name in names:
            if o[name] is not None:
                if len(o[name].shape) != expected:
                    raise refuse("%s: rank %d, expected %d, because its tokens are packed" % (name, len(o[name].shape), expected), "WRONG_SHAPE")
                o[name] = o[name][None]
    if o["cu_seqlens_q"] is None:
        return -1, -1
    begins = o["cu_seqlens_q"]
    lengths = numpy.diff((begins if isinstance(begins, numpy.ndarray) else numpy.from_dlpack(begins)).reshape(-1))
    lengths = lengths[lengths > 0]
    return (int(lengths.min()), int(lengths.max())) if lengths.size else (0, 0)


def add_leading_dimensions(o: dict[str, Any]) -> int:
    """[T,d] and [H,T,d] become [1,1,T,d] and [1,H,T,d]; returns how many dimensions were missing."""
    rank = len(o["query"].shape)
    if o["layout"] != "bhsd" or rank >= 4 or rank < 2:
        return 0
    for name in ("query", "key", "value", "past_key", "past_value", "key_scales", "value_scales", "gate", "out"):
        if o[name] is not None:
            if len(o[name].shape) != rank:
                raise refuse("%s: rank %d, expected %d, the rank of query" % (name, len(o[name].shape), rank), "WRONG_SHAPE")
            o[name] = o[name][(None,) * (4 - rank)]
    return 4 - rank


def _add_past(o: dict[str, Any]) -> tuple[Any, Any]:
    """Joins past and new keys, and past and new values; returns both. The positions of the queries start after the past."""
    if (o["past_key"] is None) != (o["past_value"] is None):
        raise refuse("past_key: found one of past_key and past_value, expected both or none", "NULL_POINTER")
    if o["past_key"] is not None:
        axis = TIME_AXIS[o["layout"]]
        _arrays.require_arrays(past_key=o["past_key"], past_value=o["past_value"])
        past, new = o["past_key"].shape[axis], o["key"].shape[axis]
        for name in ("key", "value"):
            o[name] = concatenate("past_" + name, o["past_" + name], o[name], axis)
        if o["kv_lengths"] is not None or o["query"].shape[axis] == new:
            o["causal_alignment"] = "bottom_right"
        elif o["position_offsets"] is None:
            o["causal_alignment"], o["position_offsets"] = "top_left", [past] * o["query"].shape[0]
    return o["key"], o["value"]


def _refuse_past(o: dict[str, Any], beside: str) -> None:
    """Past and new keys can be joined only where each batch row has its own, of equal lengths."""
    for name in ("past_key", "return_present"):
        if o[name] is not None and o[name] is not False:
            raise refuse("%s: found together with %s, expected one of them" % (name, beside), "WRONG_OPERATION")


def _page_table(o: dict[str, Any]) -> Any:
    _refuse_past(o, "page_table")
    table = _arrays.small("page_table", o["page_table"], "int32")
    if len(table.shape) != 2:
        raise refuse("page_table: rank %d, expected 2" % len(table.shape), "WRONG_SHAPE")
    return table


def sizes_of(o: dict[str, Any]) -> _Sizes:
    query, key, value = (tuple(o[name].shape) for name in ("query", "key", "value"))
    expected = 3 if o["layout"] == "bsd" else 4
    for name, shape in (("query", query), ("key", key), ("value", value)):
        if len(shape) != expected:
            raise refuse("%s: rank %d, expected %d" % (name, len(shape), expected), "WRONG_SHAPE")
    if o["layout"] == "bhsd":
        return _Sizes(query[0], query[1], key[1], query[2], key[2], query[3], value[3])
    if o["layout"] == "bshd":
        return _Sizes(query[0], query[2], key[2], query[1], key[1], query[3], value[3])
    heads = o["num_heads"]
    if not isinstance(heads, int) or heads < 1:
        raise refuse("num_heads: found %r, expected the number of query heads, which layout bsd needs" % (heads,))
    head_dim = _divided("query", query[2], heads, "num_heads")
    kv_heads = _divided("key", key[2], head_dim, "head_dim") if head_dim else heads
    return _Sizes(query[0], heads, kv_heads, query[1], key[1], head_dim, _divided("value", value[2], kv_heads, "num_kv_heads"))


def _divided(name: str, width: int, by: int, what: str) -> int:
    if by < 1 or width % by:
        raise refuse("%s: dimension 2 is %d, expected a multiple of %s %d" % (name, width, what, by), "WRONG_SHAPE")
    return width // by


def add_precision(fields: dict[str, Any], precision: str, device: Any) -> None:
    """How a device may multiply float32; a CPU multiplies it in one way."""
    if device is not None and precision != "ieee":
        fields["precision"] = _core.problem_fields["precision"].index(precision)


def problem_of(o: dict[str, Any], sizes: _Sizes, device: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of the problem that are not 0, and the tensors and numbers of the call."""
    fields = {"op": options.OPS["sdpa"], "num_heads": sizes.num_heads, "num_kv_heads": sizes.num_kv_heads, "head_dim": sizes.head_dim,
              "head_dim_v": sizes.head_dim_v}
    arguments = {name: o[name] for name in ("query", "key", "value", "cu_seqlens_q", "cu_seqlens_kv") if o[name] is not None}
    fields["dtype"] = _dtype_on_cpu(o) if device is None else _dtype_on_device(o["query"])
    add_precision(fields, o.get("precision", "ieee"), device)
    if o["scale"] is not None:
        arguments["softmax_scale"] = o["scale"]
    _add_scales(o, sizes, fields, arguments)
    _add_masks(o, sizes, fields, arguments)
    _add_modifiers(o, sizes, fields, arguments)
    _add_gate_and_norms(o, sizes, fields, arguments)
    if any(name in fields for name in ("causal", "window", "alibi", "rope", "position_offsets", "expression")):
        arguments["alignment"] = o["causal_alignment"]
    return fields, arguments


def _add_scales(o: dict[str, Any], sizes: _Sizes, fields: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Scales make a cache of int8; how many entries share one follows from their shapes."""
    if o["key_scales"] is None and o["value_scales"] is None:
        return
    for name in ("key_scales", "value_scales"):
        if o[name] is None:
            raise refuse("%s: missing, expected scales of both key and value" % name, "NULL_POINTER")
        _arrays.require_arrays(**{name: o[name]})
    _refuse_past(o, "key_scales")
    width = o["key_scales"].shape[-1] if o["key_scales"].shape else 0
    scales = width // sizes.num_kv_heads if o["layout"] == "bsd" else width
    if scales < 1 or sizes.head_dim % scales:
        raise refuse("key_scales: last dimension is %d, expected a divisor of head_dim %d" % (scales, sizes.head_dim), "WRONG_SHAPE")
    fields["int8_cache"] = 1
    if scales > 1:
        fields["scale_channels"] = sizes.head_dim // scales
    arguments.update(key_scales=o["key_scales"], value_scales=o["value_scales"])


def _dtype_on_cpu(o: dict[str, Any]) -> int:
    arrays = [o["query"]] if o["key_scales"] is not None else [o["query"], o["key"], o["value"]]
    if hasattr(o["out"], "dtype"):  # results for an out of another dtype than query's are rounded once, from float32
        arrays.append(o["out"])
    return _arrays.storage_on_cpu(*arrays)


def _dtype_on_device(query: Any) -> int:
    name = _arrays.dtype_name(query)
    if name not in _arrays.DTYPES:
        raise refuse("query: dtype %s on a device, expected %s" % (name, options.one_of(*_arrays.DTYPES).expected), "WRONG_DTYPE")
    return _arrays.DTYPES[name]


def _add_masks(o: dict[str, Any], sizes: _Sizes, fields: dict[str, Any], arguments: dict[str, Any]) -> None:
    if o["is_causal"]:
        fields["causal"] = 1  # each call gives the alignment
    if o["kv_lengths"] is not None:
        fields["kv_lengths"] = 1
        arguments["kv_lengths"] = _arrays.small("kv_lengths", o["kv_lengths"], "int32")
    if not isinstance(o["window"], (tuple, list)) or len(o["window"]) != 2:
        raise TypeError("window: found %r, expected (left, right)" % (o["window"],))
    if tuple(o["window"]) != (-1, -1):
        fields["window"] = 1
        arguments["window"] = o["window"]
    if o["attn_mask"] is not None:
        mask = _arrays.score_tensor("attn_mask", o["attn_mask"])
        fields["mask"] = 1 if _arrays.dtype_name(mask) == "bool" else 2
        fields["mask_broadcast"] = broadcast_bits(mask.shape, sizes.seq_len_q, sizes.seq_len_kv)
        arguments["mask"] = mask
    if o["bias"] is not None:
        bias = _arrays.score_tensor("bias", o["bias"])
        fields["score_bias"] = 1
        fields["score_bias_broadcast"] = broadcast_bits(bias.shape, sizes.seq_len_q, sizes.seq_len_kv)
        arguments["score_bias"] = bias
    _arrays.choose_additive_dtype(fields, arguments)


def broadcast_bits(shape: Any, seq_len_q: int, seq_len_kv: int) -> int:
    """POLYHEAD_BROADCAST_Q, _KV: the dimensions in which a mask has one element for all."""
    over_q = seq_len_q > 1 and (len(shape) < 2 or shape[-2] == 1)
    over_kv = seq_len_kv > 1 and (len(shape) < 1 or shape[-1] == 1)
    return over_q * 1 + over_kv * 2


def _add_modifiers(o: dict[str, Any], sizes: _Sizes, fields: dict[str, Any], arguments: dict[str, Any]) -> None:
    if o["softcap"] != 0.0:
        fields["softcap"] = 1
        arguments["softcap"] = o["softcap"]
    for name, field, dtype in (("alibi_slopes", "alibi", "float32"), ("sinks", "sinks", "float32"), ("head_gate", "head_gate", "float32"),
                               ("position_offsets", "position_offsets", "int32")):
        if o[name] is not None:
            fields[field] = 1
            arguments[name] = _arrays.small(name, o[name], dtype)
    if o["rope"] is not None:
        cos, sin = o["rope"]
        _arrays.require_arrays(rope_cos=cos, rope_sin=sin)
        fields["rope"] = _arrays.rope_of(o["rope_interleaved"], o["rope_trailing"])
        rotary_dim = 2 * cos.shape[-1]
        if rotary_dim != sizes.head_dim:
            fields["rotary_dim"] = rotary_dim
        number, pairs = _arrays.sections_of(o["rope_sections"], o["sections"])
        if number:
            fields.update(rope_sections=number, section_1=pairs[0], section_2=pairs[1], section_3=pairs[2])
        arguments.update(rope_cos=_arrays.small("rope_cos", cos, "float32"), rope_sin=_arrays.small("rope_sin", sin, "float32"))
    for name in ("positions_q", "positions_kv", "rope_sections", "sections"):
        if o[name] is not None and o["rope"] is None:
            what = "positions" if name.startswith("positions") else name
            raise refuse("%s: found without rope, expected both; only rope reads %s" % (name, what), "WRONG_OPERATION")
    for name in ("positions_q", "positions_kv"):
        if o[name] is not None:
            arguments[name] = _arrays.small(name, o[name], "int32")
    if o["dropout_p"] != 0.0:
        fields["dropout"] = 1
        arguments.update(dropout_p=o["dropout_p"], dropout_seed=o["dropout_seed"], dropout_offset=o["dropout_offset"])
    if o["expression"] is not None:
        tensors = o["tensors"] or {}
        fields["expression"] = o["expression"] if isinstance(o["expression"], str) else text_of(o["expression"], tensors)
        arguments["tensors"] = dict(tensors)  # separate from the arguments: a tensor may be named key or out


def _add_gate_and_norms(o: dict[str, Any], sizes: _Sizes, fields: dict[str, Any], arguments: dict[str, Any]) -> None:
    words = _core.problem_fields["gate"]
    if o["gate"] is not None:
        width = o["gate"].shape[-1] // (sizes.num_heads if o["layout"] == "bsd" else 1) if o["gate"].shape else 0
        fields["gate"] = words.index("heads" if width == 1 and sizes.head_dim_v != 1 else "entries")
        arguments["gate"] = o["gate"]
    for of in ("query", "key"):
        kind = o[of + "_norm"]
        if kind is not None:
            fields[of + "_norm"] = _core.problem_fields[of + "_norm"].index(kind)
        for name in (of + "_norm_weight", of + "_norm_bias"):
            if o[name] is not None:
                if kind is None or (kind != "layer" and name.endswith("bias")):
                    needed = of + ("_norm" if kind is None else "_norm 'layer'")
                    raise refuse("%s: found without %s, expected both" % (name, needed), "WRONG_OPERATION")
                arguments[name] = _arrays.small(name, o[name], "float32")
    if o["value_norm"]:
        fields["value_norm"] = 1
    if any(name in fields for name in ("query_norm", "key_norm", "value_norm")):
        arguments["norm_epsilon"] = o["norm_epsilon"]


def _add_outputs(o: dict[str, Any], sizes: _Sizes, fields: dict[str, Any], arguments: dict[str, Any]) -> list[Any]:
    """Makes the outputs that the caller did not give; returns all outputs of the call."""
    query, out = o["query"], o["out"]
    if out is None:
        width = sizes.head_dim_v * (sizes.num_heads if o["layout"] == "bsd" else 1)
        out = _arrays.empty(query, (*query.shape[:-1], width))
    arguments["out"] = out
    results = [out]

    def add(field: str, value: int, shape: tuple[int, ...]) -> None:
        fields[field] = value
        arguments[field] = _arrays.empty(query, shape, "float32")
        results.append(arguments[field])

    batch, heads, q, k = sizes.batch, sizes.num_heads, sizes.seq_len_q, sizes.seq_len_kv
    kind = o["return_scores"]
    if kind is not None and kind not in SCORES:
        raise refuse("return_scores: found %r, expected scaled, capped or logits" % (kind,))
    if o["return_lse"]:
        add("lse", 1, (batch, heads, q))
    if o["return_weights"] == "mean":
        add("weights_mean", 1, (batch, q, k))
    elif o["return_weights"]:
        if kind is not None:
            raise refuse("return_scores: found together with return_weights, expected one of them; both use the same output")
        add("scores", 4, (batch, heads, q, k))
    if kind is not None:
        add("scores", SCORES[kind], (batch, heads, q, k))
    return results
