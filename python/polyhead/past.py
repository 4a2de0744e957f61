"""Joins past and new keys: as a view where they are neighbours in a buffer of the caller, else as a copy."""
from __future__ import annotations

import sys
from typing import Any

import numpy

from . import _arrays
from .error import refuse


def concatenate(name: str, past: Any, new: Any, axis: int) -> Any:
    """Joins past and new along axis. If new follows past directly in one buffer, the result is a view of both and nothing is copied."""
    if len(past.shape) != len(new.shape):
        raise refuse("%s: rank %d, expected %d" % (name, len(past.shape), len(new.shape)), "WRONG_SHAPE")
    axis %= len(new.shape)
    for dimension, (found, expected) in enumerate(zip(past.shape, new.shape)):
        if dimension != axis and found != expected:
            raise refuse("%s: dimension %d is %d, expected %d" % (name, dimension, found, expected), "WRONG_SHAPE")
    if _arrays.dtype_name(past) != _arrays.dtype_name(new):
        raise refuse("%s: dtype %s, expected %s" % (name, _arrays.dtype_name(past), _arrays.dtype_name(new)), "WRONG_DTYPE")
    if isinstance(past, numpy.ndarray) and isinstance(new, numpy.ndarray):
        return _numpy(past, new, axis)
    if _arrays.is_torch(past) and _arrays.is_torch(new):
        return _torch(past, new, axis)
    raise TypeError("%s: found %s and %s, expected numpy arrays or PyTorch tensors" % (name, type(past).__name__, type(new).__name__))


def _are_neighbours(past: Any, new: Any, axis: int, strides: tuple[Any, ...], addresses: tuple[int, ...]) -> bool:
    same = all(a == b or n == 1 for a, b, n in zip(strides[0], strides[1], past.shape) if n > 0)
    return same and addresses[1] == addresses[0] + past.shape[axis] * strides[0][axis]


def _owner(array: Any) -> Any:
    while isinstance(array.base, numpy.ndarray):
        array = array.base
    return array


def _numpy(past: Any, new: Any, axis: int) -> Any:
    addresses = tuple(x.__array_interface__["data"][0] for x in (past, new))
    if past.size and new.size and _owner(past) is _owner(new) and _are_neighbours(past, new, axis, (past.strides, new.strides), addresses):
        return numpy.lib.stride_tricks.as_strided(past, _joined(past, new, axis), past.strides)
    return numpy.concatenate((past, new), axis)


def _torch(past: Any, new: Any, axis: int) -> Any:
    size = past.element_size()
    strides = tuple(tuple(s * size for s in x.stride()) for x in (past, new))
    same = past.untyped_storage().data_ptr() == new.untyped_storage().data_ptr()
    if past.numel() and new.numel() and same and _are_neighbours(past, new, axis, strides, (past.data_ptr(), new.data_ptr())):
        return past.as_strided(_joined(past, new, axis), past.stride())
    return sys.modules["torch"].cat((past, new), axis)


def _joined(past: Any, new: Any, axis: int) -> tuple[int, ...]:
    return tuple(n + (new.shape[axis] if i == axis else 0) for i, n in enumerate(past.shape))
