"""Generation over a cache in Python: contiguous and in pages, each step against attention over all keys in float64."""
import unittest

import ml_dtypes
import numpy as np

import polyhead
from python_inputs import random
from polyhead.reference import attention

B, H, H_KV, D, D_V, CAPACITY, PAGE = 2, 4, 2, 16, 24, 32, 8
COS, SIN = (f(np.arange(64)[:, None] / 100.0 ** (np.arange(6) / 6)).astype(np.float32) for f in (np.cos, np.sin))


def rotated(x, first):
    """Pairs (i, i + 6) of the last dimension, at positions first[b] + t, in float64."""
    out = x.astype(np.float64)
    for b, start in enumerate(first):
        c, s = (a[start:start + x.shape[2]].astype(np.float64) for a in (COS, SIN))
        u, v = x[b, :, :, :6].astype(np.float64), x[b, :, :, 6:12].astype(np.float64)
        out[b, :, :, :6], out[b, :, :, 6:12] = u * c - v * s, v * c + u * s
    return out


class Cache(unittest.TestCase):
    def generate(self, dtype, pages, layout, tolerance):
        """Prefill of 5 and 3 tokens, then one token after the other; rows have different lengths."""
        def memory(d):
            shape = (B * CAPACITY // PAGE + 3, H_KV, PAGE, d) if pages else (B, H_KV, CAPACITY, d)
            made = np.full(shape, np.nan, np.float32).astype(dtype)
            return np.ascontiguousarray(made.transpose(0, 2, 1, 3)) if layout == "bshd" else made

        def laid_out(x):
            return x.transpose(0, 2, 1, 3) if layout == "bshd" else x

        cache = memory(D), memory(D_V)
        table = np.random.default_rng(1).permutation(B * CAPACITY // PAGE).astype(np.int32).reshape(B, -1) + 1 if pages else None
        options = {"page_table": table, "layout": layout}
        lengths, seen = np.zeros(B, np.int32), [(np.zeros((1, H_KV, 0, D)), np.zeros((1, H_KV, 0, D_V))) for _ in range(B)]
        for step, counts in enumerate([[5, 3]] + [[1, 1]] * 9):
            tokens = max(counts)
            query, key, value = (random(10 * step + i, B, heads, tokens, d).astype(dtype)
                                 for i, (heads, d) in enumerate(((H, D), (H_KV, D), (H_KV, D_V))))
            polyhead.append(*cache, laid_out(key), laid_out(value), lengths, counts=counts, rope=(COS, SIN), **options)
            new = rotated(key, lengths).astype(np.float32).astype(dtype).astype(np.float64)
            for b in range(B):
                seen[b] = tuple(np.concatenate([old, x[b:b + 1, :, :counts[b]].astype(np.float64)], 2) for old, x in zip(seen[b], (new, value)))
            # The last query of each row; keys are rotated already, the query by the operation of its own.
            at = np.array(counts) - 1
            last = np.stack([query[b, :, at[b]:at[b] + 1] for b in range(B)])
            last = polyhead.rope(last, COS, SIN, positions=(lengths + at).astype(np.int32))
            lengths += np.array(counts, np.int32)
            out = laid_out(polyhead.sdpa(laid_out(last), *cache, kv_lengths=lengths, **options))
            for b in range(B):
                expected = attention(last[b:b + 1].astype(np.float64), *seen[b])[0]
                np.testing.assert_allclose(out[b:b + 1].astype(np.float64), expected, atol=tolerance, rtol=tolerance)

    def test_every_form(self):
        for dtype, tolerance in ((np.float32, 2e-5), (np.float16, 4e-3), (ml_dtypes.bfloat16, 3e-2)):
            for pages in (False, True):
                for layout in ("bhsd", "bshd"):
                    with self.subTest(dtype=dtype.__name__, pages=pages, layout=layout):
                        self.generate(dtype, pages, layout, tolerance)

    def test_a_fork_copies_the_last_page(self):
        key, value = random(1, 6, H_KV, PAGE, D), random(2, 6, H_KV, PAGE, D_V)
        table = np.array([[4, 2, -1], [4, 2, -1]], np.int32)  # row 1 becomes row 0, which has 11 keys
        new = random(3, 2, H_KV, 1, D), random(4, 2, H_KV, 1, D_V)
        before = key.copy()
        with self.assertRaisesRegex(polyhead.Error, "page 2 at index 1, 1 is written, and used a second time: copy it first"):
            polyhead.append(key, value, *new, [11, 11], page_table=table)
        np.testing.assert_array_equal(key, before)
        polyhead.copy_page(key, value, 2, 5)
        table[1, 1] = 5
        polyhead.append(key, value, *new, [11, 11], page_table=table)
        np.testing.assert_array_equal(key[5, :, :3], before[2, :, :3])
        np.testing.assert_array_equal(key[[2, 5], :, 3], new[0][:, :, 0])
        with self.assertRaisesRegex(polyhead.Error, "target|to: page 6, expected 0 to 5"):
            polyhead.copy_page(key, value, 2, 6)

    def test_a_pool_of_pages(self):
        pool = polyhead.PagePool(4)
        pages = pool.take(3)
        self.assertEqual((len(set(pages)), pool.free), (3, 1))
        pool.share(pages[:2])
        pool.release(pages)
        self.assertEqual([pool.users(page) for page in pages], [1, 1, 0])
        with self.assertRaisesRegex(polyhead.Error, "pool: 2 pages are free, 3 were asked for") as caught:
            pool.take(3)
        self.assertEqual(caught.exception.code, polyhead.Code.OUT_OF_MEMORY)
        with self.assertRaisesRegex(polyhead.Error, "is free, expected a page in use"):
            pool.release([pages[0], pages[2]])
        self.assertEqual(pool.users(pages[0]), 1)

    def test_packed_tokens(self):
        """The bits of one call for each sequence, in both layouts, contiguous and in pages, in every type."""
        counts, lengths, bases = [3, 0, 1, 5], np.array([4, 7, 30, 0], np.int32), [0, 10, 20, 30]
        begins = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        key, value = random(1, H_KV, begins[-1], D), random(2, H_KV, begins[-1], D_V)
        table = np.random.default_rng(3).permutation(4 * CAPACITY // PAGE).astype(np.int32).reshape(4, -1)
        words = {"rope": (COS, SIN), "rope_interleaved": True, "key_norm": "rms_plus_one", "key_norm_weight": [0.1] * D, "norm_epsilon": 1e-6, "value_norm": True}
        for dtype in (np.float32, ml_dtypes.bfloat16, np.int8):
            for pages in (False, True):
                for positions in (None, bases, [list(range(begins[-1]))]):
                    with self.subTest(dtype=dtype.__name__, pages=pages, positions=positions):
                        shape = (4 * CAPACITY // PAGE, H_KV, PAGE) if pages else (4, H_KV, CAPACITY)
                        made = [[np.zeros(shape + (d,), dtype) for d in (D, D_V)] + [np.zeros(shape + (1,), np.float32) for _ in range(2)] for _ in range(3)]

                        def append(cache, new, at, positions, swap=False, **more):
                            axes = [x.swapaxes(1, 2) if swap else x for x in cache]
                            new = [x.swapaxes(-3, -2) if swap else x for x in new]
                            scales = {"key_scales": axes[2], "value_scales": axes[3]} if dtype == np.int8 else {}
                            polyhead.append(axes[0], axes[1], *new, at, positions=positions, **scales, **words, **more, layout="bshd" if swap else "bhsd")

                        for swap in (False, True):
                            append(made[swap], (key, value), lengths, positions, swap, cu_seqlens=begins, page_table=table if pages else None)
                        for b in range(4):
                            part = slice(begins[b], begins[b + 1])
                            at = None if positions is None else [[positions[0][part]] if positions is not bases else [bases[b]]][0]
                            append(made[2] if pages else [x[b:b + 1] for x in made[2]], (key[None, :, part], value[None, :, part]), lengths[b:b + 1],
                                   None if at is None else np.array(at, np.int32), page_table=table[b:b + 1] if pages else None)
                        for one, other, apart in zip(*made):
                            self.assertEqual(one.tobytes(), apart.tobytes())
                            self.assertEqual(other.tobytes(), apart.tobytes())
                        self.assertTrue(made[0][0].any() and made[0][1].any())

    def test_norms(self):
        key, value, weight, bias = random(1, B, H_KV, 3, D), random(2, B, H_KV, 3, D_V), random(3, D), random(4, D)

        def normal(x, w, b=0.0, centred=False, epsilon=1e-5):
            x = x.astype(np.float64)
            x = x - x.mean(-1, keepdims=True) * centred
            return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * w + b

        for kind, given, expected in (("rms", {"key_norm_weight": weight}, normal(key, weight)), ("rms", {}, normal(key, 1)),
                                      ("rms_plus_one", {"key_norm_weight": weight.astype(np.float64)}, normal(key, 1 + weight)),
                                      ("layer", {"key_norm_weight": weight, "key_norm_bias": bias.tolist()}, normal(key, weight, bias, True)),
                                      ("rms", {"key_norm_weight": weight.astype(ml_dtypes.bfloat16)}, normal(key, weight.astype(ml_dtypes.bfloat16).astype(float)))):
            cache = np.zeros((B, H_KV, 4, D), np.float32), np.zeros((B, H_KV, 4, D_V), np.float32)
            polyhead.append(*cache, key, value, [1, 0], key_norm=kind, norm_epsilon=1e-5, **given)
            for b, first in enumerate((1, 0)):
                np.testing.assert_allclose(cache[0][b, :, first:first + 3], expected[b], rtol=1e-5, atol=1e-6)
                np.testing.assert_array_equal(cache[1][b, :, first:first + 3], value[b])
            np.testing.assert_array_equal(polyhead.normalize(key, kind, epsilon=1e-5, **{name[9:]: x for name, x in given.items()})[1], cache[0][1, :, :3])
        half = key.astype(np.float16)
        self.assertIs(polyhead.normalize(half, "layer", epsilon=1e-5, out=half), half)
        np.testing.assert_allclose(half.astype(float), normal(key.astype(np.float16), 1, 0, True), rtol=2e-3, atol=1e-3)
        polyhead.append(*cache, key, value, [0, 0], value_norm=True, norm_epsilon=1e-5)
        np.testing.assert_allclose(cache[1][:, :, :3], normal(value, 1), rtol=1e-5, atol=1e-6)
        for words, sentence in (({"key_norm": "rmsnorm"}, "key_norm: found 'rmsnorm', expected rms, rms_plus_one or layer or None; did you mean rms?"),
                                ({"key_norm": "rms"}, "norm_epsilon: value 0, expected a finite number above 0"),
                                ({"key_norm_weight": weight}, "key_norm_weight: given, expected none, because key_norm is 0"),
                                ({"cu_seqlens": [0, 3]}, "key: rank 4, expected 3, because its tokens are packed")):
            with self.assertRaises(polyhead.Error) as caught:
                polyhead.append(*cache, key, value, [0, 0], **words)
            self.assertIn(sentence, str(caught.exception))
        with self.assertRaisesRegex(polyhead.Error, "counts: given, expected none, because cu_seqlens says how many"):
            polyhead.append(*cache, key[0], value[0], [0, 0], cu_seqlens=[0, 3, 3], counts=[3, 0])

    def test_what_is_refused(self):
        cache = np.zeros((1, 1, 4, 8), np.float32), np.zeros((1, 1, 4, 8), np.float32)
        one = np.ones((1, 1, 1, 8), np.float32)
        with self.assertRaisesRegex(polyhead.Error, "lengths: value 4 at index 0 of dimension 0, expected 0 to 3"):
            polyhead.append(*cache, one, one, [4])
        with self.assertRaisesRegex(TypeError, "cache_key: found an array that cannot be written"):
            fixed = cache[0].copy()
            fixed.flags.writeable = False
            polyhead.append(fixed, cache[1], one, one, [0])
        with self.assertRaisesRegex(polyhead.Error, "cache_key: dtype float64"):
            polyhead.append(cache[0].astype(np.float64), cache[1], one, one, [0])
        with self.assertRaisesRegex(polyhead.Error, "layout: found 'bsd', expected bhsd or bshd"):
            polyhead.append(*cache, one, one, [0], layout="bsd")
        self.assertFalse(cache[0].any() or cache[1].any())
        polyhead.append(*cache, one.astype(np.float64), one, [0])  # new keys are converted
        self.assertTrue((cache[0][:, :, 0] == 1).all())
        polyhead.append(cache[0], None, 2 * one, None, [0])
        self.assertTrue((cache[0][:, :, 0] == 2).all())


class States(unittest.TestCase):
    def test_parts_give_the_whole(self):
        query, key, value = random(1, B, H, 7, D), random(2, B, H_KV, 50, D), random(3, B, H_KV, 50, D_V)
        sinks = np.array([0.5, -1, 2, 0], np.float32)
        for given in (None, sinks):
            whole = polyhead.sdpa(query, key, value, return_lse=True, sinks=given)
            parts = [polyhead.sdpa(query, key[:, :, a:b], value[:, :, a:b], return_lse=True) for a, b in ((0, 13), (13, 14), (14, 50))]
            out, lse = polyhead.merge_states(parts, sinks=given)
            np.testing.assert_allclose(out, whole[0], atol=2e-6, rtol=2e-6)
            np.testing.assert_allclose(lse, whole[1], atol=2e-6, rtol=2e-6)
        into, _ = polyhead.merge_states(parts, out=parts[0][0], lse=parts[0][1])
        self.assertIs(into, parts[0][0])
        np.testing.assert_array_equal(into, polyhead.merge_states([(into, parts[0][1])])[0])
        with self.assertRaisesRegex(polyhead.Error, "parts: found none"):
            polyhead.merge_states([])


if __name__ == "__main__":
    unittest.main()
