"""16-bit arrays on the CPU against float64: sdpa, kernel objects and the layer, without copies; what is converted, what is refused."""
import ctypes
import resource
import unittest
import unittest.mock

import ml_dtypes
import numpy as np

import polyhead
import polyhead.kernel
import polyhead.layer
from python_inputs import random, state_dict
from polyhead.reference import attention, layer, visible
from tier import sampled_cases

try:
    import torch
except ImportError:
    torch = None

B, H, H_KV, T_Q, T_KV, D, D_V = 2, 4, 2, 19, 23, 16, 24
QUERY, KEY, VALUE = random(1, B, H, T_Q, D), random(2, B, H_KV, T_KV, D), random(3, B, H_KV, T_KV, D_V)
BF16 = np.dtype(ml_dtypes.bfloat16)
F16 = np.dtype(np.float16)
WORDS = {F16: "f16", BF16: "bf16"}
NUMBERS = {F16: 1, BF16: 2}
TOLERANCES = {F16: 4e-3, BF16: 2e-2}  # of max(1, |expected|), for inputs that were rounded before


class Bfloat16ByDLPack:
    """An array of a library that hands bfloat16 out by DLPack, as NumPy does not: the capsule of its bits with the code of bfloat16."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __dlpack__(self, **_):
        capsule = self.array.view(np.uint16).__dlpack__()
        address_of = ctypes.pythonapi.PyCapsule_GetPointer
        address_of.restype, address_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        code = 20  # bytes before it in a DLTensor: data, device, ndim
        ctypes.c_uint8.from_address(address_of(capsule, b"dltensor") + code).value = 4
        return capsule

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Case(unittest.TestCase):
    def close(self, found, expected, tolerance):
        self.assertEqual(found.shape, expected.shape)
        error = abs(np.asarray(found).astype(np.float64) - expected) / np.maximum(1, abs(expected))
        self.assertLessEqual(error.max(), tolerance)

    def refused(self, code, sentence, call):
        with self.assertRaises(polyhead.Error) as caught:
            call()
        self.assertEqual(caught.exception.code, code)
        self.assertIn(sentence, str(caught.exception))


class Sdpa(Case):
    def test_outputs_and_their_types(self):
        for dtype, tolerance in TOLERANCES.items():
            q, k, v = (x.astype(dtype) for x in (QUERY, KEY, VALUE))
            mask = random(4, 1, T_KV).astype(dtype)
            seen = visible(T_Q, T_KV, [9, T_KV], causal=True, from_end=True)
            expected, expected_weights, expected_lse, _ = attention(q, k, v, seen, mask.astype(np.float64))
            options = dict(is_causal=True, causal_alignment="bottom_right", kv_lengths=[9, T_KV], return_lse=True, return_weights=True)
            out, lse, weights = polyhead.sdpa(q, k, v, mask, **options)
            self.assertEqual([x.dtype for x in (out, lse, weights)], [dtype, np.float32, np.float32])
            self.close(out, expected, tolerance)
            self.close(weights, expected_weights, tolerance)
            empty = np.isneginf(expected_lse)
            self.assertTrue(empty.any() and (np.isneginf(lse) == empty).all())
            self.close(lse[~empty], expected_lse[~empty], tolerance)

    def test_plain_calls_of_each_type(self):
        """The second call of the same shapes takes a shorter way, each type with its own kernel."""
        polyhead.clear_cache()
        for _ in range(2):
            for dtype in (np.dtype(np.float32), F16, BF16):
                q, k, v = (x.astype(dtype) for x in (QUERY, KEY, VALUE))
                out = np.empty((B, H, T_Q, D_V), dtype)
                for result in (polyhead.sdpa(q, k, v), polyhead.sdpa(q, k, v, out=out)):
                    self.assertEqual(result.dtype, dtype)
                    self.close(result, attention(q, k, v)[0], TOLERANCES.get(dtype, 1e-5))
                self.assertIs(result, out)
                floats = np.empty(out.shape, np.float32)
                for key in (k, KEY):  # another type among the tensors: not the kernel of the short way
                    self.close(polyhead.sdpa(q, key, v, out=floats), attention(q, key, v)[0], 1e-5)
                self.assertEqual(polyhead.sdpa(q, KEY, v).tobytes(), floats.astype(dtype).tobytes())
        self.assertEqual(polyhead._core.plain_forms(), 6)  # with out and without, of each type

    def test_strided_views(self):
        for dtype, tolerance in TOLERANCES.items():
            cache = random(5, B, 40, H_KV, D + D_V + 2).astype(dtype)
            before = cache.copy()
            keys, values = (x.transpose(0, 2, 1, 3)[:, :, 36:13:-1] for x in (cache[..., 1:D + 1], cache[..., D + 2:]))
            buffer = np.full((B, T_Q + 2, H, D_V + 1), 7, dtype)
            query = QUERY.astype(dtype)[:, ::-1]
            polyhead.sdpa(query, keys, values, out=buffer[:, 1:-1, :, 1:].transpose(0, 2, 1, 3))
            self.close(buffer[:, 1:-1, :, 1:].transpose(0, 2, 1, 3), attention(query, keys, values)[0], tolerance)
            buffer[:, 1:-1, :, 1:] = 7
            self.assertTrue((buffer == 7).all())
            self.assertEqual(cache.tobytes(), before.tobytes())

    def test_nothing_is_copied(self):
        """A cache with room for 262144 keys, of which 3 are valid, is not read; converting it takes 64 MB for a copy as float32."""
        for dtype, tolerance in TOLERANCES.items():
            cache = np.zeros((1, 1, 1 << 18, 64), dtype)
            cache[:, :, :3] = KEY[:1, :1, :3, :1]
            query = np.ones((1, 1, 1, 64), dtype)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            out = polyhead.sdpa(query, cache, cache, kv_lengths=[3])
            self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 16 << 10)
            self.close(out, attention(query, cache[:, :, :3], cache[:, :, :3])[0], tolerance)
        self.close(polyhead.sdpa(query.astype(np.float32), cache, cache, kv_lengths=[3]), attention(query, cache[:, :, :3], cache[:, :, :3])[0], 1e-5)
        self.assertGreater(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 48 << 10)

    def test_explain_names_the_type(self):
        for dtype, word in WORDS.items():
            q, k, v = (x.astype(dtype) for x in (QUERY, KEY, VALUE))
            self.assertIn("--dtype " + word, polyhead.explain(q, k, v))
            for changed in ((QUERY, k, v), (q, KEY, v), (q, k, VALUE), (q.astype(np.float64), k, v)):
                self.assertIn("--dtype f32", polyhead.explain(*changed))
            self.assertIn("--dtype f32", polyhead.explain(q, k, v, out=np.empty((B, H, T_Q, D_V), np.float32)))

    def test_masks_keep_their_type(self):
        """An additive mask and a bias of the storage type; of another type, or of two, they are read as float32."""
        for dtype, tolerance in TOLERANCES.items():
            q, k, v = (x.astype(dtype) for x in (QUERY, KEY, VALUE))
            mask, bias = random(6, T_Q, T_KV).astype(dtype), random(7, H, 1, T_KV).astype(dtype)
            mask[3, 5:9] = -np.inf
            floats = mask.astype(np.float32)
            expected = attention(q, k, v, True, mask.astype(np.float64) + bias.astype(np.float64))[0]
            for options, stored in ((dict(attn_mask=mask, bias=bias), True), (dict(attn_mask=floats, bias=bias.astype(np.float32)), False),
                                    (dict(attn_mask=mask, bias=bias.astype(np.float32)), False), (dict(attn_mask=floats, bias=bias), False)):
                self.close(polyhead.sdpa(q, k, v, **options), expected, tolerance)
                self.assertEqual("--additive-in-storage" in polyhead.explain(q, k, v, **options), stored)
            self.assertIn("--additive-in-storage", polyhead.explain(q, k, v, np.ones((T_Q, T_KV), bool), bias=bias))
            self.assertNotIn("--additive-in-storage", polyhead.explain(q, k, v, np.ones((T_Q, T_KV), bool)))
            self.assertNotIn("--additive-in-storage", polyhead.explain(QUERY, KEY, VALUE, mask))

    def test_by_dlpack(self):
        q, k, v = (x.astype(BF16) for x in (QUERY, KEY, VALUE))
        out = np.empty((B, H, T_Q, D_V), BF16)
        polyhead.sdpa(*map(Bfloat16ByDLPack, (q, k, v)), out=Bfloat16ByDLPack(out))
        self.assertEqual(out.tobytes(), polyhead.sdpa(q, k, v).tobytes())
        made = polyhead.sdpa(*map(Bfloat16ByDLPack, (q, k, v)))
        self.assertEqual((made.dtype, made.tobytes()), (BF16, out.tobytes()))
        self.assertIn("--dtype bf16", polyhead.explain(*map(Bfloat16ByDLPack, (q, k, v))))

    @unittest.skipUnless(torch, "PyTorch is not installed")
    def test_tensors_of_pytorch(self):
        for dtype, like in ((torch.float16, F16), (torch.bfloat16, BF16)):
            tensors = [torch.from_numpy(x).to(dtype) for x in (QUERY, KEY, VALUE)]
            out, lse = polyhead.sdpa(*tensors, return_lse=True)
            self.assertEqual((out.dtype, lse.dtype), (dtype, torch.float32))
            expected = attention(*(x.double().numpy() for x in tensors))
            self.close(out.double().numpy(), expected[0], TOLERANCES[like])
            self.assertIn("--dtype " + WORDS[like], polyhead.explain(*tensors))


class Mixed(Case):
    def test_types_that_differ_are_converted_to_floats(self):
        """They are as exact as float32, which 16-bit kernels are not: an out of float32 gets what was never rounded."""
        half, brain = ([x.astype(dtype) for x in (QUERY, KEY, VALUE)] for dtype in (F16, BF16))
        for q, k, v in ((half[0], KEY, VALUE), (half[0], brain[1], brain[2]), (brain[0], brain[1], half[2]), (QUERY.astype(np.float64), brain[1], brain[2]),
                        half, brain):
            out = np.empty((B, H, T_Q, D_V), np.float32)
            polyhead.sdpa(q, k, v, out=out)
            self.close(out, attention(q, k, v)[0], 1e-5)
            self.assertEqual(polyhead.sdpa(q, k, v).dtype, q.dtype)

    def test_kernel_objects_have_one_type(self):
        for dtype, tolerance in TOLERANCES.items():
            kernel = polyhead.compile("sdpa", num_heads=H, num_kv_heads=H_KV, head_dim=D, head_dim_v=D_V, seq_len_q=T_Q, dtype=WORDS[dtype], lse=True)
            self.assertEqual(kernel.problem["dtype"], NUMBERS[dtype])
            self.assertIn("--dtype " + WORDS[dtype], repr(kernel))
            q, k, v = (x.astype(dtype) for x in (QUERY, KEY, VALUE))
            out, lse = kernel(query=q, key=k, value=v)
            self.assertEqual((out.dtype, lse.dtype), (dtype, np.float32))
            self.close(out, attention(q, k, v)[0], tolerance)
            converted, _ = kernel(query=QUERY, key=k, value=VALUE)  # rounded to the type of the kernel
            self.assertEqual(converted.dtype, np.float32)
            self.assertEqual(converted.astype(dtype).tobytes(), out.tobytes())
            self.refused(polyhead.Code.WRONG_DTYPE, "key: dtype i32, expected " + WORDS[dtype], lambda: kernel(query=q, key=k.astype(np.int32), value=v))

    def test_refusals(self):
        code = polyhead.Code
        for dtype in TOLERANCES:
            q, k, v = (x.astype(dtype) for x in (QUERY, KEY, VALUE))
            self.refused(code.WRONG_DTYPE, "key: dtype i32, expected f32", lambda: polyhead.sdpa(q, k.astype(np.int32), v))
            self.refused(code.WRONG_DTYPE, "past_key: dtype float32, expected " + dtype.name, lambda: polyhead.sdpa(q, k, v, past_key=KEY, past_value=v))
            self.refused(code.WRONG_SHAPE, "value", lambda: polyhead.sdpa(q, k, v[:, :, 1:]))
            with self.assertRaises(TypeError):
                polyhead.sdpa(q, k, v, out=7)

    def test_outputs_have_memory_of_their_own(self):
        """In kernels of this type and where it is converted; nothing is written."""
        for dtype in TOLERANCES:
            x = random(6, 1, 2, 9, D).astype(dtype)
            before, floats = x.copy(), x.astype(np.float32)
            for q, k, v, out in ((x, x, x, x), (x, floats, floats, x), (x[:, :, :5], x, x, x[:, :, 4:]), (floats, x, floats, x)):
                self.refused(polyhead.Code.ALIASED, "out: shares memory with", lambda: polyhead.sdpa(q, k, v, out=out))
            self.assertEqual(x.tobytes(), before.tobytes())


class Layers(Case):
    def made(self, seed=1, **options):
        module, state = polyhead.MultiheadAttention(48, 4, **options), state_dict(seed, 48, 4)
        module.load_state_dict(state)
        return module, state

    def called(self, module, *args):
        """out, weights and the dtype of the kernel that ran."""
        with unittest.mock.patch.object(polyhead.layer, "kernel_of", side_effect=polyhead.kernel.kernel_of) as kernels:
            out, weights = module(*args, need_weights=True)
        return out, weights, kernels.call_args[0][0]["dtype"]

    def test_the_type_of_the_inputs(self):
        module, state = self.made()
        for dtype, tolerance in TOLERANCES.items():
            x = random(2, B, 7, 48).astype(dtype)
            expected, expected_weights = layer({name: tensor.astype(dtype) for name, tensor in state.items()}, 4, x)
            out, weights, number = self.called(module, x)
            self.assertEqual((out.dtype, weights.dtype, number), (dtype, np.float32, NUMBERS[dtype]))
            self.close(out, expected, tolerance)
            self.close(weights, expected_weights.mean(1), tolerance)
        y = random(4, B, 7, 48)
        for q, k in ((y, y), (y, x), (x, y)):  # the last is bfloat16
            out, _, number = self.called(module, q, k, k)
            self.assertEqual((out.dtype, number), (q.dtype, 0))
            self.close(out, layer(state, 4, q, k)[0], 1e-5 if q.dtype == np.float32 else TOLERANCES[BF16])

    def test_the_type_of_the_layer(self):
        for dtype, word in WORDS.items():
            (module, state), (free, _) = self.made(dtype=word), self.made()
            floats = random(5, B, 7, 48)
            x = floats.astype(dtype)
            out, _, number = self.called(module, x)
            self.assertEqual((out.dtype, number), (dtype, NUMBERS[dtype]))
            self.assertEqual(out.tobytes(), self.called(free, x)[0].tobytes())
            out_of_floats, _, number = self.called(module, floats)
            self.assertEqual((out_of_floats.dtype, number), (np.float32, NUMBERS[dtype]))
            self.assertEqual(out_of_floats.astype(dtype).tobytes(), out.tobytes())
            rounded, _ = self.made(dtype=word)
            rounded.load_state_dict({name: tensor if "bias" in name else tensor.astype(dtype) for name, tensor in state.items()})
            self.assertEqual(self.called(rounded, x)[0].tobytes(), out.tobytes())
            self.assertEqual(self.called(self.made(dtype="f32")[0], x)[2], 0)
            rounded.load_state_dict({name: tensor.astype(dtype) for name, tensor in state.items()})
            self.assertNotEqual(self.called(rounded, x)[0].tobytes(), out.tobytes())  # biases are not rounded by packing
        for wrong in ("bfloat16", np.float16, 2):
            self.refused(polyhead.Code.BAD_VALUE, "dtype: found", lambda: polyhead.MultiheadAttention(48, 4, dtype=wrong))

    def test_weights_of_floats(self):
        """Of 16-bit kernels with f32 weights: no bit of a weight or a bias is lost before the sum is rounded."""
        weights, bias = random(8, 9, 16), random(9, 9)
        for dtype, word in WORDS.items():
            kernel = polyhead.compile("linear", embed_dim=16, out_features=9, bias=True, dtype=word, f32_weights=True)
            rows = np.concatenate((np.eye(16), random(10, 5, 16))).astype(dtype)
            expected = rows.astype(np.float64) @ weights.astype(np.float64).T + bias
            out = kernel(input=rows, weights=kernel.pack(out_proj=weights, out_bias=bias))
            self.assertEqual(out[:16].tobytes(), (weights.T + bias).astype(dtype).tobytes())
            self.close(out, expected, TOLERANCES[dtype] / 4)

    def test_weights_are_rounded_once_to_nearest_even(self):
        """Rows of the identity give the packed weights back."""
        rows = np.eye(16, dtype=np.float32)
        for dtype, low in ((F16, 13), (BF16, 16)):
            near = random(7, 9, 16).view(np.uint32)
            middle = near >> low << low | 1 << (low - 1)  # between two, the one below even or odd
            weights = np.concatenate((near, middle)).view(np.float32)
            kernel = polyhead.compile("linear", embed_dim=16, out_features=len(weights), dtype=WORDS[dtype])
            out = kernel(input=rows.astype(dtype), weights=kernel.pack(out_proj=weights))
            self.assertEqual(out.T.tobytes(), weights.astype(dtype).tobytes())

    def test_amx(self):
        """The module has the stages that such a kernel calls. Where the CPU lacks AMX, the call says so."""
        target = "x86-64-linux-avx512_sapphirerapids-avx512_cannonlake-avx512_skylake-avx512-avx2-avx-fma-f16c-sse41"
        kernel = polyhead.compile("linear", embed_dim=40, out_features=24, dtype="bf16", tiling="amx=1", target=target)
        rows, weights = random(1, 21, 40).astype(BF16), random(2, 24, 40).astype(BF16)
        packed = kernel.pack(out_proj=weights)
        try:
            out = kernel(input=rows, weights=packed)
        except polyhead.Error as error:
            self.assertEqual(error.code, polyhead.Code.UNSUPPORTED)
            self.assertRegex(str(error), "needs .*amx")
        else:
            self.close(out, rows.astype(np.float64) @ weights.astype(np.float64).T, TOLERANCES[BF16])


load_tests = sampled_cases(__file__, 5)

if __name__ == "__main__":
    unittest.main()
