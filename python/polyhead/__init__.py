"""polyhead: attention kernels, generated for one problem and compiled at its first call.

    import numpy, polyhead
    query = key = value = numpy.random.rand(1, 12, 128, 64).astype("float32")   # [batch, heads, seq_len, head_dim]
    out = polyhead.sdpa(query, key, value, is_causal=True)

See docs/guides/python.md.
"""
from . import expressions
from ._core import Device, DeviceArray, PagePool, Weights, device_count, num_threads, set_num_threads, set_wait, wait
from ._core import version as __version__
from .attention import explain, sdpa
from .cache import append, copy_page, merge_states, normalize, rope
from .error import Code, Error
from .gradients import linear_backward, sdpa_backward
from .kernel import Kernel, Plan, clear_cache, compile
from .layer import MultiheadAttention
from .rope_tables import RopeTables, rope_sections_of, rope_tables

__all__ = [
    "Code",
    "Device",
    "DeviceArray",
    "Error",
    "Kernel",
    "MultiheadAttention",
    "PagePool",
    "Plan",
    "RopeTables",
    "Weights",
    "__version__",
    "append",
    "clear_cache",
    "compile",
    "copy_page",
    "device_count",
    "explain",
    "expressions",
    "linear_backward",
    "merge_states",
    "normalize",
    "num_threads",
    "rope",
    "rope_sections_of",
    "rope_tables",
    "sdpa",
    "sdpa_backward",
    "set_num_threads",
    "set_wait",
    "wait",
]
