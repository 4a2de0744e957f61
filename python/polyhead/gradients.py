"""polyhead.sdpa_backward: the gradients of query, key and value of an attention call."""
from __future__ import annotations

from typing import Any, Optional

from . import _arrays, attention, options
from .error import Error, renamed
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


# Arguments of sdpa() that have no gradients yet: as they are left out.
_UNUSED: dict[str, Any] = dict.fromkeys(("past_key", "past_value", "rope", "rope_sections", "sections", "positions_q", "positions_kv", "head_gate",
                                         "expression", "tensors", "key_scales", "value_scales", "gate", "query_norm", "key_norm", "query_norm_weight",
                                         "query_norm_bias", "key_norm_weight", "key_norm_bias"), None)
_UNUSED.update(rope_interleaved=False, rope_trailing=False, value_norm=False, return_present=False)
