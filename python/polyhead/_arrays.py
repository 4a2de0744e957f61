"""Arrays of different libraries: which device they are on, and new ones of the same kind. Nothing here copies elements of a tensor."""
from __future__ import annotations

import collections
import sys
import threading
from typing import Any, Optional, Sequence

import numpy

from . import _core, options
from .error import refuse

NAMES = {name: array for name, (array, _) in _core.storage_types.items()}  # dtype of a problem -> of an array
DTYPES = dict(_core.storage_types.values())                                # dtype of an array -> polyhead_dtype

_DEVICES_KEPT = 16  # streams come and go; a device of one that is gone would stay for ever
_devices: "collections.OrderedDict[tuple[str, int], Any]" = collections.OrderedDict()
_devices_lock = threading.Lock()


def is_torch(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


_dtype_names: dict[Any, str] = {}  # asking NumPy for a name takes longer than a small kernel


def dtype_name(array: Any) -> str:
    """The dtype as numpy writes it: "float32", "bfloat16"."""
    name = _dtype_names.get(array.dtype)
    if name is None:
        name = _dtype_names[array.dtype] = str(array.dtype).rpartition(".")[2]
    return name


def storage_on_cpu(*arrays: Any) -> int:
    """The dtype of a CPU kernel for these arrays: their own if kernels store it and all of them have it, otherwise f32, to which they are converted."""
    first = arrays[0].dtype
    for array in arrays:
        if array.dtype != first:
            return DTYPES["float32"]
    return DTYPES.get(dtype_name(arrays[0]), DTYPES["float32"])


def require_arrays(**arrays: Any) -> None:
    """Raises a TypeError for an argument that is not an array, before its shape is read."""
    for name, array in arrays.items():
        options.require(name, array, options.ARRAY)


def open_device(name: str, stream: int = 0) -> Any:
    """The device of this name and stream, opened once and kept."""
    key = (name if ":" in name else name + ":0", stream)
    with _devices_lock:
        if key not in _devices:
            _devices[key] = _core.Device(key[0], stream)
        _devices.move_to_end(key)
        opened = _devices[key]
        while len(_devices) > _DEVICES_KEPT:
            _devices.popitem(last=False)  # closed when nothing uses it any more
        return opened


def device_of(array: Any, asked: Any = None) -> Any:
    """The device that a call on this array runs on: the one asked for, else the array's own, or None for the CPU.

    For a CUDA tensor of PyTorch: its device, with PyTorch's current stream.
    """
    if isinstance(asked, str):
        return None if asked == "cpu" else open_device(asked)
    if asked is not None:
        return asked
    if isinstance(array, numpy.ndarray):
        return None
    if isinstance(array, _core.DeviceArray):
        return array.device
    if is_torch(array):
        if not array.is_cuda:
            return None
        index = array.device.index or 0
        return open_device(_CUDA[index] if index < len(_CUDA) else "cuda:%d" % index, _current_stream(array, index))
    if hasattr(array, "__dlpack_device__"):
        kind, index = array.__dlpack_device__()
        if int(kind) in (2, 13):
            return open_device("cuda:%d" % index, _stream_of(array))
    return None


_CUDA = tuple("cuda:%d" % index for index in range(16))


def _current_stream(tensor: Any, index: int) -> int:
    """PyTorch's current stream of the device of a tensor. Its own object for a stream takes as long as a call."""
    torch = sys.modules["torch"]
    raw = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
    return int(torch.cuda.current_stream(tensor.device).cuda_stream if raw is None else raw(index))


def _stream_of(array: Any) -> int:
    """For CuPy's arrays its current stream, else the default stream."""
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(array, cupy.ndarray):
        return int(cupy.cuda.get_current_stream().ptr)
    return 0


def empty(like: Any, shape: Sequence[int], dtype: Optional[str] = None) -> Any:
    """A new array of the same library on the same device; dtype None: that of `like`."""
    if isinstance(like, numpy.ndarray):
        return numpy.empty(shape, like.dtype if dtype is None else dtype)
    shape = tuple(shape)
    if is_torch(like):
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=like.dtype if dtype is None else getattr(torch, dtype), device=like.device)
    if isinstance(like, _core.DeviceArray):
        return like.device.empty(shape, dtype or like.dtype)
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(like, cupy.ndarray):
        return cupy.empty(shape, like.dtype if dtype is None else dtype)
    if hasattr(like, "__dlpack_device__") and int(like.__dlpack_device__()[0]) in (2, 13):
        raise refuse("out: found none, expected an array; polyhead cannot make arrays of %s" % type(like).__module__, "NULL_POINTER")
    return numpy.empty(shape, numpy_dtype(dtype_name(like) if dtype is None else dtype))


