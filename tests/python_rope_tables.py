"""Tables of rotations from configurations of models, compared with frequencies of Transformers 5.24 (modeling_rope_utils, in float64)."""
import math
import types
import unittest

import numpy as np

import polyhead

LLAMA = dict(hidden_size=4096, num_attention_heads=32, max_position_embeddings=131072)
SMALL = dict(hidden_size=2048, num_attention_heads=16, max_position_embeddings=2048)
DEEPSEEK = dict(hidden_size=7168, num_attention_heads=128, qk_rope_head_dim=64, qk_nope_head_dim=128, max_position_embeddings=163840)
PHI = dict(hidden_size=3072, num_attention_heads=32, max_position_embeddings=131072)
LLAMA3 = dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)
GPT_OSS = dict(rope_type="yarn", rope_theta=1.5e5, factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False, original_max_position_embeddings=4096)
YARN = dict(rope_type="yarn", rope_theta=1e4, factor=40, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0, original_max_position_embeddings=4096)
LONG = dict(rope_type="longrope", rope_theta=1e4, original_max_position_embeddings=4096, short_factor=[1 + 0.01 * i for i in range(48)],
            long_factor=[1 + 0.5 * i for i in range(48)])
# Model, rotation, length of the sequence; number of pairs, frequencies of pairs 0, 1/4, 1/2, 3/4 and the last one, factor of cos and sin.
CASES = {
    "default": (LLAMA, dict(rope_theta=5e5), 100, 64, (1, 0.0376060309309, 0.00141421356237, 5.31829589694e-05, 2.45514079113e-06), 1),
    "llama3": (LLAMA, LLAMA3, 100, 64, (1, 0.0376060309309, 0.000524846160993, 6.64786987118e-06, 3.06892598891e-07), 1),
    "linear": (SMALL, dict(rope_type="linear", rope_theta=1e4, factor=4.0), 100, 64, (0.25, 0.025, 0.0025, 0.00025, 2.88695496172e-05), 1),
    "dynamic, short": (SMALL, dict(rope_type="dynamic", factor=2.0), 100, 64, (1, 0.1, 0.01, 0.001, 0.000115478198469), 1),
    "dynamic, long": (SMALL, dict(rope_type="dynamic", factor=2.0), 5000, 64,
                      (1, 0.070855817424, 0.00502054686282, 0.00035573495188, 2.9740863992e-05), 1),
    "yarn without truncation": (dict(SMALL, head_dim=64), GPT_OSS, 100, 32,
                                (1, 0.0508132748155, 0.000456483919223, 4.0999784818e-06, 3.02351142812e-07), 1.34657359028),
    "yarn": (DEEPSEEK, YARN, 100, 32, (1, 0.1, 0.0055, 2.5e-05, 3.33380358041e-06), 1),
    "yarn without a factor": (dict(DEEPSEEK, qk_nope_head_dim=0), dict(YARN, factor=None, mscale=0.7), 100, 32,
                              (1, 0.1, 0.0055, 2.5e-05, 3.33380358041e-06), 0.919155995204),
    "longrope, short": (PHI, LONG, 4096, 48, (1, 0.0892857142857, 0.00806451612903, 0.000735294117647, 8.24168475258e-05), 1.19023807142),
    "longrope, long": (PHI, LONG, 4097, 48, (1, 0.0142857142857, 0.000769230769231, 5.26315789474e-05, 4.94501085155e-06), 1.19023807142),
    "proportional": (dict(PHI, head_dim=512), dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=0.25), 100, 256, (1, 0, 0, 0, 0), 1),
    "a part of the head": (PHI, dict(rope_theta=1e6, partial_rotary_factor=0.5), 100, 24,
                           (1, 0.0316227766017, 0.001, 3.16227766017e-05, 1.77827941004e-06), 1),
}


def tables(model, numbers, **keywords):
    return polyhead.rope_tables(dict(model, rope_parameters=numbers), 300, **keywords)


