"""The sides of PyTorch in a race, where it is installed and sees a CUDA device."""
import time

try:
    import torch
    import torch.nn.attention
except ImportError:
    torch = None

# By dtype; f32 by multiply-adds, which is what PyTorch does unless it is told otherwise.
HALVES = ("default", "FLASH_ATTENTION", "CUDNN_ATTENTION")
BACKENDS = {"f16": HALVES, "bf16": HALVES, "f32": ("default", "EFFICIENT_ATTENTION")}


def here():
    return torch is not None and torch.cuda.is_available()


def told():
    """What a heading says of it."""
    return " with PyTorch %s" % torch.__version__ if here() else "; PyTorch with CUDA is not here"


def timed(call, calls):
    torch.cuda.synchronize()
    start = time.perf_counter()
    with torch.inference_mode():
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / calls


def dtype_of(kernel):
    return {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[kernel["dtype"]]


def attention(kernel, shape, backend):
    batch, rows, keys = shape
    tensors = [torch.randn(batch, heads, length, kernel["head_dim"], device="cuda", dtype=dtype_of(kernel))
               for heads, length in ((kernel["heads"], rows), (kernel["kv_heads"], keys), (kernel["kv_heads"], keys))]
    grouped = kernel["heads"] != kernel["kv_heads"]

    def call():
        return torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=kernel["causal"], enable_gqa=grouped)

    def chosen():
        with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backend)):
            return call()

    return call if backend == "default" else chosen


def layer(kernel, shape):
    made = torch.nn.MultiheadAttention(kernel["embed_dim"], kernel["heads"], batch_first=True, device="cuda", dtype=dtype_of(kernel)).eval()
    x = torch.randn(shape[0], shape[1], kernel["embed_dim"], device="cuda", dtype=dtype_of(kernel))
    return lambda: made(x, x, x, need_weights=False)[0]


def sides(kernel, shape, notes):
    """{name: function of a number of calls}; what a backend does not take goes to the notes."""
    found = {}
    for backend in (BACKENDS[kernel["dtype"]] if kernel["op"] == "sdpa" else ("MultiheadAttention",)) if here() else ():
        name = "torch " + backend
        try:
            call = attention(kernel, shape, backend) if kernel["op"] == "sdpa" else layer(kernel, shape)
            timed(call, 1)
            found[name] = lambda calls, call=call: timed(call, calls)
        except (RuntimeError, AttributeError) as error:
            notes[name] = str(error).strip().split("\n")[0][:120]
    return found


def release():
    """Gives the memory of the sides that are no more back to the device, where the other program needs it."""
    if here():
        torch.cuda.empty_cache()
