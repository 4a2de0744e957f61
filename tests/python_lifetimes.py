"""Devices, arrays, weights and kernels that go in every order, also at the end of the interpreter, on POLYHEAD_TEST_DEVICE."""
import ctypes
import gc
import itertools
import json
import os
import subprocess
import sys
import threading
import time
import unittest

import numpy as np

import polyhead
from polyhead.kernel import target_of
from tier import sampled_cases

DEVICE = os.environ.get("POLYHEAD_TEST_DEVICE", "")
WIDTH, ROWS = 32, 4
KINDS = ("device", "arrays", "weights", "kernel")


def linear(device):
    kernel = polyhead.compile("linear", embed_dim=WIDTH, out_features=WIDTH, target=target_of(device))
    return kernel, kernel.pack(out_proj=np.eye(WIDTH, dtype=np.float32), device=device)


def one_call():
    """A call on the device, and everything that it used by kind. Only the dict keeps these."""
    device = polyhead.Device(DEVICE)
    kernel, weights = linear(device)
    rows = np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)
    arrays = [device.put(rows), device.empty(rows.shape)]
    kernel(input=arrays[0], weights=weights, out=arrays[1])
    if not np.array_equal(arrays[1].numpy(), rows):
        raise AssertionError("the identity changed its input")
    return {"device": device, "arrays": arrays, "weights": weights, "kernel": kernel}


def turns_while_waiting():
    """How often another thread had its turn while one waited for the device, by what waited."""
    device = polyhead.Device(DEVICE)
    host = np.zeros(8, np.float32)
    array, turns, stop = device.put(host), [0], []

    def take_turns():
        while not stop:
            turns[0] += 1
            time.sleep(0.001)

    counted = {}
    other = threading.Thread(target=take_turns)
    other.start()
    for name, wait in (("numpy", array.numpy), ("put", lambda: device.put(host)), ("__dlpack__", array.__dlpack__)):
        before = turns[0]
        wait()
        counted[name] = turns[0] - before
    stop.append(True)
    other.join()
    return counted


def in_a_process(lines, **environment):
    """Runs lines of Python in a process of its own, whose end counts as well; returns what it printed."""
    path = os.pathsep.join((os.path.dirname(os.path.abspath(__file__)), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, timeout=300, check=False,
                          env={**os.environ, "PYTHONPATH": path, **environment})
    if done.returncode != 0:
        raise AssertionError("ended with %d: %s%s" % (done.returncode, done.stdout[-2000:], done.stderr[-2000:]))
    return done.stdout


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


def type_in(capsule):
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = DLTensor.from_address(pointer(capsule, b"dltensor"))
    return tensor.code, tensor.bits, tensor.lanes


class OnDevice(unittest.TestCase):
    def test_every_order(self):
        for order in itertools.permutations(KINDS):
            with self.subTest(order):
                held = one_call()
                held["kernel"](input=held["arrays"][0], weights=held["weights"], out=held["arrays"][1])  # may still run on the device
                for kind in order:
                    del held[kind]
                    if kind == "kernel":
                        polyhead.clear_cache()  # which would keep it
                    gc.collect()

    def test_the_end_of_the_interpreter(self):
        """Left in a module that goes early, in one that goes last, in a cycle, to another thread, to what runs at the end."""
        for line in ("vars(python_lifetimes).update(held)", "vars(sys).update(held)", "cycle = [held]; cycle.append(cycle)",
                     "threading.Thread(target=lambda held: time.sleep(1e6), args=(held,), daemon=True).start()",
                     "atexit.register(held.clear)", "atexit.register(polyhead.clear_cache); vars(sys).update(held)"):
            with self.subTest(line):
                in_a_process("import atexit, sys, threading, time, polyhead, python_lifetimes\nheld = python_lifetimes.one_call()\n" + line)

    def test_a_call_keeps_its_weights(self):
        """Code that runs during an allocation may change the arguments."""
        device = polyhead.Device(DEVICE)
        kernel, weights = linear(device)
        rows, out = np.ones((ROWS, WIDTH), np.float32), np.zeros((ROWS, WIDTH), np.float32)
        arguments = {"weights": weights, "input": rows}
        del weights

        class Taker:
            shape, dtype = out.shape, out.dtype

            def __dlpack__(self, **options):
                arguments.pop("weights")
                gc.collect()
                return out.__dlpack__(**options)

            def __dlpack_device__(self):
                return out.__dlpack_device__()

        arguments["out"] = Taker()
        kernel._core.run(arguments, device)
        np.testing.assert_array_equal(out, rows)

    def test_shapes_that_no_array_has(self):
        device = polyhead.Device(DEVICE)
        for shape, dtype in (([2 ** 62 + 1], "float32"), ([2 ** 32, 2 ** 31], "float32"), ([2 ** 60, 8], "int8"), ([2 ** 60], "float64"),
                             ([-1], "float32"), ([0, 2 ** 62], "float32"), ([-2, -2], "float32")):
            with self.subTest(shape), self.assertRaises(polyhead.Error) as caught:
                device.empty(shape, dtype)
            self.assertEqual(caught.exception.code, polyhead.Code.WRONG_SHAPE)
            self.assertIn("in dimension", str(caught.exception))
        self.assertEqual(device.empty([3, 0, 5]).numpy().shape, (3, 0, 5))


    def test_code_leaves_the_device(self):
        """On the CUDA driver of the tests, which counts modules; the device stays open."""
        if not DEVICE.startswith("cuda"):
            self.skipTest("only the tests' CUDA driver counts modules")
        modules = ctypes.CDLL("libcuda.so.1").polyhead_cuda_driver_modules
        modules.restype = ctypes.c_uint64
        before, device = modules(), polyhead.Device(DEVICE)
        rows = np.ones((ROWS, WIDTH), np.float32)
        for _ in range(3):
            kernel, weights = linear(device)
            np.testing.assert_array_equal(kernel(input=rows, weights=weights, device=device), rows)
            self.assertGreater(modules(), before)
            del kernel
            polyhead.clear_cache()
            self.assertEqual(modules(), before)


@unittest.skipUnless(DEVICE.startswith("cuda"), "the tests' CUDA driver can be told to be slow, and CUDA alone has DLPack")
class OnCuda(unittest.TestCase):
    def test_others_run_while_one_waits(self):
        counted = in_a_process("import json, python_lifetimes; print(json.dumps(python_lifetimes.turns_while_waiting()))",
                               POLYHEAD_CUDA_DRIVER_WAIT="1000")
        for name, turns in json.loads(counted).items():
            self.assertGreater(turns, 2, name + " waits with the interpreter's lock")  # there may be one more before and one after

    def test_types_of_dlpack(self):
        device = polyhead.Device(DEVICE)
        for name, code, bits in (("float32", 2, 32), ("float16", 2, 16), ("float64", 2, 64), ("bfloat16", 4, 16), ("bool", 6, 8),
                                 ("int32", 0, 32), ("int64", 0, 64), ("int8", 0, 8)):
            self.assertEqual(type_in(device.empty([2, 3], name).__dlpack__()), (code, bits, 1), name)


load_tests = sampled_cases(__file__, 4)

if __name__ == "__main__":
    if not DEVICE:
        sys.exit(print("NOT RUN: the whole test: POLYHEAD_TEST_DEVICE is not set, expected cuda or opencl"))
    unittest.main()