def numpy_dtype(name: str) -> Any:
    """NumPy's dtype of this name of an array's dtype."""
    if not hasattr(numpy, name):
        import ml_dtypes  # it has what NumPy lacks, such as bfloat16, and makes it known to NumPy

        return numpy.dtype(getattr(ml_dtypes, name))
    return numpy.dtype(name)


def small(name: str, values: Any, dtype: str) -> Any:
    """A small tensor (lengths, slopes, sinks), which may be given as a list, or with another dtype on a device."""
    if values is None or isinstance(values, numpy.ndarray):
        return values
    if is_torch(values):
        return values.to(getattr(sys.modules["torch"], dtype)) if values.is_cuda else values
    if hasattr(values, "__dlpack__"):
        return values
    try:
        array = numpy.asarray(values)
    except (TypeError, ValueError) as error:
        raise TypeError("%s: found %s, expected an array or numbers" % (name, type(values).__name__)) from error
    if array.dtype.kind not in ("i" if dtype == "int32" else "fi"):
        raise TypeError("%s: found %s, expected an array or numbers" % (name, type(values).__name__))
    return array.astype(dtype)


def score_tensor(name: str, tensor: Any) -> Any:
    """A mask or bias. If its stride over keys is 0, one key is kept."""
    require_arrays(**{name: tensor})
    found = dtype_name(tensor)
    if found not in ("bool", "float32", "float16", "bfloat16", "float64"):
        raise TypeError("%s: dtype %s, expected bool (True takes part) or a float that is added" % (name, found))
    strides = tensor.strides if isinstance(tensor, numpy.ndarray) else tensor.stride() if is_torch(tensor) else ()
    if strides and strides[-1] == 0 and tensor.shape[-1] > 1:
        tensor = tensor[..., :1]
    return tensor


def choose_additive_dtype(fields: dict[str, Any], arguments: dict[str, Any]) -> None:
    """An additive mask and the bias keep the dtype of the kernel if all of them have it. Otherwise the kernel takes float32: on a device
    the library of the tensor converts it, because polyhead cannot."""
    added = {name: arguments[name] for name in ("mask", "score_bias") if name in arguments and dtype_name(arguments[name]) != "bool"}
    found = {dtype_name(tensor) for tensor in added.values()}
    if len(found) == 1 and fields.get("dtype", 0) != 0 and DTYPES.get(found.pop()) == fields["dtype"]:
        fields["additive_in_storage"] = 1
        return
    for name, tensor in added.items():
        if is_torch(tensor) and tensor.is_cuda:
            arguments[name] = tensor.float()


def rope_of(interleaved: bool, trailing: bool) -> int:
    """polyhead_rope: which entries of a head are pairs."""
    return int(_core.problem_fields["rope"].index(("interleaved" if interleaved else "half_split") + ("_trailing" if trailing else "")))


def sections_of(rope_sections: Optional[str], sections: Optional[Sequence[int]]) -> tuple[int, list[int]]:
    """polyhead_rope_sections, and the three numbers of pairs."""
    if rope_sections is None or sections is None:
        if rope_sections is not sections:
            raise refuse("%s: found without %s, expected both or none" % (("sections", "rope_sections") if rope_sections is None else
                                                                          ("rope_sections", "sections")), "NULL_POINTER")
        return 0, [0, 0, 0]
    return _core.problem_fields["rope_sections"].index(rope_sections), [int(n) for n in (*sections, 0)[:3]]
