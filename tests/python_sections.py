"""Rotation by positions in two or three directions: sdpa, layers with a cache, rope, append and the reference against formulas of models."""
import itertools
import unittest

import ml_dtypes
import numpy as np

import polyhead
from polyhead.reference import attention, rotated, visible
from python_inputs import random
from tier import sampled_cases

B, H, H_KV, T_Q, T_KV, D = 2, 4, 2, 19, 23, 32
PAIRS = D // 2
QUERY, KEY, VALUE = random(1, B, H, T_Q, D), random(2, B, H_KV, T_KV, D), random(3, B, H_KV, T_KV, D)
FREQUENCIES = 10000.0 ** (-np.arange(PAIRS) / PAIRS)
ANGLES = np.arange(40)[:, None] * FREQUENCIES
TABLES = np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32)


def positions(seed, directions, tokens):
    return np.random.default_rng(seed).integers(0, 40, (B, directions, tokens), np.int32)


def rotate_half(x):
    """Of Transformers."""
    return np.concatenate([-x[..., x.shape[-1] // 2:], x[..., :x.shape[-1] // 2]], -1)


def qwen2_vl(x, at, sections):
    """apply_multimodal_rotary_pos_emb of Qwen2-VL: cos and sin of each direction [3,B,T,d], cut into sections twice over."""
    angles = at.transpose(1, 0, 2)[..., None] * FREQUENCIES
    both = np.concatenate([angles, angles], -1)
    ends = np.cumsum(list(sections) * 2)[:-1]

    def of_directions(table):
        return np.concatenate([part[i % 3] for i, part in enumerate(np.split(table, ends, -1))], -1)[:, None]

    return x * of_directions(np.cos(both)) + rotate_half(x) * of_directions(np.sin(both))


def qwen3_vl(x, at, sections):
    """apply_interleaved_mrope of Qwen3-VL: from THTHWHTHW...TT."""
    angles = at.transpose(1, 0, 2)[..., None] * FREQUENCIES
    mixed = angles[0].copy()
    for direction in (1, 2):
        here = slice(direction, sections[direction] * 3, 3)
        mixed[..., here] = angles[direction][..., here]
    both = np.concatenate([mixed, mixed], -1)[:, None]
    return x * np.cos(both) + rotate_half(x) * np.sin(both)


def in_parts(x, at, sections):
    """Each part of 2 n entries, rotated by itself: apply_multidimensional_rope of vision models."""
    parts, first = [], 0
    for direction, n in enumerate(sections):
        angles = at[:, direction, :, None] * FREQUENCIES[first:first + n]
        both = np.concatenate([angles, angles], -1)[:, None]
        part = x[..., 2 * first:2 * (first + n)]
        parts.append(part * np.cos(both) + rotate_half(part) * np.sin(both))
        first += n
    return np.concatenate(parts, -1)


MODELS = (("contiguous", (4, 6, 6), qwen2_vl), ("interleaved", (6, 5, 5), qwen3_vl), ("interleaved", (8, 5, 3), qwen3_vl), ("parts", (6, 4, 6), in_parts),
          ("parts", (8, 8), in_parts))


class Sections(unittest.TestCase):
    def close(self, found, expected, tolerance=2e-5):
        self.assertEqual(found.shape, expected.shape)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)

    def refused(self, code, sentence, call, *args, **options):
        with self.assertRaises(polyhead.Error) as caught:
            call(*args, **options)
        self.assertEqual(caught.exception.code, code)
        self.assertIn(sentence, str(caught.exception))

    def test_formulas_of_models(self):
        for kind, sections, formula in MODELS:
            with self.subTest(kind=kind, sections=sections):
                at_q, at_kv = positions(1, len(sections), T_Q), positions(2, len(sections), T_KV)
                keys = formula(KEY.astype(float), at_kv, sections)
                self.close(rotated(KEY, *TABLES, at_kv, False, rope_sections=kind, sections=sections), keys)
                words = dict(rope=TABLES, rope_sections=kind, sections=sections, positions_q=at_q, positions_kv=at_kv)
                expected = attention(formula(QUERY.astype(float), at_q, sections), keys, VALUE)
                out, scores = polyhead.sdpa(QUERY, KEY, VALUE, return_scores="scaled", **words)
                self.close(out, expected.out)
                self.close(scores, expected.scores)
                one = polyhead.sdpa(QUERY[:, :, :1], KEY, VALUE, **{**words, "positions_q": at_q[..., :1]})  # decoding
                self.close(one, expected.out[:, :, :1])

    def test_pairs_of_every_kind(self):
        """Leading and trailing pairs, neighbours and halves, whole heads and parts: kernels and functions around them agree with the reference."""
        tables = tuple(table[:, :12].copy() for table in TABLES)
        for interleaved, trailing, (kind, sections) in itertools.product(
                (False, True), (False, True), (("contiguous", (3, 4, 5)), ("contiguous", (7, 5)), ("interleaved", (4, 4, 4)), ("parts", (2, 7, 3)))):
            with self.subTest(interleaved=interleaved, trailing=trailing, kind=kind, sections=sections):
                at_q, at_kv = positions(3, len(sections), T_Q), positions(4, len(sections), T_KV)
                words = dict(rope_sections=kind, sections=sections)
                keys = rotated(KEY, *tables, at_kv, interleaved, trailing=trailing, **words)
                turned = polyhead.rope(KEY, *tables, interleaved=interleaved, trailing=trailing, positions=at_kv, **words)
                self.close(turned, keys)
                cache, pairs = (np.zeros_like(KEY), np.zeros_like(VALUE)), dict(rope_interleaved=interleaved, rope_trailing=trailing, **words)
                polyhead.append(*cache, KEY, VALUE, np.zeros(B, np.int32), rope=tables, positions=at_kv, **pairs)
                np.testing.assert_array_equal(cache[0], turned)
                expected = attention(rotated(QUERY, *tables, at_q, interleaved, trailing=trailing, **words), keys, VALUE).out
                self.close(polyhead.sdpa(QUERY, KEY, VALUE, rope=tables, positions_q=at_q, positions_kv=at_kv, **pairs), expected)

    def test_without_positions_all_directions_have_the_same(self):
        plain = polyhead.sdpa(QUERY, KEY, VALUE, is_causal=True, rope=TABLES)
        for kind, sections in (("contiguous", (4, 6, 6)), ("interleaved", (6, 5, 5))):
            self.close(polyhead.sdpa(QUERY, KEY, VALUE, is_causal=True, rope=TABLES, rope_sections=kind, sections=sections), plain)
        first = np.array([3, 7], np.int32)
        turned = polyhead.rope(KEY, *TABLES, positions=first, rope_sections="contiguous", sections=(4, 12))
        np.testing.assert_array_equal(turned, polyhead.rope(KEY, *TABLES, positions=first))

    def test_bfloat16(self):
        at_q, at_kv = positions(5, 3, T_Q), positions(6, 3, T_KV)
        halves = [x.astype(ml_dtypes.bfloat16) for x in (QUERY, KEY, VALUE)]
        query, key, value = (x.astype(float) for x in halves)
        found = polyhead.sdpa(*halves, rope=TABLES, rope_sections="interleaved", sections=(6, 5, 5), positions_q=at_q, positions_kv=at_kv)
        expected = attention(qwen3_vl(query, at_q, (6, 5, 5)), qwen3_vl(key, at_kv, (6, 5, 5)), value).out
        self.close(found.astype(float), expected, 2e-2)

    def test_layer_with_a_cache(self):
        """Tokens in two calls: keys are rotated at their own positions before they are stored, queries before they attend."""
        sections, tokens, width, heads = (2, 3, 3), 9, 32, 2
        d, tables = width // heads, tuple(table[:, :8].copy() for table in TABLES)
        kernel = polyhead.compile("mha", embed_dim=width, num_heads=heads, cache=True, causal="bottom_right", rope="half_split",
                                  rope_sections="parts", section_1=2, section_2=3, section_3=3)
        state = {name: random(20 + i, width, width) / 4 for i, name in enumerate(("query", "key", "value", "out_proj"))}
        weights, x, at = kernel.pack(**state), random(30, B, tokens, width), positions(7, 3, tokens)
        caches = [np.zeros((B, heads, tokens, d), np.float32) for _ in range(2)]
        found = [kernel(query=x[:, part], weights=weights, key_cache=caches[0], value_cache=caches[1],
                        cache_lengths=np.full(B, part.start, np.int32), rope_cos=tables[0], rope_sin=tables[1],
                        positions_q=at[..., part], positions_kv=at[..., part]) for part in (slice(0, 8), slice(8, 9))]
        query, key, value = ((x @ state[name].T).reshape(B, tokens, heads, d).transpose(0, 2, 1, 3) for name in ("query", "key", "value"))
        query, key = (rotated(y, *tables, at, False, rope_sections="parts", sections=sections) for y in (query, key))
        self.close(caches[0], key)
        out = attention(query, key, value, visible(tokens, tokens, causal=True)).out.transpose(0, 2, 1, 3).reshape(B, tokens, width)
        self.close(np.concatenate(found, 1), out @ state["out_proj"].T, 1e-4)

    def test_refusals(self):
        code = polyhead.Code
        sdpa, words = polyhead.sdpa, dict(rope=TABLES, rope_sections="contiguous", sections=(4, 6, 6))
        self.refused(code.NULL_POINTER, "rope_sections: found without sections", sdpa, QUERY, KEY, VALUE, rope=TABLES, rope_sections="parts")
        self.refused(code.NULL_POINTER, "sections: found without rope_sections", sdpa, QUERY, KEY, VALUE, rope=TABLES, sections=(8, 8))
        self.refused(code.WRONG_OPERATION, "rope_sections: found without rope, expected both", sdpa, QUERY, KEY, VALUE, rope_sections="parts", sections=(8, 8))
        with self.assertRaisesRegex(TypeError, r"sections: found tuple, expected two or three whole numbers"):
            sdpa(QUERY, KEY, VALUE, rope=TABLES, rope_sections="parts", sections=(16,))
        with self.assertRaisesRegex(polyhead.Error, "rope_sections: found 'part', expected contiguous, interleaved or parts or None; did you mean parts"):
            sdpa(QUERY, KEY, VALUE, rope=TABLES, rope_sections="part", sections=(8, 8))
        with self.assertRaisesRegex(polyhead.Error, "section_3 5 is not allowed: expected 6, because all sections have rotary_dim / 2 pairs"):
            sdpa(QUERY, KEY, VALUE, **{**words, "sections": (4, 6, 5)})
        self.refused(code.WRONG_SHAPE, "positions_q: rank 2, expected 3", sdpa, QUERY, KEY, VALUE, **words, positions_q=np.zeros((B, T_Q), np.int32))
        self.refused(code.WRONG_SHAPE, "positions_kv: extent 2 of dimension 1, expected 3", sdpa, QUERY, KEY, VALUE, **words, positions_kv=positions(1, 2, T_KV))
        at = positions(1, 3, T_KV)
        at[1, 2, 4] = 40
        self.refused(code.BAD_VALUE, "positions_kv: value 40 at index 1, 2, 4, expected 0 to 39 (rows of rope_cos)", sdpa, QUERY, KEY, VALUE, **words,
                     positions_kv=at)
        for call in (lambda **given: polyhead.rope(KEY, *TABLES, **given),
                     lambda **given: polyhead.append(np.zeros_like(KEY), np.zeros_like(VALUE), KEY, VALUE, [0, 0], rope=TABLES, **given)):
            self.refused(code.BAD_VALUE, "position 40, expected 0 to 39", call, positions=at, rope_sections="contiguous", sections=(4, 6, 6))
            self.refused(code.WRONG_SHAPE, "positions: extent 3 of dimension 1, expected 2 as in sections", call, positions=at,
                         rope_sections="contiguous", sections=(8, 8))
            self.refused(code.BAD_VALUE, "section_2: value 6, expected 1 to 5, because every third pair belongs to it", call, positions=at,
                         rope_sections="interleaved", sections=(6, 6, 4))

load_tests = sampled_cases(__file__, 3)

if __name__ == "__main__":
    unittest.main()
