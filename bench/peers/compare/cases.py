"""What is compared: shapes of well-known models and single features, their inputs, and the arithmetic that they take.

A case of kind "sdpa" has B H Hkv Tq Tkv d dv, causal (top-left), pad 0, softcap, window, and of mask, lengths and sinks which exist; one
of kind "layer" is self-attention with projections and biases over B T D H; kinds with gradients are in gradients.py. Weights and tensors are f32 arrays. In a run of bf16 or f16 they
hold numbers that this type has, so that every library computes with the same ones.
"""

import collections

import numpy as np

from . import gradients, storage

Case = collections.namedtuple("Case", "name group title shape")
# What the groups are called in tables and plots, in this order.
GROUPS = {"model": "Shapes of models", "layer": "Whole layers", "head": "Head dimensions", "feature": "Masks and features",
          "decode": "Decoding", "growth": "Growing sequences", "backward": "Gradients", "step": "Training steps"}  # fmt: skip
LAYERS = ("layer", "layer_step")  # kinds
COLD_BYTES = 256e6  # distinct keys and values that decoding walks through, as the layers of a model do
MOST_COPIES = 64    # of tensors; a smaller cache than COLD_BYTES / 64 is a warm one


def sdpa(B, H, T, d, **more):
    shape = dict(kind="sdpa", B=B, H=H, Hkv=H, Tq=T, Tkv=T, d=d, dv=d, causal=False, pad=0, softcap=0.0, window=None)
    shape.update(mask=None, lengths=False, sinks=False)
    shape.update(more)
    return shape


def layer(B, T, D, H, kind="layer"):
    return dict(kind=kind, B=B, T=T, D=D, H=H)


def models():
    return [
        Case("bert_base_t128", "model", "BERT-base", sdpa(1, 12, 128, 64)),
        Case("bert_base_t512", "model", "BERT-base", sdpa(1, 12, 512, 64)),
        Case("bert_base_b8_t128", "model", "BERT-base, 8 texts", sdpa(8, 12, 128, 64)),
        Case("minilm_t128", "model", "MiniLM", sdpa(1, 12, 128, 32)),
        Case("minilm_b16_t64", "model", "MiniLM, 16 texts", sdpa(16, 12, 64, 32)),
        Case("vit_b16_t197", "model", "ViT-B/16", sdpa(1, 12, 197, 64)),
        Case("vit_l14_t577", "model", "ViT-L/14 at 336", sdpa(1, 16, 577, 64)),
        Case("gpt2_t1024", "model", "GPT-2", sdpa(1, 12, 1024, 64, causal=True)),
        Case("llama3_8b_prefill_t512", "model", "Llama-3-8B prefill", sdpa(1, 32, 512, 128, Hkv=8, causal=True)),
        Case("llama3_8b_prefill_t2048", "model", "Llama-3-8B prefill", sdpa(1, 32, 2048, 128, Hkv=8, causal=True)),
    ]


def layers():
    return [
        Case("layer_bert_base_t128", "layer", "BERT-base", layer(1, 128, 768, 12)),
        Case("layer_bert_base_t512", "layer", "BERT-base", layer(1, 512, 768, 12)),
        Case("layer_minilm_b8_t128", "layer", "MiniLM, 8 texts", layer(8, 128, 384, 12)),
        Case("layer_vit_b16_t197", "layer", "ViT-B/16", layer(1, 197, 768, 12)),
        Case("layer_vit_l14_t577", "layer", "ViT-L/14 at 336", layer(1, 577, 1024, 16)),
    ]


def decoding():
    one = dict(Tq=1, Hkv=8)
    return [
        Case("llama3_8b_decode_kv512", "decode", "Llama-3-8B, 512 keys", sdpa(1, 32, 1, 128, Tkv=512, **one)),
        Case("llama3_8b_decode_kv4096", "decode", "Llama-3-8B, 4096 keys", sdpa(1, 32, 1, 128, Tkv=4096, **one)),
        Case("llama3_8b_decode_b4_kv2048", "decode", "Llama-3-8B, 4 rows", sdpa(4, 32, 1, 128, Tkv=2048, **one)),
    ]


def features():
    plain = (1, 12, 512, 64)
    return [
        Case("causal_t2048", "feature", "causal", sdpa(1, 12, 2048, 64, causal=True)),
        Case("mask_bool_t512", "feature", "boolean mask [T,T]", sdpa(*plain, mask="bool")),
        Case("mask_additive_t512", "feature", "additive mask [T,T]", sdpa(*plain, mask="additive")),
        Case("mask_additive_heads_t512", "feature", "additive mask [H,T,T]", sdpa(*plain, mask="additive_heads")),
        Case("lengths_b4_t512", "feature", "key lengths 512, 400, 256, 65", sdpa(4, 12, 512, 64, lengths=True)),
        Case("softcap_t512", "feature", "softcap and causal (Gemma 2)", sdpa(1, 8, 512, 256, Hkv=4, causal=True, softcap=50.0)),
        Case("sinks_window_t1024", "feature", "sinks, window 127 back (gpt-oss)",
             sdpa(1, 64, 1024, 64, Hkv=8, causal=True, window=(127, 0), sinks=True)),
        Case("mla_dv128_t512", "feature", "d 192, d_v 128, causal (MLA)", sdpa(1, 16, 512, 192, dv=128, causal=True)),
    ]  # fmt: skip


