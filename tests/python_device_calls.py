"""What a warm call from Python asks of the CUDA driver of the tests and takes of the host, tensors of PyTorch by a stand-in, and CUDA graphs."""
import ctypes
import gc
import json
import os
import sys
import time
import types
import unittest

import ml_dtypes
import numpy as np

import polyhead
from python_inputs import random, state_dict
from polyhead.kernel import kernel_of, target_of
from polyhead.reference import attention, visible

DEVICE = os.environ.get("POLYHEAD_TEST_DEVICE", "")
QUERY, KEY, VALUE = random(1, 1, 2, 4, 16), random(2, 1, 2, 5, 16), random(3, 1, 2, 5, 16)
EXPECTED = attention(QUERY, KEY, VALUE, visible(4, 5))[0]


class Driver:
    """The driver of the tests, which counts."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        for name in ("calls", "allocations", "memory_in_use"):
            getattr(self.library, "polyhead_cuda_driver_" + name).restype = ctypes.c_uint64

    def calls(self, call):
        """(launches, other calls of the driver) of a call."""
        before = self._counts()
        call()
        launches, all_calls = (after - first for after, first in zip(self._counts(), before))
        return launches, all_calls - launches

    def calls_when_gone(self, name, objects):
        """How often this function is called when the objects of a list go."""
        before = self.library.polyhead_cuda_driver_calls(name)
        objects.clear()
        gc.collect()
        return self.library.polyhead_cuda_driver_calls(name) - before

    def _counts(self):
        return [self.library.polyhead_cuda_driver_calls(name) for name in (b"cuLaunchKernel", b"")]

    def check(self, result):
        if result != 0:
            raise AssertionError("the driver returned %d" % result)


class Tensor:
    """A tensor of PyTorch as far as the package asks: memory of a device by its address. It has no DLPack."""

    is_cuda = True

    def __init__(self, array, requires_grad=False, negative=False, sparse=False, index=0):
        self.array, self.shape, self.requires_grad, self._negative, self._sparse = array, tuple(array.shape), requires_grad, negative, sparse
        self.dtype, self.device = getattr(sys.modules["torch"], array.dtype), types.SimpleNamespace(index=index)

    def get_device(self):
        return self.device.index

    def is_neg(self):
        return self._negative

    def stride(self):
        return tuple(int(np.prod(self.shape[i + 1:])) for i in range(len(self.shape)))

    def data_ptr(self):
        if self._sparse:
            raise RuntimeError("no storage")
        return address_of(self.array)


def address_of(array):
    """The address of an array of a device, out of its DLPack."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    capsule = array.__dlpack__()  # it frees what the address is read from
    return ctypes.c_uint64.from_address(get(capsule, b"dltensor")).value


class Dtype:
    def __init__(self, name):
        self.name = name

    def __str__(self):
        return "torch." + self.name


class Torch:
    """Stands for PyTorch while this object is entered."""

    def __init__(self, device):
        self.made, self.module = [], types.ModuleType("torch")
        self.module.Tensor = Tensor
        for name in ("float32", "float16", "bfloat16"):
            setattr(self.module, name, Dtype(name))
        self.module._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda index: device.stream)
        self.module.is_grad_enabled = lambda: True

        def empty(shape, dtype, device):
            self.made.append(Tensor(polyhead.Device(DEVICE).empty(shape, dtype.name)))
            return self.made[-1]

        self.module.empty = empty

    def __enter__(self):
        sys.modules["torch"] = self.module
        return self

    def __exit__(self, *_):
        del sys.modules["torch"]


def least_time(call, rounds=25, calls=100):
    """Seconds of one call, the least of several rounds."""
    least = 1.0
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        least = min(least, (time.perf_counter() - begin) / calls)
    return least


