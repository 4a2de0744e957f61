"""polyhead's CUDA kernels against PyTorch on the same GPU, in the same run, in turns: f32 with TF32 off, and f16.

    .venv/bin/python bench/peers/torch_cuda.py --build-only     makes the libraries (no GPU, no PyTorch)
    python3 bench/peers/torch_cuda.py                           measures; needs PyTorch with CUDA, and numpy

Both work on tensors of PyTorch, on its context and its stream. A case is checked against float64 before it is timed.
"""

import argparse
import ctypes
import os
import pathlib
import re
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import peer_polyhead as peer  # noqa: E402

CUDA, F32, F16 = 1, 0, 1  # polyhead_api, polyhead_dtype
ARCHIVES = ("libpolyhead.a", "libpolyhead_gpu.a")
TARGET = ["--target", "x86-64-linux-cuda-cuda_capability_80"]
SLICE = 0.05  # seconds that calls of one side are repeated for, in each round


class DeviceOptions(ctypes.Structure):
    _fields_ = [("api", ctypes.c_int32), ("index", ctypes.c_int32), ("context", ctypes.c_void_p), ("stream", ctypes.c_void_p)]


def cases():
    """[(name, dict)]: the cases of the speed targets, and layers."""
    found = []
    for dtype in ("f32", "f16"):
        for d in (64, 128):
            for causal in (False, True):
                name = "sdpa_%s_b1_h16_t4096_d%d%s" % (dtype, d, "_causal" if causal else "")
                found.append((name, dict(kind="sdpa", dtype=dtype, B=1, H=16, T=4096, d=d, causal=causal)))
        for b, t, e, h in ((1, 512, 768, 12), (8, 512, 768, 12), (1, 4096, 1024, 16)):
            found.append(("layer_%s_b%d_t%d_d%d_h%d" % (dtype, b, t, e, h), dict(kind="layer", dtype=dtype, B=b, T=t, D=e, H=h)))
    return found


def kernel(case):
    """(name, flags) of the kernel that serves a case with free lengths."""
    if case["kind"] == "layer":
        name, flags = "d%d_h%d" % (case["D"], case["H"]), ["--op", "mha", "--embed-dim", case["D"], "--num-heads", case["H"], "--bias"]
    else:
        name, flags = "h%d_d%d" % (case["H"], case["d"]), ["--op", "sdpa", "--num-heads", case["H"], "--head-dim", case["d"]]
        if case["causal"]:
            name, flags = name + "_causal", flags + ["--causal", "top_left"]
    return "torch_cuda_%s_%s_%s" % (case["kind"], case["dtype"], name), [str(flag) for flag in flags + ["--dtype", case["dtype"]] + TARGET]


def flops(case):
    if case["kind"] == "sdpa":
        pairs = case["T"] * (case["T"] + 1) // 2 if case["causal"] else case["T"] ** 2
        return 4 * case["B"] * case["H"] * pairs * case["d"]
    return case["B"] * (8 * case["T"] * case["D"] ** 2 + 4 * case["T"] ** 2 * case["D"])


def library(case):
    """The library of a case; made when a generator is here, else the one that was brought along."""
    name, flags = kernel(case)
    prebuilt = peer.ROOT / "build" / "peers" / (name + ".so")
    try:
        lib = peer.library(name, flags, ARCHIVES)
    except FileNotFoundError:
        if not prebuilt.exists():
            raise
        lib = peer.load(prebuilt)
    return lib


def declare(lib):
    lib.polyhead_open_device.argtypes = [ctypes.POINTER(DeviceOptions), ctypes.POINTER(ctypes.c_void_p)]
    lib.polyhead_open_device.restype = peer.Status
    lib.polyhead_close_device.argtypes = [ctypes.c_void_p]
    lib.polyhead_close_device.restype = None
    lib.polyhead_weights_to_device.argtypes = [ctypes.c_void_p, ctypes.POINTER(peer.Weights), ctypes.POINTER(peer.Weights)]
    lib.polyhead_weights_to_device.restype = peer.Status


class Polyhead:
    """One kernel on PyTorch's device, context and stream."""

    def __init__(self, torch, case, inputs):
        self.lib, self.torch = library(case), torch
        declare(self.lib)
        self.kernel, self.device = self.lib.peer_kernel(), ctypes.c_void_p()
        options = DeviceOptions(CUDA, torch.cuda.current_device(), None, torch.cuda.current_stream().cuda_stream)
        peer.check(self.lib.polyhead_open_device(ctypes.byref(options), ctypes.byref(self.device)))
        self.args = peer.Args(device=self.device)
        self.keep = list(inputs)
        if case["kind"] == "sdpa":
            q, k, v = inputs
            self.args.op, self.args.key, self.args.value = peer.SDPA, self.tensor(k), self.tensor(v)
        else:
            q = inputs[0]
            self.args.op, self.args.weights = peer.MHA, ctypes.pointer(self.weights(inputs[1:]))
        self.out = torch.empty_like(q)
        self.args.query, self.args.out = self.tensor(q), self.tensor(self.out)

    def tensor(self, array):
        view = peer.Tensor(array.data_ptr(), {self.torch.float32: F32, self.torch.float16: F16}[array.dtype], array.dim())
        view.shape[: array.dim()], view.stride[: array.dim()] = tuple(array.shape), tuple(array.stride())
        view.device = None if array.device.type == "cpu" else self.device.value
        return view

    def weights(self, sources):
        """Packed on the host, then copied to the device."""
        host = [source.detach().cpu().contiguous() for source in sources]
        memory = self.torch.empty(self.lib.polyhead_weights_bytes(self.kernel) + 64, dtype=self.torch.uint8)
        wqkv, bqkv, wo, bo = (self.tensor(source) for source in host)
        tensors = peer.WeightTensors(in_proj=wqkv, in_bias=bqkv, out_proj=wo, out_bias=bo)
        packed, placed = peer.Weights(), peer.Weights()
        address = memory.data_ptr() + -memory.data_ptr() % 64
        peer.check(self.lib.polyhead_pack(self.kernel, ctypes.byref(tensors), address, ctypes.byref(packed)))
        peer.check(self.lib.polyhead_weights_to_device(self.device, ctypes.byref(packed), ctypes.byref(placed)))
        self.keep += [host, memory, packed, placed]
        return placed

    def run(self):
        status = self.lib.polyhead_run(self.kernel, ctypes.byref(self.args))
        if status.code:
            peer.check(status)


