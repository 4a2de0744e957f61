"""The race on a GPU, without one: it ends where it needs a device and says so; on the driver that executes PTX it runs to its report."""
import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "bench", "race"))
import race_program  # noqa: E402
import race_report  # noqa: E402
import race_torch  # noqa: E402

OPTIONS = None


def environment(emulated):
    env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
    if emulated:
        env.update(LD_LIBRARY_PATH=OPTIONS.driver, POLYHEAD_CUDA_DRIVER_CAPABILITY="90", POLYHEAD_CUDA_DRIVER_QUIET="1")
    return env


def race(folder, emulated, **variables):
    words = [sys.executable, os.path.join(ROOT, "bench", "race", "race.py"), "--small", "--rounds", "3", "--program", OPTIONS.program, "--output", folder]
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(environment(emulated), **variables), timeout=120)


def report(folder):
    with open(os.path.join(folder, "report.json"), encoding="utf-8") as data, open(os.path.join(folder, "report.md"), encoding="utf-8") as text:
        return json.load(data), text.read()


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


class Race(unittest.TestCase):
    def test_without_a_gpu_it_ends_at_the_first_step_that_needs_one(self):
        if has_driver():
            self.skipTest("this machine has a CUDA driver")
        with tempfile.TemporaryDirectory() as folder:
            done = race(folder, emulated=False)
        self.assertEqual(done.returncode, 3, done.stdout)
        self.assertIn("4 kernels", done.stdout)
        self.assertIn("libcuda.so.1 was not found: steps 2 to 8 need a GPU and were not run", done.stdout)
        self.assertNotIn("2. ", done.stdout)

    def test_on_the_driver_of_the_tests_it_runs_to_its_report(self):
        with tempfile.TemporaryDirectory() as folder:
            done = race(folder, emulated=True)
            self.assertEqual(done.returncode, 0, done.stdout)
            found, text = report(folder)
        for what in ("layouts", "answers"):
            self.assertEqual(len(found[what]), 4, what)
            self.assertEqual([one["error"] for all_ in found[what].values() for one in all_], [""] * 4, what)
        self.assertEqual([len(seconds) for one in found["races"] for seconds in one["seconds"].values()], [3, 3, 3, 3])
        self.assertIn("frame=group_tiles", text)
        self.assertIn("Tiny shapes: the speeds say nothing.", text)
        self.assertIn("layouts: 4 kernels checked, 0 calls wrong.", text)

    def test_a_kernel_of_another_capability_is_no_fault(self):
        with tempfile.TemporaryDirectory() as folder:
            done = race(folder, emulated=True, POLYHEAD_CUDA_DRIVER_CAPABILITY="80")
            self.assertEqual(done.returncode, 0, done.stdout)
            found, text = report(folder)
        self.assertEqual([len(one["seconds"]) for one in found["races"]], [1, 0, 1, 1])
        self.assertIn("not for this device: race_small_f16_d64_causal_wgmma", text)
        self.assertEqual(list(found["races"][1]["notes"].values()), ["no variant runs on this device"])

    def test_a_kernel_that_is_wrong_does_not_race(self):
        with tempfile.TemporaryDirectory() as folder:
            done = race(folder, emulated=True, POLYHEAD_CUDA_DRIVER_STEPS="1000")  # after which a launch fails
            self.assertEqual(done.returncode, 1, done.stdout)
            found, text = report(folder)
        self.assertEqual([one["seconds"] for one in found["races"]], [{}] * 4)
        self.assertEqual([note for one in found["races"] for note in one["notes"].values()], ["wrong, did not race"] * 4)
        self.assertIn("answers: 4 kernels checked, 4 calls wrong.", text)

    def test_a_wrong_entry_is_found_and_named(self):
        # The first rows see no key here, so they are not what the probe expects.
        words = [OPTIONS.program, "--commands", "layouts race_small_f16_d64_causal_wgmma 140 70"]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, env=environment(emulated=True), timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(json.loads(done.stdout)["error"], r"columns of query and key: out\[0, 0, 0\]: found 0\.0+, expected 1\.0+; \d+ of 17920 entries are wrong")

    def test_a_command_that_is_none(self):
        done = subprocess.run([OPTIONS.program, "--commands", "time nothing 3"], stdout=subprocess.PIPE, text=True, env=environment(emulated=True), timeout=60)
        self.assertIn("expected kernels | device", json.loads(done.stdout)["error"])


