"""./polyhead tune from outside: a small problem, kills and resumption, poisoned candidates, Ctrl-C, and who takes the record."""
import errno
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np
from failing_calls import Shim
from tier import ALL, sampled, sampled_cases

import polyhead
from polyhead import _core
from polyhead.tuning.problem import Task, flags_of_line, tiling_text
from polyhead.tuning.search import RandomSearch, key_of

PROBLEM = "--op sdpa --num-heads 1 --head-dim 8 --seq-len-q 64 --seq-len-kv 64".split()
BF16_LAYER = "--op mha --embed-dim 32 --num-heads 2 --bias --mask additive --additive-in-storage --seq-len-q 20 --dtype bf16".split()
F16_DECODING = "--op sdpa --num-heads 2 --head-dim 16 --kv-lengths --lse --seq-len-q 1 --seq-len-kv 600 --dtype f16".split()
LINEAR = "--op linear --embed-dim 24 --out-features 40 --seq-len-q 32".split()
FEATURES = ("--op sdpa --num-heads 2 --num-kv-heads 1 --head-dim 8 --causal --kv-lengths --mask bool --softcap --alibi --sinks --head-gate --lse "
            "--window --seq-len-q 20 --seq-len-kv 30").split()
AVX2 = "x86-64-linux-avx2-fma-f16c"


def targets():
    """Targets of this machine whose default tilings differ: a wide machine has that of AVX2, too."""
    host = polyhead.compile("sdpa", num_heads=1, head_dim=8).target
    runnable = [target for target in (AVX2, "host") if target == "host" or "avx2" in host]
    defaults = {tiling_text(task_of(target).default_point(shape_of(target))[1]): target for target in runnable}
    return sorted(defaults.values())


def task_of(target):
    return Task("problem", flags_of_line(" ".join(PROBLEM)), target)


def shape_of(target):
    segment, = task_of(target).segments()
    return segment.shape


def first_candidates(target, count):
    """(default, what --strategy random with seed 1 asks for first)."""
    task, shape = task_of(target), shape_of(target)
    flags = [*task.flags, "--target", target]
    search = RandomSearch(task.frames(shape), task.default_point(shape), lambda f, t: _core.tiling_refusal(flags, f, t), 1)
    search.recall(search.default, 1.0)
    return key_of(search.default), [key_of(search.ask()) for _ in range(count)]


def key_of_entry(entry):
    return "frame=%s %s" % (entry["frame"], entry["tiling"])


