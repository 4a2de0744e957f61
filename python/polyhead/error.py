"""The exception of the package, and its codes."""
from __future__ import annotations

import enum

from . import _core

class Code(enum.IntEnum):
    """The kind of an Error: polyhead_code of c_api.h, where each code is explained."""

    OK = _core.codes["OK"]
    NULL_POINTER = _core.codes["NULL_POINTER"]
    WRONG_SHAPE = _core.codes["WRONG_SHAPE"]
    WRONG_STRIDE = _core.codes["WRONG_STRIDE"]
    WRONG_DTYPE = _core.codes["WRONG_DTYPE"]
    ALIASED = _core.codes["ALIASED"]
    BAD_VALUE = _core.codes["BAD_VALUE"]
    WRONG_OPERATION = _core.codes["WRONG_OPERATION"]
    WRONG_WEIGHTS = _core.codes["WRONG_WEIGHTS"]
    UNSUPPORTED = _core.codes["UNSUPPORTED"]
    OUT_OF_MEMORY = _core.codes["OUT_OF_MEMORY"]
    INTERNAL = _core.codes["INTERNAL"]
    NO_DEVICE = _core.codes["NO_DEVICE"]
    WRONG_DEVICE = _core.codes["WRONG_DEVICE"]
    WRONG_EXECUTOR = _core.codes["WRONG_EXECUTOR"]


class Error(RuntimeError):
    """A refusal or a failure, in one sentence: tensor or parameter, dimension, found, expected.

    When a call raises it, nothing was written to the outputs.
    """

    code: Code

    def __init__(self, message: str, code: int = Code.BAD_VALUE) -> None:
        super().__init__(message)
        self.code = Code(code)


def renamed(error: Error, names: dict[str, str]) -> Error:
    """The same error about what the caller wrote: the runtime has names of its own for some arguments."""
    text = str(error)
    known, colon, rest = text.partition(":")
    return Error(names[known] + colon + rest, error.code) if known in names else error


def refuse(sentence: str, code: str = "BAD_VALUE") -> Error:
    """An Error that the Python code raises itself."""
    return Error(sentence, Code[code])
