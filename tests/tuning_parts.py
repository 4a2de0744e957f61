"""The parts of the tuner without compiling anything: strategies, races, ranges of lengths, what a lost default does."""
import contextlib
import io
import json
import pathlib
import random
import signal
import tempfile
import time
import types
import unittest
import unittest.mock

import ml_dtypes
import numpy as np
from polyhead.reference import attention, visible

import polyhead
from polyhead import Error, _core
from polyhead.tuning import command, confirm, gradients, inputs, problem, ranges, reference, screen, session, worker
from polyhead.tuning.log import Log
from polyhead.tuning.pool import Poisoned, _undisturbed
from polyhead.tuning.race import Race, Result
from polyhead.tuning.search import STRATEGIES, key_of

TASK = problem.Task("t", problem.flags_of_line("--op sdpa --num-heads 4 --head-dim 32"), "x86-64-linux-avx2-fma-f16c")
SHAPE = problem.Shape(1, 512, 512)


def cost(point):
    """A bowl whose bottom is known, in octaves."""
    _, knobs = point
    bottom = {"q_tile": (0.08, 24), "kv_tile": (0.05, 160), "key_panel": (0.08, 3), "value_panel": (0.06, 4)}
    return 1 + sum(weight * abs(np.log2(knobs[name] / at)) for name, (weight, at) in bottom.items())


class Strategies(unittest.TestCase):
    def search(self, strategy, count, seed=1):
        flags = [*TASK.flags, "--target", TASK.target]
        search = STRATEGIES[strategy](TASK.frames(SHAPE), TASK.default_point(SHAPE), lambda f, t: _core.tiling_refusal(flags, f, t), seed)
        points = []
        while len(points) < count:
            point = search.ask()
            points.append(point)
            search.tell(point, None if len(points) % 7 == 0 else cost(point))
        return search, points

    def test_every_point_is_legal_and_new(self):
        for strategy in STRATEGIES:
            search, points = self.search(strategy, 40)
            self.assertEqual(len({key_of(p) for p in points}), 40)
            self.assertTrue(search.refused)
            for frame, knobs in points:
                self.assertEqual(_core.tiling_refusal([*TASK.flags, "--target", TASK.target], frame, problem.tiling_text(knobs)), "")

    def test_tpe_comes_closer_than_chance(self):
        best = {s: np.mean([min(cost(p) for p in self.search(s, 24, seed)[1]) for seed in (1, 2, 3)]) for s in STRATEGIES}
        self.assertLess(best["tpe"], best["random"])

    def test_an_exhausted_space_ends(self):
        frame = {"frame": "query_lanes", "knobs": [{"knob": "q_tile", "values": [8, 16]}]}
        for strategy in STRATEGIES:
            search = STRATEGIES[strategy]([frame], ("query_lanes", {"q_tile": 8}), lambda f, t: "", 1)
            points = [search.ask(), search.ask()]
            self.assertEqual({p[1]["q_tile"] for p in points}, {8, 16})
            self.assertIsNone(search.ask())

    def test_recalled_points_are_not_asked_again(self):
        frame = {"frame": "query_lanes", "knobs": [{"knob": "q_tile", "values": [8, 16, 24]}]}
        for strategy in STRATEGIES:
            search = STRATEGIES[strategy]([frame], ("query_lanes", {"q_tile": 8}), lambda f, t: "", 1)
            search.recall(("query_lanes", {"q_tile": 8}), 1.0)
            search.recall(("query_lanes", {"q_tile": 99}), 2.0)  # the space was another one then
            self.assertEqual({search.ask()[1]["q_tile"] for _ in range(2)}, {16, 24})


class Runner:
    """Replaces a process: takes a known time, with noise."""

    def __init__(self, name, seconds, noise=0.01, dies=0):
        self.text = self.tiling = name
        self.frame, self.knobs, self.closed, self.dies, self.calls = "f", {}, False, dies, 0
        self.seconds, self.noise, self.random, self.failure = seconds, noise, random.Random(name), Poisoned

    def time(self, shape, slice_seconds, least=2):
        self.calls += 1
        if self.dies and self.calls >= self.dies:
            raise self.failure("crashed")
        taken = self.seconds * (1 + self.noise * self.random.random())
        return taken, taken

    def close(self):
        self.closed = True


