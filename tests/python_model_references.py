"""The rows of the table of models against Hugging Face Transformers in float64 (tests/data/models): a prompt and 32 tokens behind it.

Every layer twice: the formula of its fields, so that a row is right or not whatever kernels do, and the kernels themselves.
"""
import json
import pathlib
import unittest

import numpy as np

import polyhead
from plain_layer import normed, plain_layer, tables_of
from polyhead import models
from polyhead.reference import attention, join_heads, linear, rotated, split_heads, visible
from tier import sampled

FILES = {path.stem: path for path in sorted((pathlib.Path(__file__).parent / "data" / "models").glob("*.npz"))}
CAPACITY = 48


class Case:
    """A model of a file."""

    def __init__(self, name):
        with np.load(FILES[name]) as arrays:
            held = dict(arrays)
        about = json.loads(str(held["about"]))
        units = about["units"]
        self.layers = models.layers_of(about["config"])
        self.prompt, self.positions = about["prompt"], held.get("positions")
        self.valid = about["valid"]
        self.state = {key[len("weights/"):]: tensor / np.float32(units["matrix" if tensor.ndim > 1 else "vector"])
                      for key, tensor in held.items() if key.startswith("weights/")}
        self.inputs = {int(key[len("input/"):]): tensor[None] / np.float32(units["input"]) for key, tensor in held.items() if key.startswith("input/")}
        self.outs = {int(key[len("out/"):]): tensor[None] for key, tensor in held.items() if key.startswith("out/")}
        self.numbers = [(layer, number) for layer in self.layers for number in layer.layers]

    def calls(self, layer, number):
        """(first token, tokens) of each call: all at once, or the prompt and steps."""
        tokens = self.inputs[number].shape[1]
        return [(0, self.prompt)] + [(n, 1) for n in range(self.prompt, tokens)] if "causal" in layer.fields else [(0, tokens)]

    def rows(self, layer, number):
        """cos and sin of each token, in the tables of the call that it comes with; None without rotation."""
        if "causal" not in layer.fields:
            return None
        found = []
        for first, count in self.calls(layer, number):
            made = layer.tables(CAPACITY, length=first + count)
            positions = np.arange(first, first + count) if self.positions is None else self.positions[:, first:first + count]
            found.append(tables_of(layer.fields, made.cos, made.sin, positions))
        return tuple(np.concatenate(parts) for parts in zip(*found))

    def lengths(self):
        return None if self.valid is None else np.array([self.valid], np.int32)


def latent(layer, x, multiply, norm, attend):
    """DeepSeek-V3 as its row says; multiply(part, x), norm(part, x) and attend(query, key, value), which rotates, do the work."""
    c, heads = layer.config, layer.fields["num_heads"]
    plain, rank = c["qk_nope_head_dim"], c["kv_lora_rank"]
    query = split_heads(multiply("q_b", norm("q_a", multiply("q_a", x))), heads)
    made = multiply("kv_a", x)
    own = split_heads(multiply("kv_b", norm("kv_a", made[..., :rank])), heads)
    key = np.concatenate([own[..., :plain], np.repeat(made[:, None, :, rank:], heads, 1)], -1)
    return multiply("o", join_heads(attend(*(np.ascontiguousarray(part) for part in (query, key, own[..., plain:])))))


def normed_part(case, layer, number):
    return lambda part, x: normed(x, "rms", layer.tensor(case.state, number, part + "_norm"), 1e-6)


def formula(case, layer, number, written, dtype):
    """out of a layer by its fields. written: keys and values of the layers so far."""
    x, tables = case.inputs[number].astype(dtype), case.rows(layer, number)
    if layer.linears:
        tokens = x.shape[1]

        def attend(query, key, value):
            at = np.arange(tokens)[None]
            query, key = (rotated(part, *tables, at, interleaved=True, dtype=dtype, trailing=True) for part in (query, key))
            return attention(query, key, value, visible(tokens, tokens, causal=True), scale=layer.numbers["softmax_scale"], dtype=dtype).out

        return latent(layer, x, lambda part, rows: linear(rows, layer.weights(case.state, number, part)["out_proj"], None, dtype),
                      normed_part(case, layer, number), attend)
    shared = None if layer.reads is None else written[layer.reads]
    out, written[number] = plain_layer(layer.fields, layer.weights(case.state, number), layer.arguments(case.state, number, CAPACITY), x,
                                       tables, shared, case.lengths(), dtype)
    return out


