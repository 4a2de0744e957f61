"""Gradients of a linear layer from Python: shapes, dtypes, compiled kernels, and what is refused."""
import unittest

import numpy as np

import polyhead
from python_inputs import random

M, N, K = 37, 19, 50  # values that no vector divides
INPUT, WEIGHT, GRAD_OUT = random(1, M, K), random(2, N, K), random(3, M, N)
EXPECTED = GRAD_OUT @ WEIGHT, GRAD_OUT.T @ INPUT, GRAD_OUT.sum(0)


class LinearBackward(unittest.TestCase):
    def check(self, found, expected=EXPECTED, **limits):
        self.assertEqual([x.shape for x in found], [x.shape for x in expected])
        for one, other in zip(found, expected):
            np.testing.assert_allclose(one.astype("float64"), other, **{"rtol": 1e-5, "atol": 2e-5, **limits})

    def test_gradients(self):
        self.check(polyhead.linear_backward(GRAD_OUT, INPUT, WEIGHT, bias=True))
        self.check(polyhead.linear_backward(GRAD_OUT, INPUT, WEIGHT), EXPECTED[:2])

    def test_any_leading_dimensions(self):
        grad_out, given = GRAD_OUT[:36].reshape(2, 3, 6, N), INPUT[:36].reshape(2, 3, 6, K)
        self.check(polyhead.linear_backward(grad_out, given, WEIGHT), (grad_out @ WEIGHT, GRAD_OUT[:36].T @ INPUT[:36]))
        self.check(polyhead.linear_backward(GRAD_OUT[0], INPUT[0], WEIGHT), (GRAD_OUT[0] @ WEIGHT, np.outer(GRAD_OUT[0], INPUT[0])))
        padded = np.zeros((M, K + 3), "float32")[:, :K]
        padded[:] = INPUT
        self.check(polyhead.linear_backward(GRAD_OUT, padded, WEIGHT), EXPECTED[:2])

    def test_without_rows(self):
        grad_input, grad_weight, grad_bias = polyhead.linear_backward(GRAD_OUT[:0], INPUT[:0], WEIGHT, bias=True)
        self.assertEqual(grad_input.shape, (0, K))
        self.assertFalse(grad_weight.any() or grad_bias.any())

    def test_16_bit(self):
        given = [x.astype("float16") for x in (GRAD_OUT, INPUT, WEIGHT)]
        wide = [x.astype("float64") for x in given]
        expected = wide[0] @ wide[2], wide[0].T @ wide[1], wide[0].sum(0)
        found = polyhead.linear_backward(*given, bias=True)
        self.assertEqual([x.dtype.name for x in found], ["float16", "float16", "float32"])
        self.check(found, expected, rtol=2e-3, atol=2e-3)
        found = polyhead.linear_backward(given[0], given[1], given[2].astype("float32"))
        self.assertEqual([x.dtype.name for x in found], ["float16", "float32"])
        self.check(found, expected[:2], rtol=2e-3, atol=2e-3)

    def test_compiled(self):
        kernel = polyhead.compile("linear_backward", embed_dim=K, out_features=N, bias=True)
        arrays = {"input": INPUT, "weight": WEIGHT, "grad_out": GRAD_OUT}
        self.assertEqual(kernel.arguments, ["input", "weight", "grad_out", "grad_input", "grad_weight", "grad_bias"])
        self.check(kernel(**arrays))
        self.check(kernel.plan(**arrays)(**arrays))
        own = np.empty((N, K), "float32")
        self.assertIs(kernel(grad_weight=own, **arrays)[1], own)
        manifest = kernel.manifest
        self.assertEqual((manifest["problem"]["op"], manifest["parameters"]), ("linear_backward", N * K + N))
        self.assertEqual(manifest["flops"]["formula"], "4*rows*embed_dim*out_features")
        self.assertIn("linear_backward, %d rows" % M, kernel.explain(**arrays))

    def test_refusals(self):
        for words, *arrays in (("weight: rank 1, expected 2", GRAD_OUT, INPUT, WEIGHT[0]),
                               ("input: extent 50 of dimension 1, expected 19", GRAD_OUT, INPUT, WEIGHT.T),
                               ("grad_out: extent 36 of dimension 0, expected 37 as in input", GRAD_OUT[1:], INPUT, WEIGHT)):
            with self.assertRaisesRegex(polyhead.Error, words):
                polyhead.linear_backward(*arrays)
        with self.assertRaisesRegex(polyhead.Error, "input: stride 37 of dimension 1, expected 1"):
            polyhead.linear_backward(GRAD_OUT, np.asfortranarray(INPUT), WEIGHT)
        with self.assertRaisesRegex(TypeError, "bias: found 'yes', expected True or False"):
            polyhead.linear_backward(GRAD_OUT, INPUT, WEIGHT, "yes")
        with self.assertRaisesRegex(polyhead.Error, "op linear_backward is not supported on target .*: expected a CPU"):
            polyhead.compile("linear_backward", embed_dim=K, out_features=N, target="host-cuda-cuda_capability_80")


if __name__ == "__main__":
    unittest.main()
