"""Holds POLYHEAD_CPU_FEATURES to its meaning: dispatch, the target `host` of the command line and that of Python see the same machine."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import unittest

LEVELS = ["none", "sse41", "avx", "avx2", "avx512", "avx512_skylake", "avx512_cannonlake", "avx512_bf16_vnni sse4a", "avx512_fp16 sse4a"]
BAD = ["avx3", "AVX2", "avx2 fast", "avx2;sse4a"]
SENTENCE = "POLYHEAD_CPU_FEATURES: found a word that is no CPU feature"
PROBE = """import numpy, polyhead
kernel = polyhead.compile(num_heads=1, head_dim=16)
x = numpy.ones((1, 1, 40, 16), numpy.float32)
print(kernel.target, bool((kernel(query=x, key=x, value=x) == 1).all()))
"""


def child(command, limit):
    env = dict(os.environ, POLYHEAD_CPU_FEATURES=limit)
    return subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def told(limit):
    """Features that dispatch sees under a limit, and what a call comes to."""
    done = child([OPTIONS.told], limit)
    features, answer = done.stdout.split("\n")[:2]
    return set(features.split()), answer


def generated(limit, folder):
    """Features that the variants of target host ask for; or the sentence of a refusal."""
    done = child([OPTIONS.generate, "limited", "--op", "sdpa", "--num-heads", "1", "--head-dim", "16", "-o", folder], limit)
    if done.returncode != 0:
        return done.stderr
    with open(os.path.join(folder, "limited.json"), encoding="utf-8") as file:
        return [set(variant["cpu_features"]) for variant in json.load(file)["variants"]]


class Limits(unittest.TestCase):
    def test_dispatch_and_the_command_line_agree(self):
        here, _ = told("")
        below = set()
        for level in LEVELS:
            with self.subTest(level), tempfile.TemporaryDirectory() as folder:
                seen, answer = told(level)
                self.assertLessEqual(below, seen)
                self.assertLessEqual(seen, here)
                self.assertEqual(answer, "0 ")
                # Kernels use what they may: the feature that gives the level its name, where this machine has it. LLVM cannot compile
                # for the first AVX-512 alone; for dot products of bf16 it needs SSE4a beside them, or FP16.
                name = "avx2" if level == "avx512" else level.split()[0]
                there = set(level.split()) <= here if name == "avx512_bf16_vnni" else name in here
                for asked in generated(level, folder):
                    self.assertLessEqual(asked, seen)
                    self.assertEqual(name in asked, there)
                below = seen
        self.assertEqual(told("none")[0], set())
        self.assertLessEqual(told("avx2")[0], {"sse41", "avx", "f16c", "fma", "avx2"})

    def test_words_that_are_no_features(self):
        for limit in BAD:
            with self.subTest(limit), tempfile.TemporaryDirectory() as folder:
                seen, answer = told(limit)
                self.assertEqual(seen, set())
                self.assertTrue(answer.startswith("9 " + SENTENCE), answer)
                sentence = generated(limit, folder)
                self.assertIn(SENTENCE, sentence)
                self.assertEqual(len(sentence.splitlines()), 1)
                self.assertEqual(os.listdir(folder), [])

    def test_python(self):
        if not OPTIONS.python:
            self.skipTest("the Python package is not part of this build")
        for level in ("sse41", "avx2"):
            with self.subTest(level):
                done = child([sys.executable, "-c", PROBE], level)
                self.assertEqual(done.returncode, 0, done.stderr)
                target, right = done.stdout.split()
                self.assertEqual(right, "True")
                self.assertNotIn("avx512", target)
                self.assertEqual("avx2" in target, level == "avx2" and "avx2" in told("")[0])
        done = child([sys.executable, "-c", PROBE], BAD[0])
        self.assertIn(SENTENCE, done.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--generate", required=True)
    parser.add_argument("--told", required=True)
    parser.add_argument("--python", action="store_true")
    OPTIONS, rest = parser.parse_known_args([word for word in sys.argv[1:] if word])
    unittest.main(argv=sys.argv[:1] + rest)
