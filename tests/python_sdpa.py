"""polyhead.sdpa: every argument against float64, arrays of every kind, what is refused and how."""
import itertools
import threading
import unittest

import ml_dtypes
import numpy as np

import polyhead
from polyhead import expressions as x
from python_inputs import random
from polyhead.reference import attention, visible
from tier import sampled_cases

B, H, H_KV, T_Q, T_KV, D, D_V = 2, 4, 2, 19, 23, 16, 24
QUERY, KEY, VALUE = random(1, B, H, T_Q, D), random(2, B, H_KV, T_KV, D), random(3, B, H_KV, T_KV, D_V)


class OnlyDLPack:
    """An array of a library that polyhead does not know."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Case(unittest.TestCase):
    def close(self, found, expected, tolerance=1e-5):
        self.assertEqual(found.shape, expected.shape)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)

    def refused(self, code, sentence, *args, **options):
        with self.assertRaises(polyhead.Error) as caught:
            polyhead.sdpa(*args, **options)
        self.assertEqual(caught.exception.code, code)
        self.assertIn(sentence, str(caught.exception))


class Masks(Case):
    def test_plain_and_scale(self):
        self.close(polyhead.sdpa(QUERY, KEY, VALUE), attention(QUERY, KEY, VALUE)[0])
        self.close(polyhead.sdpa(QUERY, KEY, VALUE, scale=0.5), attention(QUERY, KEY, VALUE, scale=0.5)[0])

    def test_plain_calls_again(self):
        """The second call of the same shapes takes a shorter way."""
        other, out = random(4, *QUERY.shape), np.empty((B, H, T_Q, D_V), np.float32)
        for query in (QUERY, other, QUERY[:, :, ::-1]):
            self.close(polyhead.sdpa(query, KEY, VALUE), attention(query, KEY, VALUE)[0])
            self.assertIs(polyhead.sdpa(query, KEY, VALUE, out=out), out)
            self.close(out, attention(query, KEY, VALUE)[0])
        halves = polyhead.sdpa(*(a.astype(np.float16) for a in (QUERY, KEY, VALUE)))
        self.assertEqual(halves.dtype, np.float16)
        self.refused(polyhead.Code.WRONG_SHAPE, "out", QUERY, KEY, VALUE, out=out[:, :, 1:])
        self.refused(polyhead.Code.WRONG_SHAPE, "value", QUERY, KEY, VALUE[:, :, 1:])
        for _ in range(2):
            self.refused(polyhead.Code.BAD_VALUE, "alignment: found 'sideways'", QUERY, KEY, VALUE, is_causal=True, causal_alignment="sideways")
        with self.assertRaises(TypeError):
            polyhead.sdpa(QUERY, KEY, VALUE, window=np.array([1, 2]))

    def test_causal_alignments(self):
        for alignment in ("top_left", "bottom_right"):
            seen = visible(T_Q, T_KV, causal=True, from_end=alignment == "bottom_right")
            self.close(polyhead.sdpa(QUERY, KEY, VALUE, is_causal=True, causal_alignment=alignment), attention(QUERY, KEY, VALUE, seen)[0])

    def test_position_offsets_move_what_is_seen(self):
        offsets = np.array([3, -2], np.int32)
        q, k = np.arange(T_Q)[:, None], np.arange(T_KV)[None]
        for options, seen in ((dict(is_causal=True), lambda p: k <= p), (dict(window=(1, 2)), lambda p: (k >= p - 1) & (k <= p + 2))):
            mask = np.stack([seen(q + offset) for offset in offsets[:B]])[:, None]
            out = polyhead.sdpa(QUERY, KEY, VALUE, position_offsets=offsets[:B], **options)
            self.close(out, polyhead.sdpa(QUERY, KEY, VALUE, mask))

    def test_lengths_window_and_an_empty_row(self):
        for lengths in ([0, T_KV], np.array([5, 7])):
            seen = visible(T_Q, T_KV, lengths, causal=True, window=(6, 2))
            out, lse = polyhead.sdpa(QUERY, KEY, VALUE, kv_lengths=lengths, is_causal=True, window=(6, 2), return_lse=True)
            expected = attention(QUERY, KEY, VALUE, seen)
            self.close(out, expected[0])
            self.close(lse, expected[2])

    def test_a_key_of_minus_infinity_hides_itself_alone(self):
        """Also where vectors do not divide a row, and read some entries twice."""
        for width in (5, 33, 66):
            query, key, value = np.ones((1, 2, 1, width), np.float32), random(5, 1, 2, 2 * width, width), random(6, 1, 2, 2 * width, width)
            for entry in range(width):
                key[:, :, 2 * entry, entry] = -np.inf
            self.close(polyhead.sdpa(query, key, value), attention(query, key[:, :, 1::2], value[:, :, 1::2])[0])

    def test_boolean_masks_of_every_shape(self):
        for shape in ((T_KV,), (T_Q, T_KV), (1, 1, T_KV), (B, 1, 1, T_KV), (B, 1, T_Q, T_KV), (H, T_Q, T_KV), (B, H, T_Q, T_KV), (T_Q, 1)):
            mask = np.random.default_rng(len(shape)).random(shape) < 0.6
            self.close(polyhead.sdpa(QUERY, KEY, VALUE, mask), attention(QUERY, KEY, VALUE, mask)[0])

    def test_an_additive_mask_beside_a_bias(self):
        mask, bias = random(5, T_Q, T_KV), random(6, B, 1, 1, T_KV)
        mask[3:5, :7] = -np.inf
        mask[6] = -np.inf
        expected = attention(QUERY, KEY, VALUE, np.isfinite(mask), np.where(np.isfinite(mask), mask, 0) + bias)
        self.close(polyhead.sdpa(QUERY, KEY, VALUE, mask, bias=bias), expected[0])
        self.assertEqual(abs(polyhead.sdpa(QUERY, KEY, VALUE, mask, bias=bias)[:, :, 6]).max(), 0)
        double = mask.astype(np.float64)
        double[8] = np.finfo(np.float64).min  # stays finite: the mean of the values, not an empty row
        self.close(polyhead.sdpa(QUERY, KEY, VALUE, double)[:, :, 8], np.repeat(VALUE.mean(2), 2, 1), 1e-4)


class Modifiers(Case):
    def test_a_mask_over_more_than_2_31_pairs(self):
        """The product of the extents that a mask is spread to is no limit, where its memory is small."""
        heads, tokens = 32, 8192
        q = np.ones((1, heads, tokens, 4), np.float32)
        v = random(41, 1, heads, tokens, 4)
        mask = np.broadcast_to(np.arange(tokens) % 7 != 3, (tokens, tokens))
        out = polyhead.sdpa(q, q, v, mask, window=(0, 0))  # each query sees its own key
        np.testing.assert_allclose(out, v * (np.arange(tokens) % 7 != 3)[:, None], rtol=1e-5, atol=1e-6)

    def test_softcap_sinks_slopes_and_gate(self):
        sinks, slopes, gate = random(7, H), abs(random(8, H)), random(9, H)
        distance = abs(np.arange(T_Q)[:, None] - np.arange(T_KV)[None, :])
        expected = attention(QUERY, KEY, VALUE, add=-slopes[:, None, None] * distance, softcap=2.0, sinks=sinks, gate=gate)
        out, lse = polyhead.sdpa(QUERY, KEY, VALUE, softcap=2.0, sinks=sinks.tolist(), alibi_slopes=slopes, head_gate=gate, return_lse=True)
        self.close(out, expected[0])
        self.close(lse, expected[2])

    def test_rope_by_positions(self):
        angles = np.arange(40)[:, None] * 0.3 ** np.arange(4)
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        positions = np.arange(T_Q)[None] + np.array([[3], [9]])

        def rotated(x, at, interleaved, begin):
            first, second = (slice(0, 8, 2), slice(1, 8, 2)) if interleaved else (slice(0, 4), slice(4, 8))
            first, second = (slice(begin + one.start, begin + one.stop, one.step) for one in (first, second))
            y, c, s = x.astype(np.float64), cos[at][:, None], sin[at][:, None]
            y[..., first], y[..., second] = x[..., first] * c - x[..., second] * s, x[..., second] * c + x[..., first] * s
            return y

        for interleaved, trailing in itertools.product((False, True), (False, True)):
            begin = QUERY.shape[-1] - 8 if trailing else 0
            keys = rotated(KEY, np.tile(np.arange(T_KV), (B, 1)), interleaved, begin)
            expected = attention(rotated(QUERY, positions, interleaved, begin), keys, VALUE)[0]
            words = dict(rope_interleaved=interleaved, rope_trailing=trailing)
            self.close(polyhead.sdpa(QUERY, KEY, VALUE, rope=(cos, sin), positions_q=positions, **words), expected)
            turned = polyhead.rope(KEY, cos, sin, interleaved=interleaved, trailing=trailing)
            self.close(turned, keys)
            cache = np.zeros_like(KEY), np.zeros_like(VALUE)
            polyhead.append(*cache, KEY, VALUE, np.zeros(B, np.int32), rope=(cos, sin), **words)
            np.testing.assert_array_equal(cache[0], turned)

    def test_expression_with_a_tensor(self):
        slopes = random(10, H)
        text = "tensor slope: f32[h]\nscore = score + slope[h] * kv\nmask = kv <= q + 2"
        expected = attention(QUERY, KEY, VALUE, visible(T_Q, T_KV, window=(-1, 2)), slopes[:, None, None] * np.arange(T_KV))[0]
        self.close(polyhead.sdpa(QUERY, KEY, VALUE, expression=text, tensors={"slope": slopes}), expected)
        self.refused(polyhead.Code.BAD_VALUE, "expression:1:9", QUERY, KEY, VALUE, expression="score = slope")

    def test_tensors_that_are_called_as_arguments_are(self):
        """Three at a time, each over another dimension, so that none can be mistaken for another."""
        columns, slopes, rows = np.linspace(-1, 1, T_KV, dtype=np.float32), np.arange(1, H + 1, dtype=np.float32) / 9, np.arange(T_Q) / np.float32(5)
        for names in (("key", "out", "weights"), ("query", "value", "lse"), ("layout", "device", "tensors"), ("softcap", "window", "scores"),
                      ("softmax_scale", "alignment", "kv_lengths"), ("expression", "sinks", "input")):
            text = ("tensor %s: f32[kv]; tensor %s: f32[h]; tensor %s: f32[q]\n" % names +
                    "score = score + %s[kv] * %s[h] - %s[q] * kv" % names)
            tensors = dict(zip(names, (columns, slopes, rows)))
            add = columns * slopes[:, None, None] - rows[:, None] * np.arange(T_KV)
            expected = attention(QUERY, KEY, VALUE, add=add)
            out, lse = polyhead.sdpa(QUERY, KEY, VALUE, expression=text, tensors=tensors, return_lse=True)
            self.close(out, expected[0])
            self.close(lse, expected[2])
            if names[0] == "key":
                kernel = polyhead.compile("sdpa", num_heads=H, num_kv_heads=H_KV, head_dim=D, head_dim_v=D_V, expression=text)
                self.close(kernel(query=QUERY, key=KEY, value=VALUE, tensors=tensors), expected[0])
                rest = {name: tensors[name] for name in ("key", "out")}
                self.close(kernel(query=QUERY, key=KEY, value=VALUE, tensors=rest, weights=rows), expected[0])  # no argument of this kernel
                with self.assertRaises(TypeError):
                    kernel(query=QUERY, key=KEY, value=VALUE, tensors=dict(tensors, mask=rows))

    def test_expressions_as_functions(self):
        slopes = random(10, H)
        slope, q, k = slopes[:, None, None], np.arange(T_Q)[:, None], np.arange(T_KV)
        expected = attention(QUERY, KEY, VALUE, (k <= q + 2) | (k % 5 == 1), slope * abs(q - k) / 2 - np.tanh(q // 3.0))[0]

        def changed(score, h, q, kv, slope):
            return score + slope[h] * abs(q - kv) / 2 - x.tanh(q // 3), (kv <= q + 2) | (kv % 5 == 1)

        self.close(polyhead.sdpa(QUERY, KEY, VALUE, expression=changed, tensors={"slope": slopes}), expected)
        random_mask = x.text_of(lambda seed, b, h, q, kv: x.uniform(seed, b, h, q + 1, kv) < 0.5, {"seed": np.int32(3)})
        self.assertEqual(random_mask, "tensor seed: i32\nmask = (uniform(seed, b, h, (q + (1)), kv) < (0.5))")
        text = x.text_of(lambda score, q_idx, kv_idx: x.where(q_idx >= kv_idx, -score / 4, 3), {})
        self.assertEqual(text, "score = select((q >= kv), (((-score) * (1.0)) / (4)), (3))")
        for wrong in (lambda score, q: score if q < 3 else 0, lambda q: 1 < q < 3, lambda score: "x"):
            with self.assertRaises(TypeError):
                polyhead.sdpa(QUERY, KEY, VALUE, expression=wrong)
        self.refused(polyhead.Code.BAD_VALUE, "unknown parameter slope", QUERY, KEY, VALUE, expression=lambda score, slope: score)
        self.refused(polyhead.Code.BAD_VALUE, "returned 2 values", QUERY, KEY, VALUE, expression=lambda score: (score, score))


class Outputs(Case):
    def test_weights_and_scores(self):
        seen = visible(T_Q, T_KV, causal=True)
        _, weights, _, scores = attention(QUERY, KEY, VALUE, seen, softcap=1.5)
        options = dict(is_causal=True, softcap=1.5)
        self.close(polyhead.sdpa(QUERY, KEY, VALUE, return_weights=True, **options)[1], weights)
        self.close(polyhead.sdpa(QUERY, KEY, VALUE, return_weights="mean", **options)[1], weights.mean(1))
        capped = 1.5 * np.tanh(scores / 1.5)
        for stage, expected in (("scaled", scores), ("capped", capped), ("logits", np.where(seen, capped, -np.inf))):
            self.close(polyhead.sdpa(QUERY, KEY, VALUE, return_scores=stage, **options)[1], expected)

    def test_layouts(self):
        expected = attention(QUERY, KEY, VALUE)[0].transpose(0, 2, 1, 3)
        views = [x.transpose(0, 2, 1, 3) for x in (QUERY, KEY, VALUE)]
        self.close(polyhead.sdpa(*views, layout="bshd"), expected)
        flat = [np.ascontiguousarray(x).reshape(*x.shape[:2], -1) for x in views]
        self.close(polyhead.sdpa(*flat, layout="bsd", num_heads=H), expected.reshape(B, T_Q, -1))
        self.close(polyhead.sdpa(QUERY[0], KEY[0], VALUE[0]), attention(QUERY, KEY, VALUE)[0][0])

    def test_out_is_written_in_place(self):
        buffer = np.full((B, T_Q, H, D_V), 7, np.float32)
        out = polyhead.sdpa(QUERY, KEY, VALUE, out=buffer.transpose(0, 2, 1, 3))
        self.assertTrue(np.shares_memory(out, buffer))
        self.close(buffer.transpose(0, 2, 1, 3), attention(QUERY, KEY, VALUE)[0])

    def test_keys_in_pages(self):
        """Pages in any order; behind the valid keys of a row the table has numbers that name no page."""
        lengths, size = [23, 9], 8
        table = np.array([[5, 1, 6], [2, 0, -1]], np.int32)
        table[1, 1] = 3
        padded = [np.concatenate([a, np.full((B, H_KV, 1, a.shape[3]), np.nan, np.float32)], 2) for a in (KEY, VALUE)]
        pages = [np.full((7, H_KV, size, a.shape[3]), np.nan, np.float32) for a in padded]
        for b, columns in enumerate((3, 2)):
            for i in range(columns):
                for page, whole in zip(pages, padded):
                    page[table[b, i]] = whole[b, :, i * size:(i + 1) * size]
        expected = polyhead.sdpa(QUERY, KEY, VALUE, kv_lengths=lengths, is_causal=True, causal_alignment="bottom_right")
        options = dict(kv_lengths=lengths, is_causal=True, causal_alignment="bottom_right", page_table=table)
        np.testing.assert_array_equal(polyhead.sdpa(QUERY, *pages, **options), expected)
        beside = [page.transpose(0, 2, 1, 3) for page in pages]  # [pages,page_size,H_kv,d]
        for some in (beside, [np.ascontiguousarray(a) for a in beside]):
            out = polyhead.sdpa(QUERY.transpose(0, 2, 1, 3), *some, layout="bshd", **options)
            np.testing.assert_array_equal(out.transpose(0, 2, 1, 3), expected)
        weights = polyhead.sdpa(QUERY, *pages, return_weights=True, **options)[1]
        self.assertEqual(weights.shape, (B, H, T_Q, 24))
        self.assertIn("--page-size 8", polyhead.explain(QUERY, *pages, **options))
        table[0, 2] = 7
        self.refused(polyhead.Code.BAD_VALUE, "page_table: value 7 at index 0, 2, expected 0 to 6 (pages of key)", QUERY, *pages, **options)
        self.refused(polyhead.Code.WRONG_SHAPE, "page_table: rank 1, expected 2", QUERY, *pages, page_table=[1, 2])
        self.refused(polyhead.Code.WRONG_OPERATION, "past_key: found together with page_table", QUERY, *pages, page_table=table,
                     past_key=pages[0], past_value=pages[1])
        with self.assertRaisesRegex(polyhead.Error, "page_size 7 is not a power of two"):
            polyhead.sdpa(QUERY, *(page[:, :, 1:] for page in pages), page_table=table)

    def test_packed_tokens(self):
        """Sequences of different lengths, in each layout, against each alone; one has no queries, one no keys."""
        begins_q, begins_kv = np.array([0, 1, 1, 2, 19], np.int32), [0, 7, 9, 20, 23]
        query, key, value = (a[0] for a in (QUERY, KEY, VALUE))  # [H,total,d]
        options = {"is_causal": True, "causal_alignment": "bottom_right"}

        def alone(b, mask=True):
            q, kv = slice(begins_q[b], begins_q[b + 1]), slice(begins_kv[b], begins_kv[b + 1])
            seen = visible(q.stop - q.start, kv.stop - kv.start, causal=True, from_end=True)
            return attention(query[None, :, q], key[None, :, kv], value[None, :, kv], seen & mask)

        expected = np.concatenate([alone(b)[0][0] for b in (0, 2, 3)], 1)
        packed = {"cu_seqlens_q": begins_q, "cu_seqlens_kv": begins_kv, **options}
        out, lse = polyhead.sdpa(query, key, value, return_lse=True, **packed)
        self.close(out, expected)
        self.assertEqual(lse.shape, (H, T_Q))
        tokens = [np.ascontiguousarray(a.transpose(1, 0, 2)) for a in (query, key, value)]  # [total,H,d]
        self.close(polyhead.sdpa(*tokens, layout="bshd", **packed).transpose(1, 0, 2), expected)
        rows = [a.reshape(len(a), -1) for a in tokens]  # [total,H*d]
        self.close(polyhead.sdpa(*rows, layout="bsd", num_heads=H, **packed).reshape(T_Q, H, D_V).transpose(1, 0, 2), expected)
        buffer = np.empty((T_Q, H, D_V), np.float32)
        self.assertTrue(np.shares_memory(polyhead.sdpa(*tokens, layout="bshd", out=buffer, **packed), buffer))
        text = polyhead.explain(query, key, value, **packed)
        self.assertRegex(text, "4 sequences, 19 queries, 23 keys")
        self.assertRegex(text, "for 2 sequences of 1 to 1 queries")  # the variant for few queries, and for the others the other one
        by_dlpack = polyhead.sdpa(query, key, value, return_lse=True, **dict(packed, cu_seqlens_q=OnlyDLPack(begins_q)))
        np.testing.assert_array_equal(by_dlpack[0], out)  # of the same kernel: one without lse may round otherwise
        mask = np.random.default_rng(1).random((1, 1, T_Q, T_KV)) < 0.7  # a mask over pairs has all tokens in both dimensions
        masked = polyhead.sdpa(query, key, value, mask, **packed)
        self.close(masked[:, 2:], alone(3, mask=mask[:, :, 2:, 20:])[0][0])
        empty = dict(packed, cu_seqlens_kv=[0, 0, 9, 20, 23])
        self.assertTrue((polyhead.sdpa(query, key, value, **empty)[:, :1] == 0).all())

    def test_packed_queries_of_a_cache(self):
        """Prefill and decoding in one call: packed queries, keys in batch rows and in pages."""
        begins, lengths = [0, 14, 15, 19], [20, 23, 4]
        cache = [np.concatenate([a, a[:1]]) for a in (KEY, VALUE)]
        query = QUERY[0]
        expected = np.concatenate([attention(query[None, :, begins[b]:begins[b + 1]], *(a[b:b + 1, :, :lengths[b]] for a in cache))[0][0]
                                   for b in range(3)], 1)
        self.close(polyhead.sdpa(query, *cache, cu_seqlens_q=begins, kv_lengths=lengths), expected)
        pages = [np.concatenate([a, np.zeros_like(a[:, :, :1])], 2).reshape(3, H_KV, 3, 8, -1).transpose(0, 2, 1, 3, 4) for a in cache]
        pages = [np.ascontiguousarray(a.reshape(9, H_KV, 8, -1)) for a in pages]
        table = np.arange(9, dtype=np.int32).reshape(3, 3)
        self.close(polyhead.sdpa(query, *pages, cu_seqlens_q=begins, kv_lengths=lengths, page_table=table), expected)

    def test_packed_tokens_that_are_refused(self):
        query, key, value = (a[0] for a in (QUERY, KEY, VALUE))
        packed = {"cu_seqlens_q": [0, 19], "cu_seqlens_kv": [0, 23]}
        self.refused(polyhead.Code.BAD_VALUE, "cu_seqlens_q: value 18 at index 1, the last, expected 19, the extent of dimension 2 of query",
                     query, key, value, cu_seqlens_q=[0, 18], cu_seqlens_kv=[0, 23])
        self.refused(polyhead.Code.WRONG_SHAPE, "query: rank 4, expected 3, because its tokens are packed", QUERY, key, value, **packed)
        self.refused(polyhead.Code.UNSUPPORTED, "the kernel has an output over pairs", query, key, value, return_weights=True, **packed)
        self.refused(polyhead.Code.WRONG_OPERATION, "past_key: found together with cu_seqlens_q", query, key, value, past_key=key,
                     past_value=value, **packed)
        self.refused(polyhead.Code.UNSUPPORTED, "uses b otherwise than as the index of a dimension b", query, key, value,
                     expression="mask = b == 0", **packed)

    def test_past_and_keys_with_others_between_them(self):
        both = random(51, 2, B, H_KV, 16, D)
        past, new = both[..., :5, :], both[..., 9:, :]
        query = random(52, B, H, 7, D)
        out = polyhead.sdpa(query, new[0], new[1], past_key=past[0], past_value=past[1])
        joined = np.concatenate((past, new), -2)
        self.close(out, polyhead.sdpa(query, joined[0], joined[1]))

    def test_past_is_joined_by_index(self):
        cache = random(11, B, H_KV, 32, D)
        old, new, all_keys = cache[:, :, :20], cache[:, :, 20:23], cache[:, :, :23]
        query = QUERY[:, :, :3]
        seen = visible(3, 23, causal=True, from_end=True)
        expected = attention(query, all_keys, all_keys, seen)[0]
        options = dict(is_causal=True, return_present=True)
        out, key, value = polyhead.sdpa(query, new, new, past_key=old, past_value=old, **options)
        self.assertTrue(np.shares_memory(key, cache) and np.shares_memory(value, cache))
        self.close(out, expected)
        out, key, _ = polyhead.sdpa(query, new.copy(), new.copy(), past_key=old, past_value=old, **options)
        self.assertFalse(np.shares_memory(key, cache))
        self.close(key, all_keys)
        self.close(out, expected)

    def test_large_calls_have_the_bits_of_their_batch_rows(self):
        """Beyond 4 MiB a call asks for rows before they are needed."""
        query, key, value = random(1, 8, 8, 150, 64), random(2, 8, 4, 140, 64), random(3, 8, 4, 140, 48)
        strided = [array.transpose(0, 2, 1, 3).copy().transpose(0, 2, 1, 3) for array in (query, key, value)]
        reversed_rows = [array[:, :, ::-1].copy()[:, :, ::-1] for array in (query, key, value)]
        for arrays in ([query, key, value], strided, reversed_rows):
            for options in ({}, {"is_causal": True}, {"return_lse": True}):
                found = polyhead.sdpa(*arrays, **options)
                for b in (0, 5, 7):
                    alone = polyhead.sdpa(*(array[b:b + 1] for array in arrays), **options)
                    for many, one in zip(*((x if isinstance(x, tuple) else (x,)) for x in (found, alone))):
                        np.testing.assert_array_equal(many[b:b + 1], one)

    def test_same_bits_for_any_number_of_threads(self):
        before, results = polyhead.num_threads(), []
        try:
            for threads in (1, 2):
                polyhead.set_num_threads(threads)
                self.assertEqual(polyhead.num_threads(), threads)
                results.append(polyhead.sdpa(QUERY, KEY, VALUE).tobytes())
        finally:
            polyhead.set_num_threads(before)
        self.assertEqual(results[0], results[1])


class Arrays(Case):
    def test_other_storage_types_come_back_as_they_went(self):
        expected = attention(QUERY, KEY, VALUE)[0]
        for dtype, tolerance in ((np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2), (np.float64, 1e-5)):
            out = polyhead.sdpa(*(x.astype(dtype) for x in (QUERY, KEY, VALUE)))
            self.assertEqual(out.dtype, np.dtype(dtype))
            self.close(out.astype(np.float64), expected, tolerance)

    def test_halves_are_read_and_rounded_as_numpy_does(self):
        """By a kernel of their type, and converted beside a query of float32."""
        bits = np.arange(65536, dtype=np.uint16)
        for dtype in (np.float16, ml_dtypes.bfloat16):
            with np.errstate(invalid="ignore"):
                floats = bits.view(dtype).astype(np.float32)
            floats = floats[(abs(floats) < 6e4) & (abs(floats) > 1e-30)]
            pairs = np.stack((floats, np.random.default_rng(1).permutation(floats)), 1).reshape(-1, 1, 2, 1)
            nothing = np.zeros_like(pairs).astype(dtype)
            expected = pairs.mean(2, keepdims=True).astype(dtype)
            for query in (nothing[:, :, :1], np.zeros_like(pairs[:, :, :1])):
                found = polyhead.sdpa(query, nothing, pairs.astype(dtype), out=np.empty_like(expected))  # the mean of each pair
                # A mean in the middle between two of them, which many are, may lie a rounding error beside it.
                apart = abs(found.view(np.int16).astype(int) - expected.view(np.int16))[expected != 0]
                self.assertLessEqual(apart.max(), 1)
                self.assertLess((apart > 0).mean(), 0.05)

    def test_dlpack_in_and_out(self):
        out = np.empty((B, H, T_Q, D_V), np.float32)
        polyhead.sdpa(OnlyDLPack(QUERY), OnlyDLPack(KEY), OnlyDLPack(VALUE), out=OnlyDLPack(out))
        self.close(out, attention(QUERY, KEY, VALUE)[0])
        self.assertIsInstance(polyhead.sdpa(OnlyDLPack(QUERY), KEY, VALUE), np.ndarray)

    def test_read_only_arrays_are_inputs(self):
        query = QUERY.copy()
        query.flags.writeable = False
        self.close(polyhead.sdpa(query, KEY, VALUE), attention(QUERY, KEY, VALUE)[0])

    def test_what_is_converted_may_not_share_memory(self):
        """Of what is converted the runtime sees copies; what it refuses of float32 is refused of the others as well."""
        for dtype in (np.float32, np.float16, ml_dtypes.bfloat16, np.float64):
            x = random(31, 1, 2, 9, D).astype(dtype)
            before = x.copy()
            self.refused(polyhead.Code.ALIASED, "out: shares memory with query", x, x, x, out=x)
            self.refused(polyhead.Code.ALIASED, "out: shares memory with", x[:, :, :5], x, x, out=x[:, :, 4:])
            narrow = np.zeros(64 + D, dtype)
            lapping = np.lib.stride_tricks.as_strided(narrow, x.shape, [0, 4 * x.itemsize, x.itemsize, x.itemsize])
            self.refused(polyhead.Code.WRONG_STRIDE, "overlap", x, x, x, out=lapping)
            self.assertEqual(x.tobytes(), before.tobytes())
            both = np.concatenate((x, x))
            self.close(polyhead.sdpa(*[both[:1]] * 3, out=both[1:]), polyhead.sdpa(x, x, x))  # neighbours
            rows = np.concatenate((x, np.zeros_like(x)), -1)  # the bytes of one lie between those of the other, and none is in both
            self.close(polyhead.sdpa(*[rows[..., :D]] * 3, out=rows[..., D:]), polyhead.sdpa(x, x, x))
            self.assertEqual(rows[..., :D].tobytes(), before.tobytes())
            self.refused(polyhead.Code.ALIASED, "out: shares memory", *[rows[..., :D]] * 3, out=rows[..., D - 1:-1])

    def test_wrong_python_types(self):
        for change in (dict(query="text"), dict(key=None), dict(kv_lengths="ab"), dict(window=3), dict(out=7), dict(attn_mask=KEY.astype(int)),
                       dict(query=QUERY.astype(complex)), dict(sinks=["a"]), dict(scale="x")):
            arguments = {**dict(query=QUERY, key=KEY, value=VALUE), **change}
            with self.assertRaises(TypeError, msg=str(list(change))) as caught:
                polyhead.sdpa(**arguments)
            self.assertIn(list(change)[0], str(caught.exception))
        with self.assertRaises(TypeError):
            polyhead.sdpa(QUERY, KEY, VALUE, no_such_option=1)


class Refusals(Case):
    def test_the_sentence_is_the_runtimes(self):
        code = polyhead.Code
        self.refused(code.WRONG_SHAPE, "key: extent 8 of dimension 3, expected 16", QUERY, KEY[..., :8].copy(), VALUE)
        self.refused(code.WRONG_STRIDE, "key: stride", QUERY, np.asfortranarray(KEY), VALUE)
        self.refused(code.BAD_VALUE, "num_heads 3 is not a multiple of num_kv_heads 2", QUERY[:, :3], KEY, VALUE)
        self.refused(code.BAD_VALUE, "kv_lengths: value 99", QUERY, KEY, VALUE, kv_lengths=[1, 99])
        self.refused(code.WRONG_DTYPE, "query: dtype i32, expected f32", QUERY.astype(np.int32), KEY, VALUE)
        self.refused(code.BAD_VALUE, "alignment: found 'middle'", QUERY, KEY, VALUE, is_causal=True, causal_alignment="middle")
        self.refused(code.BAD_VALUE, "layout: found 'bhdz'", QUERY, KEY, VALUE, layout="bhdz")
        self.refused(code.WRONG_SHAPE, "rank 5", QUERY, KEY, VALUE, np.ones((1, 1, 1, 1, T_KV), bool))
        self.refused(code.WRONG_SHAPE, "attn_mask: ", QUERY, KEY, VALUE, np.ones((T_Q, 7), bool))
        self.refused(code.BAD_VALUE, "window", QUERY, KEY, VALUE, window=(-5, 3))
        self.refused(code.BAD_VALUE, "softcap", QUERY, KEY, VALUE, softcap=-1.0)
        self.refused(code.WRONG_DTYPE, "bias: dtype bool", QUERY, KEY, VALUE, bias=np.ones((T_Q, T_KV), bool))
        self.refused(code.NULL_POINTER, "past_key", QUERY, KEY, VALUE, past_key=KEY)
        self.refused(code.BAD_VALUE, "head_dim 577", np.zeros((1, 1, 2, 577), np.float32), np.zeros((1, 1, 2, 577), np.float32), VALUE[:1, :1, :2])

    def test_out_keeps_its_values(self):
        out = np.full((B, H, T_Q, D_V), 7, np.float32)
        self.refused(polyhead.Code.BAD_VALUE, "kv_lengths", QUERY, KEY, VALUE, kv_lengths=[1, 99], out=out)
        self.assertTrue((out == 7).all())

    def test_explain_names_the_variant(self):
        text = polyhead.explain(QUERY, KEY, VALUE, is_causal=True)
        self.assertIn("--causal", text)
        # Which number it has depends on the lengths that other cases have asked for in this process.
        self.assertRegex(text, r"(?m)^  runs polyhead_kernel_\d+: target .* tiling frame=query_lanes")


class Threads(Case):
    def test_many_threads_compile_and_run_at_once(self):
        expected = {d: attention(QUERY[..., :d], KEY[..., :d], VALUE[..., :d])[0] for d in (5, 6)}
        failures = []

        def work(index):
            d = 5 + index % 2
            try:
                out = polyhead.sdpa(*(np.ascontiguousarray(x[..., :d]) for x in (QUERY, KEY, VALUE)))
                np.testing.assert_allclose(out, expected[d], rtol=1e-5, atol=1e-5)
            except Exception as error:  # noqa: BLE001
                failures.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        turns = 0  # this thread goes on while the others compile
        while any(thread.is_alive() for thread in threads):
            turns += 1
            threads[0].join(0.001)
        self.assertEqual(failures, [])
        self.assertGreater(turns, 20)


load_tests = sampled_cases(__file__, 8)

if __name__ == "__main__":
    unittest.main()