class WarmCalls(unittest.TestCase):
    def setUp(self):
        self.driver, self.device = Driver(), polyhead.Device(DEVICE)
        gc.collect()
        gc.disable()  # arrays that go in the middle of a call would count

    def tearDown(self):
        gc.enable()
        self.driver.library.polyhead_cuda_driver_execute(1)

    def doors(self):
        """(name, a call on the CPU, the same on the device) for every way to call."""
        there = [self.device.put(x) for x in (QUERY, KEY, VALUE)]
        out, out_there = np.empty_like(QUERY), self.device.empty(QUERY.shape)
        yield "sdpa", lambda: polyhead.sdpa(QUERY, KEY, VALUE, out=out), lambda: polyhead.sdpa(*there, out=out_there)
        yield "sdpa without out", lambda: polyhead.sdpa(QUERY, KEY, VALUE), lambda: polyhead.sdpa(*there)
        yield "sdpa with options", (lambda: polyhead.sdpa(QUERY, KEY, VALUE, out=out, scale=0.5)), (
            lambda: polyhead.sdpa(*there, out=out_there, scale=0.5))
        problem = {"num_heads": 2, "head_dim": 16}
        here, on_device = polyhead.compile("sdpa", **problem), polyhead.compile("sdpa", **problem, target=target_of(self.device))
        words = ("query", "key", "value")
        arrays, arrays_there = dict(zip(words, (QUERY, KEY, VALUE)), out=out), dict(zip(words, there), out=out_there)
        yield "Kernel", lambda: here(**arrays), lambda: on_device(**arrays_there)
        plan, plan_there = here.plan(**arrays), on_device.plan(**arrays_there)
        yield "Plan", lambda: plan(**arrays), lambda: plan_there(**arrays_there)
        sizes = {"embed_dim": 16, "out_features": 16, "no_bias": True}
        linear, linear_there = polyhead.compile("linear", **sizes), polyhead.compile("linear", **sizes, target=target_of(self.device))
        weight, rows, result = random(4, 16, 16), random(5, 4, 16), np.empty((4, 16), np.float32)
        weights, weights_there = linear.pack(out_proj=weight), linear_there.pack(out_proj=weight, device=self.device)
        rows_there, result_there = self.device.put(rows), self.device.empty((4, 16))
        yield "linear", lambda: linear(input=rows, weights=weights, out=result), lambda: linear_there(input=rows_there, weights=weights_there, out=result_there)
        sizes = {"embed_dim": 32, "num_heads": 2}
        layer, layer_there = polyhead.compile("mha", **sizes), polyhead.compile("mha", **sizes, target=target_of(self.device))
        state = state_dict(6, 32, 2)
        packed = {"in_proj": state["in_proj_weight"], "out_proj": state["out_proj.weight"]}
        weights_of, weights_of_there = layer.pack(**packed), layer_there.pack(**packed, device=self.device)
        x, y = random(7, 1, 4, 32), np.empty((1, 4, 32), np.float32)
        x_there, y_there = self.device.put(x), self.device.empty((1, 4, 32))
        yield "mha", lambda: layer(query=x, weights=weights_of, out=y), lambda: layer_there(query=x_there, weights=weights_of_there, out=y_there)

    def test_every_door(self):
        for name, here, there in self.doors():
            with self.subTest(name):
                for _ in range(2):
                    here()
                    there()
                self.driver.library.polyhead_cuda_driver_execute(0)
                launches, others = self.driver.calls(there)
                self.assertGreaterEqual(launches, 1)
                self.assertEqual(others, 2)
                cpu, device = least_time(here), least_time(there)
                print("%s: %.1f us on the CPU, %.1f us on the device, %d launches" % (name, 1e6 * cpu, 1e6 * device, launches))
                self.assertLessEqual(device, 4 * cpu)
                self.driver.library.polyhead_cuda_driver_execute(1)

    def test_outputs_are_used_again(self):
        """The memory of an output that is no more serves the next one of its size, but not while somebody may use it."""
        there = [self.device.put(x) for x in (QUERY, KEY, VALUE)]
        out = [polyhead.sdpa(*there) for _ in range(4)][2:]  # from the second call on the form is known
        allocations = self.driver.library.polyhead_cuda_driver_allocations()
        for _ in range(5):
            out[0] = polyhead.sdpa(*there)
            del out[1]
            out.append(polyhead.sdpa(*there))
            for one in out:
                np.testing.assert_allclose(one.numpy(), EXPECTED, rtol=1e-5, atol=1e-5)
        self.assertLessEqual(self.driver.library.polyhead_cuda_driver_allocations(), allocations + 1)  # while the old one is alive
        self.assertNotEqual(address_of(out[0]), address_of(out[1]))

    def test_outputs_that_others_know_are_freed(self):
        there = [self.device.put(x) for x in (QUERY, KEY, VALUE)]
        for _ in range(2):
            polyhead.sdpa(*there)

        def freed(use):
            out = [polyhead.sdpa(*there)]
            use(out[0])
            return self.driver.calls_when_gone(b"cuMemFree", out)

        def of_another_device(out):
            polyhead.sdpa(other.put(QUERY), out, other.put(VALUE[:, :, :4].copy()), out=other.empty(QUERY.shape))

        other = polyhead.Device(DEVICE)
        self.assertEqual(freed(lambda out: None), 0)
        self.assertEqual(freed(address_of), 1)
        self.assertEqual(freed(of_another_device), 1)

    def test_memory_of_outputs_goes_with_the_device(self):
        gc.collect()
        device = polyhead.Device(DEVICE)
        there = [device.put(x) for x in (QUERY, KEY, VALUE)]
        for _ in range(3):
            polyhead.sdpa(*there)
        before = self.driver.library.polyhead_cuda_driver_memory_in_use()
        del there, device
        self.assertLess(self.driver.library.polyhead_cuda_driver_memory_in_use(), before - 3 * QUERY.nbytes)

    def test_plain_calls_of_a_device(self):
        """Each type and form, with and without out, also after others: of a device that was closed there is nothing left."""
        for _ in range(3):
            device = polyhead.Device(DEVICE)
            for dtype, tolerance in ((np.float32, 1e-5), (np.float16, 3e-3), (ml_dtypes.bfloat16, 3e-2)):
                there = [device.put(x.astype(dtype)) for x in (QUERY, KEY, VALUE)]
                out = device.empty(QUERY.shape, np.dtype(dtype).name)
                for found in (polyhead.sdpa(*there), polyhead.sdpa(*there), polyhead.sdpa(*there, out=out), polyhead.sdpa(*there, out=out)):
                    np.testing.assert_allclose(found.numpy().astype(np.float64), EXPECTED, rtol=tolerance, atol=tolerance)
            del device
        there = [self.device.put(x) for x in (QUERY, KEY, VALUE)]
        for _ in range(2):
            polyhead.sdpa(*there)
        with self.assertRaises(polyhead.Error) as caught:  # refused as before the form was known
            polyhead.sdpa(there[0], there[1], VALUE, out=np.empty((1, 2, 4, 17), np.float32))
        self.assertEqual(caught.exception.code, polyhead.Code.WRONG_SHAPE)
        shorter = self.device.put(KEY[:, :, :3].copy())
        with self.assertRaises(polyhead.Error) as caught:
            polyhead.sdpa(there[0], shorter, there[2])
        self.assertEqual(caught.exception.code, polyhead.Code.WRONG_SHAPE)

    def test_tensors_of_pytorch(self):
        with Torch(self.device) as torch:
            for dtype, tolerance in ((np.float32, 1e-5), (np.float16, 3e-3)):
                there = [self.device.put(x.astype(dtype)) for x in (QUERY, KEY, VALUE)]
                name = np.dtype(dtype).name
                tensors, out = [Tensor(x) for x in there], self.device.empty(QUERY.shape, name)
                kernel = polyhead.compile("sdpa", num_heads=2, head_dim=16, target=target_of(self.device), dtype="f" + name[-2:])
                for words in ({}, {"out": Tensor(out)}):
                    for _ in range(3):
                        result = self._sdpa_of_tensors(kernel, tensors, words)
                        np.testing.assert_allclose(result.array.numpy().astype(np.float64), EXPECTED, rtol=tolerance, atol=tolerance)
            self.assertTrue(torch.made)

    def _sdpa_of_tensors(self, kernel, tensors, words):
        """sdpa() of tensors; the form is made known by arrays, as the stand-in has no DLPack."""
        arrays = [tensor.array for tensor in tensors]
        out = words["out"].array if words else polyhead.sdpa(*arrays)
        device = polyhead._arrays.device_of(tensors[0])
        polyhead._core.keep_plain(kernel._core, *arrays, False, out, bool(words), device)
        result = polyhead.sdpa(*tensors, **words)
        self.assertIsInstance(result, Tensor)
        return result

    def test_tensors_of_pytorch_that_are_read_otherwise(self):
        """They have no DLPack here, so the sentence about that says that the short way was not taken."""
        arrays = [self.device.put(x) for x in (QUERY, KEY, VALUE)]
        with Torch(self.device):
            device = polyhead._arrays.device_of(Tensor(arrays[0]))
            kernel = polyhead.compile("sdpa", num_heads=2, head_dim=16, target=target_of(self.device))
            polyhead._core.keep_plain(kernel._core, *arrays, False, self.device.empty(QUERY.shape), False, device)
            good = [Tensor(x) for x in arrays]
            self.assertIsNotNone(polyhead._core.plain_call(*good, False, None, device))
            derived = type("Derived", (Tensor,), {})
            for wrong in (Tensor(arrays[1], requires_grad=True), Tensor(arrays[1], negative=True), Tensor(arrays[1], sparse=True),
                          Tensor(arrays[1], index=1), derived(arrays[1])):
                self.assertIsNone(polyhead._core.plain_call(good[0], wrong, good[2], False, None, device))
            with self.assertRaises(TypeError) as caught:
                polyhead.sdpa(Tensor(arrays[0], requires_grad=True), *good[1:])
            self.assertIn("query: found a tensor that requires gradients", str(caught.exception))


