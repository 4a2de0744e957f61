"""polyhead.compile and kernel objects: calls by name, manifest, listings, libraries on disk, weights, refusals."""
import copy
import gc
import inspect
import itertools
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np

import polyhead
from python_inputs import random, state_dict
from polyhead.reference import attention, layer, visible
from tier import sampled_cases

QUERY, KEY, VALUE = random(1, 2, 4, 7, 16), random(2, 2, 4, 9, 16), random(3, 2, 4, 9, 16)

SAME_NAME = """
import ctypes, os, pathlib, subprocess, tempfile
import numpy as np
import polyhead
with tempfile.TemporaryDirectory() as folder:
    polyhead.compile("sdpa", num_heads=2, head_dim=16).export(pathlib.Path(folder), "kernel")
    # A program that shows what polyhead hides.
    subprocess.run([os.environ["POLYHEAD_SYMBOLS"], "show", folder + "/kernel.a", folder + "/shown.a"], check=True)
    subprocess.run(["ld", "-shared", "--whole-archive", "-o", folder + "/exported.so", folder + "/shown.a", polyhead._core.__file__], check=True)
    ctypes.CDLL(folder + "/exported.so", mode=ctypes.RTLD_GLOBAL)
    one_key = np.arange(2 * 24, dtype=np.float32).reshape(1, 2, 1, 24)
    out = polyhead.compile("sdpa", num_heads=2, head_dim=24)(query=one_key, key=one_key, value=one_key)
    np.testing.assert_allclose(out, one_key, rtol=1e-5)
"""


