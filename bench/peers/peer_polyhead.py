"""polyhead as a peer of an attention bench, through its Python package: kernels compiled in process for each case's problem.

    PEERS = {peer: {kind: dtypes}};  make(peer, case, dtype, data, threads) -> run, fetch

run() computes, fetch() returns the answer as float32. `case` is a dict: kind "sdpa" (B H Hkv Tq Tkv d causal pad, and what
compare/cases.py adds), "backward" or "step" (the same, with gradients), "layer" or "layer_step" (B T D H); data are numpy arrays in the layout of nn.Linear and [B,H,T,d], then, where a case has
them, a dict of masks, lengths and sinks. Without the package in PYTHONPATH, the one of build/release is taken.
"""

import pathlib
import sys

import numpy as np

try:
    import polyhead
except ImportError:  # a bench that does not set the path of this checkout
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "build" / "release" / "python"))
    import polyhead

TYPES = ["f32", "bf16", "f16"]
PEERS = {"polyhead": {kind: TYPES for kind in ("sdpa", "layer", "backward", "step", "layer_step")}}
VERSION = polyhead.__version__


def stored(array, dtype):
    """A contiguous array of this type."""
    if dtype == "bf16":
        import ml_dtypes

        return np.ascontiguousarray(array, ml_dtypes.bfloat16)
    return np.ascontiguousarray(array, np.float16 if dtype == "f16" else np.float32)


def options(case, extras, dtype):
    """The keywords of polyhead.sdpa for a case. An additive mask has the type of the other tensors, sinks are f32."""
    found = {}
    if case["causal"]:
        found["is_causal"] = True
    if case.get("pad"):
        found["kv_lengths"] = np.full(case["B"], case["Tkv"] - case["pad"], np.int32)
    for name, keyword in (("window", "window"), ("softcap", "softcap")):
        if case.get(name):
            found[keyword] = case[name]
    for name, keyword in (("mask", "attn_mask"), ("lengths", "kv_lengths"), ("sinks", "sinks")):
        if name in extras:
            found[keyword] = stored(extras[name], dtype) if name == "mask" and extras[name].dtype != bool else extras[name]
    return found


def make_sdpa(case, dtype, data):
    q, k, v = (stored(array, dtype) for array in data[:3])
    keywords = options(case, data[3] if len(data) > 3 else {}, dtype)
    out = np.empty((*q.shape[:3], v.shape[3]), q.dtype)

    def run():
        polyhead.sdpa(q, k, v, out=out, **keywords)

    return run, lambda: out.astype(np.float32)


def make_training(case, dtype, data):
    """Backward alone, or with the forward call before it: the gradients of query, key, value, and of a bias."""
    q, k, v = (stored(array, dtype) for array in data[:3])
    extras = data[3]
    grad_out, keywords, others = stored(extras["grad_out"], dtype), dict(is_causal=case["causal"]), {}
    if case.get("dropout"):
        keywords.update(dropout_p=case["dropout"], dropout_seed=1)
    if "mask" in extras:
        keywords["bias"], others = stored(extras["mask"], dtype), dict(return_grads=("bias",))
    answer, forward = [], []

    def before():
        forward[:] = polyhead.sdpa(q, k, v, return_lse=True, **keywords)

    def backward():
        answer[:] = polyhead.sdpa_backward(grad_out, q, k, v, *forward, **others, **keywords)

    def step():
        before()
        backward()

    before()
    return step if case["kind"] == "step" else backward, lambda: np.concatenate([g.astype(np.float32) for g in answer[:3]], 1)


def make_layer(case, dtype, data):
    x, (wqkv, bqkv, wo, bo) = stored(data[0], dtype), (np.ascontiguousarray(array, np.float32) for array in data[1:5])
    layer = polyhead.MultiheadAttention(case["D"], case["H"], dtype=dtype)
    layer.load_state_dict({"in_proj_weight": wqkv, "in_proj_bias": bqkv, "out_proj.weight": wo, "out_proj.bias": bo})
    answer = [None]

    def run():
        answer[0] = layer(x)[0]

    return run, lambda: answer[0].astype(np.float32)


def make_layer_step(case, dtype, data):
    """Forward and backward, with the weights packed anew in each step, as an optimiser changes them."""
    x, grad_out = (stored(array, dtype) for array in (data[0], data[5]))
    wqkv, bqkv, wo, bo = (np.ascontiguousarray(array, np.float32) for array in data[1:5])
    layer = polyhead.MultiheadAttention(case["D"], case["H"], dtype=dtype)
    answer = [None]

    def run():
        layer.load_state_dict({"in_proj_weight": wqkv, "in_proj_bias": bqkv, "out_proj.weight": wo, "out_proj.bias": bo})
        _, _, kept = layer(x, keep_heads=True)
        answer[0] = layer.backward(grad_out, kept)[0]

    return run, lambda: answer[0].astype(np.float32)


def make(peer, case, dtype, data, threads):
    makers = {"sdpa": make_sdpa, "layer": make_layer, "backward": make_training, "step": make_training, "layer_step": make_layer_step}
    if dtype not in TYPES or case["kind"] not in makers:
        raise NotImplementedError(f"{case['kind']} in {dtype}")
    polyhead.set_num_threads(threads)
    run, fetch = makers[case["kind"]](case, dtype, data)
    run()
    return run, fetch