class Targets(unittest.TestCase):
    def test_of_capabilities(self):
        for capability, expected in ((35, "35"), (75, "75"), (80, "80"), (86, "86"), (89, "86"), (90, "86-cuda_capability_90a"), (100, "86"), (120, "86")):
            self.assertEqual(target_of(types.SimpleNamespace(api="cuda", capability=capability)), "host-cuda-cuda_capability_" + expected)

    def test_a_device_gets_what_its_calls_can_reach(self):
        # On 9.0 group tiles take all that warp tiles would. Tensors whose rows do not begin at multiples of 16 bytes take thread rows.
        fields = {"op": polyhead.options.OPS["sdpa"], "dtype": polyhead._core.problem_fields["dtype"].index("f16"), "num_heads": 2, "head_dim": 16}
        for capability, expected in ((80, "warp_tiles"), (90, "group_tiles")):
            kernel = kernel_of(fields, types.SimpleNamespace(api="cuda", capability=capability), 64)
            self.assertEqual([variant["frame"] for variant in json.loads(kernel.manifest())["variants"]], [expected] * 2 + ["thread_rows"] * 2)


class Graphs(unittest.TestCase):
    def test_a_call_in_a_graph(self):
        driver = Driver()
        cuda = driver.library
        device = polyhead.Device(DEVICE)
        there = [device.put(x) for x in (QUERY, KEY, VALUE)]
        out = device.empty(QUERY.shape)
        polyhead.sdpa(*there, out=out)
        context, stream, graph, executable = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        driver.check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
        driver.check(cuda.cuCtxPushCurrent_v2(context))
        driver.check(cuda.cuStreamCreate(ctypes.byref(stream), 1))
        captured = polyhead.Device(DEVICE, stream.value)  # the first call on this stream: its context knows the kernel
        calls = {"causal": dict(is_causal=True), "plain": {}, "scaled": dict(scale=0.25)}
        for name, words in calls.items():
            expected = polyhead.sdpa(*there, **words).numpy()
            result = device.put(np.full(QUERY.shape, 7, np.float32))
            driver.check(cuda.cuStreamBeginCapture_v2(stream, 0))
            polyhead.sdpa(*there, out=result, device=captured, **words)
            driver.check(cuda.cuStreamEndCapture(stream, ctypes.byref(graph)))
            np.testing.assert_array_equal(result.numpy(), np.full(QUERY.shape, 7, np.float32), name)
            driver.check(cuda.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_ulonglong(0)))
            driver.check(cuda.cuGraphLaunch(executable, stream))
            np.testing.assert_array_equal(result.numpy(), expected, name)
            driver.check(cuda.cuGraphExecDestroy(executable))
            driver.check(cuda.cuGraphDestroy(graph))
        driver.check(cuda.cuStreamBeginCapture_v2(stream, 0))
        with self.assertRaises(polyhead.Error) as caught:
            polyhead.sdpa(QUERY, KEY, VALUE, device=captured)
        self.assertEqual(caught.exception.code, polyhead.Code.UNSUPPORTED)
        self.assertIn("is captured into a CUDA graph", str(caught.exception))
        driver.check(cuda.cuStreamEndCapture(stream, ctypes.byref(graph)))
        driver.check(cuda.cuCtxPopCurrent_v2(ctypes.byref(context)))


if __name__ == "__main__":
    if not DEVICE:
        sys.exit(print("NOT RUN: the whole test: POLYHEAD_TEST_DEVICE is not set, expected cuda, and the CUDA driver of the tests"))
    unittest.main()
