"""polyhead: attention kernels, generated for one problem and compiled at its first call.

    import numpy, polyhead
    query = key = value = numpy.random.rand(1, 12, 128, 64).astype("float32")   # [batch, heads, seq_len, head_dim]
    out = polyhead.sdpa(query, key, value, is_causal=True)

See docs/guides/python.md.
"""
from . import expressions
from ._core import Device, DeviceArray, Weights, device_count, num_threads, set_num_threads
from ._core import version as __version__
from .attention import explain, sdpa
from .error import Code, Error
from .kernel import Kernel, clear_cache, compile
from .layer import MultiheadAttention

__all__ = [
    "Code",
    "Device",
    "DeviceArray",
    "Error",
    "Kernel",
    "MultiheadAttention",
    "Weights",
    "__version__",
    "clear_cache",
    "compile",
    "device_count",
    "explain",
    "expressions",
    "num_threads",
    "sdpa",
    "set_num_threads",
]