class Races(unittest.TestCase):
    def race(self, *runners):
        race = Race(Runner("reference", 1.0), list(runners), SHAPE, 0.0)
        return race, race.run(time.monotonic() + 20)

    def test_the_fastest_wins_and_the_slow_leave_early(self):
        slow = [Runner("slow%d" % i, 1.2 + 0.1 * i) for i in range(5)]
        race, ranked = self.race(*slow, Runner("fast", 0.8))
        self.assertEqual(ranked[0].text, "fast")
        self.assertLess(race.result(ranked[0]).high, 0.85)
        self.assertLess(slow[-1].calls, 4)

    def test_equal_ones_are_raced_to_the_end(self):
        race, ranked = self.race(Runner("a", 0.9), Runner("b", 0.9))
        self.assertEqual(len(race.reference_seconds), 24)
        self.assertEqual(len(ranked), 2)

    def test_one_that_dies_is_left_out(self):
        _, ranked = self.race(Runner("dies", 0.5, dies=2), Runner("lives", 0.9))
        self.assertEqual([r.text for r in ranked], ["lives"])

    def test_a_deadline_ends_it(self):
        race = Race(Runner("reference", 1.0), [Runner("a", 0.9), Runner("b", 0.9)], SHAPE, 0.0)
        self.assertEqual(len(race.run(time.monotonic() - 1)), 2)
        self.assertEqual(len(race.reference_seconds), 1)


class Room:
    """Replaces a laboratory: one knob, whose value is the time; processes may die at a call."""

    def __init__(self, dies):
        self.dies = dies

    def prepare(self, points, shape):
        made = []
        for frame, knobs in points:
            runner = Runner(key_of((frame, knobs)), 1e-3 * knobs["q_tile"], dies=self.dies.get(knobs["q_tile"], 0))
            runner.frame, runner.knobs, runner.tiling = frame, knobs, problem.tiling_text(knobs)
            made.append(runner)
        return made

    def settle(self, shape, process):
        pass


