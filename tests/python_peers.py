"""The bench of peers with libraries that are right, wrong, crash and are missing: results, page, and refusals. No network."""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import ml_dtypes
import numpy

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench" / "peers"))
from compare import markdown, report, storage  # noqa: E402
from tier import sampled_cases  # noqa: E402

OPTIONS = argparse.Namespace()
RIGHT = '''
"""Attention by NumPy in f32."""
import os
import time
import numpy as np

VERSION = "1.2"
PEERS = {"by hand": {"sdpa": ["f32", "bf16", "f16"]}, "not this": {"sdpa": ["f32", "bf16", "f16"]}}
UNUSED = {"f32": 0, "bf16": 0xFFFF, "f16": 0x1FFF}  # bits of an f32 number that a number of the type does not need

def make(way, case, dtype, data, threads):
    if way != "by hand":
        raise NotImplementedError("left to the other way")
    assert len(os.sched_getaffinity(0)) == threads
    q, k, v = data
    assert not any((x.view(np.uint32) & UNUSED[dtype]).any() for x in data), "numbers that are not " + dtype
    k, v = (np.repeat(x, case["H"] // case["Hkv"], 1) for x in (k, v))
    answer = [None]
    def run():
        scores = q @ k.swapaxes(2, 3) / np.sqrt(np.float32(case["d"]))
        if case["causal"]:
            scores = np.where(np.tri(case["Tq"], case["Tkv"], dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        answer[0] = weights / weights.sum(-1, keepdims=True) @ v
    return run, lambda: answer[0]
'''
WRONG = RIGHT.replace("@ v\n", "@ v + np.float32(0.01)\n")
CRASH = RIGHT.replace("    def run():\n", "    def run():\n        print('noise on the standard output')\n        os.abort()\n")
LATE = RIGHT.replace("    def run():\n", "    def run():\n        CALLS.append(0)\n        if len(CALLS) > 200: raise MemoryError('no more')\n")
LATE = LATE.replace("VERSION =", "CALLS = []\nVERSION =")
MISSING = "import a_module_that_nobody_has\n"
NARROW = RIGHT.replace(', "bf16", "f16"', "")
FAKES = {"right": RIGHT, "wrong": WRONG, "crash": CRASH, "late": LATE, "missing": MISSING}


def bench(*words):
    path = os.pathsep.join([str(ROOT / "bench" / "peers"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "compare", *map(str, words), "--roof", OPTIONS.roof, "--build", OPTIONS.build]
    return subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=path))


def of_documents(*words):
    command = [sys.executable, "-m", "compare.documents", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=str(ROOT / "bench" / "peers")))


