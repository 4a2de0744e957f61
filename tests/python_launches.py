"""Calls with more batch rows, queries or rows than a device starts at once. The CUDA driver of the tests is set to take 5 blocks."""
import os
import sys
import unittest

import numpy as np

import polyhead
from polyhead.kernel import target_of
from python_inputs import random, state_dict
from polyhead.reference import layer
from tier import sampled_cases

BLOCKS = int(os.environ.get("POLYHEAD_CUDA_DRIVER_BLOCKS", "0"))
B, H, T_Q, T_KV, D = 12, 2, 9, 7, 8
QUERY, KEY, VALUE = random(1, B, H, T_Q, D), random(2, B, H, T_KV, D), random(3, B, H, T_KV, D)


class Launches(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.device = polyhead.Device("cuda")

    def put(self, value):
        return self.device.put(value) if isinstance(value, np.ndarray) else value

    def same_as_on_the_cpu(self, **options):
        """On the CPU nothing is divided; the tensors lie on the host, then on the device."""
        expected = polyhead.sdpa(QUERY, KEY, VALUE, **options)
        tensors = options.pop("tensors", None)
        on_device = {name: self.put(value) for name, value in options.items()}
        if tensors:
            options["tensors"], on_device["tensors"] = tensors, {name: self.put(value) for name, value in tensors.items()}
        found = polyhead.sdpa(QUERY, KEY, VALUE, device=self.device, **options)
        found_there = polyhead.sdpa(*map(self.device.put, (QUERY, KEY, VALUE)), **on_device)
        for one, there, wanted in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, found_there, expected))):
            np.testing.assert_allclose(one, wanted, rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(there.numpy(), one)

    def test_more_batch_rows(self):
        self.assertGreater(B, BLOCKS)
        self.same_as_on_the_cpu(is_causal=True, return_lse=True)

    def test_every_tensor_with_batch_rows(self):
        rng = np.random.default_rng(4)
        self.same_as_on_the_cpu(
            is_causal=True, causal_alignment="bottom_right", kv_lengths=rng.integers(3, T_KV + 1, B).astype(np.int32),
            attn_mask=rng.random((B, 1, T_Q, T_KV)) < 0.8, bias=rng.standard_normal((1, H, 1, T_KV)).astype(np.float32),
            alibi_slopes=rng.random((B, H)).astype(np.float32), position_offsets=rng.integers(0, 3, B).astype(np.int32),
            expression="tensor t: f32[b, 3]; score = score + t[b, kv % 3]", tensors={"t": rng.standard_normal((B, 3)).astype(np.float32)},
            return_lse=True)

    def test_more_queries_where_scores_are_an_output(self):
        self.assertGreater(T_Q, BLOCKS)
        self.assertGreater(B * H, 2 * BLOCKS)
        self.same_as_on_the_cpu(return_weights=True)
        self.same_as_on_the_cpu(return_weights="mean", return_scores="scaled")

    def test_a_layer(self):
        state, x = state_dict(4, 16, 2), random(5, B, T_Q, 16)
        module = polyhead.MultiheadAttention(16, 2)
        module.load_state_dict(state)
        np.testing.assert_allclose(module(x, device=self.device)[0], layer(state, 2, x)[0], rtol=1e-5, atol=1e-5)

    def test_rows_of_a_linear_layer(self):
        kernel = polyhead.compile("linear", embed_dim=8, out_features=8, target=target_of(self.device), tiling="linear_block=16")
        rows = random(6, 16 * BLOCKS * 2 + 5, 8)
        weights = kernel.pack(out_proj=2 * np.eye(8, dtype=np.float32), device=self.device)
        np.testing.assert_allclose(kernel(input=rows, weights=weights, device=self.device), 2 * rows, rtol=1e-6)

    def test_what_cannot_be_divided(self):
        keys = random(7, 1, 1, 64 * BLOCKS + 1, 8)
        with self.assertRaises(polyhead.Error) as caught:
            polyhead.sdpa(keys[:, :, :2], keys, keys, return_weights=True, device=self.device)
        self.assertEqual(caught.exception.code, polyhead.Code.UNSUPPORTED)
        self.assertIn("key: extent %d of dimension 2, expected at most %d" % (keys.shape[2], keys.shape[2] - 1), str(caught.exception))
        with self.assertRaises(polyhead.Error) as caught:
            polyhead.sdpa(QUERY, KEY, VALUE, expression="score = score + b", device=self.device)
        self.assertEqual(caught.exception.code, polyhead.Code.UNSUPPORTED)
        self.assertIn("query: extent %d of dimension 0, expected at most %d" % (B, BLOCKS), str(caught.exception))
        module = polyhead.MultiheadAttention(8, 1)
        module.load_state_dict(state_dict(8, 8, 1))
        rows = random(8, 1, 32 * BLOCKS + 1, 8)  # a block of a linear layer has 32
        with self.assertRaises(polyhead.Error) as caught:
            module(rows, device=self.device)
        self.assertIn("input: extent %d of dimension 1, expected at most %d" % (rows.shape[1], rows.shape[1] - 1), str(caught.exception))


load_tests = sampled_cases(__file__, 2)

if __name__ == "__main__":
    if not BLOCKS:
        sys.exit(print("NOT RUN: the whole test: POLYHEAD_CUDA_DRIVER_BLOCKS is not set, expected a small number, and the CUDA driver of the tests"))
    unittest.main()