def torch_side(torch, case, dtype):
    """(inputs, call, float64 truth) of a case."""
    torch.manual_seed(1)
    cuda = dict(device="cuda", dtype=dtype)
    if case["kind"] == "sdpa":
        attend = torch.nn.functional.scaled_dot_product_attention
        inputs = [torch.randn(case["B"], case["H"], case["T"], case["d"], **cuda) for _ in range(3)]
        call = lambda: attend(*inputs, is_causal=case["causal"])  # noqa: E731
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            heads = [attend(*(x[:, h : h + 1].double() for x in inputs), is_causal=case["causal"]) for h in range(case["H"])]
        return inputs, call, torch.cat(heads, 1)
    layer = torch.nn.MultiheadAttention(case["D"], case["H"], bias=True, batch_first=True, **cuda).eval()
    with torch.no_grad():
        layer.in_proj_bias.normal_()
        layer.out_proj.bias.normal_()
    x = torch.randn(case["B"], case["T"], case["D"], **cuda)
    call = lambda: layer(x, x, x, need_weights=False)[0]  # noqa: E731
    inputs = [x, layer.in_proj_weight, layer.in_proj_bias, layer.out_proj.weight, layer.out_proj.bias]
    truth = torch.nn.MultiheadAttention(case["D"], case["H"], bias=True, batch_first=True, device="cuda", dtype=torch.float64).eval()
    truth.load_state_dict({name: value.double() for name, value in layer.state_dict().items()})
    rows = [truth(y, y, y, need_weights=False)[0] for y in x.double().split(1)]
    return inputs, call, torch.cat(rows)


def timed(torch, call, calls):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / calls


def measure(torch, name, case, rounds):
    dtype = {"f32": torch.float32, "f16": torch.float16}[case["dtype"]]
    inputs, torch_call, truth = torch_side(torch, case, dtype)
    ours = Polyhead(torch, case, inputs)
    ours.run()
    torch.cuda.synchronize()
    errors = [(out.double() - truth).abs().max().item() for out in (ours.out, torch_call())]
    if not errors[0] <= (2e-4 if case["dtype"] == "f32" else 2e-2):
        raise RuntimeError("wrong answer: largest error %g" % errors[0])
    sides = [ours.run, torch_call]
    calls = [max(1, int(SLICE / max(timed(torch, side, 3), 1e-6))) for side in sides]
    times = [[timed(torch, side, n) for side, n in zip(sides, calls)] for _ in range(rounds)]
    mine, theirs = (statistics.median(column) for column in zip(*times))
    ratio = statistics.median(b / a for a, b in times)
    print("%-34s %9.3f %9.3f %9.0f %9.0f %8.2f   %.1e %.1e" % (name, mine * 1e3, theirs * 1e3, flops(case) / mine / 1e9,
                                                                flops(case) / theirs / 1e9, ratio, *errors), flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--filter", default="", help="only cases whose names match")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    wanted = [(name, case) for name, case in cases() if re.search(options.filter, name)]
    if options.build_only:
        for _, case in wanted:
            print(kernel(case)[0], flush=True)
            peer.library(*kernel(case), ARCHIVES)
        return 0
    os.environ.setdefault("NVIDIA_TF32_OVERRIDE", "0")
    try:
        import torch
    except ImportError:
        sys.exit("torch_cuda.py: PyTorch is not installed here, so there is nothing to compare with")
    if not torch.cuda.is_available():
        sys.exit("torch_cuda.py: this PyTorch sees no CUDA device, so there is nothing to compare on")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    print("%s, PyTorch %s, TF32 off, medians of %d rounds in turns" % (torch.cuda.get_device_name(), torch.__version__, options.rounds))
    print("%-34s %9s %9s %9s %9s %8s   %s" % ("case", "ms", "torch ms", "GFLOP/s", "torch", "ratio", "largest error, ours and torch's"))
    failed = 0
    with torch.inference_mode():
        for name, case in wanted:
            try:
                measure(torch, name, case, options.rounds)
            except (RuntimeError, OSError) as error:
                print("%-34s ERROR: %s" % (name, error), flush=True)
                failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
