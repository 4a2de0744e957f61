"""The attention of models, as programs call it: few kernels are compiled, and the results are right."""
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

from tier import sampled

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST_COMPILED = 2  # for each kind of layer of a model, beside what a wheel has ready

# Kind of layer: query heads, key/value heads, head dimension, that of value, dtype, features. `decodes`: single queries come, too.
LAYERS = {
    "bert": (12, 12, 32, 32, "float32", ("padding",)),
    "vit": (12, 12, 64, 64, "float32", ()),
    "whisper cross": (6, 6, 64, 64, "float32", ("decodes",)),
    "llama 3": (32, 8, 128, 128, "bfloat16", ("causal", "lengths", "decodes")),
    "qwen 2": (14, 2, 64, 64, "float32", ("causal", "lengths", "decodes")),
    "mistral": (32, 8, 128, 128, "float32", ("causal", "window", "lengths", "decodes")),
    "gemma 2 local": (8, 4, 256, 256, "float32", ("causal", "window", "softcap", "decodes")),
    "gemma 2 global": (8, 4, 256, 256, "float32", ("causal", "softcap", "lengths", "decodes")),
    "gpt-oss": (64, 8, 64, 64, "bfloat16", ("causal", "window", "sinks", "decodes")),
    "bloom": (32, 32, 128, 128, "float32", ("causal", "alibi", "decodes")),
    "t5 encoder": (8, 8, 64, 64, "float32", ("bias",)),
    "t5 decoder": (8, 8, 64, 64, "float32", ("causal", "bias", "decodes")),
    "deepseek 3": (16, 16, 192, 128, "float32", ("causal", "lengths", "decodes")),
}
READY = ("bert", "vit", "whisper cross", "llama 3", "qwen 2")  # a wheel has all that they call
CALLS = """
import json, sys
import numpy as np
import polyhead
from polyhead.reference import attention, visible
heads, kv_heads, width, width_v, dtype, features = json.loads(sys.argv[1])
rng = np.random.default_rng(1)
if dtype == "bfloat16":
    import ml_dtypes
    dtype = ml_dtypes.bfloat16
worst = 0
for batch, rows, keys in ((1, 40, 40), (2, 70, 70), (1, 1, 40), (2, 1, 70), (1, 3, 40)):
    if rows < 10 and "decodes" not in features:
        continue
    query, key, value = (rng.standard_normal(shape).astype(dtype) for shape in
                         ((batch, heads, rows, width), (batch, kv_heads, keys, width), (batch, kv_heads, keys, width_v)))
    keywords, reference = {}, {}
    lengths = np.array([keys - 5] * batch, np.int32) if "lengths" in features and rows < 10 else None
    causal, window = "causal" in features, (16, -1) if "window" in features else (-1, -1)
    seen = visible(rows, keys, lengths, causal=causal, window=window, from_end=True, batch=batch)
    if causal:
        keywords.update(is_causal=True, causal_alignment="bottom_right")
    if lengths is not None:
        keywords.update(kv_lengths=lengths)
    if "window" in features:
        keywords.update(window=window)
    if "padding" in features:  # as tokenizers give it
        kept = np.arange(keys) < keys - 3
        keywords.update(attn_mask=kept[None, None, None, :] if batch == 1 else np.broadcast_to(kept, (batch, 1, rows, keys)).copy())
        seen = seen & kept
    if "softcap" in features:
        keywords.update(softcap=50.0)
        reference.update(softcap=50.0)
    if "sinks" in features:
        sinks = rng.standard_normal(heads).astype(np.float32)
        keywords.update(sinks=sinks)
        reference.update(sinks=sinks)
    if "alibi" in features:
        slopes = np.exp2(-np.arange(1, heads + 1) / 4).astype(np.float32)
        keywords.update(alibi_slopes=slopes)
        distance = np.abs(np.arange(keys) - (np.arange(rows)[:, None] + keys - rows))
        reference.update(add=-slopes[:, None, None] * distance)
    if "bias" in features:
        bias = rng.standard_normal((1, heads, rows, keys)).astype(np.float32)
        keywords.update(bias=bias)
        reference.update(add=bias)
    out = polyhead.sdpa(query, key, value, **keywords)
    wanted = attention(*(x.astype(np.float64) for x in (query, key, value)), seen, **reference).out
    worst = max(worst, float(abs(out.astype(np.float64) - wanted).max()))
print(worst)
"""


def ready_problems():
    """Flags of the problems that a wheel has ready, as sets of words."""
    sys.path.insert(0, str(ROOT / "tools"))
    from command import wheel
    return {frozenset(flags[:flags.index("--target")]) for flags in wheel.problems()}


class Models(unittest.TestCase):
    def test_few_kernels_are_compiled(self):
        ready = ready_problems()
        for name in sampled("models", list(LAYERS), 4):
            with self.subTest(name):
                done = subprocess.run([sys.executable, "-c", CALLS, json.dumps(LAYERS[name])], capture_output=True, text=True, check=False,
                                      env={**os.environ, "POLYHEAD_VERBOSE": "1"})
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertLess(float(done.stdout), 1e-4 if LAYERS[name][4] == "float32" else 3e-2)
                made = re.findall(r"(?m)^polyhead: (?:compiled|found on the disk): (\S+) for .* \((--.*)\), \d+ ms$", done.stderr)
                self.assertGreater(len(made), 0, done.stderr)
                # The exact problem is compiled where this machine has a tuning record near it.
                tuned = set(re.findall(r"(?m) from record .* \((--[^()]*)\), \d+ us$", done.stderr))
                compiled = {symbol for symbol, flags in made if frozenset(flags.split()) not in ready and flags not in tuned}
                self.assertLessEqual(len(compiled), MOST_COMPILED, done.stderr)
                self.assertTrue(not compiled if name in READY else compiled or tuned, done.stderr)


if __name__ == "__main__":
    unittest.main()