class Run(unittest.TestCase):
    """One run; the tests look at different parts of it."""

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        for name, text in FAKES.items():
            (cls.folder / ("peer_%s.py" % name)).write_text(text, encoding="utf-8")
        cls.done = bench(",".join(FAKES), "--adapters", cls.folder, "--cases", "^small", "--rounds", "3", "--slice", "0.02", "--threads", "1",
                         "--cold-starts", "1", "--json", cls.folder / "out.json", "--report", cls.folder / "out.html")
        assert cls.done.returncode == 0, cls.done.stdout + cls.done.stderr
        cls.document = json.loads((cls.folder / "out.json").read_text(encoding="utf-8"))
        cls.cases = {record["name"]: {r["peer"]: r for r in record["results"]} for record in cls.document["cases"]}

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def test_right_answers_are_timed(self):
        for name, results in self.cases.items():
            self.assertEqual(len(results["polyhead"]["seconds"]), 3, name)
        for name in ("small_sdpa", "small_decode"):
            right = self.cases[name]["right"]
            self.assertEqual((right["how"], len(right["seconds"]), right["refused"]), ("by hand", 3, {"not this": "left to the other way"}))
            self.assertLess(right["max_error"], 1e-5)
            ratios = sorted(a / b for a, b in zip(right["seconds"], self.cases[name]["polyhead"]["seconds"]))
            self.assertAlmostEqual(right["ratio"]["median"], ratios[1])
        self.assertIn("missing", self.cases["small_layer"]["right"])
        self.assertEqual(self.document["peers"]["right"]["version"], "1.2")

    def test_others_end_in_a_sentence_and_the_rest_goes_on(self):
        for name in ("small_sdpa", "small_decode"):
            results = self.cases[name]
            self.assertRegex(results["wrong"]["error"], "wrong answer: largest error 0.01")
            self.assertRegex(results["crash"]["error"], "crash ended with signal SIGABRT")
            self.assertEqual(results["late"]["error"], "MemoryError: no more")
            for peer in ("wrong", "crash", "late"):
                self.assertNotIn("ratio", results[peer])
        self.assertRegex(self.document["missing"]["missing"], "missing cannot be used: ModuleNotFoundError: .*a_module_that_nobody_has")
        self.assertNotIn("Traceback", self.done.stderr)

    def test_the_machine_is_measured_in_every_round(self):
        for record in self.document["cases"]:
            roofs = record["roofs"]["1"]
            self.assertTrue(len(roofs["fma_gflops"]) == len(roofs["copy_gbs"]) == 3 and min(roofs["fma_gflops"] + roofs["copy_gbs"]) > 0)
            ours = next(r for r in record["results"] if r["peer"] == "polyhead")
            self.assertTrue(0 < ours["percent_of_peak"]["median"] < 110)
        for word in ("processor", "cores", "date"):
            self.assertTrue(self.document["machine"][word])

    def test_bytes_and_cold_start(self):
        sizes, starts = self.document["library_bytes"], self.document["cold_start"]
        self.assertTrue(10_000 < sizes["polyhead linked"]["bytes"] < 5e6, sizes["polyhead linked"])
        for name in ("polyhead", "polyhead linked", "right"):
            self.assertTrue(0 < starts[name]["median"] < 60, starts[name])
        self.assertIn("error", starts["crash"])

    def test_table(self):
        for text in ("small_sdpa", "B1 H4 T20 d16", "geometric mean", "crash ended with signal SIGABRT"):
            self.assertIn(text, self.done.stdout)

    def test_page(self):
        page = (self.folder / "out.html").read_text(encoding="utf-8")
        self.assertEqual(re.findall(r'(?:src|href|srcset)="(?!data:)[^"]*"', page), [], "a page that is self-contained")
        self.assertNotIn("$", re.sub(r"base64,[^\"]*", "", page))
        for text in ("B1 T12 D32 H2", "prefers-color-scheme: dark", "What did not work", "wrong answer", "All cases, f32, 1 thread", "other libraries, f32<"):
            self.assertIn(text, page)
        pictures = sorted(self.folder.glob("out_*.png"))
        self.assertTrue({"out_peak.png", "out_ratio.png", "out_decode.png", "out_bytes.png", "out_cold_start.png"} <= {p.name for p in pictures})
        self.assertTrue(all(p.read_bytes().startswith(b"\x89PNG") for p in pictures))

    def test_again_from_the_results(self):
        done = bench("--from", self.folder / "out.json", "--report", self.folder / "again.html")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.folder / "again.html").exists())
        done = bench("--from", self.folder / "out.json", "--markdown")
        self.assertIn("| `small_sdpa` | B1 H4 T20 d16 |", done.stdout)

    def test_documents_show_the_results(self):
        document = self.folder / "document.md"
        begin, end = "<!-- results: %s groups=layer threads=1 -->\n" % (self.folder / "out.json"), "<!-- end of results -->"
        document.write_text("before\n%sold %s\nafter" % (begin, end), encoding="utf-8")
        stale = of_documents(document)
        self.assertEqual((stale.returncode, stale.stdout.count("\n")), (1, 1))
        self.assertIn("what it shows are not the results that it names", stale.stdout)
        self.assertEqual(of_documents("--write", document).returncode, 0)
        self.assertEqual(of_documents(document).returncode, 0)
        text = document.read_text(encoding="utf-8")
        self.assertTrue(text.startswith("before\n" + begin) and text.endswith(end + "\nafter"), text)
        self.assertIn("| `small_layer` | B1 T12 D32 H2 |", text)
        self.assertNotIn("small_sdpa", text)
        document.write_text(text.replace("<!-- results: ", "<!-- results "), encoding="utf-8")
        self.assertIn("a block of results begins", of_documents(document).stdout)
        document.write_text(re.sub(r"geometric mean \d", "geometric mean 9", text), encoding="utf-8")
        self.assertEqual(of_documents(document).returncode, 1)

    def test_refusals_are_one_sentence(self):
        broken = self.folder / "broken.json"
        broken.write_text('{"cases": 3', encoding="utf-8")
        for words, expected in ((["nobody"], "--peers: found 'nobody'"), (["--threads", "0"], "--threads: found '0'"), (["--threads", "9999"], "9999"),
                                (["--cases", "("], "--cases: '\\('"), (["--cases", "zzz"], "matches none of"), (["--rounds", "0"], "--rounds"),
                                (["--dtype", "f8"], "--dtype: found 'f8', expected one of f32, bf16, f16"), (["--json", "/nowhere/x.json"], "/nowhere/x.json cannot be written"), (["--adapters", "/nowhere"], "--adapters"),
                                (["--from", broken], "broken.json"), (["--from", self.folder / "none.json"], "none.json")):  # fmt: skip
            done = bench(*words)
            self.assertEqual(done.returncode, 1, words)
            self.assertRegex(done.stderr, expected)
            self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)


