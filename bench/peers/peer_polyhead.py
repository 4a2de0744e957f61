"""polyhead as a peer of an attention bench: kernels generated for each case, called through the C ABI by ctypes.

    PEERS = {peer: {kind: dtypes}};  make(peer, case, dtype, data, threads) -> run, fetch

run() computes into a preallocated array, fetch() returns it. `case` is a dict: kind "sdpa" (B H Hkv Tq Tkv d causal pad) or "layer"
(B T D H); data are numpy arrays in the layout of nn.Linear and [B,H,T,d]. A kernel is built for exactly the case's problem with free
lengths, by the project's own polyhead-generate, and kept in build/peers/. POLYHEAD_BUILD names another build folder.
"""

import ctypes
import os
import pathlib
import subprocess

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = {"polyhead": {"sdpa": ["f32"], "layer": ["f32"]}}
SDPA, MHA = 0, 1  # polyhead_op
DTYPES = {np.dtype(np.float32): 0, np.dtype(np.int32): 4}  # polyhead_dtype


class Status(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int32), ("message", ctypes.c_char * 252)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("shape", ctypes.c_int64 * 6), ("stride", ctypes.c_int64 * 6),
                ("device", ctypes.c_void_p), ("offset", ctypes.c_int64)]  # fmt: skip


class Weights(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("layout", ctypes.c_uint32),
                ("panel", ctypes.c_int32), ("dtype", ctypes.c_int32), ("device", ctypes.c_void_p)]  # fmt: skip


class WeightTensors(ctypes.Structure):
    _fields_ = [(name, Tensor) for name in ("in_proj", "in_bias", "query", "key", "value", "query_bias", "key_bias", "value_bias",
                                            "out_proj", "out_bias")]  # fmt: skip


class Args(ctypes.Structure):
    _fields_ = [("op", ctypes.c_int32), ("query", Tensor), ("key", Tensor), ("value", Tensor), ("weights", ctypes.POINTER(Weights)),
                ("kv_lengths", Tensor), ("out", Tensor), ("lse", Tensor), ("has_softmax_scale", ctypes.c_int32),
                ("softmax_scale", ctypes.c_float), ("alignment", ctypes.c_int32), ("device", ctypes.c_void_p)]  # fmt: skip


