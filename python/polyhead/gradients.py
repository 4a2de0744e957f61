"""polyhead.sdpa_backward and polyhead.linear_backward: gradients of an attention call and of a linear layer."""
from __future__ import annotations

import math
from typing import Any, Optional

from . import _arrays, attention, options
from .error import Error, refuse, renamed
from .kernel import kernel_of


def sdpa_backward(grad_out: Any, query: Any, key: Any, value: Any, out: Any, lse: Any, attn_mask: Any = None, *, is_causal: bool = False,
                  causal_alignment: str = "top_left", scale: Optional[float] = None, kv_lengths: Any = None,
                  window: tuple[int, int] = (-1, -1), softcap: float = 0.0, bias: Any = None, alibi_slopes: Any = None, sinks: Any = None,
                  layout: str = "bhsd", num_heads: Optional[int] = None, position_offsets: Any = None, cu_seqlens_q: Any = None,
                  cu_seqlens_kv: Any = None, device: Any = None) -> tuple[Any, Any, Any]:
    """The gradients of query, key and value, from grad_out, the gradient of out. B batch, H heads, H_kv key/value heads, T_q and T_kv lengths.

    grad_out [B,H,T_q,d_v], query [B,H,T_q,d], key [B,H_kv,T_kv,d], value [B,H_kv,T_kv,d_v]; out [B,H,T_q,d_v] and lse [B,H,T_q] are what
    polyhead.sdpa(..., return_lse=True) returned. The other arguments are those of that call, and mean the same.

    Returns (grad_query, grad_key, grad_value), new arrays of the shape and dtype of query, key and value. Gradients of pairs that do not take
    part, of rows that see no key and of keys that nobody sees are 0. Sums are float32; 16-bit gradients are rounded once.
    """
    given = locals()
    options.check("sdpa_backward", given)
    o = {**_UNUSED, **given}
    del o["grad_out"], o["lse"]
    packed = cu_seqlens_q is not None
    grad_out, lse = (x[None] for x in (grad_out, lse)) if packed else (grad_out, lse)
    shortest, longest = attention.add_batch_of_packed(o)
    missing = 1 if packed else attention.add_leading_dimensions(o)
    if missing and not packed:
        grad_out, lse = grad_out[(None,) * missing], lse[(None,) * missing]
    sizes = attention.sizes_of(o)
    on = _arrays.device_of(o["query"], device)
    fields, arguments = attention.problem_of(o, sizes, on)
    fields["op"] = 3  # polyhead_op
    gradients = {"grad_" + name: _arrays.empty(o[name], o[name].shape) for name in ("query", "key", "value")}
    arguments.update(out=o["out"], lse=lse, grad_out=grad_out, **gradients)
    if longest < 0:
        shortest = longest = sizes.seq_len_q
    kernel = kernel_of(fields, on, shortest, longest)
    try:
        kernel.run(arguments, on, layout)
    except Error as error:
        raise renamed(error, attention.WORDS) from None
    query_, key_, value_ = (x[(0,) * missing] if missing else x for x in gradients.values())
    return query_, key_, value_


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
    fields = {"op": 4, "embed_dim": inputs, "out_features": outputs, "bias": int(bias),  # polyhead_op
              "dtype": _arrays.storage_on_cpu(input, grad_out)}
    if _arrays.storage_on_cpu(input, grad_out, weight) != fields["dtype"]:
        fields["f32_weights"] = 1
    rows = math.prod(input.shape[:-1])
    gradients = [_arrays.empty(input, input.shape), _arrays.empty(weight, weight.shape)]
    arguments = dict(zip(("input", "grad_out", "grad_input"), (_rows_of(x) for x in (input, grad_out, gradients[0]))))
    arguments.update(weight=weight, grad_weight=gradients[1])
    if bias:
        gradients.append(_arrays.empty(weight, (outputs,), "float32"))
        arguments["grad_bias"] = gradients[2]
    kernel_of(fields, None, rows).run(arguments, None, "bhsd")
    return tuple(gradients)


def _rows_of(array: Any) -> Any:
    """The same memory, or a copy of an array that has no such view, as [rows, width]; what has no rows is left to the runtime."""
    return array if len(array.shape) < 3 and len(array.shape) != 1 else array.reshape(math.prod(array.shape[:-1]), array.shape[-1])


# Arguments of sdpa() that have no gradients yet: as they are left out.
_UNUSED: dict[str, Any] = dict.fromkeys(("past_key", "past_value", "rope", "rope_sections", "sections", "positions_q", "positions_kv", "head_gate",
                                         "expression", "tensors", "key_scales", "value_scales", "gate", "query_norm", "key_norm", "query_norm_weight",
                                         "query_norm_bias", "key_norm_weight", "key_norm_bias"), None)
_UNUSED.update(rope_interleaved=False, rope_trailing=False, value_norm=False, return_present=False)
