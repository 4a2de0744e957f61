"""polyhead.MultiheadAttention: the layer of torch.nn, computed by generated kernels, without torch."""
from __future__ import annotations

import threading
from typing import Any, Mapping, Optional

import numpy

from . import _arrays, _core, layer_backward, options
from .attention import add_precision, broadcast_bits
from .error import refuse
from .kernel import kernel_of


class MultiheadAttention:
    """Multi-head attention with projections, for weights of torch.nn.MultiheadAttention, batch first.

    D = embed_dim, d = D / num_heads. in_proj_weight is [D + 2 * H_kv * d, D]; with kdim or vdim other than D there are q_proj_weight
    [D,D], k_proj_weight [H_kv*d,kdim], v_proj_weight [H_kv*d,vdim] instead. With num_kv_heads < num_heads, heads share key/value heads.

    dtype "f32", "f16" or "bf16": of the packed weights, the inputs and the output. Inputs of another float dtype are converted to it on the
    CPU, and the output back. None: the dtype of the inputs, if all of them are float32, float16 or bfloat16, otherwise f32.

    precision="tf32x3": GPUs may multiply float32 as three products of tf32.
    """

    def __init__(self, embed_dim: int, num_heads: int, *, num_kv_heads: Optional[int] = None, bias: bool = True,
                 kdim: Optional[int] = None, vdim: Optional[int] = None, batch_first: bool = True, dtype: Optional[str] = None,
                 precision: str = "ieee") -> None:
        options.check("MultiheadAttention", {name: value for name, value in locals().items() if name != "self"})
        if not batch_first:
            raise refuse("batch_first: found False, expected True: tensors are [batch, seq_len, embed_dim]", "UNSUPPORTED")
        for name, value in (("embed_dim", embed_dim), ("num_heads", num_heads), ("num_kv_heads", num_kv_heads), ("kdim", kdim), ("vdim", vdim)):
            if value is not None and value < 1:
                raise refuse("%s: found %r, expected a positive integer" % (name, value))
        if embed_dim % num_heads:
            raise refuse("embed_dim %d is not divisible by num_heads %d" % (embed_dim, num_heads))
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.head_dim = embed_dim // num_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.bias, self.dtype, self.precision = bias, dtype, precision
        self._tensors: dict[str, Any] = {}
        self._packed: dict[Any, _core.Weights] = {}
        self._lock = threading.Lock()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes the tensors of a state_dict() of torch.nn.MultiheadAttention, as numpy arrays or anything with DLPack.

        They are copied as float32. Packing rounds the weights to the dtype of the layer, to nearest even. Biases stay float32.
        """
        options.check("load_state_dict", {"state": state})
        tensors = {name: _host_copy(name, tensor) for name, tensor in state.items() if tensor is not None}
        shapes = self._shapes(separate="q_proj_weight" in tensors)
        unexpected = sorted(set(tensors) - set(shapes))
        if unexpected:
            raise refuse("%s: unexpected, expected %s" % (unexpected[0], ", ".join(shapes)), "WRONG_WEIGHTS")
        for name, shape in shapes.items():
            if name not in tensors:
                raise refuse("%s: missing, expected %s" % (name, list(shape)), "NULL_POINTER")
            if tensors[name].shape != shape:
                raise refuse("%s: found %s, expected %s" % (name, list(tensors[name].shape), list(shape)), "WRONG_SHAPE")
        with self._lock:
            self._tensors, self._packed = tensors, {}

    def __getstate__(self) -> dict[str, Any]:
        """What travels in a copy or a pickle: sizes and weights. A copy packs and compiles again."""
        with self._lock:
            return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_packed")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _packed={}, _lock=threading.Lock())

    def _shapes(self, separate: bool) -> dict[str, tuple[int, ...]]:
        """The tensors that a state dict must have, with their shapes."""
        width_q, width_kv = self.embed_dim, self.num_kv_heads * self.head_dim
        if self.kdim == self.vdim == self.embed_dim and not separate:
            shapes: dict[str, tuple[int, ...]] = {"in_proj_weight": (width_q + 2 * width_kv, self.embed_dim)}
        else:
            shapes = {"q_proj_weight": (width_q, self.embed_dim), "k_proj_weight": (width_kv, self.kdim),
                      "v_proj_weight": (width_kv, self.vdim)}
        shapes["out_proj.weight"] = (self.embed_dim, self.embed_dim)
        if self.bias:
            shapes.update({"in_proj_bias": (width_q + 2 * width_kv,), "out_proj.bias": (self.embed_dim,)})
        return shapes

    def __call__(self, query: Any, key: Any = None, value: Any = None, *, key_padding_mask: Any = None, attn_mask: Any = None,
                 is_causal: bool = False, need_weights: bool = False, average_attn_weights: bool = True,
                 kv_lengths: Any = None, key_cache: Any = None, value_cache: Any = None, cache_lengths: Any = None,
                 page_table: Any = None, keep_heads: bool = False, device: Any = None) -> tuple[Any, ...]:
        """query [B,T_q,D], key [B,T_kv,kdim], value [B,T_kv,vdim], or each without B. Without key and value: self-attention on query.

        Masks are as in PyTorch: True excludes, a float is added. key_padding_mask [B,T_kv]; attn_mask [T_q,T_kv] or
        [B*H,T_q,T_kv]; is_causal: in addition, query q sees no key after q. kv_lengths int [B]: valid keys. Returns
        (out [B,T_q,D], weights); weights is None unless need_weights: the mean over heads [B,T_q,T_kv], or [B,H,T_q,T_kv] with
        average_attn_weights=False. A query that sees no key gets weights 0 and the output bias; PyTorch gives NaN there.

        Self-attention with a cache: key_cache, value_cache [B,H_kv,capacity,d], of the dtype of the layer, or with page_table int
        [B,max_pages] pages [pages,H_kv,page_size,d]; cache_lengths int [B]: valid keys before the call. Keys and values of query are written
        behind them, in place, and T_kv is the capacity. is_causal then means that the last query is at the last key.

        keep_heads (CPU, no cache): returns (out, weights, kept), where kept is what backward() reads.
        """
        options.check("__call__", {name: given for name, given in locals().items() if name != "self"})
        key = query if key is None else key
        value = key if value is None else value
        if not self._tensors:
            raise refuse("weights: none, expected load_state_dict() before the first call", "WRONG_WEIGHTS")
        cross = not (key is query and value is query)
        batched = len(query.shape) != 2
        if not batched:
            query, key, value = (x[None] for x in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        self._check(query, key, value)
        place = _arrays.device_of(query, device)
        fields = self._fields(cross, place, query, key, value)
        arguments = {"query": query, "key": key if cross else None, "value": value if cross else None}
        keys = key.shape[1]
        if is_causal:
            fields["causal"] = 1
            arguments["alignment"] = "top_left"
        if key_cache is not None:
            keys = self._add_cache(fields, arguments, key_cache, value_cache, cache_lengths, page_table)
        if kv_lengths is not None:
            fields["kv_lengths"] = 1
            arguments["kv_lengths"] = _arrays.small("kv_lengths", kv_lengths, "int32")
        self._add_masks(fields, arguments, key_padding_mask, attn_mask, query.shape[0], query.shape[1], keys)
        out, weights = self._add_outputs(fields, arguments, query, keys, need_weights, average_attn_weights)
        if keep_heads:
            layer_backward.add_heads(fields, arguments, query, keys)
        tensors = self._run(fields, arguments, place)
        results = (out, weights) if batched else (out[0], None if weights is None else weights[0])
        return (*results, layer_backward.Kept(fields, arguments, tensors, batched)) if keep_heads else results

    def backward(self, grad_out: Any, kept: layer_backward.Kept) -> tuple[Any, Any, Any, dict[str, Any]]:
        """The gradients of a call on the CPU, from grad_out [B,T_q,D], the gradient of its out. kept: what that call returned.

        Returns (grad_query, grad_key, grad_value, grads): arrays like the inputs, of which the last two are None for self-attention, and a
        dict of float32 arrays by the names of the state dict, such as "in_proj_weight". Weights count as they were at that call, in
        float32. Masks have no gradients.
        """
        options.check("backward", {"grad_out": grad_out, "kept": kept})
        return layer_backward.gradients(grad_out, kept)

    def _check(self, query: Any, key: Any, value: Any) -> None:
        """Checks ranks before the shapes are used. The runtime checks extents."""
        for name, tensor in (("query", query), ("key", key), ("value", value)):
            if len(tensor.shape) != 3:
                raise refuse("%s: rank %d, expected 3, or 2 for all three" % (name, len(tensor.shape)), "WRONG_SHAPE")

    def _fields(self, cross: bool, device: Any, query: Any, key: Any, value: Any) -> dict[str, Any]:
        fields: dict[str, Any] = {"op": options.OPS["mha"], "num_heads": self.num_heads, "num_kv_heads": self.num_kv_heads,
                                  "embed_dim": self.embed_dim}
        if self.bias:
            fields["bias"] = 1
        if cross:
            fields.update(cross=1, kdim=self.kdim, vdim=self.vdim)
        elif not self.kdim == self.vdim == self.embed_dim:
            raise refuse("key: missing, expected [batch, seq_len, %d] beside value [batch, seq_len, %d]" % (self.kdim, self.vdim),
                         "NULL_POINTER")
        if self.dtype is not None:
            fields["dtype"] = _arrays.DTYPES[_arrays.NAMES[self.dtype]]
        elif device is None:
            fields["dtype"] = _arrays.storage_on_cpu(query, key, value)
        elif _arrays.dtype_name(query) in _arrays.DTYPES:
            fields["dtype"] = _arrays.DTYPES[_arrays.dtype_name(query)]
        add_precision(fields, self.precision, device)
        return fields

    @staticmethod
    def _add_cache(fields: dict[str, Any], arguments: dict[str, Any], key_cache: Any, value_cache: Any, lengths: Any, table: Any) -> int:
        """Returns the capacity."""
        if len(key_cache.shape) != 4:
            raise refuse("key_cache: rank %d, expected 4" % len(key_cache.shape), "WRONG_SHAPE")
        fields["cache"] = 1
        arguments.update(key_cache=key_cache, value_cache=value_cache, cache_lengths=_arrays.small("cache_lengths", lengths, "int32"))
        if "alignment" in arguments:
            arguments["alignment"] = "bottom_right"
        if table is None:
            return key_cache.shape[2]
        arguments["page_table"] = table = _arrays.small("page_table", table, "int32")
        fields["page_size"] = key_cache.shape[2]
        return table.shape[-1] * key_cache.shape[2]

    def _add_masks(self, fields: dict[str, Any], arguments: dict[str, Any], padding: Any, attention: Any, batch: int, q: int,
                   kv: int) -> None:
        """Both masks keep their shapes: one becomes the mask of the kernel, the other its score bias."""
        masks = []
        if padding is not None:
            tensor = _arrays.score_tensor("key_padding_mask", padding)
            if tuple(padding.shape) != (batch, kv):  # the tensor has one key where all keys lie in one place
                raise refuse("key_padding_mask: found %s, expected %s" % (list(padding.shape), [batch, kv]), "WRONG_SHAPE")
            masks.append(tensor[:, None, None, :])
        if attention is not None:
            tensor = _arrays.score_tensor("attn_mask", attention)
            expected = (q, kv) if len(attention.shape) == 2 else (batch * self.num_heads, q, kv)
            if tuple(attention.shape) != expected:
                raise refuse("attn_mask: found %s, expected %s or %s" % (list(attention.shape), [q, kv], [batch * self.num_heads, q, kv]),
                             "WRONG_SHAPE")
            masks.append(tensor if len(expected) == 2 else tensor.reshape(batch, self.num_heads, q, tensor.shape[-1]))
        # Only the kernel's mask can be boolean. Of two boolean masks the larger one becomes the mask.
        masks.sort(key=lambda m: (_arrays.dtype_name(m) != "bool", -len(m.shape)))
        for index, mask in enumerate(masks):
            boolean = _arrays.dtype_name(mask) == "bool"
            bits = broadcast_bits(mask.shape, q, kv)
            if index == 0:
                fields.update(mask=1 if boolean else 2, mask_broadcast=bits)
                arguments["mask"] = takes_part(mask) if boolean else mask
            else:
                fields.update(score_bias=1, score_bias_broadcast=bits)
                arguments["score_bias"] = excluding(mask) if boolean else mask
        _arrays.choose_additive_dtype(fields, arguments)

    @staticmethod
    def _add_outputs(fields: dict[str, Any], arguments: dict[str, Any], query: Any, keys: int, wanted: bool, mean: bool) -> tuple[Any, Any]:
        arguments["out"] = out = _arrays.empty(query, query.shape)
        if not wanted:
            return out, None
        shape = (query.shape[0], query.shape[1], keys)
        if mean:
            fields["weights_mean"] = 1
            arguments["weights_mean"] = weights = _arrays.empty(query, shape, "float32")
        else:
            fields["scores"] = 4
            arguments["scores"] = weights = _arrays.empty(query, (shape[0], fields["num_heads"], *shape[1:]), "float32")
        return out, weights

    def _run(self, fields: dict[str, Any], arguments: dict[str, Any], device: Any) -> Mapping[str, Any]:
        """Returns the weights of the call."""
        kernel = kernel_of(fields, device, arguments["query"].shape[1])
        key = (fields.get("cross", 0), fields.get("dtype", 0), device)
        with self._lock:
            tensors = self._tensors
            if key not in self._packed:
                self._packed[key] = kernel.pack(self._weights(), device)
            arguments["weights"] = self._packed[key]
        kernel.run(arguments, device, "bhsd")
        return tensors

    def _weights(self) -> dict[str, Any]:
        """The tensors, by the runtime's names."""
        t = self._tensors
        weights = {"out_proj": t["out_proj.weight"]}
        if self.bias:
            weights["out_bias"] = t["out_proj.bias"]
        if "in_proj_weight" in t:
            weights["in_proj"] = t["in_proj_weight"]
            if self.bias:
                weights["in_bias"] = t["in_proj_bias"]
            return weights
        weights.update({name: t[name[0] + "_proj_weight"] for name in ("query", "key", "value")})
        if self.bias:
            ends = (self.embed_dim, self.embed_dim + self.num_kv_heads * self.head_dim)
            for name, part in zip(("query_bias", "key_bias", "value_bias"), numpy.split(t["in_proj_bias"], ends)):
                weights[name] = part
        return weights


def _host_copy(name: str, tensor: Any) -> numpy.ndarray:
    """A float32 copy on the host."""
    _arrays.require_arrays(**{name: tensor})
    if _arrays.is_torch(tensor):
        tensor = tensor.detach().float().cpu().numpy()
    if not isinstance(tensor, numpy.ndarray):
        tensor = numpy.from_dlpack(tensor)
    if tensor.dtype.kind != "f" and tensor.dtype.name != "bfloat16":
        raise TypeError("%s: dtype %s, expected a float" % (name, tensor.dtype))
    return numpy.array(tensor, dtype=numpy.float32, order="C")


def takes_part(masked_out: Any) -> Any:
    """PyTorch's boolean mask with polyhead's meaning (true takes part). It is inverted only here."""
    return ~masked_out


def excluding(masked_out: Any) -> Any:
    """PyTorch's boolean mask as an additive mask."""
    if _arrays.is_torch(masked_out):
        return masked_out.float().masked_fill_(masked_out, float("-inf"))
    return numpy.where(masked_out, numpy.float32(-numpy.inf), numpy.float32(0))
