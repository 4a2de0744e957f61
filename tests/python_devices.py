"""The Python package on a device: host arrays, arrays on the device, DLPack, the stream of PyTorch. The device is POLYHEAD_TEST_DEVICE."""
import os
import sys
import types
import unittest

import ml_dtypes
import numpy as np

import polyhead
from polyhead.kernel import target_of
from python_inputs import random, state_dict
from polyhead.reference import attention, layer, visible
from tier import sampled_cases

DEVICE = os.environ.get("POLYHEAD_TEST_DEVICE", "")
QUERY, KEY, VALUE = random(1, 1, 4, 5, 16), random(2, 1, 2, 7, 16), random(3, 1, 2, 7, 16)
EXPECTED = attention(QUERY, KEY, VALUE, visible(5, 7, causal=True))


class Foreign:
    """An array of another library on the device."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, np.dtype(array.dtype)

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OnDevice(unittest.TestCase):
    def close(self, found, expected, tolerance=1e-5):
        np.testing.assert_allclose(np.asarray(found, np.float64), expected, rtol=tolerance, atol=tolerance)

    def test_host_arrays(self):
        out, lse = polyhead.sdpa(QUERY, KEY, VALUE, is_causal=True, return_lse=True, device=DEVICE)
        self.close(out, EXPECTED[0])
        self.close(lse, EXPECTED[2])

    def test_floats_by_tensor_cores(self):
        query, words = random(4, 1, 4, 20, 16), {"is_causal": True, "device": DEVICE, "precision": "tf32x3"}
        self.close(polyhead.sdpa(query, KEY, VALUE, **words), attention(query, KEY, VALUE, visible(20, 7, causal=True))[0])
        text = polyhead.explain(query, KEY, VALUE, **words)
        self.assertIn("--precision tf32x3", text)
        self.assertEqual("warp_tiles" in text, DEVICE.startswith("cuda"), text)
        with self.assertRaisesRegex(polyhead.Error, "precision: found 'tf32', expected ieee or tf32x3"):
            polyhead.sdpa(QUERY, KEY, VALUE, device=DEVICE, precision="tf32")

    def test_layers_of_floats_by_tensor_cores(self):
        device, state, x = polyhead.Device(DEVICE), state_dict(4, 32, 2), random(5, 1, 20, 32)
        module = polyhead.MultiheadAttention(32, 2, precision="tf32x3")
        module.load_state_dict(state)
        self.close(module(x, device=DEVICE)[0], layer(state, 2, x)[0])
        self.close(module(x)[0], layer(state, 2, x)[0])
        with self.assertRaisesRegex(polyhead.Error, "precision: found 'tf32', expected ieee or tf32x3"):
            polyhead.MultiheadAttention(32, 2, precision="tf32")
        cuda = DEVICE.startswith("cuda")
        linear = polyhead.compile("linear", embed_dim=32, out_features=24, no_bias=True, precision="tf32x3", target=target_of(device))
        weight, rows, out = random(6, 24, 32), x[0], np.empty((20, 24), np.float32)
        arrays = {"input": rows, "weights": linear.pack(out_proj=weight), "out": out, "device": DEVICE}
        linear(**arrays)
        self.close(out, rows.astype(np.float64) @ weight.T.astype(np.float64))
        self.assertEqual("warp_products=1" in linear.explain(**arrays), cuda)

    def test_arrays_on_the_device(self):
        device = polyhead.Device(DEVICE)
        for dtype, tolerance in ((np.float32, 1e-5), (np.float16, 3e-3), (ml_dtypes.bfloat16, 3e-2)):
            arrays = [device.put(x.astype(dtype)) for x in (QUERY, KEY, VALUE)]
            out = polyhead.sdpa(*arrays, is_causal=True)
            self.assertIsInstance(out, polyhead.DeviceArray)
            self.assertEqual((out.shape, out.dtype), (QUERY.shape, np.dtype(dtype).name))
            self.close(out.numpy(), EXPECTED[0], tolerance)

    def test_a_layer(self):
        state, x = state_dict(4, 32, 2), random(5, 1, 6, 32)
        module = polyhead.MultiheadAttention(32, 2)
        module.load_state_dict(state)
        expected = layer(state, 2, x)[0]
        self.close(module(x, device=DEVICE)[0], expected)
        device = polyhead.Device(DEVICE)
        self.close(module(device.put(x))[0].numpy(), expected)
        for dtype, tolerance in ((np.float32, 1e-5), (np.float16, 3e-3)):
            for mean in (True, False):
                weights = module(device.put(x.astype(dtype)), need_weights=True, average_attn_weights=mean)[1]
                self.assertEqual(weights.dtype, "float32")
                expected_weights = layer(state, 2, x)[1]
                self.close(weights.numpy(), expected_weights.mean(1) if mean else expected_weights, tolerance)

    def test_refusals(self):
        device = polyhead.Device(DEVICE)
        with self.assertRaises(polyhead.Error) as caught:
            polyhead.sdpa(QUERY, device.put(KEY), VALUE)
        self.assertEqual(caught.exception.code, polyhead.Code.WRONG_DEVICE)
        for name in ("quantum", DEVICE.split(":")[0] + ":77", DEVICE.split(":")[0] + ":x"):
            with self.assertRaises(polyhead.Error) as caught:
                polyhead.Device(name)
            self.assertEqual(caught.exception.code, polyhead.Code.NO_DEVICE)
        with self.assertRaises(polyhead.Error):
            polyhead.sdpa(*(x.astype(np.float64) for x in (QUERY, KEY, VALUE)), device=DEVICE)


@unittest.skipUnless(DEVICE.startswith("cuda"), "CUDA alone has DLPack")
class OnCuda(unittest.TestCase):
    def setUp(self):
        self.device = polyhead.Device(DEVICE)
        self.arrays = [self.device.put(x) for x in (QUERY, KEY, VALUE)]

    def test_dlpack_in_and_out(self):
        out = self.device.empty(QUERY.shape)
        polyhead.sdpa(*map(Foreign, self.arrays), is_causal=True, out=Foreign(out))
        np.testing.assert_allclose(out.numpy(), EXPECTED[0], rtol=1e-5, atol=1e-5)
        with self.assertRaises(polyhead.Error) as caught:  # nobody knows how to make an array of that library
            polyhead.sdpa(*map(Foreign, self.arrays))
        self.assertIn("out: found none, expected an array", str(caught.exception))

    def test_the_current_stream_of_pytorch(self):
        """A stand-in of the few things that the package asks of PyTorch: tensors on a device, and the stream there."""
        asked, device = [], self.device

        class Tensor(Foreign):
            is_cuda, device = True, types.SimpleNamespace(index=int(DEVICE.partition(":")[2] or 0))

        def current_stream(of):
            asked.append(of.index)
            return types.SimpleNamespace(cuda_stream=0)

        def empty(shape, dtype, device):
            return Tensor(self.device.empty(shape, str(dtype)))

        torch = types.ModuleType("torch")
        torch.Tensor, torch.empty, torch.float32 = Tensor, empty, "float32"
        torch.cuda = types.SimpleNamespace(current_stream=current_stream)
        sys.modules["torch"] = torch
        try:
            out, lse = polyhead.sdpa(*map(Tensor, self.arrays), is_causal=True, return_lse=True)
        finally:
            del sys.modules["torch"]
        self.assertIsInstance(out, Tensor)
        self.assertEqual(asked, [0])
        np.testing.assert_allclose(out.array.numpy(), EXPECTED[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(lse.array.numpy(), EXPECTED[2], rtol=1e-5, atol=1e-5)
        self.assertIsNotNone(device)


load_tests = sampled_cases(__file__, 4)

if __name__ == "__main__":
    if not DEVICE:
        sys.exit(print("NOT RUN: the whole test: POLYHEAD_TEST_DEVICE is not set, expected cuda or opencl"))
    unittest.main()
