"""The table of models: layers, counts and refusals for configurations as published models have them, and the command generate --from."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import polyhead
from polyhead import models
from polyhead.kernel import flags_of
from program_output import own_words
from python_model_references import FILES, Case

GUIDE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "guides" / "models.md"
LLAMA = dict(model_type="llama", hidden_size=4096, num_attention_heads=32, num_key_value_heads=8, num_hidden_layers=32, rope_theta=500000.0,
             rms_norm_eps=1e-5, max_position_embeddings=131072, rope_scaling=dict(
                 rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192))
# Files of Gemma 3 leave out what is the default of the class.
GEMMA3 = dict(model_type="gemma3", text_config=dict(model_type="gemma3_text", hidden_size=2560, num_hidden_layers=34, sliding_window=1024,
                                                    rope_scaling=dict(rope_type="linear", factor=8.0)))
GEMMA4 = dict(model_type="gemma4", text_config=dict(
    model_type="gemma4_text", hidden_size=1536, num_hidden_layers=35, num_attention_heads=8, num_key_value_heads=1, head_dim=256,
    global_head_dim=512, num_kv_shared_layers=20, sliding_window=512))
GPT_OSS = dict(model_type="gpt_oss", hidden_size=2880, num_hidden_layers=4, num_attention_heads=64, num_key_value_heads=8, head_dim=64,
               attention_bias=True, sliding_window=128, rope_theta=150000, rope_scaling=dict(
                   rope_type="yarn", factor=8.0, beta_fast=32.0, beta_slow=1.0, truncate=False, original_max_position_embeddings=4096))
DEEPSEEK = dict(
    model_type="deepseek_v3", hidden_size=7168, num_hidden_layers=61, num_attention_heads=128, num_key_value_heads=128, q_lora_rank=1536,
    kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, rope_theta=10000, max_position_embeddings=163840,
    rope_scaling=dict(type="yarn", factor=40, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0, original_max_position_embeddings=4096))
QWEN3_NEXT = dict(model_type="qwen3_next", hidden_size=2048, num_hidden_layers=48, num_attention_heads=16, num_key_value_heads=2, head_dim=256,
                  partial_rotary_factor=0.25, rope_theta=10000000)
QWEN3_VL = dict(model_type="qwen3_vl", text_config=dict(
    model_type="qwen3_vl_text", hidden_size=4096, num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8, head_dim=128,
    rope_theta=5000000, rope_scaling=dict(mrope_interleaved=True, mrope_section=[24, 20, 20], rope_type="default")))
SMALL = dict(hidden_size=64, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=4)
STEP = " --causal bottom_right --cache"

# Configuration; of each kind its name, how many layers have it, and flags behind sizes.
CASES = (
    (dict(model_type="bert", hidden_size=768, num_attention_heads=12, num_hidden_layers=12), [("attention", 12, "--bias --kv-lengths")]),
    (dict(model_type="vit", hidden_size=768, num_attention_heads=12, num_hidden_layers=12), [("attention", 12, "--bias")]),
    (LLAMA, [("attention", 32, "--rope half_split" + STEP)]),
    (dict(SMALL, model_type="mistral"), [("sliding_attention", 4, "--rope half_split" + STEP + " --window")]),
    (dict(SMALL, model_type="mistral", sliding_window=None), [("attention", 4, "--rope half_split" + STEP)]),
    (dict(SMALL, model_type="qwen2"), [("full_attention", 4, "--bias --rope half_split" + STEP)]),
    (dict(SMALL, model_type="qwen3"), [("full_attention", 4, "--query-norm rms --key-norm rms --rope half_split" + STEP)]),
    (QWEN3_NEXT, [("full_attention", 12, "--query-norm rms_plus_one --key-norm rms_plus_one --rope half_split" + STEP
                   + " --rotary-dim 64 --gate entries")]),
    (QWEN3_VL, [("attention", 36, "--query-norm rms --key-norm rms --rope half_split" + STEP
                 + " --rope-sections interleaved --section-1 24 --section-2 20 --section-3 20")]),
    (dict(SMALL, model_type="gemma2"), [("sliding_attention", 2, "--rope half_split" + STEP + " --window --softcap"),
                                        ("full_attention", 2, "--rope half_split" + STEP + " --softcap")]),
    (GEMMA3, [("sliding_attention", 29, "--query-norm rms_plus_one --key-norm rms_plus_one --rope half_split" + STEP + " --window"),
              ("full_attention", 5, "--query-norm rms_plus_one --key-norm rms_plus_one --rope half_split" + STEP)]),
    (GEMMA4, [("sliding_attention", 13, "--query-norm rms --key-norm rms --value-norm --rope half_split" + STEP + " --window"),
              ("full_attention", 2, "--query-norm rms --key-norm rms --value-norm --rope half_split" + STEP),
              ("sliding_attention_shared", 16, "--query-norm rms --rope half_split" + STEP + " --window --shared-cache"),
              ("full_attention_shared", 4, "--query-norm rms --rope half_split" + STEP + " --shared-cache")]),
    (dict(SMALL, model_type="olmo2"), [("attention", 4, "--query-norm rms --key-norm rms --norm-of-projection --rope half_split" + STEP)]),
    (GPT_OSS, [("sliding_attention", 2, "--bias --rope half_split" + STEP + " --window --sinks"),
               ("full_attention", 2, "--bias --rope half_split" + STEP + " --sinks")]),
    (DEEPSEEK, [("attention", 61, "--head-dim-v 128 --causal bottom_right --kv-lengths")]),
)
REFUSALS = (
    (dict(SMALL, model_type="llamas"), "model_type: found 'llamas', expected bert, .* or deepseek_v3; did you mean llama?"),
    ({}, "model_type: found None, expected bert"),
    (dict(model_type="llava", text_config=dict(model_type="phi")), "model_type: found 'phi', expected"),
    (dict(model_type="llama", num_attention_heads=4, num_hidden_layers=1), "hidden_size: found none in the configuration of llama"),
    (dict(SMALL, model_type="llama", num_hidden_layers=None), "num_hidden_layers: found none in the configuration of llama, expected a whole number from 1 to"),
    (dict(SMALL, model_type="llama", num_key_value_heads="8"), "num_key_value_heads: found '8' in the configuration of llama, expected a whole number"),
    (dict(SMALL, model_type="llama", rope_scaling=dict(rope_type="linear")), "factor: missing in the configuration"),
    (dict(SMALL, model_type="qwen2", layer_types=["full_attention"]), "layer_types: found 1 in the configuration of qwen2, expected 4, one for each"),
    (dict(SMALL, model_type="gpt_oss", layer_types=["chunked_attention"] * 4), "layer_types: found 'chunked_attention' .* expected full_attention or sliding"),
    (dict(SMALL, model_type="qwen3_vl_text", head_dim=16), r"mrope_section: found '\[24, 20, 20\]' .*, expected three numbers, 8 together"),
    (dict(SMALL, model_type="gemma3_text", use_bidirectional_attention=True), "use_bidirectional_attention: found True .*, expected false, because"),
    (dict(SMALL, model_type="gemma4_text", use_bidirectional_attention="all"), "use_bidirectional_attention: found 'all' .*, expected false, because"),
    (dict(SMALL, model_type="gemma4_text", num_kv_shared_layers=4), "num_kv_shared_layers: found 4 .*, expected a layer of sliding_attention before them"),
    (dict(model_type="bert", hidden_size=64, num_attention_heads=4, num_hidden_layers=1, is_decoder=True), "is_decoder: found True"),
    (dict(DEEPSEEK, v_head_dim=None), "v_head_dim: found none in the configuration of deepseek_v3"),
)


class Table(unittest.TestCase):
    def test_layers_of_published_models(self):
        self.assertEqual({models.layers_of(config)[0].model_type for config, _ in CASES}, set(models.MODELS))
        for config, expected in CASES:
            layers = models.layers_of(config)
            with self.subTest(layers[0].model_type):
                found = [(layer.kind, len(layer.layers), " ".join(flags_of(layer.fields))) for layer in layers]
                self.assertEqual([one[:2] for one in found], [one[:2] for one in expected])
                for (_, _, flags), (_, _, ending) in zip(found, expected):
                    self.assertRegex(flags, r"^--op (mha|sdpa)( --(embed-dim|num-heads|num-kv-heads|head-dim) \d+){3,4} %s$" % ending)

    def test_what_files_leave_out(self):
        sliding, full = models.layers_of(GEMMA3)
        self.assertEqual((full.fields["num_heads"], full.fields["num_kv_heads"], full.fields["head_dim"]), (8, 4, 256))
        self.assertEqual((sliding.numbers["window"], full.numbers["softmax_scale"]), ((1023, -1), 1 / 16))
        for layer, angle in ((sliding, 1e4 ** (-2 / 256)), (full, 1e6 ** (-2 / 256) / 8)):
            self.assertAlmostEqual(float(layer.tables(2).sin[1, 1]), np.sin(angle), places=6)
        self.assertAlmostEqual(float(models.layers_of(GPT_OSS)[1].tables(2).sin[1, -1] / (0.1 * np.log(8) + 1)), 150000 ** (-62 / 64) / 8, places=9)

    def test_layers_that_read_the_cache_of_another(self):
        found = {layer.kind: layer for layer in models.layers_of(GEMMA4)}
        self.assertEqual((found["sliding_attention_shared"].reads, found["full_attention_shared"].reads), (14, 11))
        self.assertEqual((found["full_attention"].fields["head_dim"], found["full_attention_shared"].layers), (512, (17, 23, 29, 34)))

    def test_objects_with_to_dict(self):
        class Configuration:
            def to_dict(self):
                return LLAMA

        self.assertEqual(models.layers_of(Configuration())[0].fields, models.layers_of(LLAMA)[0].fields)

    def test_refusals(self):
        for config, sentence in REFUSALS:
            with self.subTest(sentence), self.assertRaisesRegex(polyhead.Error, "^(%s)" % sentence) as caught:
                models.layers_of(config)
            self.assertNotIn("\n", str(caught.exception))
        with self.assertRaisesRegex(TypeError, "config: found 'config.json', expected the content of config.json as a dict"):
            models.layers_of("config.json")

    def test_any_value_is_refused_in_a_sentence_or_taken(self):
        bad = ("x", -1, 0, 1.5, True, [], [1], {}, {"x": {}}, 1e300, float("nan"), 10**40)
        for config, _ in CASES:
            text = dict(config.get("text_config", config), num_hidden_layers=6)
            if "num_kv_shared_layers" in text:
                text["num_kv_shared_layers"] = 2
            for name, held in text.items():
                parts = [held] if isinstance(held, dict) else []
                for value in (*bad, *({**part, key: one} for part in parts for key in part for one in bad)):
                    with self.subTest(text["model_type"], name=name, value=value):
                        try:
                            models.layers_of({**text, name: value})
                        except polyhead.Error as error:
                            self.assertNotIn("\n", str(error))

    def test_parameters_are_those_of_the_files(self):
        for name in FILES:
            case = Case(name)
            counted = sum(models.counts_of(layer).times(len(layer.layers)).parameters for layer in case.layers)
            self.assertEqual(counted, sum(tensor.size for tensor in case.state.values()), name)

    def test_counts(self):
        for config, parameters in ((LLAMA, 1342177280), (CASES[0][0], 12 * 4 * (768 * 768 + 768)), (DEEPSEEK, 61 * 187107328)):
            layer, = models.layers_of(config)
            self.assertEqual(models.counts_of(layer).times(len(layer.layers)).parameters, parameters)
        layer, = models.layers_of(LLAMA)
        one = models.counts_of(layer, "bf16", 1000)
        self.assertEqual((one.weights_bytes, one.cache_token_bytes, one.cache_bytes), (2 * 41943040, 2 * 8 * 256, 1000 * 2 * 8 * 256))
        self.assertEqual(one.flops, 2 * 41943040 + 2 * 32 * 1000 * 256)
        sliding = models.counts_of(models.layers_of(GEMMA3)[0], "f32", 4096)
        self.assertEqual(sliding.cache_bytes, 1024 * sliding.cache_token_bytes)
        self.assertEqual(models.counts_of(models.layers_of(GEMMA4)[2]).cache_token_bytes, 0)
        self.assertEqual(models.counts_of(models.layers_of(CASES[0][0])[0]).cache_bytes, 0)


class Weights(unittest.TestCase):
    def test_biases_that_a_model_does_not_have_are_zeros(self):
        case = Case("qwen2")
        taken = case.layers[0].weights({"model." + name: tensor for name, tensor in case.state.items()}, 0)
        self.assertFalse(taken["out_bias"].any())
        self.assertTrue(taken["query_bias"].any())

    def test_both_names_of_vit(self):
        state, names = Case("vit").state, {"attention.q_proj": "attention.attention.query", "attention.k_proj": "attention.attention.key",
                                           "attention.v_proj": "attention.attention.value", "attention.o_proj": "attention.output.dense"}
        older = {}
        for name, tensor in state.items():
            first, _, last = name.rpartition(".")
            module = next(module for module in names if first.endswith(module))
            older["vit.encoder.layer.0." + names[module] + "." + last] = tensor
        layer, = models.layers_of(dict(model_type="vit", hidden_size=32, num_attention_heads=4, num_hidden_layers=1))
        for (name, one), (_, other) in zip(layer.weights(state, 0).items(), layer.weights(older, 0).items()):
            np.testing.assert_array_equal(one, other, name)

    def test_refusals(self):
        case = Case("llama")
        layer, = case.layers
        twice = {**case.state, **{"draft." + name: tensor for name, tensor in case.state.items()}}
        for state, sentence in (({}, "layers.0.self_attn.q_proj.weight: found none in the weights, expected one name that ends so"),
                                (twice, "found draft.layers.0.self_attn.q_proj.weight and layers.0.self_attn.q_proj.weight in the weights")):
            with self.assertRaisesRegex(polyhead.Error, sentence):
                layer.weights(state, 0)


class Command(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_it(self, config, *words):
        path = os.path.join(self.folder, "config.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write(config if isinstance(config, str) else json.dumps(config))
        return subprocess.run([sys.executable, "-m", "polyhead", "generate", "--from", path, *words], capture_output=True, text=True, check=False,
                              cwd=self.folder)

    def test_prints(self):
        done = self.run_it(GEMMA4, "--print", "--dtype", "bf16", "--page-size", "16", "--decode")
        self.assertEqual((done.returncode, own_words(done.stderr)), (0, ""))
        for part in ("gemma4_text: attention of 35 layers, bf16, a context of 4096 tokens", "0-4, 6-10, 12-14", "it reads the cache of layer 14",
                     "polyhead generate gemma4_text_full_attention --op mha", "--dtype bf16 --seq-len-q-range 1:16 --page-size 16\n",
                     "softmax_scale=1, window=(511, -1), norm_epsilon=1e-06, query_norm_weight, key_norm_weight, cos and sin of rope_tables("):
            self.assertIn(part, done.stdout)
        self.assertEqual(os.listdir(self.folder), ["config.json"])

    def test_fields_are_for_attention_alone(self):
        lines = self.run_it(DEEPSEEK, "--print", "--page-size", "16", "--lse", "--target", "x86-64-v3", "--prefill").stdout.splitlines()
        attention, *linears = (line for line in lines if line.startswith("polyhead generate"))
        self.assertTrue(attention.endswith("--dtype f32 --seq-len-q-range 17: --page-size 16 --lse --target x86-64-v3"), attention)
        self.assertEqual(len(linears), 5)
        for line in linears:
            self.assertRegex(line, r"^polyhead generate deepseek_v3_\w+ --op linear --embed-dim \d+ --out-features \d+ --dtype f32 --target x86-64-v3$")

    def test_makes_kernels(self):
        config = dict(SMALL, model_type="gpt_oss", head_dim=16)
        done = self.run_it(config, "--decode", "--target", "x86-64-linux", "-o", "out")
        self.assertEqual((done.returncode, own_words(done.stderr)), (0, ""))
        names = ["gpt_oss_%s_attention" % kind for kind in ("full", "sliding")]
        made = pathlib.Path(self.folder, "out")
        self.assertEqual(sorted(path.name for path in made.iterdir()), [name + end for name in names for end in (".a", ".h", ".json")])
        manifest = json.loads((made / (names[1] + ".json")).read_text(encoding="utf-8"))
        layer = models.layers_of(config)[0]
        self.assertEqual(manifest["parameters"] + layer.fields["num_heads"], models.counts_of(layer).parameters)  # the sinks
        self.assertEqual([manifest["problem"][name] for name in ("window", "sinks", "cache", "head_dim")], [True, True, True, 16])

    def test_refusals(self):
        for config, words, sentence in (
                ("{", (), "config.json: found no JSON, expected a config.json: "), ("[]", (), "config.json: found a JSON list, expected an object"),
                (dict(SMALL, model_type="llamas"), ("--print",), "model_type: found 'llamas', expected bert,"),
                (LLAMA, ("--print", "--context", "0"), "context: found 0, expected a number from 1"),
                (dict(SMALL, model_type="mistral"), ("--targte", "host"), "--targte: unknown option, expected --target")):
            done = self.run_it(config, *words)
            self.assertEqual(done.returncode, 1, sentence)
            self.assertIn(sentence, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        missing = subprocess.run([sys.executable, "-m", "polyhead", "generate", "--from=nowhere.json"], capture_output=True, text=True, check=False)
        self.assertIn("nowhere.json: cannot read it: No such file or directory", missing.stderr)

    def test_the_guide_has_every_model(self):
        text = GUIDE.read_text(encoding="utf-8")
        for model_type in models.MODELS:
            self.assertIn("| `%s` |" % model_type, text)


if __name__ == "__main__":
    unittest.main()