GRADIENTS = '''
"""Gradients of a single head by central differences, in float64."""
import numpy as np

VERSION = "1"
PEERS = {"differences": {"backward": ["f32"], "step": ["f32"]}}

def make(way, case, dtype, data, threads):
    q, k, v = (np.array(x, np.float64) for x in data[:3])
    added, hidden = data[3].get("mask", 0.0), np.triu(np.full((case["Tq"], case["Tkv"]), case["causal"]), 1)
    def value():
        scores = q @ np.repeat(k, case["H"] // case["Hkv"], 1).swapaxes(2, 3) / np.sqrt(case["d"]) + added
        weights = np.where(hidden, 0, np.exp(scores))
        return (weights / weights.sum(-1, keepdims=True) @ np.repeat(v, case["H"] // case["Hkv"], 1) * data[3]["grad_out"]).sum()
    gradients = []
    for x in (q, k, v):
        gradient = np.zeros_like(x)
        for index in np.ndindex(x.shape):
            kept, ends = x[index], []
            for step in (1e-4, -1e-4):
                x[index] = kept + step
                ends.append(value())
            x[index], gradient[index] = kept, (ends[0] - ends[1]) / 2e-4
        gradients.append(gradient)
    return value, lambda: np.concatenate(gradients, 1)
'''


class WithGradients(unittest.TestCase):
    def test_answers_are_those_of_finite_differences(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "peer_differences.py").write_text(GRADIENTS, encoding="utf-8")
            (folder / "peer_wrong.py").write_text(GRADIENTS.replace("gradients, 1)", "gradients, 1) + 0.01"), encoding="utf-8")
            done = bench("differences,wrong", "--backward", "--adapters", folder, "--cases", "^small", "--rounds", "1", "--slice", "0.01", "--threads", "1", "--json", folder / "out.json")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            records = json.loads((folder / "out.json").read_text(encoding="utf-8"))["cases"]
        self.assertEqual([r["name"] for r in records], ["small_backward", "small_step", "small_layer_step"])
        of_layer = {r["peer"]: r for r in records.pop()["results"]}
        self.assertLess(of_layer["polyhead"]["max_error"], 1e-5)
        for record in records:
            found = {r["peer"]: r for r in record["results"]}
            self.assertLess(found["differences"]["max_error"], 1e-6)
            self.assertLess(found["polyhead"]["max_error"], 1e-5)
            self.assertRegex(found["wrong"]["error"], "wrong answer: largest error 0.01")
        for text in ("MiB each", "gradients, 1 thread: time of others / time of polyhead, geometric mean: differences", "training steps, 1 thread: "):
            self.assertIn(text, done.stdout)