class Bases(unittest.TestCase):
    """What happens to a session whose default tiling fails, at whichever call."""

    def session(self, path, dies, said):
        frame = {"frame": "query_lanes", "schedule_version": 1, "knobs": [{"knob": "q_tile", "values": [8, 10, 12, 14, 16]}]}
        task = types.SimpleNamespace(frames=lambda shape: [frame], default_point=lambda shape: ("query_lanes", {"q_tile": 8}), problem="p",
                                     full_target="t", target="host", flags=[], space={"halide": "1"}, allows=lambda knobs: True, device="",
                                     flops=lambda shape: 1e9)

        class Some(session.Session):
            @contextlib.contextmanager
            def laboratory(self):
                yield Room(dies)

        progress = session.Progress()
        progress.say = said.append
        with unittest.mock.patch.object(session._core, "tiling_refusal", lambda flags, frame, tiling: ""):
            one = Some(task, problem.Segment(0, 0, SHAPE), session.Settings(strategy="random"), Log(path), progress)
            try:
                one.run(2.0)
            finally:
                one.log.close()
        return one

    def test_lost_at_any_call(self):
        for dies in (1, 2, 5, 9, 15):
            with tempfile.TemporaryDirectory() as folder:
                said = []
                one = self.session(folder + "/log", {8: dies}, said)
                answer, = one.found(lambda: 100.0)
                best = 8 if key_of(one.base) == key_of(one.default) else 10
                self.assertEqual(answer.point[1], {"q_tile": best}, said)
                self.assertEqual(answer.of_default, best == 8)
                if best != 8:
                    self.assertIn("the default tiling cannot be used: crashed", said[0])
                    self.assertNotIn("crashed", [why for text, why in one.failed.items() if text != key_of(one.default)])
                    again = self.session(folder + "/log", {8: 1}, [])
                    self.assertEqual((again.base, len(again.raced)), (one.base, len(one.raced)))

    def test_nothing_serves(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(Poisoned, "none of 5 tilings could be used; the last one: crashed"):
            self.session(folder + "/log", {n: 1 for n in (8, 10, 12, 14, 16)}, [])


def result(ratio):
    return Result(ratio, ratio - 0.005, ratio + 0.005, ratio, 0.0, 9)


class Ranges(unittest.TestCase):
    def split(self, table, segment=None):
        """[(first, last, q_tile)] for {length: {q_tile: ratio}}; 32 is the default, 512 the searched length."""
        shapes = {n: problem.Shape(1, n, n) for n in table}
        segment = segment or problem.Segment(17, 0, shapes[512], tuple(shapes[n] for n in table if n != 512))
        point = lambda tile: ("query_lanes", {"q_tile": tile})  # noqa: E731
        text = lambda tile: "frame=query_lanes q_tile=%d" % tile  # noqa: E731
        session = types.SimpleNamespace(
            task=types.SimpleNamespace(flops=lambda shape: 1e9, device=""), segment=segment, default=point(32), base=point(32), base_seconds=[1e-3], failed={},
            ratios={text(t): (r, point(t)) for t, r in table[512].items()}, raced={text(t): (result(r), point(t)) for t, r in table[512].items()},
            by_length={shapes[n]: {**{text(t): result(r) for t, r in row.items()}, text(32): result(1.0)} for n, row in table.items() if n != 512})
        return [(f.segment.min_seq_len_q, f.segment.max_seq_len_q, f.point[1]["q_tile"]) for f in ranges.split(session, lambda: 100.0)]

    def test_one_tiling_for_all_lengths(self):
        self.assertEqual(self.split({128: {48: 0.9}, 512: {48: 0.9}, 2048: {48: 0.92}}), [(17, 0, 48)])

    def test_noise_leaves_the_default(self):
        self.assertEqual(self.split({128: {48: 1.0}, 512: {48: 0.995}, 2048: {48: 1.0}}), [(17, 0, 32)])

    def test_a_length_of_its_own(self):
        self.assertEqual(self.split({128: {48: 0.9, 16: 0.7}, 512: {48: 0.9, 16: 1.1}, 2048: {48: 0.9, 16: 1.1}}), [(17, 256, 16), (257, 0, 48)])

    def test_the_default_where_the_winner_loses(self):
        self.assertEqual(self.split({128: {48: 1.2}, 512: {48: 0.8}, 2048: {48: 0.8}}), [(17, 256, 32), (257, 0, 48)])

    def test_slower_than_the_default_is_no_answer(self):
        self.assertEqual(self.split({128: {48: 1.02}, 512: {48: 0.9}, 2048: {48: 0.9}}), [(17, 256, 32), (257, 0, 48)])

    def test_interrupted_before_the_race(self):
        shape = problem.Shape(1, 512, 512)
        session = types.SimpleNamespace(
            task=types.SimpleNamespace(flops=lambda shape: 1e9, device=""), segment=problem.Segment(0, 0, shape), default=("linear", {"linear_rows": 1}),
            base=("linear", {"linear_rows": 1}), base_seconds=[2e-3], failed={}, ratios={"frame=linear linear_rows=4": (0.5, ("linear", {"linear_rows": 4}))}, raced={}, by_length={})
        found, = ranges.split(session, lambda: 100.0)
        self.assertEqual(found.point[1], {"linear_rows": 4})
        self.assertAlmostEqual(found.result.median_ms, 1.0)


class Endings(unittest.TestCase):
    def test_a_signal_is_not_forgotten_for_what_it_broke(self):
        """Who ends a group of processes ends those that start candidates, too: that is no failure of the candidate."""
        self.addCleanup(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, command._interrupted))
        for failure in (None, EOFError("unexpected EOF")):
            with self.assertRaises(KeyboardInterrupt), _undisturbed():
                signal.raise_signal(signal.SIGTERM)
                if failure:
                    raise failure


class Quiet(unittest.TestCase):
    def test_results_are_printed_and_progress_is_not(self):
        text = io.StringIO()
        with contextlib.redirect_stderr(text):
            quiet = screen.Screen(True)
            quiet.begin("layer", 1.0)
            quiet.phase("explore")
            quiet.say("  42 measured")
            quiet.skipped("q_tile=1", "too slow")
            quiet.end()
            quiet.result("layer: q_tile=16, 0.9 of the default's time")
        self.assertEqual(text.getvalue(), "layer: q_tile=16, 0.9 of the default's time\n")