def run_latent(case, layer, number):
    kernels = {part: polyhead.compile(**fields) for part, fields in layer.linears.items()}
    weights = {part: kernel.pack(**layer.weights(case.state, number, part)) for part, kernel in kernels.items()}
    attending, heads = polyhead.compile(**layer.fields), layer.fields["num_heads"]
    caches = [np.full((1, heads, CAPACITY, layer.fields[width]), np.nan, np.float32) for width in ("head_dim", "head_dim_v")]
    cos, sin, _ = layer.tables(CAPACITY)
    outs = []
    for first, count in case.calls(layer, number):

        def attend(query, key, value, first=first, count=count):
            before = np.array([first], np.int32)
            polyhead.append(*caches, key, value, before, rope=(cos, sin), rope_interleaved=True, rope_trailing=True)
            query = polyhead.rope(query, cos, sin, interleaved=True, trailing=True, positions=before)
            return attending(query=query, key=caches[0], value=caches[1], kv_lengths=before + np.int32(count), **layer.numbers)

        def multiply(part, rows):
            flat = np.ascontiguousarray(rows.reshape(-1, rows.shape[-1]))
            return kernels[part](input=flat, weights=weights[part]).reshape(*rows.shape[:-1], -1)

        outs.append(latent(layer, case.inputs[number][:, first:first + count], multiply, normed_part(case, layer, number), attend))
    return np.concatenate(outs, 1)


def run_kernels(case, layer, number, caches):
    """out of a layer by its kernels. caches: of the layers so far, by number."""
    if layer.linears:
        return run_latent(case, layer, number)
    kernel = polyhead.compile(**layer.fields)
    weights, x = kernel.pack(**layer.weights(case.state, number)), case.inputs[number]
    if "cache" not in layer.fields:
        lengths = {} if case.valid is None else {"kv_lengths": case.lengths()}
        return kernel(query=x, weights=weights, **lengths, **layer.arguments(case.state, number, CAPACITY))
    if layer.reads is None:
        shape = (1, layer.fields["num_kv_heads"], CAPACITY, layer.fields["head_dim"])
        caches[number] = [np.full(shape, np.nan, np.float32) for _ in range(2)]
    key_cache, value_cache = caches[number if layer.reads is None else layer.reads]
    outs = []
    for first, count in case.calls(layer, number):
        given = layer.arguments(case.state, number, CAPACITY, length=first + count)
        if case.positions is not None:
            given["positions_q"] = given["positions_kv"] = np.ascontiguousarray(case.positions[None, :, first:first + count])
        outs.append(kernel(query=np.ascontiguousarray(x[:, first:first + count]), weights=weights, key_cache=key_cache, value_cache=value_cache,
                           cache_lengths=np.array([first], np.int32), **given))
    return np.concatenate(outs, 1)


class References(unittest.TestCase):
    def test_every_model_and_rotation_has_a_file(self):
        self.assertEqual({case.layers[0].model_type for case in map(Case, FILES)}, set(models.MODELS))
        kinds = {"default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional"}
        found = {Case(name).layers[0].config["rope_parameters"]["rope_type"] for name in FILES if name.startswith("rope_") or name == "llama"}
        self.assertEqual(found, kinds)

    def test_fields_say_what_the_layer_computes(self):
        for name in FILES:
            case, written = Case(name), {}
            self.assertEqual({number for _, number in case.numbers}, set(case.outs), name)
            for layer, number in sorted(case.numbers, key=lambda one: one[1]):
                with self.subTest(name, kind=layer.kind, layer=number):
                    out = formula(case, layer, number, written, np.float64)
                    np.testing.assert_allclose(out, case.outs[number], rtol=2e-6, atol=2e-6)

    def test_kernels(self):
        """The tolerance of f32: docs/internals/testing.md."""
        for name in sampled("kernels of models", list(FILES), 6):
            case, written, caches = Case(name), {}, {}
            for layer, number in sorted(case.numbers, key=lambda one: one[1]):
                with self.subTest(name, kind=layer.kind, layer=number):
                    reference = case.outs[number].astype(np.float64)
                    plain = np.abs(formula(case, layer, number, written, np.float32) - reference).max()
                    out = run_kernels(case, layer, number, caches)
                    self.assertEqual((out.shape, out.dtype), (reference.shape, np.float32))
                    excess = np.abs(out - reference) - (1e-5 + 5e-6 * np.abs(reference) + 4 * plain)
                    self.assertLess(excess.max(), 0)


if __name__ == "__main__":
    unittest.main()