class SixteenBits(unittest.TestCase):
    """A run in bf16 and one in f16, with libraries that are right, a little wrong, and without 16-bit types."""

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        for name, text in (("right", RIGHT), ("near", WRONG), ("narrow", NARROW)):
            (cls.folder / ("peer_%s.py" % name)).write_text(text, encoding="utf-8")
        cls.done, cls.documents, cls.cases = {}, {}, {}
        for dtype, names in (("bf16", "^small"), ("f16", "^small_decode")):
            file = cls.folder / (dtype + ".json")
            done = bench("right,near,narrow", "--dtype", dtype, "--adapters", cls.folder, "--cases", names, "--rounds", "1", "--slice", "0.01",
                         "--threads", "1", "--cold-starts", "1", "--json", file)  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
            cls.done[dtype], cls.documents[dtype] = done, json.loads(file.read_text(encoding="utf-8"))
            cls.cases[dtype] = {record["name"]: {r["peer"]: r for r in record["results"]} for record in cls.documents[dtype]["cases"]}

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def test_ours_is_right_in_every_case(self):
        for dtype, names in (("bf16", {"small_sdpa", "small_layer", "small_decode"}), ("f16", {"small_decode"})):
            self.assertEqual(set(self.cases[dtype]), names)
            for name in names:
                ours = self.cases[dtype][name]["polyhead"]
                self.assertEqual(len(ours.get("seconds", ())), 1, ours)
                self.assertGreater(ours["max_error"], 1e-5, "a 16-bit answer is never this exact")

    def test_the_truth_is_that_of_the_rounded_numbers(self):
        for dtype in ("bf16", "f16"):
            self.assertLess(self.cases[dtype]["small_decode"]["right"]["max_error"], 1e-5)

    def test_the_tolerance_is_that_of_the_type(self):
        self.assertAlmostEqual(self.cases["bf16"]["small_decode"]["near"]["max_error"], 0.01, places=5)
        self.assertRegex(self.cases["f16"]["small_decode"]["near"]["error"], "wrong answer: largest error 0.01, expected at most 0.004")

    def test_the_peak_is_that_of_the_type(self):
        fma, pairs = (self.documents[dtype]["fma"] for dtype in ("f16", "bf16"))
        self.assertNotIn("BF16", fma)
        told = subprocess.run([OPTIONS.roof, "--dtype", "bf16"], input="", capture_output=True, text=True).stdout
        self.assertEqual(json.loads(told)["fma"], pairs)
        self.assertIn(pairs, ("AMX BF16", "AVX-512 BF16", fma))

    def test_a_type_that_a_library_does_not_have(self):
        self.assertEqual(self.cases["bf16"]["small_sdpa"]["narrow"]["missing"], "it has no such operation in bf16")
        self.assertIn("no such operation", self.documents["bf16"]["cold_start"]["narrow"]["error"])
        self.assertRegex(self.done["f16"].stdout, r"small_decode .*│ +no +│ error +│")

    def test_bytes(self):
        for dtype in ("bf16", "f16"):
            record = next(r for r in self.documents[dtype]["cases"] if r["name"] == "small_decode")
            self.assertEqual(record["key_value_bytes"], 2 * (2 * 40) * (16 + 16))
        self.assertTrue(0 < self.documents["bf16"]["cold_start"]["polyhead linked"]["median"] < 60)
        self.assertTrue(0 < self.documents["bf16"]["cold_start"]["right"]["median"] < 60)

    def test_titles_name_the_type(self):
        for dtype in ("bf16", "f16"):
            self.assertEqual(self.documents[dtype]["dtype"], dtype)
            self.assertIn("%s, 1 thread: time of others" % dtype, self.done[dtype].stdout)
            self.assertIn("| case, %s, 1 thread | shape | ms | %% of peak |" % dtype, "\n".join(markdown.lines(self.documents[dtype])))
            part = report.case_table(self.documents[dtype], 1, {"polyhead": "polyhead", "right": "right"})
            for text in ("All cases, %s, 1 thread" % dtype, "% of peak"):
                self.assertIn(text, part)

    def test_a_file_without_a_type_is_of_f32(self):
        old = self.folder / "old.json"
        old.write_text(json.dumps({k: v for k, v in self.documents["bf16"].items() if k != "dtype"}), encoding="utf-8")
        done = bench("--from", old, "--markdown")
        self.assertIn("| case, f32, 1 thread | shape | ms | % of peak |", done.stdout, done.stderr)

    def test_numbers_are_rounded_to_the_nearest(self):
        numbers = numpy.random.default_rng(1).standard_normal(10000, dtype=numpy.float32)
        ties = (numpy.arange(0x3F80, 0x4180, dtype=numpy.uint32) << 16 | 0x8000).view(numpy.float32)  # halfway between two of bf16
        for x in (numbers, ties, -ties, ties * numpy.float32(0.125) + numpy.float32(2**-12)):
            for dtype, type_of in (("bf16", ml_dtypes.bfloat16), ("f16", numpy.float16)):
                numpy.testing.assert_array_equal(storage.rounded(x, dtype), x.astype(type_of).astype(numpy.float32))
            self.assertIs(storage.rounded(x, "f32"), x)
        halves = storage.upper_halves(storage.rounded(numbers, "bf16"))
        numpy.testing.assert_array_equal(halves, numbers.astype(ml_dtypes.bfloat16).view(numpy.uint16))
        numpy.testing.assert_array_equal(storage.from_upper_halves(halves), storage.rounded(numbers, "bf16"))


load_tests = sampled_cases(__file__, 8)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--roof", required=True)
    parser.add_argument("--build", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