class Confirmation(unittest.TestCase):
    def test_one_disturbed_time_refutes_nothing(self):
        for slower, tuned in ((False, [1.0, 1.5, 1.5]), (False, [1.01, 1.01, 1.01]), (True, [1.1, 1.03, 1.2]), (False, [0.9, 0.9, 2.0])):
            self.assertEqual(confirm.clearly_slower(tuned, [1.0, 1.0, 1.3]), slower)


class Problems(unittest.TestCase):
    def test_where_flags_come_from(self):
        line = "polyhead generate k --op sdpa --num-heads 4 --head-dim 32 --tiling \"q_tile=16\" --target host"
        self.assertEqual(problem.flags_of_line(line), ["--op", "sdpa", "--num-heads", "4", "--head-dim", "32"])
        self.assertEqual(problem.flags_of_name("k", {"k": "--op linear --embed-dim 8 --out-features 8"})[:2], ["--op", "linear"])
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "k.json")
            path.write_text(json.dumps({"generate": line}))
            self.assertEqual(problem.flags_of_name(str(path), {})[1], "sdpa")
            path.write_text("{}")
            with self.assertRaisesRegex(Error, "is not the manifest of a kernel"):
                problem.flags_of_name(str(path), {})
        with self.assertRaisesRegex(Error, "kernel: found 'nothing'"):
            problem.flags_of_name("nothing", {})

    def test_words_of_the_command_line(self):
        known = {name for action in command.parser()._actions for name in action.option_strings}
        ours, flags = problem.split_flags("k1 --budget 3 --op sdpa --lse --num-heads 4 --seed 2 --head-dim=32".split(), known)
        self.assertEqual((ours, flags), ("k1 --budget 3 --seed 2".split(), "--op sdpa --lse --num-heads 4 --head-dim=32".split()))

    def test_segments(self):
        self.assertEqual([(s.min_seq_len_q, s.max_seq_len_q, s.shape.seq_len_q) for s in TASK.segments()], [(0, 16, 1), (17, 0, 512)])
        found = {}
        for lengths in ((1,), (4, 8), (100, 16, 500, 300)):
            part = problem.Task("t", TASK.flags, "host", lengths=lengths).segments()
            found[lengths] = [(s.shape.seq_len_q, [o.seq_len_q for o in s.others]) for s in part]
        self.assertEqual(found, {(1,): [(1, [])], (4, 8): [(4, [8])], (100, 16, 500, 300): [(16, []), (300, [100, 500])]})
        fixed = problem.Task("t", problem.flags_of_line("--op sdpa --num-heads 4 --head-dim 32 --seq-len-q 300 --seq-len-kv 200"), "host")
        self.assertEqual(fixed.segments(), [problem.Segment(0, 0, problem.Shape(1, 300, 200))])
        self.assertEqual(fixed.flops(fixed.segments()[0].shape), 2 * 4 * 300 * 200 * 64)

    def test_what_the_device_lacks_is_left_out(self):
        flags = problem.flags_of_line("--op sdpa --num-heads 2 --head-dim 64 --dtype f16")
        found = {}
        for capability in (70, 80, 90, 100):
            task = problem.Task("t", flags, "x86-64-linux-cuda-cuda_capability_75-cuda_capability_90a", capability=capability)
            found[capability] = [frame["frame"] for frame in task.frames(SHAPE)], [v["frame"] for v in task.space["targets"][0]["variants"]]
            if capability > 70:
                self.assertEqual(task.default_point(SHAPE)[0], found[capability][0][0])
        self.assertEqual({capability: (frames[0] if frames else "", set(variants)) for capability, (frames, variants) in found.items()},
                         {70: ("", set()), 80: ("thread_rows", {"split_rows", "thread_rows"}),
                          90: ("group_tiles", {"split_rows", "group_tiles", "thread_rows"}), 100: ("thread_rows", {"split_rows", "thread_rows"})})

    def test_larger_values_of_a_knob_are_left_out(self):
        def most(task):
            decode, = [frame for frame in task.frames(problem.Shape(1, 1, 2048)) if frame["frame"] == "head_lanes"]
            return max(n for knob in decode["knobs"] if knob["knob"] == "split_len" for n in knob["values"])

        some = problem.Task("t", TASK.flags, "host", most={"split_len": 512})
        self.assertEqual((most(TASK), most(some)), (2048, 512))
        self.assertEqual([some.allows({"split_len": n, "row_tile": 4}) for n in (512, 513)], [True, False])

    def test_reference_is_that_of_the_tests(self):
        task = problem.Task("t", problem.flags_of_line("--op sdpa --num-heads 4 --num-kv-heads 2 --head-dim 16 --causal top_left --lse"), "host")
        shape = problem.Shape(2, 33, 40)
        arguments, weights = inputs.arguments_of(task.fields, shape)
        found = reference.expected(task.fields, shape, arguments, weights)
        out = attention(arguments["query"], arguments["key"], arguments["value"], visible(33, 40, causal=True, batch=2))[0]
        np.testing.assert_allclose(found.out, out[:, :, found.rows], rtol=1e-12, atol=1e-12)
        self.assertLess(found.tolerance.max(), 1e-3)

    def test_positions_by_direction(self):
        flags = "--op sdpa --num-heads 2 --head-dim 16 --rope half_split --rope-sections parts --section-1 3 --section-2 5"
        task, shape = problem.Task("t", problem.flags_of_line(flags), "host"), problem.Shape(2, 9, 40)
        arguments, weights = inputs.arguments_of(task.fields, shape)
        self.assertEqual((arguments["positions_q"].shape, arguments["positions_kv"].shape), ((2, 2, 9), (2, 2, 40)))
        found = reference.expected(task.fields, shape, arguments, weights)
        out = polyhead.sdpa(arguments["query"], arguments["key"], arguments["value"], rope=(arguments["rope_cos"], arguments["rope_sin"]),
                            rope_sections="parts", sections=(3, 5), positions_q=arguments["positions_q"], positions_kv=arguments["positions_kv"])
        self.assertTrue((np.abs(out[:, :, found.rows] - found.out) <= found.tolerance).all())


