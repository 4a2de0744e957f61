"""./polyhead tune with the CUDA driver of the tests: layers of 16 bits are tried by threads and by warps, and a kernel takes what was recorded."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import polyhead
from polyhead.tuning.problem import knobs_of

TARGET = "host-cuda-cuda_capability_80"


class Layers(unittest.TestCase):
    def tuned(self, candidates, **problem):
        """([(frame, by warps)] that were measured, variants of the kernel with the record)."""
        with tempfile.TemporaryDirectory() as folder:
            output, log = pathlib.Path(folder, "tuned.json"), pathlib.Path(folder, "tuned.json.log")
            flags = " ".join("--%s %s" % (name.replace("_", "-"), value) for name, value in problem.items())
            done = subprocess.run([sys.executable, "-m", "polyhead.tuning.command", "--problem", flags, "--target", TARGET, "--lengths", "24", "--jobs", "1",
                                   "--strategy", "random", "--candidates", str(candidates), "--budget", "300", "--no-confirm", "-o", str(output)],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)
            entries = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
            self.assertEqual([entry for entry in entries if entry["kind"] == "failed"], [])
            measured = [(entry["frame"], knobs_of(entry["tiling"]).get("warp_products", 0)) for entry in entries if entry["kind"] == "measured"]
            variants = polyhead.compile(target=TARGET, tuned=output, **problem).manifest["variants"]
        return measured, [("tuning_record" in v, knobs_of(v["tiling"]).get("warp_products", 0)) for v in variants]

    def test_products_of_warps(self):
        for candidates, problem in ((4, {"op": "linear", "embed_dim": 16, "out_features": 32, "dtype": "f16"}),
                                    (3, {"op": "mha", "embed_dim": 32, "num_heads": 2, "dtype": "bf16", "rope": "half_split"})):
            with self.subTest(problem["op"]):
                measured, variants = self.tuned(candidates, **problem)
                self.assertEqual({by_warps for _, by_warps in measured}, {0, 1}, measured)
                self.assertTrue(variants[0][0], variants)
                self.assertEqual(variants[-1][1], 0, variants)  # threads serve every tensor
                self.assertEqual([by_warps for _, by_warps in variants], [1, 0] if variants[0][1] else [0])


if __name__ == "__main__":
    unittest.main()
