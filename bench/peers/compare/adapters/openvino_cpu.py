"""OpenVINO on the CPU: ScaledDotProductAttention, alone and inside a layer; softcap and sinks by its operators."""

import numpy as np
import openvino as ov
import openvino.opset13 as op

VERSION = ov.__version__.split("-")[0]
PACKAGE = "openvino"
PEERS = {
    "ScaledDotProductAttention": {"sdpa": ["f32"], "layer": ["f32"]},
    "MatMul, Softmax, MatMul": {"sdpa": ["f32"]},
}
_core = ov.Core()
_compiled = {}  # the model of the case at hand: copies of its tensors share it


def request(key, build, feeds, threads, shape):
    if key not in _compiled:
        _compiled.clear()
        parameters, node = build()
        # f32 arithmetic is asked for: it would take bf16 by itself.
        _compiled[key] = _core.compile_model(ov.Model([node], parameters), "CPU", {
            "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY",
            "ENABLE_CPU_PINNING": False})  # fmt: skip
    asked = _compiled[key].create_infer_request()
    for index, array in enumerate(feeds):
        asked.set_input_tensor(index, ov.Tensor(np.ascontiguousarray(array)))
    return asked.infer, lambda: asked.get_output_tensor(0).data.reshape(shape)


def seen(case, extras, causal):
    """Positions, lengths and masks as one additive mask, or None."""
    q, k = np.arange(case["Tq"])[:, None], np.arange(case["Tkv"])[None, :]
    found = np.ones((1, 1, case["Tq"], case["Tkv"]), bool)
    found = found & (k <= q) if causal else found
    found = found & (k >= q - case["window"][0]) if case.get("window") else found
    found = found & (k < case["Tkv"] - case["pad"]) if case.get("pad") else found
    found = found & (k < extras["lengths"][:, None, None, None]) if "lengths" in extras else found
    if "mask" in extras and extras["mask"].dtype == bool:
        found = found & extras["mask"]
    added = extras["mask"] if "mask" in extras and extras["mask"].dtype != bool else 0
    if found.all() and "mask" not in extras:
        return None
    mask = np.where(found, np.float32(0), np.float32(-np.inf)) + np.float32(added)
    return np.ascontiguousarray(np.broadcast_to(mask, (*mask.shape[:2], case["Tq"], case["Tkv"])), np.float32)


def attention(case, q, k, v, extras, threads):
    if case.get("softcap") or "sinks" in extras:
        raise NotImplementedError("ScaledDotProductAttention has no softcap and no sinks here")
    shape = (case["B"], case["H"], case["Tq"], v.shape[3])
    group = case["H"] // case["Hkv"]
    if group > 1 and case["Tq"] == 1:  # one query: the heads of a group are rows
        q, group = q.reshape(case["B"], case["Hkv"], group, case["d"]), 1
    only_causal = case["causal"] and not (case.get("window") or case.get("pad") or extras)
    mask = None if only_causal else seen(case, extras, case["causal"])

    def build():
        parameters = [op.parameter(array.shape, ov.Type.f32) for array in (q, k, v)]
        arguments = [parameters[0]] + [repeated(p, group) for p in parameters[1:]]
        arguments += [] if mask is None else [op.constant(mask)]
        return parameters, op.scaled_dot_product_attention(*arguments, causal=only_causal)

    return request(("attention", str(case)), build, (q, k, v), threads, shape)


def repeated(parameter, group):
    """[B,H_kv,T,d] with every head as often as a group has heads: the pattern that exporters write and the plugin folds."""
    if group == 1:
        return parameter
    batch, heads, length, width = parameter.shape
    wide = op.broadcast(op.unsqueeze(parameter, op.constant(np.array(2))), op.constant(np.array([batch, heads, group, length, width])))
    return op.reshape(wide, op.constant(np.array([batch, heads * group, length, width])), False)


def composed(case, q, k, v, extras, threads):
    if not (case.get("softcap") or "sinks" in extras):
        raise NotImplementedError("left to ScaledDotProductAttention")
    group, mask = case["H"] // case["Hkv"], seen(case, extras, case["causal"])

    def build():
        parameters = [op.parameter(array.shape, ov.Type.f32) for array in (q, k, v)]
        key, value = (repeated(p, group) for p in parameters[1:])
        scores = op.multiply(op.matmul(parameters[0], key, False, True), op.constant(np.float32(case["d"] ** -0.5)))
        if case.get("softcap"):
            cap = op.constant(np.float32(case["softcap"]))
            scores = op.multiply(op.tanh(op.divide(scores, cap)), cap)
        if mask is not None:
            scores = op.add(scores, op.constant(mask))
        if "sinks" not in extras:
            return parameters, op.matmul(op.softmax(scores, 3), value, False, False)
        sink = np.broadcast_to(extras["sinks"][None, :, None, None], (case["B"], case["H"], case["Tq"], 1)).copy()
        weights = op.softmax(op.concat([scores, op.constant(sink)], 3), 3)
        ends = [op.constant(np.array([n])) for n in (0, case["Tkv"], 1, 3)]
        return parameters, op.matmul(op.slice(weights, *ends), value, False, False)

    return request(("composed", str(case)), build, (q, k, v), threads, (case["B"], case["H"], case["Tq"], v.shape[3]))


def layer(case, data, threads):
    x, in_proj, in_bias, out_proj, out_bias = data
    B, T, D, H = (case[name] for name in "BTDH")

    def build():
        parameter = op.parameter(x.shape, ov.Type.f32)

        def heads(index):
            rows = slice(index * D, (index + 1) * D)
            wide = op.add(op.matmul(parameter, op.constant(in_proj[rows]), False, True), op.constant(in_bias[rows]))
            split = op.reshape(wide, op.constant(np.array([B, T, H, D // H])), False)
            return op.transpose(split, op.constant(np.array([0, 2, 1, 3])))

        joined = op.transpose(op.scaled_dot_product_attention(heads(0), heads(1), heads(2), causal=False), op.constant(np.array([0, 2, 1, 3])))
        rows = op.reshape(joined, op.constant(np.array([B, T, D])), False)
        return [parameter], op.add(op.matmul(rows, op.constant(out_proj), False, True), op.constant(out_bias))

    return request(("layer", str(case)), build, [x], threads, x.shape)


def make(peer, case, dtype, data, threads):
    if case["kind"] == "layer":
        return layer(case, data, threads)
    makers = dict(zip(PEERS, (attention, composed)))
    return makers[peer](case, *data[:3], data[3] if len(data) > 3 else {}, threads)
