"""PyTorch: autograd of separate products, which keeps the weights of all pairs."""

import torch
import torch.nn.functional as F

from compare.adapters import pytorch_backward

VERSION, PACKAGE = pytorch_backward.VERSION, pytorch_backward.PACKAGE
PEERS = {"matmul, softmax, matmul": pytorch_backward.KINDS}
MOST_PAIRS = 1 << 25  # of all heads


def composed(case, q, k, v, extras):
    if case["B"] * case["H"] * case["Tq"] * case["Tkv"] > MOST_PAIRS:
        raise NotImplementedError("too many pairs to keep")
    above, group = pytorch_backward.hidden(case), case["H"] // case["Hkv"]

    def attend(q, k, v, bias):
        k, v = (x if group == 1 else x.repeat_interleave(group, 1) for x in (k, v))
        scores = torch.matmul(q * case["d"] ** -0.5, k.transpose(-1, -2))
        scores = scores if bias is None else scores + bias
        weights = torch.softmax(scores.masked_fill(above, float("-inf")) if case["causal"] else scores, -1)
        return torch.matmul(F.dropout(weights, case["dropout"]) if case.get("dropout") else weights, v)

    return pytorch_backward.differentiated(case, q, k, v, extras, attend)


def make(peer, case, dtype, data, threads):
    return pytorch_backward.make(peer, case, dtype, data, threads, {peer: composed})
