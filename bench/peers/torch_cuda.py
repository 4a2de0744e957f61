"""polyhead's CUDA kernels against PyTorch on the same GPU, in the same run, in turns: f32 with TF32 off, and f16.

    python3 bench/peers/torch_cuda.py      in a Python like that of .venv, with PyTorch for CUDA and NumPy, after ./polyhead setup

Both work on tensors of PyTorch, on its context and its stream. A case is checked against float64 before it is timed.
"""

import argparse
import os
import pathlib
import re
import statistics
import sys
import time

try:
    import polyhead
except ImportError:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "build" / "release" / "python"))
    try:
        import polyhead
    except ImportError as error:
        sys.exit("torch_cuda.py: the Python package polyhead cannot be imported (%s); ./polyhead setup builds it" % error)

SLICE = 0.05  # seconds that calls of one side are repeated for, in each round


def cases():
    """[(name, dict)]: the cases of the speed targets, decoding steps, and layers."""
    found = []
    for dtype in ("f32", "f16"):
        for d in (64, 128):
            for causal in (False, True):
                name = "sdpa_%s_b1_h16_t4096_d%d%s" % (dtype, d, "_causal" if causal else "")
                found.append((name, dict(kind="sdpa", dtype=dtype, B=1, H=16, H_kv=16, Q=4096, T=4096, d=d, causal=causal)))
        for h, h_kv, t in ((32, 8, 4096), (32, 8, 32768), (16, 16, 32768)):
            name = "decode_%s_b1_h%d_kv%d_t%d_d128" % (dtype, h, h_kv, t)
            found.append((name, dict(kind="sdpa", dtype=dtype, B=1, H=h, H_kv=h_kv, Q=1, T=t, d=128, causal=False)))
        for b, t, e, h in ((1, 512, 768, 12), (8, 512, 768, 12), (1, 4096, 1024, 16)):
            found.append(("layer_%s_b%d_t%d_d%d_h%d" % (dtype, b, t, e, h), dict(kind="layer", dtype=dtype, B=b, T=t, D=e, H=h)))
    return found


def flops(case):
    if case["kind"] == "sdpa":
        pairs = case["T"] * (case["T"] + 1) // 2 if case["causal"] else case["Q"] * case["T"]
        return 4 * case["B"] * case["H"] * pairs * case["d"]
    return case["B"] * (8 * case["T"] * case["D"] ** 2 + 4 * case["T"] ** 2 * case["D"])


def polyhead_side(case, inputs):
    """(call, its answer) on arrays of the device that the inputs lie on: PyTorch's, or polyhead's own."""
    if case["kind"] == "sdpa":
        out = polyhead.sdpa(*inputs, is_causal=case["causal"])
        return lambda: polyhead.sdpa(*inputs, is_causal=case["causal"], out=out), lambda: out
    names = ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")
    layer = polyhead.MultiheadAttention(case["D"], case["H"])
    layer.load_state_dict(dict(zip(names, inputs[1:])))
    answer = [layer(inputs[0])[0]]

    def call():
        answer[0] = layer(inputs[0])[0]

    return call, lambda: answer[0]


def torch_side(torch, case, dtype):
    """(inputs, call, float64 truth) of a case."""
    torch.manual_seed(1)
    cuda = dict(device="cuda", dtype=dtype)
    if case["kind"] == "sdpa":
        attend = torch.nn.functional.scaled_dot_product_attention
        group = case["H"] // case["H_kv"]
        inputs = [torch.randn(case["B"], heads, rows, case["d"], **cuda)
                  for heads, rows in ((case["H"], case["Q"]), (case["H_kv"], case["T"]), (case["H_kv"], case["T"]))]  # fmt: skip
        call = lambda: attend(*inputs, is_causal=case["causal"], enable_gqa=group > 1)  # noqa: E731
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            places = [(h, h // group, h // group) for h in range(case["H"])]
            heads = [attend(*(x[:, h : h + 1].double() for x, h in zip(inputs, place)), is_causal=case["causal"]) for place in places]
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
    ours, answer = polyhead_side(case, inputs)
    ours()
    torch.cuda.synchronize()
    errors = [(out.double() - truth).abs().max().item() for out in (answer(), torch_call())]
    if not errors[0] <= (2e-4 if case["dtype"] == "f32" else 2e-2):
        raise RuntimeError("wrong answer: largest error %g" % errors[0])
    sides = [ours, torch_call]
    calls = [max(1, int(SLICE / max(timed(torch, side, 3), 1e-6))) for side in sides]
    times = [[timed(torch, side, n) for side, n in zip(sides, calls)] for _ in range(rounds)]
    mine, theirs = (statistics.median(column) for column in zip(*times))
    ratio = statistics.median(b / a for a, b in times)
    print("%-34s %9.3f %9.3f %9.0f %9.0f %8.2f   %.1e %.1e" % (name, mine * 1e3, theirs * 1e3, flops(case) / mine / 1e9,
                                                                flops(case) / theirs / 1e9, ratio, *errors), flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default="", help="only cases whose names match")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    wanted = [(name, case) for name, case in cases() if re.search(options.filter, name)]
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
