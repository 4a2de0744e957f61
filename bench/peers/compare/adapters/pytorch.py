"""PyTorch: scaled_dot_product_attention, flex_attention where that cannot do a case, nn.MultiheadAttention for layers."""

import torch
import torch.nn.functional as F

VERSION = torch.__version__
PACKAGE = "torch"
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
PEERS = {
    "scaled_dot_product_attention": {"sdpa": list(TYPES)},
    "flex_attention, compiled": {"sdpa": list(TYPES)},
    "matmul, softmax, matmul": {"sdpa": list(TYPES)},
    "nn.MultiheadAttention": {"layer": list(TYPES)},
    "Linear, scaled_dot_product_attention, Linear": {"layer": list(TYPES)},
    "Linear, matmul, softmax, matmul, Linear": {"layer": ["bf16", "f16"]},
}
torch.set_grad_enabled(False)


def runner(call, shape=None):
    """run and fetch of a function that returns a tensor."""
    kept = []

    def run():
        kept[:] = [call()]

    return run, lambda: kept[0].float().reshape(shape or kept[0].shape).numpy()


def stored(array, dtype):
    """A tensor; numbers that are not whole ones are of this type."""
    tensor = torch.from_numpy(array)
    return tensor.to(TYPES[dtype]) if tensor.is_floating_point() else tensor


def by_hand(dtype):
    """Whether separate products can be the fastest way: oneDNN has those of some 16-bit types, and scaled_dot_product_attention has not."""
    tests = {torch.bfloat16: torch.ops.mkldnn._is_mkldnn_bf16_supported, torch.float16: torch.ops.mkldnn._is_mkldnn_fp16_supported}
    return dtype in tests and tests[dtype]()


def special(case):
    """What scaled_dot_product_attention has no argument for."""
    return bool(case.get("softcap") or case.get("sinks"))


def boolean_mask(case, extras):
    """Causal rule, window, lengths and boolean mask as one mask, or None."""
    q, k = torch.arange(case["Tq"])[:, None], torch.arange(case["Tkv"])[None, :]
    found = []
    if case["causal"]:
        found.append(k <= q)
    if case.get("window"):
        found.append(k >= q - case["window"][0])
    if case.get("pad"):
        found.append(k < case["Tkv"] - case["pad"])
    if "lengths" in extras:
        found.append(k < extras["lengths"][:, None, None, None])
    if "mask" in extras and extras["mask"].dtype == torch.bool:
        found.append(extras["mask"])
    mask = found[0] if found else None
    for other in found[1:]:
        mask = mask & other
    return mask