class Gradients(unittest.TestCase):
    """What a kernel of gradients is held against, beside such kernels: of all modifiers, and what is wrong with some of them."""

    def worst(self, flags, change=None):
        task = problem.Task("t", problem.flags_of_line(flags), "host")
        shape = problem.Shape(*((1, 33, 0) if task.fields["op"] in problem.ONE_LAYER else (2, 33, 40)))
        arguments, _ = inputs.arguments_of(task.fields, shape)
        arguments.update(gradients.forward_results(task, arguments, shape))
        expected = gradients.expected(task.fields, shape, arguments)
        call = {**arguments, **inputs.outputs_of(task.fields, shape), **(change(arguments) if change else {})}
        _core.kernel_of_flags([*task.flags, "--target", "host", "--no-tuned"]).run(call, None)
        found = worker.rows_of(call, expected.rows)
        self.assertEqual(found.shape, expected.out.shape)
        return float((np.abs(found - expected.out) / expected.tolerance).max())

    def test_modifiers(self):
        added = "--op sdpa_backward --num-heads 4 --num-kv-heads 2 --head-dim 16 --head-dim-v 8 --causal --kv-lengths --softcap --alibi --sinks --score-bias"
        before = "--op sdpa_backward --num-heads 2 --head-dim 8 --rope half_split --query-norm layer --key-norm rms_plus_one --value-norm --mask bool --window"
        self.assertLessEqual(self.worst(added + " --head-gate --gate entries --grad-alibi --grad-sinks --grad-score-bias --grad-gate"), 1)
        self.assertLessEqual(self.worst(before + " --grad-query-norm --grad-key-norm --dtype bf16"), 1)
        self.assertLessEqual(self.worst("--op sdpa_backward --num-heads 2 --head-dim 16 --head-dim-v 8 --value-in-key"), 1)

    def test_linear_layers(self):
        for more in ("", " --dtype bf16", " --dtype f16 --f32-weights"):
            self.assertLessEqual(self.worst("--op linear_backward --embed-dim 24 --out-features 40 --bias" + more), 1)

    def test_wrong_answers(self):
        sinks = "--op sdpa_backward --num-heads 2 --head-dim 16 --sinks --grad-sinks"
        for change in (lambda a: {"lse": a["lse"] + np.float32(1e-3)}, lambda a: {"out": a["out"] * np.float32(1.001)},
                       lambda a: {"sinks": a["sinks"] + np.float32(1e-2)}):
            self.assertGreater(self.worst(sinks, change), 1)