class Kernels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kernel = polyhead.compile(op="sdpa", num_heads=4, head_dim=16, causal="top_left", kv_lengths=True, lse=True, scores="weights")

    def test_a_call_by_names(self):
        lengths = np.array([4, 9], np.int32)
        out, lse, weights = self.kernel(query=QUERY, key=KEY, value=VALUE, kv_lengths=lengths)
        expected = attention(QUERY, KEY, VALUE, visible(7, 9, lengths, causal=True))
        for found, wanted in zip((out, weights, lse), expected):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
        mine = np.empty_like(lse)
        self.assertIs(self.kernel(query=QUERY, key=KEY, value=VALUE, lse=mine)[1], mine)

    def test_several_targets(self):
        kernel = polyhead.compile("sdpa", num_heads=2, head_dim=24, target="x86-64-v3,x86-64")
        self.assertEqual(kernel.target, "x86-64-linux-avx-avx2-f16c-fma-sse41,x86-64-linux")
        levels = [variant["psabi_level"] for variant in kernel.manifest["variants"]]
        self.assertEqual(list(dict.fromkeys(levels)), ["x86-64-v3", "x86-64"])
        query = random(4, 1, 2, 5, 24)
        np.testing.assert_allclose(kernel(query=query, key=query, value=query), attention(query, query, query)[0], rtol=1e-5, atol=1e-5)
        with tempfile.TemporaryDirectory() as folder:
            kernel.export(pathlib.Path(folder), "several")
            written = json.loads((pathlib.Path(folder) / "several.json").read_text(encoding="utf-8"))
        self.assertEqual([variant["target"] for variant in written["variants"]], [variant["target"] for variant in kernel.manifest["variants"]])

    def test_a_plan(self):
        lengths = np.array([4, 9], np.int32)
        plan = self.kernel.plan(query=QUERY, key=KEY, value=VALUE, kv_lengths=lengths)
        for scale in (1.0, 0.5):
            lengths = lengths[::-1].copy()
            query = QUERY * np.float32(scale)
            for found, wanted in zip(plan(query=query, key=KEY, value=VALUE, kv_lengths=lengths),
                                     self.kernel(query=query, key=KEY, value=VALUE, kv_lengths=lengths)):
                self.assertEqual(found.tobytes(), wanted.tobytes())
        with self.assertRaisesRegex(polyhead.Error, "key: extent 8 of dimension 2, expected 9, as in the plan"):
            plan(query=QUERY, key=KEY[:, :, :8], value=VALUE[:, :, :8], kv_lengths=lengths)
        with self.assertRaisesRegex(polyhead.Error, "kv_lengths: value 10 at index 0"):
            plan(query=QUERY, key=KEY, value=VALUE, kv_lengths=np.array([10, 9], np.int32))
        with self.assertRaisesRegex(polyhead.Error, "key: extent"):
            self.kernel.plan(query=QUERY, key=KEY[..., :8], value=VALUE)
        with self.assertRaisesRegex(TypeError, "make it again from its kernel"):
            copy.copy(plan)

    def test_a_plan_keeps_its_kernel(self):
        plan = polyhead.compile(op="sdpa", num_heads=4, head_dim=16).plan(query=QUERY, key=KEY, value=VALUE)
        polyhead.clear_cache()
        gc.collect()
        np.testing.assert_allclose(plan(query=QUERY, key=KEY, value=VALUE), attention(QUERY, KEY, VALUE)[0], rtol=1e-5, atol=1e-5)

    def test_another_alignment_and_layout(self):
        views = {name: x.transpose(0, 2, 1, 3) for name, x in (("query", QUERY), ("key", KEY), ("value", VALUE))}
        out, _, weights = self.kernel(**views, layout="bshd", alignment="bottom_right")
        expected = attention(QUERY, KEY, VALUE, visible(7, 9, causal=True, from_end=True))
        np.testing.assert_allclose(out.transpose(0, 2, 1, 3), expected[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(weights, expected[1], rtol=1e-5, atol=1e-5)

    def test_masks_over_keys_may_be_left_out(self):
        """What a call leaves out is neutral: the bits are those of a mask that lets everything take part."""
        rng = np.random.default_rng(3)
        for mask, neutral in (("bool", np.ones((7, 9), bool)), ("additive", np.zeros((7, 9), np.float32))):
            kernel = polyhead.compile("sdpa", num_heads=4, head_dim=16, mask=mask, score_bias=True)
            bias = rng.standard_normal((4, 1, 9)).astype(np.float32)
            call = dict(query=QUERY, key=KEY, value=VALUE)
            zero = np.zeros((1, 9), np.float32)
            for given in (dict(), dict(score_bias=bias), dict(mask=neutral[:, ::-1].copy())):
                whole = dict(dict(mask=neutral, score_bias=zero), **given)
                self.assertEqual(kernel(**call, **given).tobytes(), kernel(**call, **whole).tobytes())
            more = kernel.scratch_bytes(**call) - kernel.scratch_bytes(**call, mask=neutral, score_bias=zero)
            self.assertTrue(9 * neutral.itemsize + 9 * 4 <= more <= 2 * 128, more)  # a row for each, from a multiple of 128 bytes on

    def test_heads_free_at_run_time(self):
        """One kernel, any number of heads: the bits of the kernel that has them built in, in every layout."""
        free = polyhead.compile("sdpa", group_size=2, head_dim=16, kv_lengths=True, lse=True)
        for kv_heads in (1, 2, 5):
            query, key, value = random(1, 2, 2 * kv_heads, 7, 16), random(2, 2, kv_heads, 9, 16), random(3, 2, kv_heads, 9, 16)
            call = dict(query=query, key=key, value=value, kv_lengths=np.array([4, 9], np.int32))
            built = polyhead.compile("sdpa", num_heads=2 * kv_heads, num_kv_heads=kv_heads, head_dim=16, kv_lengths=True, lse=True)
            for found, wanted in zip(free(**call), built(**call)):
                self.assertEqual(found.tobytes(), wanted.tobytes())
            self.assertEqual(free.scratch_bytes(**call), built.scratch_bytes(**call))
            heads_inside = {n: x.transpose(0, 2, 1, 3).reshape(2, x.shape[2], -1) if x.ndim == 4 else x for n, x in call.items()}
            out = free(**heads_inside, layout="bsd")[0]
            np.testing.assert_array_equal(out, built(**call)[0].transpose(0, 2, 1, 3).reshape(2, 7, -1))
        with self.assertRaisesRegex(polyhead.Error, "query: extent 3 of dimension 1, expected a multiple of group_size 2"):
            free(query=random(1, 1, 3, 7, 16), key=random(2, 1, 1, 9, 16), value=random(3, 1, 1, 9, 16))

    def test_groups_free_at_run_time(self):
        """One kernel, any numbers of heads, in every layout."""
        free = polyhead.compile("sdpa", free_group_size=True, head_dim=16, kv_lengths=True, lse=True)
        self.assertGreaterEqual(len({(v.get("min_group_size"), v.get("max_group_size")) for v in free.manifest["variants"]}), 3)
        lengths = np.array([4, 9], np.int32)
        for heads, kv_heads, rows in itertools.product((1, 2, 6, 7, 12), (1, 2, 3, 6, 7), (1, 5, 16, 40)):
            if heads % kv_heads:
                continue
            query, key, value = random(1, 2, heads, rows, 16), random(2, 2, kv_heads, 9, 16), random(3, 2, kv_heads, 9, 16)
            out, lse = free(query=query, key=key, value=value, kv_lengths=lengths)
            wanted = attention(query, key, value, visible(rows, 9, lengths))
            np.testing.assert_allclose(out, wanted.out, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(lse, wanted.lse, rtol=1e-5, atol=1e-5)
            inside = [x.transpose(0, 2, 1, 3).reshape(2, x.shape[2], -1) for x in (query, key, value)]
            found = free(query=inside[0], key=inside[1], value=inside[2], kv_lengths=lengths, layout="bsd")[0]
            np.testing.assert_array_equal(found, out.transpose(0, 2, 1, 3).reshape(2, rows, -1))
        with self.assertRaisesRegex(polyhead.Error, "key: extent 2 of dimension 1, expected a divisor of the 3 heads of query"):
            free(query=random(1, 1, 3, 7, 16), key=random(2, 1, 2, 9, 16), value=random(3, 1, 2, 9, 16))
        with self.assertRaisesRegex(polyhead.Error, "value: extent 1 of dimension 1, expected 3 as in key"):
            free(query=random(1, 1, 3, 7, 16), key=random(2, 1, 3, 9, 16), value=random(3, 1, 1, 9, 16))
        with self.assertRaisesRegex(polyhead.Error, "free_group_size is not allowed with num_heads 3: a call gives this number"):
            polyhead.compile("sdpa", free_group_size=True, num_heads=3, head_dim=16)

    def test_value_in_key(self):
        kernel = polyhead.compile("sdpa", num_heads=4, num_kv_heads=1, head_dim=24, head_dim_v=16, value_in_key=True)
        query, cache = random(1, 2, 4, 7, 24), random(2, 2, 1, 9, 24)
        np.testing.assert_allclose(kernel(query=query, key=cache), attention(query, cache, cache[..., :16])[0], rtol=1e-5, atol=1e-5)
        with self.assertRaisesRegex(TypeError, "unexpected argument 'value'; the tensors of this kernel are query, key, out"):
            kernel(query=query, key=cache, value=cache[..., :16])

    def test_value_in_key_reads_a_row_of_the_cache_from_memory_once(self):
        latent = dict(num_heads=16, num_kv_heads=1, head_dim=576, head_dim_v=512, value_in_key=True, kv_lengths=True, tuned=False)
        # CPU: scores and sums read the same rows in one task, and these stay in the L2 cache in between.
        kernel = polyhead.compile("sdpa", **latent)
        decode = next(text for text in kernel.lowered().split("external_plus_metadata func ") if "lane_scores" in text)
        self.assertNotIn("value", decode.split("{")[0])
        self.assertEqual(set(re.findall(r"^\s*(\w+)\[.*[^\w.]key\[", decode, re.M)), {"lane_scores", "acc"})
        knobs = dict(word.split("=") for word in kernel.manifest["variants"][0]["tiling"].split())
        self.assertLessEqual(int(knobs["split_len"]) * 576 * 4, 448 << 10)
        # GPU: a chunk of keys is loaded into shared memory, from where both read it; for few queries, in splits, and for others.
        device = polyhead.compile("sdpa", target="x86-64-linux-opencl", **latent)
        listing = device.lowered()
        reads = [len(re.findall(r"\b_key\[", code)) for code in listing.split("__kernel void")]
        self.assertEqual([count for count in reads if count > 0], [1] * len(device.manifest["variants"]))
        self.assertNotIn("_value", listing)

    def test_what_it_says_about_itself(self):
        self.assertEqual(self.kernel.problem["num_kv_heads"], 4)
        self.assertEqual(self.kernel.arguments,
                         ["query", "key", "value", "out", "cu_seqlens_q", "cu_seqlens_kv", "kv_lengths", "lse", "scores", "softmax_scale", "alignment"])
        self.assertEqual(self.kernel.manifest["problem"]["causal"], "top_left")
        self.assertGreater(self.kernel.manifest["library_bytes"], 1000)
        self.assertIn("--causal top_left", repr(self.kernel))
        self.assertIn("produce", self.kernel.lowered())
        self.assertRegex(self.kernel.assembly(), "polyhead_kernel_[0-9a-f]{16}_0")
        self.assertIn("runs polyhead_kernel_0", self.kernel.explain(query=QUERY, key=KEY, value=VALUE))
        self.assertGreater(self.kernel.scratch_bytes(query=QUERY, key=KEY, value=VALUE), 0)

    def test_a_library_for_other_programs(self):
        with tempfile.TemporaryDirectory() as folder:
            files = self.kernel.export(pathlib.Path(folder) / "deeper", "my_attention")
            self.assertEqual([file.name for file in files], ["my_attention.a", "my_attention.h", "my_attention.json"])
            self.assertEqual(json.loads(files[2].read_text())["name"], "my_attention")
            self.assertIn("my_attention", files[1].read_text())
            symbols = subprocess.run(["nm", "--defined-only", str(files[0])], stdout=subprocess.PIPE, text=True, check=True).stdout
            self.assertRegex(symbols, "polyhead_my_attention_[0-9a-f]{16}_0_argv")
            with self.assertRaises(polyhead.Error):
                self.kernel.export(files[0] / "no folder")

    def test_a_library_of_the_same_name_in_the_process(self):
        """What a program exports to everybody does not take the place of code that is compiled later."""
        run = subprocess.run([sys.executable, "-c", SAME_NAME], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(run.returncode, 0, run.stdout)

    def test_the_same_problem_is_compiled_once(self):
        words = dict(head_dim=16, causal="top_left", kv_lengths=True, lse=True, scores="weights")
        first = polyhead.compile("sdpa", num_heads=4, **words)
        self.assertIs(polyhead.compile("sdpa", num_heads=4, num_kv_heads=4, **words)._core, first._core)

    def test_refusals(self):
        for words, sentence in ((dict(op="conv"), "op: found 'conv'"), (dict(num_heads=2, head_dim=600), "head_dim"),
                                (dict(num_heads=2, head_dim=8, target="nowhere"), "target 'nowhere'"),
                                (dict(num_heads=2, head_dim=8, expression="score = scor"), "expression:1:9"),
                                (dict(op="mha", embed_dim=770, num_heads=12), "embed_dim 770 is not divisible by num_heads 12")):
            with self.assertRaises(polyhead.Error, msg=sentence) as caught:
                polyhead.compile(**words)
            self.assertIn(sentence, str(caught.exception))
        with self.assertRaises(TypeError) as caught:
            polyhead.compile(num_heads=2, head_dim=8, bogus=1)
        self.assertIn("no option bogus", str(caught.exception))
        with self.assertRaises(TypeError) as caught:
            self.kernel(query=QUERY, key=KEY, value=VALUE, mask=KEY)
        self.assertIn("unexpected argument 'mask'", str(caught.exception))
        with self.assertRaises(TypeError):
            self.kernel(key=KEY)


class Layers(unittest.TestCase):
    def test_a_layer_with_packed_weights(self):
        kernel = polyhead.compile("mha", embed_dim=48, num_heads=3, bias=True, weights_mean=True)
        state = state_dict(4, 48, 3)
        weights = kernel.pack(in_proj=state["in_proj_weight"], in_bias=state["in_proj_bias"], out_proj=state["out_proj.weight"],
                              out_bias=state["out_proj.bias"].astype(np.float64))
        self.assertEqual(weights.nbytes, kernel.manifest["weights_bytes"])
        x = random(5, 2, 6, 48)
        out, mean = kernel(query=x, weights=weights)
        expected = layer(state, 3, x)
        np.testing.assert_allclose(out, expected[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(mean, expected[1].mean(1), rtol=1e-5, atol=1e-5)
        with self.assertRaises(polyhead.Error) as caught:
            kernel.pack(in_proj=state["in_proj_weight"][:, :40].copy())
        self.assertIn("in_proj", str(caught.exception))
        with self.assertRaises(TypeError):
            kernel.pack(no_such_weight=x)

    def test_a_linear_layer(self):
        kernel = polyhead.compile("linear", embed_dim=40, out_features=24, bias=True)
        matrix, bias, rows = random(6, 24, 40), random(7, 24), random(8, 11, 40)
        out = kernel(input=rows, weights=kernel.pack(out_proj=matrix, out_bias=bias))
        np.testing.assert_allclose(out, rows @ matrix.T + bias, rtol=1e-4, atol=1e-4)


class Stubs(unittest.TestCase):
    def test_the_stub_names_what_the_module_has(self):
        import ast

        from polyhead import _core
        path = pathlib.Path(polyhead.__file__).parent / "_core.pyi"
        self.assertTrue((path.parent / "py.typed").exists())
        tree = ast.parse(path.read_text())
        named = {}
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                named[node.name] = {f.name for f in node.body if isinstance(f, ast.FunctionDef)}
            elif isinstance(node, ast.FunctionDef):
                named[node.name] = set()
            elif isinstance(node, ast.AnnAssign):
                named[node.target.id] = set()
        self.assertEqual(set(named), {name for name in dir(_core) if not name.startswith("_")})
        for name, members in named.items():
            if inspect.isclass(getattr(_core, name)):
                found = {m for m in vars(getattr(_core, name)) if not m.startswith("_")}
                self.assertEqual({m for m in members if not m.startswith("_")}, found, name)

    def test_codes_are_those_of_the_runtime(self):
        from polyhead import _core
        self.assertEqual({code.name: int(code) for code in polyhead.Code}, _core.codes)

    def test_everything_public_has_a_docstring(self):
        for name in polyhead.__all__:
            if name != "__version__":
                self.assertTrue((getattr(polyhead, name).__doc__ or "").strip(), name)

    def test_threads_are_checked(self):
        with self.assertRaises(polyhead.Error):
            polyhead.set_num_threads(-1)
        with self.assertRaises(TypeError):
            polyhead.set_num_threads("two")
        self.assertGreaterEqual(polyhead.num_threads(), 1)


class Parallel(unittest.TestCase):
    def test_calls_of_one_kernel_from_many_threads(self):
        kernel = polyhead.compile("sdpa", num_heads=4, head_dim=16, causal="top_left", kv_lengths=True, lse=True, scores="weights")
        expected = kernel(query=QUERY, key=KEY, value=VALUE)[0].tobytes()
        wrong = []

        def work():
            for _ in range(20):
                if kernel(query=QUERY, key=KEY, value=VALUE)[0].tobytes() != expected:
                    wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


load_tests = sampled_cases(__file__, 8)

if __name__ == "__main__":
    unittest.main()
