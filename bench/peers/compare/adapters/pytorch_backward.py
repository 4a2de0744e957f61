"""PyTorch: autograd of scaled_dot_product_attention."""

import torch
import torch.nn.functional as F

from compare.adapters import pytorch

VERSION, PACKAGE = pytorch.VERSION, pytorch.PACKAGE
KINDS = {"backward": list(pytorch.TYPES), "step": list(pytorch.TYPES)}
PEERS = {"scaled_dot_product_attention": KINDS, "repeated keys, scaled_dot_product_attention": KINDS, "nn.MultiheadAttention": {"layer_step": list(pytorch.TYPES)}}


def differentiated(case, q, k, v, extras, attend):
    """Gradients of attend(query, key, value, bias or None): with the forward call in each run, or of one that was made before."""
    inputs, kept = [x.requires_grad_() for x in (q, k, v, *([extras["mask"]] if "mask" in extras else []))], []

    def forward():
        with torch.enable_grad():
            return attend(*inputs, *([None] if len(inputs) == 3 else []))

    def step():
        kept[:] = torch.autograd.grad(forward(), inputs, extras["grad_out"])

    run = step
    if case["kind"] == "backward":
        out = forward()

        def run():
            kept[:] = torch.autograd.grad(out, inputs, extras["grad_out"], retain_graph=True)

    return run, lambda: torch.cat([x.float() for x in kept[:3]], 1).numpy()


def hidden(case):
    return torch.ones(case["Tq"], case["Tkv"], dtype=torch.bool).triu(1)


def fused(case, q, k, v, extras):
    above = hidden(case)

    def attend(q, k, v, bias):
        causal = case["causal"] and bias is None  # it takes no mask beside is_causal
        mask = bias.masked_fill(above, float("-inf")) if bias is not None and case["causal"] else bias
        return F.scaled_dot_product_attention(q, k, v, mask, case.get("dropout", 0.0), causal, enable_gqa=case["H"] != case["Hkv"])

    return differentiated(case, q, k, v, extras, attend)


def repeated(case, q, k, v, extras):
    if case["H"] == case["Hkv"]:
        raise NotImplementedError("every key has one head of queries")
    group = case["H"] // case["Hkv"]

    def attend(q, k, v, bias):
        return F.scaled_dot_product_attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), is_causal=case["causal"])

    return differentiated(case, q, k, v, extras, attend)


def module(case, x, in_proj, in_bias, out_proj, out_bias, grad_out):
    layer = torch.nn.MultiheadAttention(case["D"], case["H"], batch_first=True, dtype=x.dtype)
    parameters = layer.in_proj_weight, layer.in_proj_bias, layer.out_proj.weight, layer.out_proj.bias
    for mine, given in zip(parameters, (in_proj, in_bias, out_proj, out_bias)):
        mine.copy_(given)
    inputs, kept = (x.requires_grad_(), *parameters), []

    def step():
        with torch.enable_grad():
            out = layer(x, x, x, need_weights=False)[0]
        kept[:] = torch.autograd.grad(out, inputs, grad_out)

    return step, lambda: kept[0].float().numpy()


MAKERS = dict(zip(PEERS, (fused, repeated, module)))


def make(peer, case, dtype, data, threads, makers=None):
    torch.set_num_threads(threads)
    if case["kind"] == "layer_step":
        return module(case, *(pytorch.stored(array, dtype) for array in data))
    return (makers or MAKERS)[peer](case, *(pytorch.stored(array, dtype) for array in data[:3]), {name: pytorch.stored(array, dtype) for name, array in data[3].items()})
