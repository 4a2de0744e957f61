"""polyhead.sdpa_backward and polyhead.linear_backward: gradients of an attention call and of a linear layer."""
from __future__ import annotations

import math
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from . import _arrays, attention, options
from .error import Error, refuse, renamed
from .expressions import text_of
from .kernel import kernel_of

# What sdpa_backward() calls the gradients that are asked for: field of the problem, argument of the call, of what.
RETURNED = {"bias": ("grad_score_bias", "grad_score_bias", "bias"), "alibi_slopes": ("grad_alibi", "grad_alibi_slopes", "alibi_slopes"),
            "sinks": ("grad_sinks", "grad_sinks", "sinks"), "gate": ("grad_gate", "grad_gate", "gate"),
            **{of + kind: ("grad_" + of, "grad_" + of + kind, of + kind) for of in ("query_norm", "key_norm") for kind in ("_weight", "_bias")}}


def sdpa_backward(grad_out: Any, query: Any, key: Any, value: Any, out: Any, lse: Any, attn_mask: Any = None, *, is_causal: bool = False,
                  causal_alignment: str = "top_left", scale: Optional[float] = None, kv_lengths: Any = None,
                  window: tuple[int, int] = (-1, -1), softcap: float = 0.0, bias: Any = None, alibi_slopes: Any = None, sinks: Any = None,
                  layout: str = "bhsd", num_heads: Optional[int] = None, rope: Optional[tuple[Any, Any]] = None,
                  rope_interleaved: bool = False, rope_trailing: bool = False, rope_sections: Optional[str] = None,
                  sections: Optional[Sequence[int]] = None, positions_q: Any = None, positions_kv: Any = None, position_offsets: Any = None,
                  head_gate: Any = None, expression: Union[None, str, Callable[..., Any]] = None,
                  tensors: Optional[Mapping[str, Any]] = None, cu_seqlens_q: Any = None, cu_seqlens_kv: Any = None, gate: Any = None,
                  query_norm: Optional[str] = None, key_norm: Optional[str] = None, value_norm: bool = False, query_norm_weight: Any = None,
                  query_norm_bias: Any = None, key_norm_weight: Any = None, key_norm_bias: Any = None, norm_epsilon: float = 1e-6,
                  dropout_p: float = 0.0, dropout_seed: int = 0, dropout_offset: int = 0, return_grads: Sequence[str] = (),
                  device: Any = None) -> tuple[Any, ...]:
    """The gradients of query, key and value, from grad_out, the gradient of out. B batch, H heads, H_kv key/value heads, T_q and T_kv lengths.

    grad_out [B,H,T_q,d_v], query [B,H,T_q,d], key [B,H_kv,T_kv,d], value [B,H_kv,T_kv,d_v]; out [B,H,T_q,d_v] and lse [B,H,T_q] are what
    polyhead.sdpa(..., return_lse=True) returned. The other arguments are those of that call, and mean the same.

    Returns (grad_query, grad_key, grad_value), new arrays of the shape and dtype of query, key and value; with return_grads, of the names
    "bias", "alibi_slopes", "sinks", "gate", "query_norm_weight", "query_norm_bias", "key_norm_weight" and "key_norm_bias", those too, in
    that order, of the shapes of what they are gradients of, and then those of tensors of the expression, by their names and in the order
    of return_grads. Gradients of pairs that do not take part, of rows that see no key and of keys that nobody sees are 0. Sums are
    float32; 16-bit gradients are rounded once.
    """
    given = locals()
    options.check("sdpa_backward", given)
    o = {**_ONLY_FORWARD, **given}
    for name in ("grad_out", "lse", "return_grads"):
        del o[name]
    packed = cu_seqlens_q is not None
    shortest, longest = attention.add_batch_of_packed(o)
    missing = 1 if packed else attention.add_leading_dimensions(o)
    if missing:
        grad_out, lse = grad_out[(None,) * missing], lse[(None,) * missing]
    sizes = attention.sizes_of(o)
    on = _arrays.device_of(o["query"], device)
    fields, arguments = attention.problem_of(o, sizes, on)
    fields["op"] = options.OPS["sdpa_backward"]
    gradients = [_arrays.empty(o[name], o[name].shape) for name in ("query", "key", "value")]
    arguments.update(zip(("grad_query", "grad_key", "grad_value"), gradients))
    arguments.update(out=o["out"], lse=lse, grad_out=grad_out)
    others = _add_others(o, return_grads, fields, arguments)
    if longest < 0:
        shortest = longest = sizes.seq_len_q
    kernel = kernel_of(fields, on, shortest, longest)
    try:
        kernel.run(arguments, on, layout)
    except Error as error:
        raise renamed(error, attention.WORDS) from None
    return tuple(x[(0,) * missing] if missing else x for x in gradients) + tuple(others)