def all_cases():
    heads = [Case("head_dim_%d" % d, "head", "d %d" % d, sdpa(1, 8, 512, d)) for d in (32, 64, 80, 96, 128, 256)]
    growth = [Case("growth_t%d" % t, "growth", "T %d" % t, sdpa(1, 8, t, 64)) for t in (64, 128, 256, 512, 1024, 2048, 4096)]
    return models() + layers() + heads + features() + decoding() + growth


def small_cases():
    """What tests run: no name of these is found unless it is asked for."""
    return [
        Case("small_sdpa", "model", "small", sdpa(1, 4, 20, 16, causal=True)),
        Case("small_layer", "layer", "small", layer(1, 12, 32, 2)),
        Case("small_decode", "decode", "small", sdpa(1, 4, 1, 16, Tkv=40, Hkv=2)),
    ]


def cases_with_gradients():
    return gradients.all_cases(sdpa, layer, Case)


def small_cases_with_gradients():
    return gradients.small_cases(sdpa, layer, Case)


def named(name):
    return next(case for case in all_cases() + small_cases() + cases_with_gradients() + small_cases_with_gradients() if case.name == name)


def words(case):
    """The shape of a case in a few words."""
    s = case.shape
    if s["kind"] in LAYERS:
        return "B%d T%d D%d H%d" % (s["B"], s["T"], s["D"], s["H"])
    heads = "H%d" % s["H"] + ("/%d" % s["Hkv"] if s["Hkv"] != s["H"] else "")
    length = "T%d" % s["Tq"] if s["Tq"] == s["Tkv"] else "T%d×%d" % (s["Tq"], s["Tkv"])
    return "B%d %s %s d%d%s" % (s["B"], heads, length, s["d"], "" if s["d"] == s["dv"] else "/%d" % s["dv"])


def key_lengths(shape):
    """Keys that count, per batch row."""
    if shape["lengths"]:
        return np.array([max(1, round(shape["Tkv"] * part)) for part in (1.0, 0.78125, 0.5, 0.127)] * shape["B"], np.int32)[: shape["B"]]
    return np.full(shape["B"], shape["Tkv"], np.int32)


def seen(shape, rows, length):
    """bool [rows, T_kv]: the keys that these queries see by position and length."""
    q, k = np.asarray(rows)[:, None], np.arange(shape["Tkv"])[None, :]
    found = np.broadcast_to(k < length, (len(q), shape["Tkv"]))
    if shape["causal"]:
        found = found & (k <= q)
    if shape["window"]:
        found = found & (k >= q - shape["window"][0])
    return found


def flops(case):
    """Multiply-adds count two. Pairs that position or length exclude are no work; those that a mask excludes are."""
    s = case.shape
    if s["kind"] in LAYERS:  # gradients are two products of each linear layer, and five of attention
        linear, attention = (24.0, 14.0) if s["kind"] == "layer_step" else (8.0, 4.0)
        return s["B"] * (linear * s["T"] * s["D"] ** 2 + attention * s["T"] ** 2 * s["D"])
    pairs = sum(int(seen(s, np.arange(s["Tq"]), length).sum()) for length in key_lengths(s))
    products = {"backward": 5, "step": 7}.get(s["kind"], 2)  # a half of them over d, the other over d_v
    return products * s["H"] * pairs * (s["d"] + s["dv"])


def key_value_bytes(case, dtype):
    """What a decoding step has to read; 0 for other cases."""
    s = case.shape
    return float(storage.BYTES[dtype]) * s["B"] * s["Hkv"] * s["Tkv"] * (s["d"] + s["dv"]) if case.group == "decode" else 0.0


def copies(case, dtype):
    """Sets of tensors that calls go through in turn: one, but for decoding, which finds its keys in memory and not in a cache."""
    held = key_value_bytes(case, dtype)
    return min(MOST_COPIES, 1 + int(COLD_BYTES / held)) if held else 1


def inputs(case, dtype, copy=0):
    """f32 tensors of numbers that dtype has, the same everywhere: query, key, value, then a dict of further ones if the case has any (mask,
    lengths, sinks, grad_out); or x, in_proj, in_bias, out_proj, out_bias, and in a step grad_out."""
    random, s = np.random.default_rng([copy, 17]), case.shape

    def normal(*shape, scale=1.0):
        return storage.rounded(random.standard_normal(shape, dtype=np.float32) * np.float32(scale), dtype)

    if s["kind"] in LAYERS:
        size, scale = s["D"], s["D"] ** -0.5
        found = normal(s["B"], s["T"], size), normal(3 * size, size, scale=scale), normal(3 * size), normal(size, size, scale=scale), normal(size)
        return (*found, normal(s["B"], s["T"], size)) if s["kind"] == "layer_step" else found
    tensors = [normal(s["B"], s["H"], s["Tq"], s["d"]), normal(s["B"], s["Hkv"], s["Tkv"], s["d"]), normal(s["B"], s["Hkv"], s["Tkv"], s["dv"])]
    extras = {}
    if s["mask"] == "bool":
        extras["mask"] = random.random((s["Tq"], s["Tkv"])) < 0.7
        extras["mask"][:, 0] = True
    elif s["mask"]:
        extras["mask"] = normal(*([s["H"]] if s["mask"] == "additive_heads" else []), s["Tq"], s["Tkv"])
    if s["lengths"]:
        extras["lengths"] = key_lengths(s)
    if s["sinks"]:
        extras["sinks"] = normal(s["H"])
    if s["kind"] in gradients.KINDS:
        extras["grad_out"] = normal(s["B"], s["H"], s["Tq"], s["dv"])
    return (*tensors, extras) if extras else tuple(tensors)
