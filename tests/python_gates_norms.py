"""Gates, norms and shared caches from Python: sdpa() in every layout, compiled layers, their reference for the tuner, and what is refused."""
import unittest

import numpy as np

import polyhead
from polyhead.reference import attention, join_heads, linear, normalised, rotated, sigmoid, split_heads
from polyhead.tuning import inputs, reference
from polyhead.tuning.problem import Shape
from python_inputs import random
from tier import sampled_cases

B, H, H_KV, T_Q, T_KV, D, D_V = 2, 4, 2, 9, 20, 16, 20  # values that no vector divides
QUERY, KEY, VALUE = random(1, B, H, T_Q, D), random(2, B, H_KV, T_KV, D), random(3, B, H_KV, T_KV, D_V)
WEIGHT, BIAS = random(4, D), random(5, D)
EPSILON = 1e-5


class Bare(unittest.TestCase):
    def test_gates_and_norms_in_every_layout(self):
        def bshd(x):
            return np.ascontiguousarray(x.transpose(0, 2, 1, 3))

        def bsd(x):
            return bshd(x).reshape(B, x.shape[2], -1)

        words = {"query_norm": "layer", "query_norm_weight": WEIGHT, "query_norm_bias": BIAS, "key_norm": "rms_plus_one",
                 "key_norm_weight": WEIGHT, "value_norm": True, "norm_epsilon": EPSILON}
        context = attention(normalised(QUERY, "layer", WEIGHT, BIAS, EPSILON), normalised(KEY, "rms_plus_one", WEIGHT, None, EPSILON),
                            normalised(VALUE, "rms", None, None, EPSILON)).out
        for gates in (D_V, 1):
            gate = 3 * random(6, B, H, T_Q, gates)
            gate[0, 1, 2], gate[1, 2, 3] = np.inf, -np.inf
            expected = context * sigmoid(gate)
            for layout, view, more in (("bhsd", lambda x: x, {}), ("bshd", bshd, {}), ("bsd", bsd, {"num_heads": H})):
                out = polyhead.sdpa(view(QUERY), view(KEY), view(VALUE), gate=view(gate), layout=layout, **words, **more)
                np.testing.assert_allclose(out, view(expected), rtol=1e-5, atol=1e-5)

    def test_gates_that_are_no_numbers(self):
        """A row that sees no key is 0, whatever its gate is; elsewhere NaN stays NaN."""
        for gates in (D_V, 1):
            gate = random(6, B, H, T_Q, gates)
            gate[0], gate[1, 2, 3, 0] = np.nan, np.nan
            out = polyhead.sdpa(QUERY, KEY, VALUE, gate=gate, kv_lengths=[0, T_KV])
            self.assertTrue((out[0] == 0).all())
            lost = np.zeros(out[1].shape, bool)
            lost[2, 3, :None if gates == 1 else 1] = True
            np.testing.assert_array_equal(np.isnan(out[1]), lost)

    def test_a_row_of_zeros(self):
        query = QUERY.copy()
        query[:, :, 4] = 0
        for kind, bias in (("rms", None), ("layer", BIAS)):
            out = polyhead.sdpa(query, KEY, VALUE, query_norm=kind, query_norm_bias=bias)
            expected = attention(normalised(query, kind, None, bias), KEY, VALUE).out
            np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)

    def test_what_is_refused(self):
        for sentence, words in (("query_norm_bias: found without query_norm 'layer'", {"query_norm": "rms", "query_norm_bias": BIAS}),
                                ("key_norm_weight: found without key_norm", {"key_norm_weight": WEIGHT}),
                                ("query_norm_weight: extent 3 of dimension 0, expected 16", {"query_norm": "rms", "query_norm_weight": WEIGHT[:3]}),
                                ("norm_epsilon: value 0, expected", {"key_norm": "rms", "norm_epsilon": 0}),
                                ("gate: extent 2 of dimension 1, expected 4", {"gate": random(6, B, 2, T_Q, D_V)}),
                                ("key_norm is not allowed with value_in_key", None)):
            with self.assertRaisesRegex(polyhead.Error, sentence):
                if words is None:
                    polyhead.compile("sdpa", num_heads=2, head_dim=8, key_norm="rms", value_in_key=True)
                else:
                    polyhead.sdpa(QUERY, KEY, VALUE, **words)
        with self.assertRaisesRegex(polyhead.Error, "query_norm: found .rsm., expected rms, rms_plus_one or layer"):
            polyhead.sdpa(QUERY, KEY, VALUE, query_norm="rsm")