def _add_others(o: dict[str, Any], names: Sequence[str], fields: dict[str, Any], arguments: dict[str, Any]) -> list[Any]:
    """The gradients that are asked for, in the order of RETURNED, then those of tensors of the expression."""
    tables = {name: array for name, array in (o["tensors"] or {}).items() if name not in RETURNED or o[RETURNED[name][2]] is None}
    for name in names:
        if name not in RETURNED and name not in tables:
            raise refuse("return_grads: found %r, expected %s" % (name, options.one_of(*RETURNED, *tables).expected))
    others = []
    for name, (field, argument, of) in RETURNED.items():
        if name not in names or name in tables:
            continue
        if o[of] is None:
            raise refuse("return_grads: found %s without %s, expected both" % (name, of), "WRONG_OPERATION")
        tensor = arguments["score_bias"] if name == "bias" else arguments[of]
        in_storage = name == "gate" or (name == "bias" and fields.get("additive_in_storage"))
        fields[field] = 1
        arguments[argument] = _arrays.empty(o["query"], tensor.shape, None if in_storage else "float32")
        others.append(arguments[argument])
    for of in ("query_norm", "key_norm"):  # a kernel writes those of weight and bias
        for kind in ("_weight", "_bias") if o[of] == "layer" else ("_weight",):
            if "grad_" + of in fields and "grad_" + of + kind not in arguments:
                arguments["grad_" + of + kind] = _arrays.empty(o["query"], (fields["head_dim"],), "float32")
    wanted = [name for name in dict.fromkeys(names) if name in tables]
    if wanted:
        if callable(o["expression"]):
            fields["expression"] = text_of(o["expression"], o["tensors"], wanted)
        fields["expression"] += "".join("\ngrad %s" % name for name in wanted)
        arguments["gradients"] = {name: _arrays.empty(o["query"], tables[name].shape, "float32") for name in wanted}
        others.extend(arguments["gradients"].values())
    return others


def linear_backward(grad_out: Any, input: Any, weight: Any, bias: bool = False) -> tuple[Any, ...]:
    """The gradients of a linear layer on the CPU, out = input @ weight.T + bias, from grad_out, the gradient of out.

    grad_out [...,N], input [...,K]; weight [N,K] as nn.Linear stores it. bias: the layer has one.

    Returns (grad_input, grad_weight), new arrays of the shape and dtype of input and weight; with bias (grad_input, grad_weight, grad_bias),
    of which the last is float32 [N]. Sums are float32; 16-bit gradients are rounded once.
    """
    options.check("linear_backward", locals())
    if len(weight.shape) != 2:
        raise refuse("weight: rank %d, expected 2: [out_features, in_features]" % len(weight.shape), "WRONG_SHAPE")
    outputs, inputs = weight.shape
    fields = {"op": options.OPS["linear_backward"], "embed_dim": inputs, "out_features": outputs, "bias": int(bias),
              "dtype": _arrays.storage_on_cpu(input, grad_out)}
    if _arrays.storage_on_cpu(input, grad_out, weight) != fields["dtype"]:
        fields["f32_weights"] = 1
    rows = math.prod(input.shape[:-1])
    gradients = [_arrays.empty(input, input.shape), _arrays.empty(weight, weight.shape)]
    arguments = {name: _rows_of(name, x) for name, x in (("input", input), ("grad_out", grad_out), ("grad_input", gradients[0]))}
    arguments.update(weight=weight, grad_weight=gradients[1])
    if bias:
        gradients.append(_arrays.empty(weight, (outputs,), "float32"))
        arguments["grad_bias"] = gradients[2]
    kernel_of(fields, None, rows).run(arguments, None, "bhsd")
    return tuple(gradients)


def _rows_of(name: str, array: Any) -> Any:
    """The same memory, or a copy of an array that has no such view, as [rows, width]; what has no rows is left to the runtime."""
    if len(array.shape) in (0, 2):
        return array
    if not hasattr(array, "reshape"):
        raise refuse("%s: rank %d, expected 2 of an array without reshape()" % (name, len(array.shape)), "WRONG_SHAPE")
    return array.reshape(math.prod(array.shape[:-1]), array.shape[-1])


# Arguments of sdpa() that a backward call has not, as they are left out.
_ONLY_FORWARD: dict[str, Any] = {"past_key": None, "past_value": None, "key_scales": None, "value_scales": None, "return_present": False}
