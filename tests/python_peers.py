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

ROOT = pathlib.Path(__file__).resolve().parents[1]
OPTIONS = argparse.Namespace()
RIGHT = '''
"""Attention by NumPy in f32."""
import os
import time
import numpy as np

VERSION = "1.2"
PEERS = {"by hand": {"sdpa": ["f32"]}, "not this": {"sdpa": ["f32"]}}

def make(way, case, dtype, data, threads):
    if way != "by hand":
        raise NotImplementedError("left to the other way")
    assert len(os.sched_getaffinity(0)) == threads
    q, k, v = data
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
        for text in ("B1 T12 D32 H2", "prefers-color-scheme: dark", "What did not work", "wrong answer", "All cases, 1 thread"):
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
                                (["--json", "/nowhere/x.json"], "/nowhere/x.json cannot be written"), (["--adapters", "/nowhere"], "--adapters"),
                                (["--from", broken], "broken.json"), (["--from", self.folder / "none.json"], "none.json")):  # fmt: skip
            done = bench(*words)
            self.assertEqual(done.returncode, 1, words)
            self.assertRegex(done.stderr, expected)
            self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--roof", required=True)
    parser.add_argument("--build", required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
