"""A layer with a cache from Python: texts in parts, contiguous and in pages, each step against float64."""
import unittest

import ml_dtypes
import numpy as np

import polyhead
from python_inputs import random, state_dict
from polyhead.reference import layer
from tier import sampled_cases

EMBED, HEADS, KV_HEADS, D, CAPACITY = 48, 4, 2, 12, 40
PARTS = (5, 1, 1, 3, 1, 17)  # tokens of the calls of a text


def made(dtype=None, seed=1):
    state = state_dict(seed, EMBED, HEADS, kv_heads=KV_HEADS)
    module = polyhead.MultiheadAttention(EMBED, HEADS, num_kv_heads=KV_HEADS, dtype=dtype)
    module.load_state_dict(state)
    return module, state


def causal(tokens):
    return np.tril(np.ones((tokens, tokens), bool))


class LayerCache(unittest.TestCase):
    def steps(self, module, text, caches, lengths, **options):
        """The outputs of a text in parts."""
        lengths, outs, first = np.array(lengths, np.int32), [], 0
        for count in PARTS:
            part = np.ascontiguousarray(text[:, first:first + count])
            outs.append(module(part, key_cache=caches[0], value_cache=caches[1], cache_lengths=lengths, is_causal=True, **options)[0])
            lengths, first = lengths + np.int32(count), first + count
        return np.concatenate(outs, 1)

    def test_a_text_in_parts_is_the_whole_text(self):
        for dtype, tolerance in ((np.float32, 1e-5), (np.float16, 1e-2), (ml_dtypes.bfloat16, 6e-2)):
            module, state = made()
            text = random(2, 2, sum(PARTS), EMBED).astype(dtype)
            expected = layer(state, HEADS, text.astype(np.float32), kv_heads=KV_HEADS, seen=causal(sum(PARTS)))[0]
            caches = [np.full((2, KV_HEADS, CAPACITY, D), np.nan, np.float32).astype(dtype) for _ in range(2)]
            out = self.steps(module, text, caches, [0, 0])
            self.assertEqual(out.dtype, dtype)
            np.testing.assert_allclose(out.astype(np.float64), expected, rtol=tolerance, atol=tolerance)
            for cache in caches:
                rows = cache.astype(np.float32)
                self.assertTrue(np.isfinite(rows[:, :, :sum(PARTS)]).all() and np.isnan(rows[:, :, sum(PARTS):]).all())

    def test_keys_of_other_texts_come_before(self):
        """Rows that begin behind keys that another text has left: the new text sees them too."""
        module, state = made()
        before, text = random(3, 2, 9, EMBED), random(4, 2, sum(PARTS), EMBED)
        caches = [np.zeros((2, KV_HEADS, CAPACITY, D), np.float32) for _ in range(2)]
        module(before, key_cache=caches[0], value_cache=caches[1], cache_lengths=[0, 0], is_causal=True)
        out = self.steps(module, text, caches, [9, 4])
        for b, kept in enumerate((9, 4)):
            whole = np.concatenate([before[b, :kept], text[b]])[None]
            expected = layer(state, HEADS, whole, kv_heads=KV_HEADS, seen=causal(whole.shape[1]))[0]
            np.testing.assert_allclose(out[b], expected[0, kept:], rtol=1e-5, atol=1e-5)

    def test_pages_give_the_same_bits_in_any_order(self):
        module, _ = made()
        text, size, columns = random(5, 2, sum(PARTS), EMBED), 4, 10
        answers = []
        for seed in (1, 2):
            table = np.random.default_rng(seed).permutation(25)[:2 * columns].reshape(2, columns).astype(np.int32)
            pool = [np.full((25, KV_HEADS, size, D), np.nan, np.float32) for _ in range(2)]
            answers.append((self.steps(module, text, pool, [0, 0], page_table=table),
                            [np.swapaxes(part[table], 1, 2).reshape(2, KV_HEADS, columns * size, D) for part in pool]))
        np.testing.assert_array_equal(answers[0][0], answers[1][0])
        for one, other in zip(answers[0][1], answers[1][1]):
            np.testing.assert_array_equal(one, other)
        contiguous = [np.full((2, KV_HEADS, CAPACITY, D), np.nan, np.float32) for _ in range(2)]
        out = self.steps(module, text, contiguous, [0, 0])
        np.testing.assert_allclose(answers[0][0], out, rtol=1e-5, atol=1e-5)
        for cache, paged in zip(contiguous, answers[0][1]):
            np.testing.assert_allclose(cache, paged, rtol=1e-5, atol=1e-6)

    def test_weights_are_over_the_capacity(self):
        module, state = made()
        text = random(6, 1, 7, EMBED)
        caches = [np.zeros((1, KV_HEADS, CAPACITY, D), np.float32) for _ in range(2)]
        weights = module(text, key_cache=caches[0], value_cache=caches[1], cache_lengths=[0], need_weights=True)[1]
        self.assertEqual(weights.shape, (1, 7, CAPACITY))
        np.testing.assert_allclose(weights[:, :, :7], layer(state, HEADS, text, kv_heads=KV_HEADS)[1].mean(1), rtol=1e-5, atol=1e-5)
        self.assertFalse(weights[:, :, 7:].any())

    def test_kernel_objects_rotate_what_they_store(self):
        kernel = polyhead.compile("mha", embed_dim=EMBED, num_heads=HEADS, num_kv_heads=KV_HEADS, cache=True, causal="bottom_right", rope="half_split")
        self.assertTrue({"key_cache", "value_cache", "cache_lengths"} <= set(kernel.arguments))
        in_proj, out_proj = random(7, EMBED + 2 * KV_HEADS * D, EMBED), random(8, EMBED, EMBED)
        angles = np.arange(CAPACITY)[:, None] * 100.0 ** (-np.arange(D // 2) / (D // 2))
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        text, weights = random(9, 1, 6, EMBED), kernel.pack(in_proj=in_proj, out_proj=out_proj)
        caches = [np.zeros((1, CAPACITY, KV_HEADS, D), np.float32) for _ in range(2)]
        for first, count in ((0, 4), (4, 1), (5, 1)):
            kernel(query=text[:, first:first + count], key_cache=caches[0], value_cache=caches[1], cache_lengths=np.array([first], np.int32),
                   rope_cos=cos, rope_sin=sin, weights=weights, layout="bshd")
        projected = text[0].astype(np.float64) @ in_proj.T.astype(np.float64)
        key, value = (projected[:, EMBED + i * KV_HEADS * D:][:, :KV_HEADS * D].reshape(6, KV_HEADS, D) for i in range(2))
        x, y, c, s = key[..., :D // 2], key[..., D // 2:], cos[:6, None], sin[:6, None]
        np.testing.assert_allclose(caches[0][0, :6], np.concatenate([x * c - y * s, y * c + x * s], -1), rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(caches[1][0, :6], value, rtol=1e-5, atol=1e-4)

    def test_a_window_in_a_ring_of_pages(self):
        """The pages of a ring are written over and over; a text in a ring has the bits that it has in pages of its own."""
        kernel = polyhead.compile("mha", embed_dim=EMBED, num_heads=HEADS, num_kv_heads=KV_HEADS, cache=True, page_size=4, causal="bottom_right", window=True)
        weights = kernel.pack(in_proj=random(12, EMBED + 2 * KV_HEADS * D, EMBED), out_proj=random(13, EMBED, EMBED))
        text, window_left, longest, columns = random(14, 2, 40, EMBED), 6, 5, 10
        ring = -(-(window_left + longest + 3) // 4)
        answers = []
        for pages in (columns, ring):
            table = (np.arange(2)[:, None] * pages + np.arange(columns) % pages).astype(np.int32)
            pool = [np.full((2 * pages, KV_HEADS, 4, D), np.nan, np.float32) for _ in range(2)]
            outs, first = [], 0
            for count in (5, 1, 1, 4, 5, 5, 1, 5, 5, 1, 5, 2):
                outs.append(kernel(query=text[:, first:first + count], key_cache=pool[0], value_cache=pool[1], page_table=table, weights=weights,
                                   cache_lengths=np.full(2, first, np.int32), window=(window_left, -1)))
                first += count
            answers.append(np.concatenate(outs, 1))
        self.assertTrue(np.isfinite(answers[0]).all())
        np.testing.assert_array_equal(*answers)
        with self.assertRaisesRegex(polyhead.Error, "is written, and used a second time"):
            kernel(query=text[:, :5], key_cache=pool[0], value_cache=pool[1], page_table=table, weights=weights, cache_lengths=np.full(2, 30, np.int32),
                   window=(window_left + 8, -1))

    def test_refusals_leave_the_caches_alone(self):
        module, _ = made()
        text = random(10, 2, 3, EMBED)
        caches = [np.full((2, KV_HEADS, CAPACITY, D), 7, np.float32) for _ in range(2)]
        half = [cache.astype(np.float16) for cache in caches]
        for options, sentence in (
                (dict(cache_lengths=[0, 38]), "cache_lengths: value 38 at index 1 of dimension 0, expected 0 to 37"),
                (dict(cache_lengths=None), "cache_lengths: missing"),
                (dict(value_cache=None), "value_cache: missing"),
                (dict(key_cache=half[0]), "key_cache: dtype f16, expected f32"),
                (dict(key_cache=caches[0][0]), "key_cache: rank 3, expected 4"),
                (dict(kv_lengths=[1, 1]), "cache is not allowed with kv_lengths"),
                (dict(key=random(11, 2, 3, EMBED)), "cache is not allowed with cross")):
            arguments = dict(dict(key_cache=caches[0], value_cache=caches[1], cache_lengths=[0, 0]), **options)
            with self.assertRaises(polyhead.Error) as raised:
                module(text, **arguments)
            self.assertIn(sentence, str(raised.exception))
            self.assertTrue(all((cache == 7).all() for cache in caches))
        with self.assertRaisesRegex(polyhead.Error, "page 3 at index 1, 0 is written, and used a second time"):
            module(text, key_cache=np.zeros((4, KV_HEADS, 4, D), np.float32), value_cache=np.zeros((4, KV_HEADS, 4, D), np.float32),
                   cache_lengths=[0, 0], page_table=[[3], [3]])


load_tests = sampled_cases(__file__, 3)

if __name__ == "__main__":
    unittest.main()
