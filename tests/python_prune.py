"""polyhead.prune: sliced layers equal gated ones, importance finds what is known to be dead, refusals in one sentence."""
import pathlib
import tempfile
import unittest

import numpy as np

import polyhead
from polyhead import prune
from tier import sampled_cases

EMBED_DIM, HEADS, HEAD_DIM = 48, 6, 20  # H * d is not D, and no head fills whole panels of weights
LENGTHS = np.array([9, 4], np.int32)


def random_state(seed=0, heads=HEADS, kv_heads=HEADS, head_dim=HEAD_DIM, embed_dim=EMBED_DIM, bias=True):
    """Weights by the names of torch.nn.MultiheadAttention."""
    rng = np.random.default_rng(seed)
    rows, width = (heads + 2 * kv_heads) * head_dim, heads * head_dim
    state = {"in_proj_weight": rng.standard_normal((rows, embed_dim)) / np.sqrt(embed_dim),
             "out_proj.weight": rng.standard_normal((embed_dim, width)) / np.sqrt(width)}
    if bias:
        state.update({"in_proj_bias": rng.standard_normal(rows), "out_proj.bias": rng.standard_normal(embed_dim)})
    return {name: tensor.astype(np.float32) for name, tensor in state.items()}


def random_tokens(seed=1, shape=(2, 9, EMBED_DIM)):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def gate_of(kept, heads=HEADS):
    gate = np.zeros(heads, np.float32)
    gate[kept] = 1
    return gate


class Slicing(unittest.TestCase):
    def check(self, layer, kept, *inputs, **arguments):
        """The sliced layer gives what the whole one gives with the other gates at 0."""
        gated = layer(*inputs, head_gate=gate_of(kept, layer.num_heads), **arguments)
        sliced = layer.keep(kept)
        np.testing.assert_allclose(sliced(*inputs, **arguments), gated, rtol=2e-5, atol=2e-5)
        whole = layer(*inputs, **arguments)
        self.assertGreater(np.abs(whole - gated).max(), 1e-2)
        return sliced

    def test_equals_gates(self):
        layer = prune.Layer(random_state(), HEADS)
        for kept in ([5], [1, 2, 4]):
            with self.subTest(kept=kept):
                sliced = self.check(layer, kept, random_tokens(), kv_lengths=LENGTHS)
                self.assertEqual((sliced.num_heads, sliced.head_dim, sliced.embed_dim), (len(kept), HEAD_DIM, EMBED_DIM))
                self.assertEqual(sliced.tensors["in_proj"].shape, (3 * len(kept) * HEAD_DIM, EMBED_DIM))

    def test_order_of_heads_does_not_matter(self):
        layer = prune.Layer(random_state(), HEADS)
        self.assertTrue(np.array_equal(layer.keep([4, 1, 2]).tensors["in_proj"], layer.keep((1, 2, 4)).tensors["in_proj"]))

    def test_without_bias_and_causal(self):
        self.check(prune.Layer(random_state(bias=False), HEADS, problem={"causal": "top_left"}), [0, 3], random_tokens())

    def test_grouped_heads(self):
        layer = prune.Layer(random_state(kv_heads=3), HEADS)
        self.assertEqual((layer.num_kv_heads, layer.head_dim), (3, HEAD_DIM))
        self.assertEqual(self.check(layer, [0, 1, 4, 5], random_tokens()).num_kv_heads, 2)
        self.assertEqual(self.check(layer, [1, 2, 4], random_tokens()).num_kv_heads, 3)

    def test_cross_attention_with_separate_projections(self):
        rng = np.random.default_rng(3)
        state = {name: rng.standard_normal(shape).astype(np.float32) / 6 for name, shape in (
            ("q_proj_weight", (80, 48)), ("k_proj_weight", (80, 24)), ("v_proj_weight", (48, 40)), ("in_proj_bias", (208,)),
            ("out_proj.weight", (48, 48)), ("out_proj.bias", (48,)))}
        layer = prune.Layer(state, 4)
        self.assertEqual((layer.head_dim, layer.head_dim_v, layer.kdim, layer.vdim), (20, 12, 24, 40))
        self.check(layer, [0, 2], random_tokens(), random_tokens(5, (2, 7, 24)), random_tokens(6, (2, 7, 40)))

    def test_names_of_other_models(self):
        state, width = random_state(), HEADS * HEAD_DIM
        parts = [np.split(state[name], 3) for name in ("in_proj_weight", "in_proj_bias")]
        other = {"a.output.dense.weight": state["out_proj.weight"], "a.output.dense.bias": state["out_proj.bias"],
                 "a.output.LayerNorm.weight": np.ones(EMBED_DIM, np.float32)}
        for i, name in enumerate(("query", "key", "value")):
            other.update({"a.self.%s.weight" % name: parts[0][i], "a.self.%s.bias" % name: parts[1][i]})
        x = random_tokens()
        layer = prune.Layer(other, HEADS, prefix="a.")
        self.assertTrue(np.array_equal(layer(x), prune.Layer(state, HEADS)(x)))
        self.assertEqual(self.check(layer, [1, 2, 4], x).names["query"], "a.self.query.weight")
        del other["a.self.key.bias"]
        state["in_proj_bias"][width : 2 * width] = 0
        np.testing.assert_allclose(prune.Layer(other, HEADS, prefix="a.")(x), prune.Layer(state, HEADS)(x), rtol=1e-5, atol=1e-5)

    def test_file_keeps_names_and_types(self):
        import ml_dtypes

        for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
            state = {"b." + name: tensor.astype(dtype) for name, tensor in random_state().items()}
            layer = prune.Layer(state, HEADS, prefix="b.").keep([1, 4])
            with self.subTest(dtype=dtype), tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "new" / "layer.safetensors"
                self.assertEqual(layer.save(path, {"kept": "1,4"}), path.stat().st_size)
                self.assertEqual([p.name for p in path.parent.iterdir()], [path.name])
                back = prune.load(path, 2, prefix="b.")
                for role, tensor in layer.tensors.items():
                    self.assertEqual(back.tensors[role].dtype, np.dtype(dtype))
                    self.assertTrue(np.array_equal(back.tensors[role].astype(np.float32), tensor.astype(np.float32)), role)


