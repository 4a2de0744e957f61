"""ONNX Runtime on the CPU: the operators of ONNX and its own for attention, with inputs and outputs bound to memory beforehand."""

import numpy as np
import onnxruntime as ort
from onnx import helper

VERSION = ort.__version__
PACKAGE = "onnxruntime"
PEERS = {
    "Attention (ONNX)": {"sdpa": ["f32", "f16"], "layer": ["f32", "f16"]},
    "MultiHeadAttention": {"sdpa": ["f32", "f16"], "layer": ["f32", "f16"]},
    "GroupQueryAttention": {"sdpa": ["f32", "f16"]},
    "Attention and MatMul": {"layer": ["f32", "f16"]},
}
OWN = "com.microsoft"
_sessions = {}  # the model of the case at hand: copies of its tensors share one session, hence one thread pool


def session_of(nodes, inputs, outputs, constants, threads):
    def kind(array):
        return helper.np_dtype_to_tensor_dtype(array.dtype)

    stored = kind(next(iter(inputs.values())))
    graph = helper.make_graph(
        nodes, "case", [helper.make_tensor_value_info(name, kind(array), array.shape) for name, array in inputs.items()],
        [helper.make_tensor_value_info(name, stored, shape) for name, shape in outputs.items()],
        [helper.make_tensor(name, kind(array), array.shape, array.tobytes(), raw=True) for name, array in constants.items()])  # fmt: skip
    imports = [helper.make_opsetid("", 23), helper.make_opsetid(OWN, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=11).SerializeToString()
    if model not in _sessions:
        _sessions.clear()
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
        _sessions[model] = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return _sessions[model]


def prepared(nodes, inputs, outputs, threads, constants=None, shared=None):
    """run, and the answer named first. shared: {output: the input whose memory it is written to}."""
    session = session_of(nodes, inputs, outputs, constants or {}, threads)
    binding = session.io_binding()
    values = {name: ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array)) for name, array in inputs.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    for name, shape in outputs.items():
        if name in (shared or {}):
            values[name] = values[shared[name]]
        else:
            values[name] = ort.OrtValue.ortvalue_from_shape_and_type(shape, next(iter(inputs.values())).dtype.type)
        binding.bind_ortvalue_output(name, values[name])
    answer = values[next(iter(outputs))]
    return (lambda: session.run_with_iobinding(binding)), answer.numpy


def flat(array):
    """[B,H,T,d] as [B,T,H*d], the layout of the operators that want it."""
    return np.ascontiguousarray(array.transpose(0, 2, 1, 3).reshape(array.shape[0], array.shape[2], -1))


def in_heads(case, width, fetch):
    return lambda: fetch().reshape(case["B"], case["Tq"], case["H"], width).transpose(0, 2, 1, 3)


def whole_mask(case, extras):
    """Everything but the causal rule as one mask that broadcasts to [B,H,T_q,T_kv], or None."""
    q, k = np.arange(case["Tq"])[:, None], np.arange(case["Tkv"])[None, :]
    found = []
    if case.get("window"):
        found.append(np.broadcast_to(k >= q - case["window"][0], (case["Tq"], case["Tkv"])))
    if case.get("pad"):
        found.append(np.broadcast_to(k < case["Tkv"] - case["pad"], (case["Tq"], case["Tkv"])))
    if "lengths" in extras:
        found.append(np.broadcast_to(k < extras["lengths"][:, None, None, None], (case["B"], 1, case["Tq"], case["Tkv"])))
    if "mask" in extras:
        found.append(extras["mask"])
    if len(found) > 1:
        raise NotImplementedError("two masks")
    return np.ascontiguousarray(found[0]) if found else None


def onnx_attention(case, q, k, v, extras, threads):
    if "sinks" in extras:
        raise NotImplementedError("Attention has no sinks")
    inputs, names = {"q": q, "k": k, "v": v}, ["q", "k", "v"]
    mask = whole_mask(case, extras)
    if mask is not None:
        inputs["mask"], names = mask, [*names, "mask"]
    more = {"softcap": case["softcap"]} if case.get("softcap") else {}
    node = helper.make_node("Attention", names, ["o"], is_causal=int(case["causal"]), **more)
    return prepared([node], inputs, {"o": [*q.shape[:3], v.shape[3]]}, threads)