class Driver(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.output = self.folder / "tuned.json"
        self.temporary = self.folder / "tmp"  # of the tuner, to see what it leaves
        self.temporary.mkdir()

    def start(self, *arguments, poison="", **environment):
        command = [sys.executable, "-m", "polyhead.tuning.command", *map(str, arguments), "-o", str(self.output)]
        environment = {**os.environ, **environment, "POLYHEAD_TUNE_POISON": poison, "TMPDIR": str(self.temporary)}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def tune(self, *arguments, status=0, **how):
        process = self.start(*arguments, **how)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, status, out + err)
        self.assertNotIn("Traceback", err)
        return out + err

    def left(self):
        """Files other than records and log, and work folders of the tuner."""
        beside = {path.name for path in self.folder.iterdir()} - {"tuned.json", "tuned.json.log", "tmp", "k"}
        return sorted([*beside, *(path.name for path in self.temporary.glob("polyhead*"))])

    def records(self):
        return json.loads(self.output.read_text())["records"]

    def record(self, output):
        """The one record, or nothing: a busy machine may make the winner look slower ahead of time, and its record is taken back then."""
        records = self.records()
        self.assertEqual(len(records), 0 if "  refuted" in output else 1, output)
        return records[0] if records else None

    def log(self, kind=None):
        path = pathlib.Path(str(self.output) + ".log")
        lines = path.read_bytes().split(b"\n") if path.exists() else []
        entries = []
        for line in lines:
            try:
                entries.append(json.loads(line))
            except ValueError:
                pass  # cut by a kill
        return [e for e in entries if kind is None or e["kind"] == kind]

    def wait_for(self, count, process, kind="measured", seconds=60):
        end = time.monotonic() + seconds
        while len(self.log(kind)) < count:
            self.assertLess(time.monotonic(), end, "nothing is measured")
            self.assertIsNone(process.poll(), "ended by itself")
            time.sleep(0.02)

    def test_a_small_problem_and_everyone_who_takes_its_record(self):
        for _ in range(3):
            output = self.tune(*PROBLEM, "--budget", 100, "--candidates", 4)
            self.assertEqual(len(self.log("measured")), 4)
            record = self.record(output)
            if record:
                break
        for name in ("median_ms", "spread_ms", "percent_of_peak", "machine", "halide", "schedule_version", "commit", "date"):
            self.assertIn(name, record)
        self.assertIn("confirmed", output)
        kernel = polyhead.compile("sdpa", num_heads=1, head_dim=8, seq_len_q=64, seq_len_kv=64, tuned=self.output)
        variant, = kernel.manifest["variants"]
        self.assertLessEqual(set(record["tiling"].split()), set(variant["tiling"].split()))  # which has the knobs that a record leaves out
        self.assertIn("record 1 of tuned.json, distance 0.00: --op sdpa", variant["tuning_record"])
        query = np.zeros((1, 1, 64, 8), np.float32)
        self.assertIn("from record 1 of tuned.json", kernel.explain(query=query, key=query, value=query))
        near = polyhead.compile("sdpa", num_heads=2, head_dim=8, seq_len_q=60, seq_len_kv=64, tuned=self.output)
        self.assertIn("record 1 of tuned.json, distance 0.1", near.manifest["variants"][0]["tuning_record"])
        plain = polyhead.compile("sdpa", num_heads=1, head_dim=8, seq_len_q=64, seq_len_kv=64, tuned=False)
        self.assertNotIn("tuning_record", plain.manifest["variants"][0])
        with self.assertRaisesRegex(polyhead.Error, "tuned: cannot read"):
            polyhead.compile("sdpa", num_heads=1, head_dim=8, tuned=self.folder / "none.json")
        self.generate_takes_it(record)
        check = self.start("--check", self.output)  # which of both is a matter of time
        output, _ = check.communicate(timeout=120)
        self.assertEqual((" holds" in output, "slower than the default" in output), (check.returncode == 0, check.returncode == 1), output)
        checked = self.tune("--diff", self.output, self.output)
        self.assertIn("0 differences", checked)

    def generate_takes_it(self, record):
        tool = [os.environ["POLYHEAD_TUNE_GENERATE"], "k", *PROBLEM, "-o", str(self.folder / "k")]
        for environment, flags in (({}, ["--tuned", str(self.output)]), ({"POLYHEAD_TUNED": str(self.output)}, [])):
            subprocess.run(tool + flags, check=True, env={**os.environ, **environment})
            variant, = json.loads((self.folder / "k" / "k.json").read_text())["variants"]
            self.assertLessEqual(set(record["tiling"].split()), set(variant["tiling"].split()))
            self.assertIn("from record 1 of tuned.json", (self.folder / "k" / "k.h").read_text())
        subprocess.run(tool, check=True, env={**os.environ, "POLYHEAD_TUNED": "off"})
        self.assertNotIn("tuned", json.loads((self.folder / "k" / "k.json").read_text()))

    def test_features_and_bad_problems(self):
        output = self.tune("--problem", " ".join(FEATURES), "--problem", "--op conv", "no_such_kernel", "--problem", " ".join(LINEAR), "--budget", 200,
                         "--candidates", 1, status=1)
        self.assertIn("found 'no_such_kernel', expected", output)
        self.assertIn("op: found 'conv'", output)
        # A busy machine may make a tiny kernel look slower ahead of time; its record is taken back then.
        confirmed, refuted = output.count("  confirmed at"), output.count("  refuted at")
        self.assertEqual((confirmed + refuted, len(self.records())), (2, confirmed), output)
        self.assertNotIn("not confirmed", output)

    def test_gradients(self):
        backward = "--op sdpa_backward --num-heads 2 --head-dim 8 --seq-len-q 40 --seq-len-kv 40 --causal --sinks --grad-sinks"
        linear = "--op linear_backward --embed-dim 24 --out-features 40 --bias --seq-len-q 32"
        output = self.tune("--problem", backward, "--problem", backward + " --expression score=2*score", "--problem", linear, "--budget", 100,
                           "--candidates", 1, "--no-confirm")
        self.assertEqual((len(self.log("measured")), self.log("failed"), len(self.records())), (3, [], 3), output)
        kernel = polyhead.compile("linear_backward", embed_dim=24, out_features=40, bias=True, seq_len_q=32, tuned=self.output)
        self.assertIn("of tuned.json, distance 0.00: --op linear_backward", kernel.manifest["variants"][0]["tuning_record"])

    def test_16_bit_storage(self):
        output = self.tune(*BF16_LAYER, "--budget", 100, "--candidates", 2)
        self.assertEqual((len(self.log("measured")), self.log("failed")), (2, []), output)
        record = self.record(output)
        self.assertIn("  confirmed at" if record else "slower than the default's", output)
        if record:
            self.assertIn("--dtype bf16", record["problem"])
            options = {"num_heads": 2, "embed_dim": 32, "bias": True, "mask": "additive", "additive_in_storage": True, "seq_len_q": 20, "tuned": self.output}
            for dtype, found in (("bf16", True), ("f32", False)):
                variant, = polyhead.compile("mha", dtype=dtype, **options).manifest["variants"]
                self.assertEqual("of tuned.json" in variant.get("tuning_record", ""), found)
        self.start_again()
        output = self.tune(*F16_DECODING, "--budget", 100, "--candidates", 1, "--no-confirm")
        self.assertEqual((len(self.log("measured")), self.log("failed"), len(self.records())), (1, [], 1), output)

    def test_killed_at_random_moments_nothing_is_lost(self):
        known, moments = [], random.Random(1)
        for i in range(6 if ALL else 2):
            process = self.start(*PROBLEM, "--budget", 100, "--strategy", ["tpe", "random"][i % 2])
            goes_on = i % 2 == 0  # the others are killed while they start, too
            if goes_on:
                self.wait_for(len(known) + 1, process)
            time.sleep(moments.uniform(0, 5))  # it starts, reads the log, compiles, measures or writes
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
            entries = self.log("measured")
            self.assertEqual(entries[: len(known)], known)
            self.assertGreaterEqual(len(entries), len(known) + goes_on)
            known = entries
            records = self.records()  # whole, and of nothing that the log does not have
            self.assertTrue(all(r["measured"] <= len(known) for r in records), records)
        seen = len(known)
        output = self.tune(*PROBLEM, "--budget", 100, "--candidates", seen)  # all of them are known: straight to the race
        self.assertIn("%d measurements read from the log" % seen, output)
        entries = self.log("measured")
        self.assertEqual(len(entries), seen)
        self.assertEqual(len({(e["frame"], e["tiling"]) for e in entries}), seen)
        record = self.record(output)
        self.assertEqual(record["measured"] if record else seen, seen)
        self.assertEqual(self.left(), [])

    def test_poisoned_candidates_are_said_and_skipped(self):
        for target in sampled("candidates", targets(), 2):
            _, asked = first_candidates(target, 8)
            spoiled = {asked[1]: "crash", asked[3]: "hang", asked[6]: "wrong"}
            poison = ",".join("%s:%s" % (kind, text) for text, kind in spoiled.items())
            output = self.tune(*PROBLEM, "--target", target, "--budget", 200, "--candidates", 8, "--timeout", 4, "--strategy", "random", poison=poison)
            failed = {key_of_entry(e): e["why"] for e in self.log("failed")}
            self.assertEqual({why for text, why in failed.items() if text not in spoiled} - {"no answer after 4 s"}, set(), "beside what a busy machine does")
            self.assertEqual(failed.get(asked[1]), "crashed (SIGABRT)", output)
            self.assertEqual(failed.get(asked[3]), "no answer after 4 s", output)
            self.assertTrue(failed[asked[6]].startswith("wrong answer at B1 T64"), output)
            for text in spoiled:
                self.assertIn("skipped %s: %s" % (text, failed[text]), output)
            record = self.record(output)
            self.assertFalse(record and key_of_entry(record) in spoiled, record)
            self.assertEqual(set(map(key_of_entry, self.log("measured"))), set(asked) - failed.keys())
            self.start_again()

    def test_a_poisoned_default_is_said_and_the_others_go_on(self):
        kinds = {"crash": "crashed (SIGABRT)", "hang": "no answer after 20 s", "wrong": "wrong answer at B1 T64"}
        for target in sampled("default", targets(), 2):
            default, asked = first_candidates(target, 5)
            for kind in kinds if ALL else sampled("kind", ["wrong", "crash"], 2):
                how = {"poison": "%s:%s,crash:%s" % (kind, default, asked[0])}
                arguments = [*PROBLEM, "--target", target, "--budget", 200, "--candidates", 6, "--timeout", 20, "--strategy", "random", "--no-confirm"]
                output = self.tune(*arguments, **how)
                self.assertIn("the default tiling cannot be used: " + kinds[kind], output)
                self.assertIn("skipped %s: crashed" % asked[0], output)
                self.assertIn("times are relative to " + asked[1], output)
                base, = self.log("base")
                self.assertEqual(key_of_entry(base), asked[1])
                self.assertEqual(sorted(map(key_of_entry, self.log("measured"))), sorted(asked[2:5]))
                record, = self.records()
                self.assertIn(key_of_entry(record), asked[1:5])
                self.assertNotIn("of_default", record)
                self.assertIn(" of the time of %s (" % asked[1], output)
                self.tune(*arguments, **how)  # the log has the stand-in and all measurements relative to it
                self.assertEqual(len(self.log("measured")), 3)
                self.start_again()

    def start_again(self):
        for path in (self.output, pathlib.Path(str(self.output) + ".log")):
            path.unlink(missing_ok=True)

    def test_interrupted_keeps_what_is_known(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            process = self.start(*PROBLEM, "--budget", 100)
            self.wait_for(2, process)
            os.killpg(process.pid, number)
            out, err = process.communicate(timeout=30)
            self.assertEqual(process.returncode, status, err)
            self.assertNotIn("Traceback", err)
            record, = self.records()
            logged = len(self.log("measured"))  # one may have reached the log and nothing else yet
            self.assertIn(logged - record["measured"], (0, 1))
            self.assertEqual(self.left(), [])
            self.start_again()

    @unittest.skipUnless(ALL, "long; tuning_files.py has the short form")
    def test_two_at_once_keep_each_others_records(self):
        processes = [self.start(*problem, "--budget", 100, "--candidates", 3, "--no-confirm") for problem in (PROBLEM, LINEAR)]
        for process in processes:
            out, err = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, out + err)
        self.assertEqual({r["problem"].split()[1] for r in self.records()}, {"sdpa", "linear"})
        self.assertEqual((len(self.log("measured")), self.left()), (6, []))

    def test_one_file_operation_fails(self):
        """A sentence and a whole file, or all is well; no traceback, nothing left."""
        shim = Shim(self.folder, self.folder, os.environ.get("CC", "cc"))
        arguments = [*PROBLEM, "--budget", 100, "--candidates", 1, "--strategy", "random"]
        self.tune(*arguments, "--no-confirm", **shim.environment(0))
        total = shim.counted()
        failed = 0
        for at in range(2, total + 1, 5 if ALL else max(total // 4, 1)):
            self.output.write_text('{"format": 1, "records": [\n{"not": "ours"}\n]}\n')
            how = shim.environment(at, [errno.ENOSPC, errno.EMFILE][at % 2])
            process = self.start(*arguments, "--no-confirm", **how)
            out, err = process.communicate(timeout=120)
            with self.subTest(at=at, of=total, output=out + err):
                self.assertIn(process.returncode, (0, 1))
                self.assertNotIn("Traceback", err)
                self.assertEqual(self.records()[-1], {"not": "ours"})
                self.assertEqual(len(self.records()), 1 if process.returncode else 2)
                self.assertEqual(set(self.left()) - {"failing_calls.so", "count"}, set())
                failed += process.returncode
            self.start_again()
        self.assertGreater(failed, 0)

    def test_refusals(self):
        for words, arguments in (("problem: found none", []), ("cannot write", [*PROBLEM, "--log", "/proc/nowhere/log"]),
                                 ("lengths: found 'x'", [*PROBLEM, "--lengths", "x"]),
                                 ("most: found 'q_tile'", [*PROBLEM, "--most", "q_tile"]),
                                 ("most: found 'tile'", [*PROBLEM, "--most", "tile=8"]), ("cannot read", ["--check", "/nowhere.json"])):
            self.assertIn(words, self.tune(*arguments, status=1))
        log = pathlib.Path(str(self.output) + ".log")
        for path, words in ((self.output, "is no file of tuning records and was not changed"), (log, "is no log of measurements and was not changed")):
            for other in (self.output, log):
                other.unlink(missing_ok=True)
            path.write_text("My notes.\n")
            output = self.tune(*PROBLEM, "--budget", 100, status=1)
            self.assertRegex(output, "polyhead tune: .*%s[^\n]*\n$" % words)
            self.assertEqual([p.read_text() for p in (self.output, log) if p.exists()], ["My notes.\n"])
            self.assertEqual(self.left(), [])


load_tests = sampled_cases(__file__, 3)

if __name__ == "__main__":
    unittest.main()