class Importance(unittest.TestCase):
    def constructed(self):
        """Values are constants, so head h adds W_O_h b_h wherever it looks: of norm 0 for the dead ones, h otherwise."""
        state = random_state()
        width, dead = HEADS * HEAD_DIM, (2, 5)
        state["in_proj_weight"][2 * width :] = 0
        state["in_proj_bias"][2 * width :] = 1
        norms = np.array([0.0 if h in dead else 1.0 + h for h in range(HEADS)])
        for h in range(HEADS):
            part = np.zeros((EMBED_DIM, HEAD_DIM), np.float32)
            part[h] = norms[h] / HEAD_DIM  # heads add to different elements of the output
            state["out_proj.weight"][:, h * HEAD_DIM : (h + 1) * HEAD_DIM] = part
        state["out_proj.bias"][:] = 0
        return prune.Layer(state, HEADS), norms

    def test_known_layer(self):
        layer, norms = self.constructed()
        x = random_tokens()
        np.testing.assert_allclose(prune.output_norm(layer, x), norms, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(prune.ablation(layer, x), norms / np.linalg.norm(norms), rtol=1e-5, atol=1e-7)
        for measure in prune.MEASURES.values():
            self.assertEqual(prune.rank(measure(layer, x)), [2, 5, 0, 1, 3, 4])
            self.assertEqual(prune.kept_heads(measure(layer, x), 2), [0, 1, 3, 4])
        np.testing.assert_allclose(layer.keep([0, 1, 3, 4])(x), layer(x), rtol=1e-5, atol=1e-6)

    def test_padding_is_left_out(self):
        layer = prune.Layer(random_state(), HEADS)
        x = random_tokens()
        dirty = x.copy()
        dirty[1, 4:] = 1e6
        for name, measure in prune.MEASURES.items():
            with self.subTest(name):
                clean = measure(layer, x, kv_lengths=LENGTHS)
                self.assertTrue(np.array_equal(measure(layer, dirty, kv_lengths=LENGTHS), clean))
        alone = prune.output_norm(layer, x[1:, :4])
        both = prune.output_norm(layer, x, kv_lengths=LENGTHS)
        np.testing.assert_allclose(both, (9 * prune.output_norm(layer, x[:1]) + 4 * alone) / 13, rtol=1e-4)

    def test_models(self):
        weights = np.array([[3.0, 1.0], [0.0, 2.0]])
        changes = prune.model_ablation(lambda gates: gates * weights, (2, 2), lambda full, changed: float((full - changed).sum()))
        self.assertTrue(np.array_equal(changes, weights))
        self.assertEqual(prune.rank(changes), [(1, 0), (0, 1), (1, 1), (0, 0)])
        self.assertEqual(prune.kept_heads(changes, 2), [[0], [1]])
        self.assertEqual(prune.kept_heads([[1, 2], [8, 9]], 2), [[1], [1]])  # a layer keeps one

    def test_numbers_fractions_and_groups(self):
        self.assertEqual(prune.kept_heads([4, 1, 3, 2], 0.5), [0, 2])
        self.assertEqual(prune.kept_heads([1, 1, 1], 1), [1, 2])
        self.assertEqual(prune.kept_heads([5, 0, 1, 2], 2, num_kv_heads=2), [0, 1])
        self.assertEqual(prune.kept_heads([5, 0, 7, 8, 1, 2, 3, 4], 2, num_kv_heads=2), [0, 2, 3, 5, 6, 7])  # one of each group
        self.assertEqual(prune.kept_heads([3, 1, 2], 1, num_kv_heads=1), [0, 2])


class Sizes(unittest.TestCase):
    def test_bytes_follow_the_kept_heads(self):
        layer = prune.Layer(random_state(heads=12, kv_heads=12, head_dim=32, embed_dim=384), 12)
        x = random_tokens(shape=(1, 8, 384))
        for kept in ([3], range(6), range(11)):
            found = prune.compare(layer, layer.keep(kept), x, rounds=1, seconds=0)
            with self.subTest(kept=kept):
                for before, after in (found.weights_bytes, found.tensor_bytes):
                    self.assertLessEqual(after / before, 1.02 * found.kept_fraction)

    def test_generate_line(self):
        line = prune.Layer(random_state(kv_heads=3), HEADS).keep([0, 1]).generate_line("small")
        self.assertTrue(line.startswith("./polyhead generate small --op mha"), line)
        for words in ("--embed-dim 48", "--num-heads 2", "--num-kv-heads 1", "--head-dim 20", "--bias", "--kv-lengths"):
            self.assertIn(words, line)


class Refusals(unittest.TestCase):
    def refused(self, words, function, *arguments, **options):
        with self.subTest(words), self.assertRaises(polyhead.Error) as caught:
            function(*arguments, **options)
        self.assertRegex(str(caught.exception), words)
        self.assertNotIn("\n", str(caught.exception))

    def test_heads(self):
        layer = prune.Layer(random_state(), HEADS)
        self.refused("keep: found no head, expected at least one of 6", layer.keep, [])
        self.refused("keep: found head 6, expected heads 0 to 5", layer.keep, [0, 6])
        self.refused("keep: found head -1, expected", layer.keep, [-1])
        self.refused("keep: found head 1.5, expected", layer.keep, [1.5])
        self.refused("keep: found head 2 twice", layer.keep, [2, 2])
        self.refused("remove: found 6 of 6 heads, expected at most 5", prune.kept_heads, np.ones(6), 6)
        self.refused("remove: found 1.0, expected a number", prune.kept_heads, np.ones(6), 1.0)
        self.refused("remove: found -1, expected a number", prune.kept_heads, np.ones(6), -1)
        self.refused("remove: found 11 of 12 heads, expected at most 10", prune.kept_heads, np.ones((2, 6)), 11)
        self.refused("importance: found NaN", prune.rank, [1, np.nan])
        self.refused(r"importance: found \[\]", prune.rank, 1.0)

    def test_groups(self):
        layer = prune.Layer(random_state(kv_heads=3), HEADS)
        self.refused(r"key/value heads \[0, 1\] would serve \[2, 1\] query heads.* whole groups of 2", layer.keep, [0, 1, 2])
        self.refused("remove: found 1 of 6 heads in groups of 2, expected a multiple of 2 or of 3", prune.kept_heads, np.ones(6), 1, 3)

    def test_gates(self):
        layer = prune.Layer(random_state(), HEADS)
        for length in (5, 7):
            self.refused("head_gate", layer, random_tokens(), head_gate=np.ones(length, np.float32))
        self.refused("extent 47 of dimension 2, expected 48", layer, random_tokens(shape=(2, 9, 47)))

    def test_weights(self):
        state = random_state()
        self.refused("out_proj.weight: 120 columns, expected a multiple of 7", prune.Layer, state, 7)
        self.refused("num_heads: found 0", prune.Layer, state, 0)
        self.refused("in_proj_weight: 359 rows", prune.Layer, {**state, "in_proj_weight": state["in_proj_weight"][:-1]}, HEADS)
        self.refused(r"in_proj_bias: found \[359\], expected \[360\]", prune.Layer, {**state, "in_proj_bias": state["in_proj_bias"][:-1]}, HEADS)
        self.refused("out_proj.bias: missing, expected because in_proj_bias is", prune.Layer, {n: t for n, t in state.items() if n != "out_proj.bias"}, HEADS)
        self.refused("weights: missing out_proj.weight", prune.Layer, {"in_proj_weight": state["in_proj_weight"]}, HEADS)
        self.refused("weights: missing in_proj_weight or q_proj_weight", prune.Layer, {}, HEADS)
        self.refused("bias_k: unexpected", prune.Layer, {**state, "bias_k": state["out_proj.bias"]}, HEADS)
        self.refused("dtype int32, expected a float", prune.Layer, {**state, "in_proj_bias": np.zeros(360, np.int32)}, HEADS)
        self.refused(r"found \[48\], expected 2 dimensions", prune.Layer, {**state, "out_proj.weight": np.zeros(48, np.float32)}, HEADS)
        self.refused("found together with", prune.Layer, {**state, "q_proj_weight": state["out_proj.weight"]}, HEADS)
        self.refused("cannot read '/nowhere/x' as a safetensors file", prune.load, "/nowhere/x", HEADS)


load_tests = sampled_cases(__file__, 3)

if __name__ == "__main__":
    unittest.main()