def tensor(array):
    """The array's own memory as a polyhead_tensor; the caller keeps the array alive."""
    view = Tensor(array.ctypes.data, DTYPES[array.dtype], array.ndim)
    view.shape[: array.ndim] = array.shape
    view.stride[: array.ndim] = [stride // array.itemsize for stride in array.strides]
    return view


def check(status):
    if status.code:
        raise RuntimeError(status.message.decode())


def built(name):
    """The newest file of this name in a build folder."""
    folder = pathlib.Path(os.environ.get("POLYHEAD_BUILD", ROOT / "build"))
    found = [path for path in folder.rglob(name) if path.is_file()]
    if not found:
        raise FileNotFoundError(f"{folder} holds no {name}; build the project first")
    return max(found, key=lambda path: path.stat().st_mtime)


def library(name, flags, archives=("libpolyhead.a",)):
    """A shared library with one kernel and polyhead's runtime, generated when it is missing or older than generator and runtime."""
    generator, runtimes = built("polyhead-generate"), [built(archive) for archive in archives]
    folder = ROOT / "build" / "peers"
    folder.mkdir(parents=True, exist_ok=True)
    shared = folder / f"{name}.so"
    if not shared.exists() or shared.stat().st_mtime < max(path.stat().st_mtime for path in [generator, *runtimes]):
        subprocess.run([generator, name, *flags, "-o", folder], check=True, stdout=subprocess.DEVNULL)
        source = folder / f"{name}.c"
        source.write_text(f"#include <{name}.h>\nconst polyhead_kernel *peer_kernel(void) {{ return &{name}; }}\n")
        subprocess.run(["gcc", "-O2", "-fPIC", "-c", source, "-o", f"{shared}.o", "-I", folder, "-I", ROOT / "runtime" / "include"], check=True)
        # The whole runtime, so that every function of the C ABI is there; written beside and moved, because benches run in parallel.
        part = f"{shared}.{os.getpid()}"
        subprocess.run(["g++", "-shared", "-o", part, f"{shared}.o", folder / f"{name}.a", "-Wl,--whole-archive", *runtimes,
                        "-Wl,--no-whole-archive", "-lpthread", "-ldl"], check=True)  # fmt: skip
        os.replace(part, shared)
    return load(shared)


def load(shared):
    """The C ABI of such a library."""
    lib = ctypes.CDLL(str(shared))
    lib.peer_kernel.restype = ctypes.c_void_p
    lib.polyhead_run.argtypes = [ctypes.c_void_p, ctypes.POINTER(Args)]
    lib.polyhead_run.restype = Status
    lib.polyhead_weights_bytes.argtypes = [ctypes.c_void_p]
    lib.polyhead_weights_bytes.restype = ctypes.c_size_t
    lib.polyhead_pack.argtypes = [ctypes.c_void_p, ctypes.POINTER(WeightTensors), ctypes.c_void_p, ctypes.POINTER(Weights)]
    lib.polyhead_pack.restype = Status
    lib.polyhead_set_num_threads.argtypes = [ctypes.c_int32]
    lib.polyhead_set_num_threads.restype = None
    return lib


def pack(lib, kernel, wqkv, bqkv, wo, bo):
    """Packed weights, and the arrays that hold them."""
    size = lib.polyhead_weights_bytes(kernel)
    memory = np.empty(size + 64, np.uint8)
    aligned = memory[-memory.ctypes.data % 64 :]
    tensors = WeightTensors(in_proj=tensor(wqkv), in_bias=tensor(bqkv), out_proj=tensor(wo), out_bias=tensor(bo))
    weights = Weights()
    check(lib.polyhead_pack(kernel, ctypes.byref(tensors), aligned.ctypes.data, ctypes.byref(weights)))
    return weights, memory


def make_sdpa(case, data):
    q, k, v = (np.ascontiguousarray(array, np.float32) for array in data)
    flags = ["--op", "sdpa", "--num-heads", case["H"], "--num-kv-heads", case["Hkv"], "--head-dim", case["d"]]
    name = f"peer_sdpa_h{case['H']}_kv{case['Hkv']}_d{case['d']}"
    if case["causal"]:
        flags += ["--causal", "top_left"]
        name += "_causal"
    if case["pad"]:
        flags += ["--kv-lengths"]
        name += "_lengths"
    lib = library(name, map(str, flags))
    out = np.empty((case["B"], case["H"], case["Tq"], case["d"]), np.float32)
    args = Args(op=SDPA, query=tensor(q), key=tensor(k), value=tensor(v), out=tensor(out))
    keep = [q, k, v]
    if case["pad"]:
        keep.append(np.full(case["B"], case["Tkv"] - case["pad"], np.int32))
        args.kv_lengths = tensor(keep[-1])
    return lib, args, out, keep


def make_layer(case, data):
    x, wqkv, bqkv, wo, bo = (np.ascontiguousarray(array, np.float32) for array in data)
    flags = ["--op", "mha", "--embed-dim", case["D"], "--num-heads", case["H"], "--bias"]
    lib = library(f"peer_layer_d{case['D']}_h{case['H']}", map(str, flags))
    weights, memory = pack(lib, lib.peer_kernel(), wqkv, bqkv, wo, bo)
    out = np.empty_like(x)
    args = Args(op=MHA, query=tensor(x), out=tensor(out), weights=ctypes.pointer(weights))
    return lib, args, out, [x, weights, memory]


def make(peer, case, dtype, data, threads):
    makers = {"sdpa": make_sdpa, "layer": make_layer}
    if dtype != "f32" or case["kind"] not in makers:
        raise NotImplementedError(f"{case['kind']} in {dtype}")
    lib, args, out, keep = makers[case["kind"]](case, data)
    lib.polyhead_set_num_threads(threads)
    kernel, arguments, call = lib.peer_kernel(), ctypes.byref(args), lib.polyhead_run

    def run(keep=(keep, args)):
        status = call(kernel, arguments)
        if status.code:
            check(status)

    run()
    return run, lambda: out