class Program(unittest.TestCase):
    def test_a_program_that_ends_is_started_again(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program")
            with open(path, "w", encoding="utf-8") as file:
                file.write("#!%s\nimport sys\nfor line in sys.stdin:\n    if 'end' in line: sys.exit(9)\n"
                           "    print('{\"error\": \"a fault\"}' if 'fault' in line else '{}', flush=True)\n" % sys.executable)
            os.chmod(path, 0o755)
            program = race_program.Program(path, 0)
            self.assertEqual(program.ask("x"), {})
            self.assertEqual(program.ask("end"), {"error": "the program ended (exit status 9)"})
            self.assertEqual((program.ask("x"), program.starts), ({}, 2))
            self.assertEqual(program.ask("fault"), {"error": "a fault"})  # its context may be of no more use
            self.assertEqual((program.ask("x"), program.starts), ({}, 3))
            program.close()


def a_race(**seconds):
    kernel = {"name": "race_f16_d64_full_mma", "op": "sdpa", "dtype": "f16", "head_dim": 64, "causal": False}
    return {"title": "a race", "kernel": kernel, "shape": (4, 4096, 4096), "flops": 1e12, "notes": {}, "clocks": {}, "variants": {},
            "seconds": {name.replace("__", " "): values for name, values in seconds.items()}}


class Torch:
    """Stands for PyTorch: it notes what is asked of it, and has no cuDNN."""

    float16, bfloat16, float32, __version__ = "f16", "bf16", "f32", "0"

    def __init__(self):
        self.calls, self.entered = [], mock.MagicMock()
        self.cuda = mock.Mock()
        self.cuda.is_available.return_value = True
        self.inference_mode = mock.MagicMock()
        self.nn = types.SimpleNamespace(functional=self, attention=self, MultiheadAttention=mock.MagicMock())
        self.SDPBackend = types.SimpleNamespace(FLASH_ATTENTION="flash", CUDNN_ATTENTION="cudnn")

    def randn(self, *shape, device, dtype):
        return shape, device, dtype

    def sdpa_kernel(self, backend):
        if backend == "cudnn":
            raise RuntimeError("no cuDNN\nand more")
        return self.entered

    def scaled_dot_product_attention(self, *tensors, **options):
        self.calls.append((tensors, options))


class Sides(unittest.TestCase):
    def test_attention(self):
        kernel = {"op": "sdpa", "dtype": "bf16", "heads": 32, "kv_heads": 8, "head_dim": 128, "causal": False}
        notes, torch = {}, Torch()
        with mock.patch.object(race_torch, "torch", torch):
            sides = race_torch.sides(kernel, (16, 1, 4096), notes)
            sides["torch FLASH_ATTENTION"](3)
        self.assertEqual(sorted(sides), ["torch FLASH_ATTENTION", "torch default"])
        self.assertEqual(notes, {"torch CUDNN_ATTENTION": "no cuDNN"})
        self.assertEqual(torch.calls, 5 * [(tuple(((16, *rest), "cuda", "bf16") for rest in ((32, 1, 128), (8, 4096, 128), (8, 4096, 128))),
                                            {"is_causal": False, "enable_gqa": True})])

    def test_a_layer(self):
        for dtype in ("f16", "f32"):
            torch = Torch()
            with mock.patch.object(race_torch, "torch", torch):
                sides = race_torch.sides({"op": "mha", "dtype": dtype, "embed_dim": 2048, "heads": 16}, (4, 4096, 4096), {})
                self.assertGreater(sides["torch MultiheadAttention"](2), 0)
            torch.nn.MultiheadAttention.assert_called_once_with(2048, 16, batch_first=True, device="cuda", dtype=dtype)

    def test_without_pytorch_there_is_no_side(self):
        with mock.patch.object(race_torch, "torch", None):
            self.assertEqual(race_torch.sides({"op": "mha"}, (4, 4096, 4096), {}), {})


class Report(unittest.TestCase):
    def test_ratios_are_of_rounds(self):
        one = a_race(race_wgmma=[1.0, 2.0, 4.0], torch__default=[2.0, 2.0, 2.0])
        self.assertEqual(race_report.ratio(one, "race_wgmma", "torch default"), 1.0)
        self.assertIsNone(race_report.ratio(one, "race_wgmma", "torch FLASH_ATTENTION"))

    def test_promises(self):
        one = a_race(race_f16_wgmma=[0.002] * 3, race_f16_wgmma_64_keys=[0.0025] * 3, race_f16_mma=[0.003] * 3, torch__default=[0.0014] * 3)
        lines = race_report.lines_of_promises([one])
        self.assertIn("| a race: wgmma, TFLOP/s | 500.00 | 350 | kept |", lines)
        self.assertIn("| a race: wgmma of PyTorch's default | 0.70 | 0.75 | MISSED |", lines)
        self.assertIn("| a race: mma.sync of its FLASH backend |  | 0.9 | not run |", lines)

    def test_a_promise_of_floats(self):
        one = a_race(race_f32_d64_full_tf32x3=[0.002] * 3, race_f32_d64_full_ieee=[0.003] * 3, torch__EFFICIENT_ATTENTION=[0.0018] * 3)
        one["kernel"] = dict(one["kernel"], dtype="f32")
        self.assertIn("| a race: tf32 of its efficient path | 0.90 | 0.75 | kept |", race_report.lines_of_promises([one]))
        one["kernel"]["op"] = "mha"
        self.assertEqual(race_report.promises([one]), [])

    def test_best_and_worst_are_so_by_their_predictions(self):
        one = a_race(race_a_mma=[0.004] * 3, race_b_wgmma=[0.002] * 3, torch__default=[0.001] * 3)
        package = {"predicted": {"race_a_mma": 260.0, "race_b_wgmma": 900.0}}
        self.assertEqual([name for name, _ in race_report.best_and_worst([one], package)], ["race_a_mma", "race_b_wgmma"])
        self.assertEqual([name for name, _ in race_report.best_and_worst([one], {})], ["race_b_wgmma", "race_a_mma"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True, help="polyhead_race_small")
    parser.add_argument("--driver", required=True, help="the folder of the driver that executes PTX")
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest)