class RopeTables(unittest.TestCase):
    def test_frequencies(self):
        for name, (model, numbers, length, pairs, frequencies, factor) in CASES.items():
            with self.subTest(name):
                made = tables(model, numbers, length=length)
                self.assertEqual((made.cos.shape, made.sin.shape, made.cos.dtype, made.sin.dtype), ((300, pairs), (300, pairs), "float32", "float32"))
                places = (0, pairs // 4, pairs // 2, 3 * pairs // 4, pairs - 1)
                angles = np.arange(300)[:, None] * np.array(frequencies)
                np.testing.assert_allclose(made.cos[:, places], np.cos(angles) * factor, rtol=0, atol=2e-7)
                np.testing.assert_allclose(made.sin[:, places], np.sin(angles) * factor, rtol=0, atol=2e-7)

    def test_the_turning_pairs_of_a_proportional_rotation(self):
        made = tables(*CASES["proportional"][:2])
        turning = (made.sin != 0).any(0)
        self.assertEqual((turning[:64].all(), turning[64:].any()), (True, False))
        np.testing.assert_allclose(made.sin[1, :64], np.sin(1e6 ** (-2 * np.arange(64) / 512)), atol=1e-7)

    def test_softmax_scale(self):
        mscale = 0.1 * math.log(40) + 1
        for model, numbers, scale in ((LLAMA, LLAMA3, 128 ** -0.5), (DEEPSEEK, YARN, 192 ** -0.5 * mscale ** 2),
                                      (DEEPSEEK, dict(rope_theta=1e4), 192 ** -0.5), (dict(LLAMA, query_pre_attn_scalar=256), {}, 1 / 16),
                                      (dict(LLAMA, attention_multiplier=0.0078125), {}, 0.0078125), (dict(LLAMA, model_type="gemma4_text"), {}, 1.0),
                                      (dict(SMALL, head_dim=64), GPT_OSS, 1 / 8)):
            self.assertAlmostEqual(tables(model, numbers).softmax_scale, scale, places=12)

    def test_older_files_and_nested_ones(self):
        new = polyhead.rope_tables(dict(LLAMA, rope_parameters=LLAMA3), 9)
        numbers = {name: value for name, value in LLAMA3.items() if name not in ("rope_type", "rope_theta")}
        older = dict(LLAMA, rope_theta=5e5, rope_scaling=dict(numbers, type="llama3"))
        for config in (older, {"text_config": older}, types.SimpleNamespace(to_dict=lambda: older)):
            made = polyhead.rope_tables(config, 9)
            np.testing.assert_array_equal(made.cos, new.cos)
            self.assertEqual(made.softmax_scale, new.softmax_scale)
        self.assertEqual(polyhead.rope_tables(dict(hidden_size=2048, num_attention_heads=16, rotary_pct=0.25), 3).cos.shape, (3, 16))

    def test_layers_that_rotate_differently(self):
        by_layer = dict(head_dim=256, global_head_dim=512, rope_parameters={
            "full_attention": dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=0.25), "sliding_attention": dict(rope_theta=1e4)})
        full, sliding = (polyhead.rope_tables(by_layer, 5, layer_type=name) for name in ("full_attention", "sliding_attention"))
        self.assertEqual((full.cos.shape, sliding.cos.shape), ((5, 256), (5, 128)))
        self.assertAlmostEqual(float(sliding.sin[1, 1]), math.sin(1e4 ** (-2 / 256)), places=6)
        with self.assertRaisesRegex(polyhead.Error, "layer_type: found None, expected full_attention or sliding_attention"):
            polyhead.rope_tables(by_layer, 5)
        gemma3 = dict(head_dim=256, rope_theta=1e6, rope_local_base_freq=1e4, rope_scaling=dict(rope_type="linear", factor=8.0))
        self.assertAlmostEqual(float(polyhead.rope_tables(gemma3, 5, layer_type="full_attention").sin[1, 0]), math.sin(1 / 8), places=6)
        self.assertAlmostEqual(float(polyhead.rope_tables(gemma3, 5, layer_type="sliding_attention").sin[1, 0]), math.sin(1), places=6)

    def test_entries_that_are_not_read(self):
        plain, more = (polyhead.rope_tables(dict(SMALL, rope_scaling=dict(rope_type="linear", factor=4.0, **others)), 5)
                       for others in ({}, dict(finetuned=True, apply_yarn_scaling=False, comment="trained", mrope_section=None)))
        np.testing.assert_array_equal(plain.cos, more.cos)

    def test_sdpa_takes_them(self):
        made = polyhead.rope_tables(dict(head_dim=16, rope_parameters=dict(rope_theta=100.0, partial_rotary_factor=0.5)), 20)
        query = np.random.default_rng(1).standard_normal((1, 2, 20, 16)).astype(np.float32)
        out = polyhead.sdpa(query, query, query, is_causal=True, rope=(made.cos, made.sin), scale=made.softmax_scale)
        turned = polyhead.rope(query, made.cos, made.sin)
        np.testing.assert_allclose(out, polyhead.sdpa(turned, turned, query, is_causal=True), atol=1e-5)

    def test_sections(self):
        qwen2_vl = dict(LLAMA, rope_scaling=dict(type="mrope", mrope_section=[16, 24, 24]))
        qwen3_vl = dict(text_config=dict(LLAMA, rope_parameters=dict(rope_type="default", mrope_interleaved=True, mrope_section=[24, 20, 20])))
        self.assertEqual(polyhead.rope_sections_of(qwen2_vl), dict(rope_sections="contiguous", sections=(16, 24, 24)))
        self.assertEqual(polyhead.rope_sections_of(qwen3_vl), dict(rope_sections="interleaved", sections=(24, 20, 20)))
        self.assertEqual(polyhead.rope_sections_of(LLAMA), {})
        self.assertEqual(polyhead.rope_tables(qwen3_vl, 5).cos.shape, polyhead.rope_tables(qwen2_vl, 5).cos.shape)

    def test_refusals(self):
        for config, rows, keywords, sentence in (
                (dict(LLAMA, rope_scaling=dict(rope_type="lama3")), 5, {}, "rope_type: found 'lama3', expected default, .* or proportional; did you mean"),
                (dict(LLAMA, rope_parameters=dict(rope_type="linear")), 5, {}, "factor: missing in the configuration, expected a value"),
                (dict(PHI, rope_parameters=dict(LONG, long_factor=[1.0])), 5000, {}, "long_factor: 1 numbers in the configuration, expected 48"),
                ({"hidden_size": 64}, 5, {}, "head_dim: missing in the configuration"),
                (dict(LLAMA, rope_scaling=dict(rope_type="linear", factor="4")), 5, {}, "factor: found '4' in the configuration, expected a number from 0"),
                (dict(LLAMA, rope_parameters=dict(rope_theta=0)), 5, {}, "rope_parameters: found numbers of default that give no finite frequencies"),
                (dict(LLAMA, rope_parameters="yarn"), 5, {}, "rope_parameters: found 'yarn' in the configuration, expected an object"),
                (dict(LLAMA, partial_rotary_factor=3), 5, {}, "partial_rotary_factor: found 384 entries to rotate .*, expected at most the 128 of a head"),
                (dict(head_dim=7), 5, {}, "rotary_dim: found 7 in the configuration, expected an even number")):
            with self.assertRaisesRegex(polyhead.Error, sentence):
                polyhead.rope_tables(config, rows, **keywords)
        with self.assertRaisesRegex(TypeError, "config: found 'config.json', expected the content of config.json as a dict"):
            polyhead.rope_tables("config.json", 5)
        for rows in (2.5, -1, 1 << 25):
            with self.assertRaisesRegex(TypeError, "rows: found %s, expected a whole number from 0 to" % rows):
                polyhead.rope_tables(LLAMA, rows)


if __name__ == "__main__":
    unittest.main()