class Layers(unittest.TestCase):
    WIDTH, BEFORE = 48, 11

    def run_layer(self, tokens, gate, interleaved, **fields):
        """A layer with a cache beside its formula; returns the keys and values that it wrote, and those that it should have written."""
        d = 16
        kernel = polyhead.compile("mha", embed_dim=self.WIDTH, num_heads=H, num_kv_heads=H_KV, head_dim=d, causal=True, cache=True, bias=False,
                                  rope="half_split", gate=gate, query_norm="rms", **fields)
        gates = {"none": 0, "heads": 1, "entries": d}[gate]
        x = random(7, B, tokens, self.WIDTH)
        weights = {name: random(n, rows, self.WIDTH) / 7 for n, (name, rows) in
                   enumerate({"query": H * d, "key": H_KV * d, "value": H_KV * d, "gate": H * gates}.items(), 10)}
        weights["out_proj"] = random(20, self.WIDTH, H * d) / 8
        given = {name: value for name, value in weights.items() if value.size}
        if interleaved:  # the gate of each head behind its query
            query, own = weights["query"].reshape(H, d, -1), given.pop("gate").reshape(H, gates, -1)
            given["query"] = np.concatenate([query, own], 1).reshape(H * (d + gates), -1)
        shared, from_key = fields.get("shared_cache", False), fields.get("value_from_key", False)
        for name in ["key", "value"] if shared else ["value"] if from_key else []:
            del given[name]
        together = fields.get("norm_of_projection", False)
        norm = {"query_norm_weight": random(21, d * (H if together else 1)), "norm_epsilon": EPSILON}
        if "key_norm" in fields:
            norm["key_norm_weight"] = random(22, d * (H_KV if together else 1))
        angles = np.arange(64)[:, None] * 0.3 ** np.arange(d // 2)
        tables = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        caches = random(23, 2, B, H_KV, self.BEFORE + tokens + 3, d)
        before = caches.copy()
        out = kernel(query=x, weights=kernel.pack(**given), key_cache=caches[0], value_cache=caches[1], rope_cos=tables[0], rope_sin=tables[1],
                     cache_lengths=np.full(B, self.BEFORE, np.int32), **norm)

        def heads(name, kind, count):
            y = linear(x, weights[name])
            weight = norm.get(name + "_norm_weight")
            return split_heads(normalised(y, kind, weight, None, EPSILON), count) if together else \
                normalised(split_heads(y, count), kind, weight, None, EPSILON)

        at = np.tile(self.BEFORE + np.arange(tokens), (B, 1))
        query = rotated(heads("query", "rms", H), *tables, at, False)
        end = self.BEFORE + tokens
        keys, values = (part[:, :, :end].astype(np.float64) for part in before)
        if not shared:
            keys[:, :, self.BEFORE:] = rotated(heads("key", fields.get("key_norm"), H_KV), *tables, at, False)
            values[:, :, self.BEFORE:] = split_heads(linear(x, weights["key" if from_key else "value"]), H_KV)
            if fields.get("value_norm"):
                values[:, :, self.BEFORE:] = normalised(values[:, :, self.BEFORE:], "rms", None, None, EPSILON)
        seen = np.arange(end) <= at[0][:, None]
        context = attention(query, keys, values, seen).out
        if gates:
            context = context * sigmoid(split_heads(linear(x, weights["gate"]), H))
        np.testing.assert_allclose(out, linear(join_heads(context), weights["out_proj"]), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(caches[:, :, :, :end], np.stack([keys, values]), rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(caches[:, :, :, end:], before[:, :, :, end:])

    def test_layers_of_models(self):
        for tokens in (1, 7):
            with self.subTest(tokens=tokens):
                self.run_layer(tokens, "entries", True, key_norm="rms_plus_one")  # Qwen3-Next
                self.run_layer(tokens, "none", False, key_norm="rms", value_norm=True, value_from_key=True)  # Gemma 4
                self.run_layer(tokens, "none", False, key_norm="rms", norm_of_projection=True)  # OLMo 2
                self.run_layer(tokens, "heads", False, shared_cache=True)

    def test_the_reference_of_the_tuner(self):
        for flags in ({"op": "mha", "embed_dim": 24, "num_heads": 4, "num_kv_heads": 2, "gate": "entries", "query_norm": "rms", "key_norm": "layer",
                       "value_norm": True, "norm_of_projection": True},
                      {"op": "mha", "embed_dim": 24, "num_heads": 2, "gate": "heads", "key_norm": "rms_plus_one", "value_from_key": True},
                      {"op": "sdpa", "num_heads": 2, "head_dim": 8, "gate": "heads", "query_norm": "layer", "value_norm": True}):
            kernel = polyhead.compile(**flags)
            fields, shape = fields_of(kernel), Shape(2, 5, 5)
            call, weights = inputs.arguments_of(fields, shape)
            expected = reference.expected(fields, shape, call, weights)
            out = kernel(**call, **({"weights": kernel.pack(**weights)} if weights else {}))
            self.assertLessEqual(float((abs(out[..., expected.rows, :] - expected.out) / expected.tolerance).max()), 1)


def fields_of(kernel):
    """The fields of a kernel as numbers."""
    return {name: polyhead._core.problem_fields[name].index(value) if isinstance(value, str) and name in polyhead._core.problem_fields
            else value for name, value in kernel.problem.items()}

load_tests = sampled_cases(__file__, 3)

if __name__ == "__main__":
    unittest.main()