def multi_head(case, q, k, v, extras, threads):
    if case["H"] != case["Hkv"] or case.get("softcap") or "sinks" in extras or case.get("window"):
        raise NotImplementedError("MultiHeadAttention has no grouped heads, softcap, sinks or window")
    inputs, names = {"q": flat(q), "k": flat(k), "v": flat(v)}, ["q", "k", "v"]
    lengths = extras.get("lengths", np.full(case["B"], case["Tkv"] - case["pad"], np.int32) if case.get("pad") else None)
    mask = extras.get("mask")
    if mask is not None and mask.dtype == bool:
        raise NotImplementedError("MultiHeadAttention takes additive masks")
    if lengths is not None:
        inputs["keys"] = (np.arange(case["Tkv"]) < lengths[:, None]).astype(np.int32)
        names = [*names, "", "keys"]
    elif mask is not None:
        inputs["bias"] = np.broadcast_to(mask, (1, mask.shape[0] if mask.ndim == 3 else 1, case["Tq"], case["Tkv"]))
        names = [*names, "", "", "bias"]
    node = helper.make_node("MultiHeadAttention", names, ["o"], domain=OWN, num_heads=case["H"], unidirectional=int(case["causal"]))
    run, fetch = prepared([node], inputs, {"o": [case["B"], case["Tq"], case["H"] * v.shape[3]]}, threads)
    return run, in_heads(case, v.shape[3], fetch)


def group_query(case, q, k, v, extras, threads):
    """Always causal. It appends this step's keys to a cache: for decoding all but the last row is the past, in a buffer of full length."""
    if not (case["causal"] or case["Tq"] == 1) or "mask" in extras or "lengths" in extras or case["d"] != v.shape[3]:
        raise NotImplementedError("GroupQueryAttention is causal and takes no masks")
    past = case["Tkv"] - 1 if case["Tq"] == 1 else 0
    cache = [case["B"], case["Hkv"], case["Tkv"], case["d"]]
    inputs = {"q": flat(q), "k": flat(k[:, :, past:]), "v": flat(v[:, :, past:]), "past_k": k if past else k[:, :, :0],
              "past_v": v if past else v[:, :, :0], "last": np.full(case["B"], case["Tkv"] - 1, np.int32),
              "total": np.array(case["Tkv"], np.int32)}  # fmt: skip
    names, more = list(inputs), {}
    if case.get("softcap"):
        more["softcap"] = case["softcap"]
    if case.get("window"):
        more["local_window_size"] = case["window"][0] + 1
    if "sinks" in extras:
        inputs["sinks"] = extras["sinks"]
        names += ["", "", "", "", "sinks"]  # behind cos, sin, positions and bias
    node = helper.make_node("GroupQueryAttention", names, ["o", "new_k", "new_v"], domain=OWN, num_heads=case["H"],
                            kv_num_heads=case["Hkv"], **more)  # fmt: skip
    outputs = {"o": [case["B"], case["Tq"], case["H"] * case["d"]], "new_k": cache, "new_v": cache}
    run, fetch = prepared([node], inputs, outputs, threads, shared={"new_k": "past_k", "new_v": "past_v"} if past else None)
    return run, in_heads(case, case["d"], fetch)


def layer(peer, case, data, threads):
    x, in_proj, in_bias, out_proj, out_bias = data
    constants = {"w": np.ascontiguousarray(in_proj.T), "b": in_bias, "wo": np.ascontiguousarray(out_proj.T), "bo": out_bias}
    tail = [helper.make_node("MatMul", ["o", "wo"], ["projected"]), helper.make_node("Add", ["projected", "bo"], ["y"])]
    if peer == "Attention and MatMul":
        nodes = [helper.make_node("Attention", ["x", "w", "b"], ["o"], domain=OWN, num_heads=case["H"])]
    else:
        nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Add", ["a", "b"], ["qkv"]),
                 helper.make_node("Split", ["qkv"], ["q", "k", "v"], axis=2, num_outputs=3)]  # fmt: skip
        heads = dict(num_heads=case["H"], domain=OWN) if peer == "MultiHeadAttention" else dict(q_num_heads=case["H"], kv_num_heads=case["H"])
        nodes.append(helper.make_node("MultiHeadAttention" if "domain" in heads else "Attention", ["q", "k", "v"], ["o"], **heads))
    return prepared(nodes + tail, {"x": x}, {"y": list(x.shape)}, threads, constants)


MAKERS = dict(zip(PEERS, (onnx_attention, multi_head, group_query)))


def make(peer, case, dtype, data, threads):
    def stored(array):
        return array.astype(np.float16) if dtype == "f16" and array.dtype == np.float32 else array

    if case["kind"] == "layer":
        return layer(peer, case, [stored(array) for array in data], threads)
    extras = {name: stored(array) for name, array in data[3].items()} if len(data) > 3 else {}
    return MAKERS[peer](case, *(stored(array) for array in data[:3]), extras, threads)
