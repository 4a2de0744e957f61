"""Gradients of an attention layer (mha_backward) beside central differences of the layer in float64, and what is promised of them. In every
run a third of the cases, and two of the features in one of them, which rotate with POLYHEAD_SWEEP_SEED; POLYHEAD_TEST_ALL=1: all."""
import itertools
import unittest

import numpy as np

import polyhead
from polyhead.tuning.problem import Task
from python_inputs import random, state_dict
from tier import sampled, sampled_cases

EPSILON = 1e-6


class Layer:
    """A problem, its tensors in float32, and the layer in float64."""

    def __init__(self, seed, batch=2, q=5, kv=None, embed=12, heads=2, kv_heads=None, dim=4, dim_v=None, kdim=None, vdim=None, tensors=None,
                 **fields):
        self.rng = np.random.default_rng(seed)
        self.batch, self.q, self.kv, self.cross = batch, q, kv or q, kv is not None
        self.embed, self.heads, self.kv_heads, self.dim, self.dim_v = embed, heads, kv_heads or heads, dim, dim_v or dim
        self.fields = fields
        self.options = {name: value for name, value in (tensors or {}).items()}
        self.inputs = {"query": self.tensor(batch, q, embed)}
        widths = {"k": embed, "v": embed}
        if self.cross:
            widths = {"k": kdim or embed, "v": vdim or embed}
            self.inputs.update(key=self.tensor(batch, kv, widths["k"]), value=self.tensor(batch, kv, widths["v"]))
        gate = {None: 0, "heads": heads, "entries": heads * self.dim_v}[fields.get("gate")]
        rows = {"q": (heads * dim, embed), "k": (self.kv_heads * dim, widths["k"]), "v": (self.kv_heads * self.dim_v, widths["v"]),
                "out": (embed, heads * self.dim_v), **({"gate": (gate, embed)} if gate else {})}
        self.weights = {"weight_" + name: self.tensor(*shape) * np.float32(1.5 * shape[1] ** -0.5) for name, shape in rows.items()}
        self.biases = {"bias_" + name: self.tensor(shape[0]) for name, shape in rows.items()} if fields.get("bias") else {}
        self.grad_out = self.tensor(batch, q, embed)
        self.problem = dict(embed_dim=embed, num_heads=heads, num_kv_heads=self.kv_heads, head_dim=dim, head_dim_v=self.dim_v, cross=self.cross,
                            **({"kdim": widths["k"], "vdim": widths["v"]} if self.cross else {}), **fields)

    def tensor(self, *shape):
        return self.rng.standard_normal(shape).astype("float32")

    def forward_kernel(self):
        return polyhead.compile("mha", keep_heads=True, **{n: v for n, v in self.problem.items() if not n.startswith("grad_")})

    def run(self, threads=None):
        """out, and the gradients by name."""
        forward = self.forward_kernel()
        named = {"weight_q": "query", "weight_k": "key", "weight_v": "value", "weight_out": "out_proj", "weight_gate": "gate"}
        sources = {**{named[n]: w for n, w in self.weights.items()},
                   **{named["weight_" + n[5:]].replace("_proj", "") + "_bias": b for n, b in self.biases.items()}}
        out, lse, *kept = forward(**self.inputs, weights=forward.pack(**sources), **self.options)
        names = ["query_heads", "key_heads", "value_heads"] + (["gate_heads"] if self.fields.get("gate") else []) + ["attended"]
        return out, self.backward(lse, dict(zip(names, kept)))

    def backward(self, lse, kept):
        backward = polyhead.compile("mha_backward", **self.problem)
        found = backward(**self.inputs, **kept, lse=lse, grad_out=self.grad_out, **self.weights, **self.options)
        names = [name for name in ("query", "key", "value", *self.weights, *self.biases) if name in self.values()]
        return dict(zip(names + self.other_gradients(), found))

    def other_gradients(self):
        """Tensors beside inputs, weights and biases that have a gradient, in the order of results."""
        names = [name for field, name in (("grad_score_bias", "score_bias"), ("grad_alibi", "alibi_slopes"), ("grad_sinks", "sinks"))
                 if self.fields.get(field)]
        for of in ("query_norm", "key_norm"):
            kinds = ("_weight", "_bias") if self.fields.get(of) == "layer" else ("_weight",)
            names += [of + kind for kind in kinds] if self.fields.get("grad_" + of) else []
        return names

    # ---- in float64

    def norm(self, x, kind, epsilon, weight, bias):
        if kind is None:
            return x
        x = x - x.mean(-1, keepdims=True) if kind == "layer" else x
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon)
        x = x if weight is None else x * (weight + (kind == "rms_plus_one"))
        return x if bias is None else x + bias

    def rotate(self, x, start=0):
        if not self.fields.get("rope"):
            return x
        cos, sin = (self.options["rope_" + name][start:start + x.shape[2]].astype("float64") for name in ("cos", "sin"))
        half = x.shape[-1] // 2
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def seen(self):
        f, o = self.fields, self.options
        q, kv = np.arange(self.q)[:, None], np.arange(self.kv)[None, :]
        seen = np.ones((self.batch, self.heads, self.q, self.kv), bool)
        if f.get("causal"):
            seen &= kv <= q + (self.kv - self.q if f["causal"] == "bottom_right" else 0)
        if "window" in o:
            seen &= (kv >= q - o["window"][0]) & (kv <= q + o["window"][1])
        if "kv_lengths" in o:
            seen &= kv < o["kv_lengths"][:, None, None, None]
        if f.get("mask") == "bool":
            seen &= o["mask"]
        return seen

    def loss(self, values):
        """sum(out * grad_out) of the tensors by name."""
        f, o = self.fields, self.options

        def project(name, source, heads):
            x = values[source] @ values["weight_" + name].T + values.get("bias_" + name, 0)
            return x.reshape(self.batch, x.shape[1], heads, -1).swapaxes(1, 2)

        key, value = ("key", "value") if self.cross else ("query", "query")
        given = {n: values[n] for n in values if n.endswith(("_norm_weight", "_norm_bias"))}
        q, k, v = project("q", "query", self.heads), project("k", key, self.kv_heads), project("v", value, self.kv_heads)
        epsilon = o.get("norm_epsilon", 0)
        q = self.norm(q, f.get("query_norm"), epsilon, given.get("query_norm_weight"), given.get("query_norm_bias"))
        k = self.norm(k, f.get("key_norm"), epsilon, given.get("key_norm_weight"), given.get("key_norm_bias"))
        v = self.norm(v, "rms" if f.get("value_norm") else None, epsilon, None, None)
        q, k = self.rotate(q), self.rotate(k)
        k, v = (np.repeat(x, self.heads // self.kv_heads, 1) for x in (k, v))
        logits = q @ k.swapaxes(-1, -2) * self.dim ** -0.5
        if f.get("softcap"):
            logits = o["softcap"] * np.tanh(logits / o["softcap"])
        logits = logits + values.get("score_bias", 0)
        if f.get("alibi"):
            logits = logits - values["alibi_slopes"][:, None, None] * abs(np.arange(self.q)[:, None] - np.arange(self.kv))
        logits = np.where(self.seen(), logits, -np.inf)
        sinks = values["sinks"][None, :, None, None] if f.get("sinks") else np.full((1, self.heads, 1, 1), -np.inf)
        largest = np.maximum(logits.max(-1, keepdims=True), sinks)
        largest = np.where(np.isfinite(largest), largest, 0)
        weights = np.exp(logits - largest)
        total = weights.sum(-1, keepdims=True) + np.exp(sinks - largest)
        heads = weights / np.where(total > 0, total, 1) @ v
        if f.get("head_gate"):
            heads = heads * o["head_gate"][:, None, None]
        if f.get("gate"):
            heads = heads / (1 + np.exp(-project("gate", "query", self.heads)))
        out = heads.swapaxes(1, 2).reshape(self.batch, self.q, -1) @ values["weight_out"].T + values.get("bias_out", 0)
        return out, (out * self.grad_out).sum()

    def values(self):
        """Every tensor that may have a gradient."""
        more = {name: x for name, x in self.options.items() if name in ("score_bias", "alibi_slopes", "sinks") or "_norm_" in name}
        return {name: x.astype("float64") for name, x in {**self.inputs, **self.weights, **self.biases, **more}.items()}

    def gradient(self, name, most=40):
        """Places of some entries of a tensor, and its gradient there."""
        values = self.values()
        size = values[name].size
        places = np.arange(size) if size <= most else self.rng.choice(size, most, replace=False)
        found = []
        for place in places:
            ends = []
            for step in (EPSILON, -EPSILON):
                moved = dict(values)
                moved[name] = values[name].copy()
                moved[name].reshape(-1)[place] += step
                ends.append(self.loss(moved)[1])
            found.append((ends[0] - ends[1]) / (2 * EPSILON))
        return places, np.array(found)


def tables(rows, dim):
    angle = np.outer(np.arange(rows), 100.0 ** (-np.arange(dim // 2) / (dim // 2)))
    return {"rope_cos": np.cos(angle).astype("float32"), "rope_sin": np.sin(angle).astype("float32")}


def cases():
    """Layers of every feature."""
    yield "plain", Layer(1, bias=True)
    yield "causal, grouped heads", Layer(2, q=37, heads=4, kv_heads=2, causal="top_left", bias=True)
    yield "cross, other widths", Layer(3, q=6, kv=150, kdim=20, vdim=9, dim=5, dim_v=7, bias=True)
    yield "causal cross", Layer(4, q=9, kv=4, causal="bottom_right")
    yield "lengths", Layer(5, batch=3, q=7, kv=40, kv_lengths=True, bias=True, tensors={"kv_lengths": np.array([0, 17, 40], "int32")})
    yield "window", Layer(6, q=30, window=True, tensors={"window": (3, 2)})
    mask = np.random.default_rng(0).random((2, 1, 11, 11)) < 0.4
    yield "mask", Layer(7, q=11, mask="bool", tensors={"mask": mask})
    yield "bias of logits", Layer(8, q=10, score_bias=True, grad_score_bias=True, tensors={"score_bias": random(1, 2, 10, 10)})
    yield "softcap, slopes", Layer(9, q=8, softcap=True, alibi=True, grad_alibi=True, causal="top_left",
                                   tensors={"softcap": 2.0, "alibi_slopes": random(2, 2)})
    yield "sinks, gates", Layer(10, q=8, sinks=True, grad_sinks=True, head_gate=True, gate="heads", bias=True,
                                tensors={"sinks": random(3, 2), "head_gate": random(4, 2)})
    yield "gates of entries", Layer(11, q=8, gate="entries", dim=6, bias=True)
    yield "norms, rotation", Layer(12, q=20, heads=4, kv_heads=2, dim=8, rope="half_split", query_norm="rms", key_norm="rms_plus_one",
                                   value_norm=True, grad_query_norm=True, tensors={**tables(20, 8), "norm_epsilon": 1e-5, "query_norm_weight": random(5, 8),
                                                             "key_norm_weight": random(6, 8)})
    yield "layer norm", Layer(13, q=9, query_norm="layer", key_norm="layer", dim=10, bias=True, grad_query_norm=True, grad_key_norm=True,
                              tensors={"norm_epsilon": 1e-5, **{name: random(i, 10) for i, name in enumerate(
                                  ("query_norm_weight", "query_norm_bias", "key_norm_weight", "key_norm_bias"))}})
    yield "wide", Layer(14, batch=1, q=131, embed=72, heads=3, dim=24, bias=True)


class Gradients(unittest.TestCase):
    def compare(self, layer, found):
        for name, array in found.items():
            self.assertTrue(np.isfinite(array).all(), name)
            places, expected = layer.gradient(name)
            of_places = array.reshape(-1)[places].astype("float64")
            limit = 2e-5 * max(1, abs(expected).max()) * layer.q ** 0.5
            self.assertLessEqual(abs(of_places - expected).max(), limit, name)

    def test_beside_central_differences(self):
        for title, layer in sampled("layers", list(cases()), 7):
            with self.subTest(title):
                out, found = layer.run()
                np.testing.assert_allclose(out, layer.loss(layer.values())[0], rtol=1e-4, atol=1e-5)
                expected = {name: layer.values()[name].shape for name in (*layer.inputs, *layer.weights, *layer.biases, *layer.other_gradients())}
                self.assertEqual({name: x.shape for name, x in found.items()}, expected)
                self.compare(layer, found)

    def test_sixteen_bits(self):
        layer = Layer(20, q=20, embed=32, dim=16, bias=True, dtype="f16", f32_weights=True, causal="top_left")
        layer.weights = {name: x.astype("float16").astype("float32") for name, x in layer.weights.items()}
        layer.inputs = {name: x.astype("float16") for name, x in layer.inputs.items()}
        layer.grad_out = layer.grad_out.astype("float16")
        _, found = layer.run()
        self.assertEqual({found["query"].dtype.name, found["weight_q"].dtype.name}, {"float16", "float32"})
        for name, array in found.items():
            places, expected = layer.gradient(name)
            limit = 6e-3 * max(1, abs(expected).max()) * (layer.batch * layer.q) ** 0.5  # rounding errors of rows are added up
            np.testing.assert_allclose(array.reshape(-1)[places], expected, atol=limit, err_msg=name)

    def test_what_takes_no_part_may_be_nan(self):
        """Keys behind the lengths, keys that a mask leaves out, and the queries of a batch row without keys."""
        lengths = np.array([0, 17, 40], "int32")
        layer = Layer(5, batch=3, q=7, kv=40, kv_lengths=True, bias=True, tensors={"kv_lengths": lengths})
        _, clean = layer.run()
        for name in ("key", "value"):
            for b, length in enumerate(lengths):
                layer.inputs[name][b, length:] = np.nan
        layer.inputs["query"][0] = np.nan
        _, found = layer.run()
        for name, array in found.items():
            np.testing.assert_array_equal(array, clean[name], name)

    def test_same_bits_for_any_number_of_threads(self):
        layer = Layer(30, batch=3, q=70, bias=True)
        before = polyhead.num_threads()
        try:
            results = []
            for threads in (1, 2, 5):
                polyhead.set_num_threads(threads)
                results.append(layer.run()[1])
        finally:
            polyhead.set_num_threads(before)
        for other, name in itertools.product(results[1:], results[0]):
            np.testing.assert_array_equal(other[name], results[0][name], name)

    def test_keeping_heads_does_not_change_out(self):
        layer = Layer(31, q=33, bias=True)
        plain = polyhead.compile("mha", **layer.problem)
        named = {"query": "q", "key": "k", "value": "v"}
        weights = plain.pack(out_proj=layer.weights["weight_out"], out_bias=layer.biases["bias_out"],
                             **{name: layer.weights["weight_" + n] for name, n in named.items()},
                             **{name + "_bias": layer.biases["bias_" + n] for name, n in named.items()})
        np.testing.assert_array_equal(plain(query=layer.inputs["query"], weights=weights), layer.run()[0])

    def test_an_empty_batch_has_gradients_of_0(self):
        layer = Layer(32, batch=2, bias=True)
        layer.batch = 0
        layer.inputs, layer.grad_out = {"query": layer.inputs["query"][:0]}, layer.grad_out[:0]
        _, found = layer.run()
        for name in (*layer.weights, *layer.biases):
            np.testing.assert_array_equal(found[name], np.zeros_like(found[name]), name)

    def test_no_keys_leave_the_gradient_of_the_last_bias(self):
        layer = Layer(33, batch=3, q=7, kv=40, kv_lengths=True, bias=True)
        layer.inputs = {name: x if name == "query" else x[:, :0] for name, x in layer.inputs.items()}
        _, found = layer.run()
        np.testing.assert_allclose(found["bias_out"], layer.grad_out.sum((0, 1)), rtol=1e-6, atol=1e-6)
        self.assertFalse(any(array.any() for name, array in found.items() if name != "bias_out"))


class MultiheadAttention(unittest.TestCase):
    def test_there_is_no_tuner(self):
        with self.assertRaisesRegex(polyhead.Error, "^op: found mha_backward, expected sdpa, mha, linear, sdpa_backward or linear_backward$"):
            Task("gradients", ["--op", "mha_backward", "--embed-dim", "8", "--num-heads", "2"], "host")

    def test_gradients_by_the_names_of_the_state_dict(self):
        state = state_dict(3, 24, 3)
        layer = polyhead.MultiheadAttention(24, 3)
        layer.load_state_dict(state)
        x, grad_out = random(1, 2, 9, 24), random(2, 2, 9, 24)
        out, weights, kept = layer(x, is_causal=True, keep_heads=True)
        np.testing.assert_array_equal(out, layer(x, is_causal=True)[0])
        self.assertIsNone(weights)
        self.assertEqual(kept.nbytes, 4 * (4 * 2 * 9 * 24 + 2 * 3 * 9))
        grad_query, grad_key, grad_value, grads = layer.backward(grad_out, kept)
        self.assertEqual((grad_key, grad_value), (None, None))
        self.assertEqual({name: array.shape for name, array in grads.items()}, {name: array.shape for name, array in state.items()})
        same = Layer(0, q=9, embed=24, heads=3, dim=8, causal="top_left", bias=True)
        same.inputs, same.grad_out = {"query": x}, grad_out
        for i, name in enumerate(("q", "k", "v")):
            same.weights["weight_" + name] = state["in_proj_weight"][24 * i:24 * i + 24]
            same.biases["bias_" + name] = state["in_proj_bias"][24 * i:24 * i + 24]
        same.weights["weight_out"], same.biases["bias_out"] = state["out_proj.weight"], state["out_proj.bias"]
        _, expected = same.run()
        np.testing.assert_array_equal(grad_query, expected["query"])
        np.testing.assert_array_equal(grads["in_proj_weight"][24:48], expected["weight_k"])
        np.testing.assert_array_equal(grads["in_proj_bias"][48:], expected["bias_v"])
        np.testing.assert_array_equal(grads["out_proj.weight"], expected["weight_out"])

    def test_without_batch_and_with_separate_weights(self):
        layer = polyhead.MultiheadAttention(16, 2, kdim=10, vdim=12)
        layer.load_state_dict(state_dict(4, 16, 2, kdim=10, vdim=12))
        out, _, kept = layer(random(1, 5, 16), random(2, 7, 10), random(3, 7, 12), keep_heads=True)
        grad_query, grad_key, grad_value, grads = layer.backward(np.ones_like(out), kept)
        self.assertEqual((grad_query.shape, grad_key.shape, grad_value.shape), ((5, 16), (7, 10), (7, 12)))
        self.assertEqual(grads["v_proj_weight"].shape, (16, 12))
        np.testing.assert_allclose(grads["out_proj.bias"], 5, rtol=1e-6)

    def test_refusals(self):
        layer = polyhead.MultiheadAttention(16, 2)
        layer.load_state_dict(state_dict(5, 16, 2))
        with self.assertRaisesRegex(TypeError, "^kept: found .*, expected what a call with keep_heads=True returned$"):
            layer.backward(random(1, 1, 3, 16), None)
        with self.assertRaisesRegex(polyhead.Error, "^keep_heads is not allowed with cache"):
            layer(random(1, 1, 3, 16), key_cache=random(1, 1, 2, 9, 8), value_cache=random(1, 1, 2, 9, 8), cache_lengths=[0], keep_heads=True)
        _, _, kept = layer(random(1, 1, 3, 16), keep_heads=True)
        with self.assertRaisesRegex(polyhead.Error, "^grad_out: extent 4 of dimension 1, expected 3 as in input$"):
            layer.backward(random(1, 1, 4, 16), kept)


load_tests = sampled_cases(__file__, 3)

if __name__ == "__main__":
    unittest.main()
