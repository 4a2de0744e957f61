"""bench/peers/torch_cuda.py without PyTorch: polyhead's side of its cases, on arrays of the device POLYHEAD_TEST_DEVICE."""
import importlib.util
import os
import pathlib
import sys
import unittest

import numpy as np

import polyhead
from python_inputs import random, state_dict
from polyhead.reference import attention, layer, visible

DEVICE = os.environ.get("POLYHEAD_TEST_DEVICE", "")
FILE = pathlib.Path(__file__).resolve().parents[1] / "bench" / "peers" / "torch_cuda.py"


def loaded():
    spec = importlib.util.spec_from_file_location("torch_cuda", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TorchCuda(unittest.TestCase):
    def setUp(self):
        self.bench, self.device = loaded(), polyhead.Device(DEVICE)

    def test_attention(self):
        arrays = [random(seed, 1, 2, 9, 16) for seed in (1, 2, 3)]
        for causal in (False, True):
            call, answer = self.bench.polyhead_side(dict(kind="sdpa", causal=causal), [self.device.put(x) for x in arrays])
            call()
            expected = attention(*arrays, visible(9, 9, causal=causal))[0]
            np.testing.assert_allclose(answer().numpy(), expected, rtol=1e-5, atol=1e-5)

    def test_a_layer(self):
        state, x = state_dict(4, 32, 2), random(5, 1, 6, 32)
        names = ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")
        call, answer = self.bench.polyhead_side(dict(kind="layer", D=32, H=2), [self.device.put(x), *(state[name] for name in names)])
        call()
        np.testing.assert_allclose(answer().numpy(), layer(state, 2, x)[0], rtol=1e-5, atol=1e-5)

    def test_the_cases(self):
        names = [name for name, _ in self.bench.cases()]
        self.assertEqual(len(names), len(set(names)))
        self.assertTrue(all(self.bench.flops(case) > 0 for _, case in self.bench.cases()))


if __name__ == "__main__":
    if not DEVICE:
        sys.exit(print("NOT RUN: the whole test: POLYHEAD_TEST_DEVICE is not set, expected cuda or opencl"))
    unittest.main()
