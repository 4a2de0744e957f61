"""OpenVINO on the CPU: ScaledDotProductAttention, alone and inside a layer; softcap and sinks by its operators."""

import numpy as np
import openvino as ov
import openvino.opset13 as op
from compare import storage

VERSION = ov.__version__.split("-")[0]
PACKAGE = "openvino"
ALL = ["f32", "bf16", "f16"]
WIDE = ", f32 tensors"  # and arithmetic of the type inside, as a program does whose tensors are f32
PEERS = {
    "ScaledDotProductAttention": {"sdpa": ALL, "layer": ALL},
    "MatMul, Softmax, MatMul": {"sdpa": ALL},
    "ScaledDotProductAttention" + WIDE: {"sdpa": ALL[1:], "layer": ALL[1:]},
    "MatMul, Softmax, MatMul" + WIDE: {"sdpa": ALL[1:]},
}
TYPES = {"f32": ov.Type.f32, "bf16": ov.Type.bf16, "f16": ov.Type.f16}
_core = ov.Core()
_compiled = {}  # the model of the case at hand: copies of its tensors share it


class Way:
    """The type of tensors and the type of arithmetic inside."""

    def __init__(self, peer, dtype):
        self.arithmetic = dtype if {"bf16": "BF16", "f16": "FP16"}.get(dtype, "FP32") in _core.get_property("CPU", "OPTIMIZATION_CAPABILITIES") else "f32"
        if peer.endswith(WIDE) and self.arithmetic != dtype:
            raise NotImplementedError("no arithmetic of %s on this machine" % dtype)
        self.dtype = "f32" if peer.endswith(WIDE) else dtype
        self.type = TYPES[self.dtype]

    def parameters(self, *arrays):
        return [op.parameter(array.shape, self.type) for array in arrays]

    def constant(self, array):
        return op.constant(array, dtype=self.type)

    def tensor(self, array):
        made = ov.Tensor(self.type, list(array.shape))
        if self.dtype == "bf16":  # NumPy has no such type
            made.data.view(np.uint16)[...] = storage.upper_halves(array)
        else:
            made.data[...] = array
        return made

    def array(self, tensor):
        return storage.from_upper_halves(tensor.data.view(np.uint16)) if self.dtype == "bf16" else tensor.data

    def request(self, name, build, feeds, case, threads, shape):
        key = (name, self.dtype, self.arithmetic, str(case))
        if key not in _compiled:
            _compiled.clear()
            parameters, node = build()
            # The type of arithmetic is always named: the plugin would take bf16 by itself.
            _compiled[key] = _core.compile_model(ov.Model([node], parameters), "CPU", {
                "INFERENCE_PRECISION_HINT": self.arithmetic, "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY",
                "ENABLE_CPU_PINNING": False})  # fmt: skip
        asked = _compiled[key].create_infer_request()
        for index, array in enumerate(feeds):
            asked.set_input_tensor(index, self.tensor(array))
        return asked.infer, lambda: self.array(asked.get_output_tensor(0)).reshape(shape)


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


def attention(way, case, q, k, v, extras, threads):
    if case.get("softcap") or "sinks" in extras:
        raise NotImplementedError("ScaledDotProductAttention has no softcap and no sinks here")
    shape = (case["B"], case["H"], case["Tq"], v.shape[3])
    group = case["H"] // case["Hkv"]
    if group > 1 and case["Tq"] == 1:  # one query: the heads of a group are rows
        q, group = q.reshape(case["B"], case["Hkv"], group, case["d"]), 1
    only_causal = case["causal"] and not (case.get("window") or case.get("pad") or extras)
    mask = None if only_causal else seen(case, extras, case["causal"])

    def build():
        parameters = way.parameters(q, k, v)
        arguments = [parameters[0]] + [repeated(p, group) for p in parameters[1:]]
        arguments += [] if mask is None else [way.constant(mask)]
        return parameters, op.scaled_dot_product_attention(*arguments, causal=only_causal)

    return way.request("attention", build, (q, k, v), case, threads, shape)


def repeated(parameter, group):
    """[B,H_kv,T,d] with every head as often as a group has heads: the pattern that exporters write and the plugin folds."""
    if group == 1:
        return parameter
    batch, heads, length, width = parameter.shape
    wide = op.broadcast(op.unsqueeze(parameter, op.constant(np.array(2))), op.constant(np.array([batch, heads, group, length, width])))
    return op.reshape(wide, op.constant(np.array([batch, heads * group, length, width])), False)


def composed(way, case, q, k, v, extras, threads):
    if not (case.get("softcap") or "sinks" in extras):
        raise NotImplementedError("left to ScaledDotProductAttention")
    group, mask = case["H"] // case["Hkv"], seen(case, extras, case["causal"])

    def build():
        parameters = way.parameters(q, k, v)
        key, value = (repeated(p, group) for p in parameters[1:])
        scores = op.multiply(op.matmul(parameters[0], key, False, True), way.constant(np.float32(case["d"] ** -0.5)))
        if case.get("softcap"):
            cap = way.constant(np.float32(case["softcap"]))
            scores = op.multiply(op.tanh(op.divide(scores, cap)), cap)
        if mask is not None:
            scores = op.add(scores, way.constant(mask))
        if "sinks" not in extras:
            return parameters, op.matmul(op.softmax(scores, 3), value, False, False)
        sink = np.broadcast_to(extras["sinks"][None, :, None, None], (case["B"], case["H"], case["Tq"], 1)).copy()
        weights = op.softmax(op.concat([scores, way.constant(sink)], 3), 3)
        ends = [op.constant(np.array([n])) for n in (0, case["Tkv"], 1, 3)]
        return parameters, op.matmul(op.slice(weights, *ends), value, False, False)

    return way.request("composed", build, (q, k, v), case, threads, (case["B"], case["H"], case["Tq"], v.shape[3]))


def layer(way, case, data, threads):
    x, in_proj, in_bias, out_proj, out_bias = data
    B, T, D, H = (case[name] for name in "BTDH")

    def build():
        (parameter,) = way.parameters(x)

        def heads(index):
            rows = slice(index * D, (index + 1) * D)
            wide = op.add(op.matmul(parameter, way.constant(in_proj[rows]), False, True), way.constant(in_bias[rows]))
            split = op.reshape(wide, op.constant(np.array([B, T, H, D // H])), False)
            return op.transpose(split, op.constant(np.array([0, 2, 1, 3])))

        joined = op.transpose(op.scaled_dot_product_attention(heads(0), heads(1), heads(2), causal=False), op.constant(np.array([0, 2, 1, 3])))
        rows = op.reshape(joined, op.constant(np.array([B, T, D])), False)
        return [parameter], op.add(op.matmul(rows, way.constant(out_proj), False, True), way.constant(out_bias))

    return way.request("layer", build, [x], case, threads, x.shape)


def make(peer, case, dtype, data, threads):
    way = Way(peer, dtype)
    if case["kind"] == "layer":
        return layer(way, case, data, threads)
    maker = composed if peer.startswith("MatMul") else attention
    return maker(way, case, *data[:3], data[3] if len(data) > 3 else {}, threads)