class Storage(unittest.TestCase):
    """Problems of 16-bit storage: the types of their tensors, the tolerance, the copies that fill the caches."""

    TYPES = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}

    def task(self, flags, word):
        return problem.Task("t", problem.flags_of_line(flags + " --dtype " + word), "host")

    def test_types_of_tensors(self):
        features = "--op sdpa --num-heads 2 --head-dim 16 --kv-lengths --mask additive --score-bias --alibi --sinks --head-gate --rope half_split --lse --scores logits"
        layer = "--op mha --embed-dim 32 --num-heads 2 --cross --bias"
        for word, dtype in self.TYPES.items():
            for flags, shape in ((features, problem.Shape(1, 5, 6)), (layer, problem.Shape(1, 5, 6)),
                                 ("--op linear --embed-dim 16 --out-features 24 --bias", problem.Shape(1, 5, 0))):
                fields = self.task(flags, word).fields
                arguments, weights = inputs.arguments_of(fields, shape)
                tensors = {**{name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}, **inputs.outputs_of(fields, shape)}
                stored = {name: value.dtype for name, value in tensors.items() if name in ("input", "query", "key", "value", "out")}
                self.assertEqual(set(stored.values()) | {value.dtype for value in weights.values() if value.ndim == 2}, {dtype}, flags)
                self.assertEqual({value.dtype.name for value in weights.values() if value.ndim == 1}, set() if flags == features else {"float32"})
                self.assertEqual({value.dtype.name for name, value in tensors.items() if name not in stored}, {"float32", "int32"} if flags == features else set())
                self.assertEqual(("query_bias" in weights, "out_bias" in weights), (flags == layer, flags != features))

    def test_types_that_a_problem_chooses(self):
        shape = problem.Shape(1, 5, 6)
        for word in ("f16", "bf16"):
            stored, floats = self.TYPES[word], self.TYPES["f32"]
            fields = self.task("--op mha --embed-dim 32 --num-heads 2 --bias --mask additive --score-bias --sinks --additive-in-storage --f32-weights", word).fields
            arguments, weights = inputs.arguments_of(fields, shape)
            self.assertEqual([arguments[name].dtype for name in ("query", "mask", "score_bias", "sinks")], [stored, stored, stored, floats])
            self.assertEqual({value.dtype for value in weights.values()}, {floats})
            fields = self.task("--op sdpa --num-heads 2 --head-dim 16 --mask bool --score-bias --additive-in-storage", word).fields
            arguments, _ = inputs.arguments_of(fields, shape)
            self.assertEqual([arguments[name].dtype for name in ("mask", "score_bias")], [np.dtype(bool), stored])

    def test_reference_of_rounded_values(self):
        shape = problem.Shape(2, 33, 64)
        for word in ("f16", "bf16"):
            fields = self.task("--op sdpa --num-heads 4 --num-kv-heads 2 --head-dim 16", word).fields
            arguments, weights = inputs.arguments_of(fields, shape)
            found = reference.expected(fields, shape, arguments, weights)
            query, key, value = (arguments[name].astype(np.float64) for name in ("query", "key", "value"))
            exact, of_fewer_keys = (attention(query, key[:, :, :n], value[:, :, :n])[0][:, :, found.rows] for n in (64, 48))
            np.testing.assert_allclose(found.out, exact, rtol=1e-12, atol=1e-12)
            allowed = abs(exact.astype(self.TYPES[word]) - exact) / found.tolerance
            self.assertTrue(0.125 < allowed.max() <= 1, allowed.max())
            self.assertGreater((abs(of_fewer_keys - exact) > 4 * found.tolerance).mean(), 0.5)
            arguments["query"] = arguments["query"] * arguments["query"].dtype.type(64)  # the plain formula is far off
            limit = reference.APART[fields["dtype"]] * np.maximum(1, abs(exact).max() + value.max())
            self.assertTrue((reference.expected(fields, shape, arguments, weights).tolerance < 1.01 * limit).all())

    def test_copies_that_fill_the_caches(self):
        shape = problem.Shape(1, 1, 4096)
        counts = [worker.cold_copies(self.task("--op sdpa --num-heads 8 --head-dim 64", word).fields, shape) for word in self.TYPES]
        self.assertEqual(counts, [1 + 6, 1 + 12, 1 + 12])  # 16 MB and 8 MB of keys and values for 96 MB


if __name__ == "__main__":
    unittest.main()
