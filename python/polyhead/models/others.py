"""Layers of encoders, and attention whose projections no layer of one kernel has."""
from __future__ import annotations

from typing import Any

from ..rope_tables import rope_tables
from .decoder import IN_LAYER, Config, named
from .layer import Layer, Names

BERT = {**named("layer.{n}.attention.self.", query="query.weight", key="key.weight", value="value.weight",
                query_bias="query.bias", key_bias="key.bias", value_bias="value.bias"),
        **named("layer.{n}.attention.output.", out_proj="dense.weight", out_bias="dense.bias")}


def _vit_names(qkv_bias: bool) -> Names:
    """Of files on the Hub, and of Transformers 5."""
    older, newer = "layer.{n}.attention.", "layers.{n}.attention."
    kinds = {"": "weight", "_bias": "bias"} if qkv_bias else {"": "weight"}
    names = {name + end: ("%sattention.%s.%s" % (older, name, word), "%s%s_proj.%s" % (newer, name[0], word))
             for name in ("query", "key", "value") for end, word in kinds.items()}
    return {**names, **{name: ("%soutput.dense.%s" % (older, word), "%so_proj.%s" % (newer, word))
                        for name, word in (("out_proj", "weight"), ("out_bias", "bias"))}}


def _encoder(c: Config, names: Names, further: dict[str, Any], *caller: str) -> list[Layer]:
    width, heads = c.whole("hidden_size"), c.whole("num_attention_heads")
    fields = {"op": "mha", "embed_dim": width, "num_heads": heads, "num_kv_heads": heads, "head_dim": c.whole("head_dim", width // heads),
              "bias": True, **further}
    numbers = {"softmax_scale": fields["head_dim"] ** -0.5}
    return [Layer(c.model_type, "attention", (number,), fields, numbers, c.values, names, caller=caller)
            for number in range(c.count())]


def bert(c: Config) -> list[Layer]:
    c.refuse_true("is_decoder", "the row is that of the encoder")
    return _encoder(c, BERT, {"kv_lengths": True})


def vit(c: Config) -> list[Layer]:
    told = [] if c.get("qkv_bias") else ["q_proj, k_proj, v_proj: no bias in the model, zeros in the kernel"]
    return _encoder(c, _vit_names(bool(c.get("qkv_bias"))), {}, *told)


def deepseek_v3(c: Config) -> list[Layer]:
    """Not absorbed: keys and values of every head are made, and stand in the cache."""
    width, heads = c.whole("hidden_size"), c.whole("num_attention_heads")
    rotated, plain, d_v, rank = (c.whole(name) for name in ("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "kv_lora_rank"))
    fields = {"op": "sdpa", "num_heads": heads, "num_kv_heads": heads, "head_dim": plain + rotated, "head_dim_v": d_v,
              "causal": "bottom_right", "kv_lengths": True}
    query_rank = c.get("q_lora_rank") and c.whole("q_lora_rank")
    sizes = {"kv_a": (width, rank + rotated), "kv_b": (rank, heads * (plain + d_v)), "o": (heads * d_v, width)}
    sizes.update({"q_a": (width, query_rank), "q_b": (query_rank, heads * (plain + rotated))} if query_rank else
                 {"q": (width, heads * (plain + rotated))})
    biased = [part for part in ("q_a", "kv_a", "o") if part in sizes and c.get("attention_bias")]
    linears = {part: {"op": "linear", "embed_dim": inputs, "out_features": outputs, **({"bias": True} if part in biased else {})}
               for part, (inputs, outputs) in sizes.items()}
    modules = {part: part + "_proj" for part in sizes}
    modules["kv_a"] = "kv_a_proj_with_mqa"
    names = named(IN_LAYER, **{part: module + ".weight" for part, module in modules.items()},
                  **{part + "_bias": modules[part] + ".bias" for part in biased},
                  **{part + "_norm": part + "_layernorm.weight" for part in ("q_a", "kv_a") if part in sizes})
    pairs = "2i and 2i + 1" if c.get("rope_interleave") else "i and i + %d" % (rotated // 2)
    caller = ("query = %s; latent, turned = kv_a(x); key, value = kv_b(norm(latent)), by heads; out = o(heads): linear layers, and RMS norms"
              " with an epsilon of 1e-6" % ("q_b(norm(q_a(x)))" if query_rank else "q(x)"),
              "the key of each head ends with the %d entries of `turned`; these, and the last %d of each query, are rotated before attention, in"
              " pairs %s, by cos and sin of rope_tables(config, rows)" % (rotated, rotated, pairs))
    numbers = {"softmax_scale": rope_tables(c.values, 1).softmax_scale}
    return [Layer(c.model_type, "attention", (number,), fields, numbers, c.values, names, linears=linears, caller=caller)
            for number in range(c.count())]
