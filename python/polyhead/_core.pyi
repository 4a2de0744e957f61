# The compiled module of the package.
from typing import Any, Mapping, Optional, Sequence

codes: dict[str, int]
kernels_kept: int
problem_fields: dict[str, Optional[tuple[str, ...]]]  # None: True or False; the words of a choice; no words: a number
storage_types: dict[str, tuple[str, int]]  # dtype of a problem: that of an array, polyhead_dtype
usual_numbers: dict[str, float]  # numbers of a call, and what a tuner measures with
version: str

def set_num_threads(threads: int) -> None:
    """Sets the threads that all kernels share, at most 256. 0: the default, HL_NUM_THREADS or min(CPU affinity, cgroup quota)."""

def num_threads() -> int: ...
def set_wait(microseconds: int) -> None:
    """How long a helper thread that has nothing to do looks for the next call before it sleeps, at most 1,000,000. Below 0: the default,
    POLYHEAD_WAIT, or else 1000, or 20 where there are more threads than CPUs."""

def wait() -> int: ...
def device_count(api: str) -> int:
    """The number of "cuda", "opencl" or "vulkan" devices that can be opened; 0 without a driver."""

def environment() -> dict[str, Any]:
    """Versions, CPU features, cache and compiler of this process."""

def kernel_of_fields(fields: Mapping[str, Any], target: str = "host", seq_len_q: int = -1) -> Kernel:
    """A kernel that serves this problem; for attention on this CPU one of the bundle, or one that serves other calls, too."""

def bundle_entries(flags: Sequence[str]) -> list[list[tuple[bytes, bytes]]]:
    """The kernels of a problem, one for each target: keys and objects, compiled now, for write_bundle()."""

def write_bundle(path: str, kernels: list[list[tuple[bytes, bytes]]]) -> None: ...
def plain_call(query: Any, key: Any, value: Any, causal: bool, out: Any, device: Optional[Device] = None) -> Any:
    """out of sdpa() with these arguments alone, None where the form of the call is not kept."""

def keep_plain(kernel: Kernel, query: Any, key: Any, value: Any, causal: bool, out: Any, has_out: bool, device: Optional[Device] = None) -> None: ...
def clear_plain() -> None: ...
def plain_forms() -> int:
    """The number of forms that are kept."""

def set_bundle(path: str) -> None:
    """The file of ready kernels of this process."""

def clear_kernels() -> None:
    """Removes all compiled kernels from the cache."""

def kernel_of_flags(flags: Sequence[str]) -> Kernel: ...
def peak_gflops(threads: int, seconds: float, dtype: int = 0) -> float:
    """The GFLOP/s that so many threads reach with independent multiply-adds, for bf16 with dot products of pairs, measured now."""

def tiling_space(flags: Sequence[str]) -> str:
    """JSON: the tilings that a tuner may try for the problem of these flags, as `polyhead generate --list-space` prints them."""

def tiling_refusal(flags: Sequence[str], frame: str, tiling: str) -> str:
    """Why the tuner does not try this point of the space, or ""."""

def tuning_records(text: str, name: str) -> str:
    """JSON: the indices of the usable entries of a text of tuning records, and a sentence for each of the others."""

def generate_flags(fields: Mapping[str, Any]) -> str: ...

class PagePool:
    """Which pages of a cache are used, and by how many sequences. It gives out numbers of pages and has no memory for keys."""

    def __init__(self, pages: int) -> None: ...
    def take(self, count: int) -> list[int]:
        """Pages that nobody uses; all of them or none. Each then has one user."""
    def share(self, pages: Sequence[int]) -> None:
        """One user more for each of these pages, which are in use."""
    def release(self, pages: Sequence[int]) -> None:
        """One user less for each of these pages; a page without users is free again."""
    def users(self, page: int) -> int: ...
    @property
    def free(self) -> int:
        """The number of pages that nobody uses."""

def append(arguments: Mapping[str, Any], layout: str) -> None: ...
def copy_page(arguments: Mapping[str, Any], source: int, target: int) -> None: ...
def rotate(arguments: Mapping[str, Any], layout: str) -> None: ...
def normalize(arguments: Mapping[str, Any]) -> None: ...
def merge_states(parts: Sequence[tuple[Any, Any]], sinks: Any, out: Any, lse: Any) -> None: ...

class Weights:
    """Packed weights of a layer; made by Kernel.pack()."""

    @property
    def nbytes(self) -> int: ...

class Device:
    """An open device: "cuda", "cuda:1", "opencl:0". stream: a CUstream as a number; 0 is the default stream."""

    def __init__(self, name: str, stream: int = 0) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def api(self) -> str: ...
    @property
    def capability(self) -> int:
        """CUDA: the compute capability times 10, otherwise 0."""
    @property
    def stream(self) -> int: ...
    def synchronize(self) -> None:
        """Waits until all work that was started on its stream is done."""
    def empty(self, shape: Sequence[int], dtype: str = "float32") -> DeviceArray: ...
    def put(self, array: Any) -> DeviceArray:
        """A copy of a contiguous host array on this device."""

class DeviceArray:
    """A contiguous array in device memory, without arithmetic. On CUDA devices it has DLPack."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def device(self) -> Device: ...
    def numpy(self) -> Any:
        """A copy on the host."""
    def __dlpack__(self, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class Plan: ...

class Kernel:
    @property
    def problem(self) -> dict[str, Any]: ...
    @property
    def operation(self) -> dict[str, Any]:
        """attends, by_heads: facts of the operation; first_input: a name; out_width: the last extent of out."""

    @property
    def declarations(self) -> list[tuple[str, str, tuple[int, ...]]]: ...
    @property
    def arguments(self) -> list[str]: ...
    @property
    def target(self) -> str: ...
    @property
    def seq_len_q_range(self) -> tuple[int, int]: ...
    def run(
        self, arguments: Mapping[str, Any], device: Optional[Device] = None, layout: str = "bhsd", plan: Optional[Plan] = None
    ) -> None: ...
    def plan(self, arguments: Mapping[str, Any], device: Optional[Device] = None, layout: str = "bhsd") -> Plan: ...
    def explain(self, arguments: Mapping[str, Any], device: Optional[Device] = None, layout: str = "bhsd") -> str: ...
    def scratch_bytes(self, arguments: Mapping[str, Any], device: Optional[Device] = None, layout: str = "bhsd") -> int: ...
    def pack(self, tensors: Mapping[str, Any], device: Optional[Device] = None) -> Weights: ...
    def reasons(self) -> list[list[str]]: ...
    def manifest(self) -> str: ...
    def listing(self, kind: str) -> str: ...
    def write(self, name: str, directory: str) -> None: ...