def sdpa(case, q, k, v, extras):
    if special(case):
        raise NotImplementedError("scaled_dot_product_attention has no softcap and no sinks")
    shape = (case["B"], case["H"], case["Tq"], v.shape[-1])
    grouped = case["H"] != case["Hkv"]
    if grouped and case["Tq"] == 1:  # one query: the heads of a group are rows
        q, grouped = q.view(case["B"], case["Hkv"], case["H"] // case["Hkv"], case["d"]), False
    only_causal = case["causal"] and not (case.get("window") or case.get("pad") or extras)
    mask = None if only_causal else boolean_mask(case, extras)
    if "mask" in extras and extras["mask"].dtype != torch.bool:
        if mask is not None:
            raise NotImplementedError("an additive mask beside another one")
        mask = extras["mask"]
    return runner(lambda: F.scaled_dot_product_attention(q, k, v, mask, is_causal=only_causal, enable_gqa=grouped), shape)


def flex(case, q, k, v, extras):
    from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

    if not special(case) or "mask" in extras or "lengths" in extras:
        raise NotImplementedError("left to scaled_dot_product_attention")
    cap, left = case.get("softcap"), case["window"][0] if case.get("window") else case["Tkv"]

    def capped(score, b, h, i, j):
        return cap * torch.tanh(score / cap)

    def seen(b, h, i, j):
        return (i >= j) & (i - j <= left)

    block = create_block_mask(seen, None, None, case["Tq"], case["Tkv"], device="cpu") if case["causal"] else None
    compiled = torch.compile(flex_attention, dynamic=False)
    options = dict(score_mod=capped if cap else None, block_mask=block, enable_gqa=case["H"] != case["Hkv"])
    if "sinks" not in extras:
        return runner(lambda: compiled(q, k, v, **options))
    sinks = extras["sinks"][None, :, None]

    def call():
        out, aux = compiled(q, k, v, return_aux=AuxRequest(lse=True), **options)
        return out * torch.sigmoid(aux.lse - sinks)[..., None].to(out.dtype)

    return runner(call)


def composed(case, q, k, v, extras):
    """What is written by hand where no function does it, or none does it as fast."""
    if not special(case) and not by_hand(q.dtype):
        raise NotImplementedError("left to scaled_dot_product_attention")
    group, cap, scale = case["H"] // case["Hkv"], case.get("softcap"), case["d"] ** -0.5
    q = q.view(case["B"], case["Hkv"], group, case["Tq"], case["d"])
    k, v = k[:, :, None], v[:, :, None]
    mask = boolean_mask(case, extras)
    excluded = None if mask is None else ~mask[:, :, None] if mask.dim() == 4 else ~mask
    added = extras["mask"] if "mask" in extras and extras["mask"].is_floating_point() else None
    if added is not None and added.dim() == 3:
        added = added.view(case["Hkv"], group, *added.shape[1:])
    sinks = extras["sinks"].view(1, case["Hkv"], group, 1, 1) if "sinks" in extras else None

    def call():
        scores = torch.matmul(q * scale, k.transpose(-1, -2))
        if cap:
            scores = scores.div_(cap).tanh_().mul_(cap)
        if added is not None:
            scores += added
        if excluded is not None:
            scores.masked_fill_(excluded, float("-inf"))
        if sinks is None:
            return torch.matmul(torch.softmax(scores, -1), v)
        joined = torch.cat([scores, sinks.expand(*scores.shape[:-1], 1)], -1)
        return torch.matmul(torch.softmax(joined, -1)[..., :-1], v)

    return runner(call, (case["B"], case["H"], case["Tq"], v.shape[-1]))


def module(case, x, in_proj, in_bias, out_proj, out_bias):
    layer = torch.nn.MultiheadAttention(case["D"], case["H"], batch_first=True, dtype=x.dtype).eval()
    for mine, given in ((layer.in_proj_weight, in_proj), (layer.in_proj_bias, in_bias), (layer.out_proj.weight, out_proj), (layer.out_proj.bias, out_bias)):
        mine.copy_(given)
    return runner(lambda: layer(x, x, x, need_weights=False)[0])


def linear(case, x, in_proj, in_bias, out_proj, out_bias):
    B, T, D, H = (case[name] for name in "BTDH")

    def call():
        q, k, v = F.linear(x, in_proj, in_bias).view(B, T, 3, H, D // H).permute(2, 0, 3, 1, 4)
        return F.linear(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, T, D), out_proj, out_bias)

    return runner(call)


def linear_by_hand(case, x, in_proj, in_bias, out_proj, out_bias):
    if not by_hand(x.dtype):
        raise NotImplementedError("left to scaled_dot_product_attention")
    B, T, D, H = (case[name] for name in "BTDH")

    def call():
        q, k, v = F.linear(x, in_proj, in_bias).view(B, T, 3, H, D // H).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(torch.matmul(q * (D // H) ** -0.5, k.transpose(-1, -2)), -1)
        return F.linear(torch.matmul(weights, v).transpose(1, 2).reshape(B, T, D), out_proj, out_bias)

    return runner(call)


MAKERS = dict(zip(PEERS, (sdpa, flex, composed, module, linear, linear_by_hand)))


def make(peer, case, dtype, data, threads):
    torch.set_num_threads(threads)
    if case["kind"] == "layer":
        return MAKERS[peer](case, *(stored(array, dtype) for array in data))
    extras = {name: stored(array, dtype) for name, array in data[3].items()} if len(data) > 3 else {}
    return MAKERS[peer](case, *(stored(array, dtype) for array in data[:3]), extras)
