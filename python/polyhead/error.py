"""The exception of the package, and the codes that it carries."""
from __future__ import annotations

import enum

from . import _core

# The codes of the runtime (polyhead_code in c_api.h), by name.
Code = enum.IntEnum("Code", _core.codes)
Code.__doc__ = "What kind of refusal an Error is: the runtime's polyhead_code."


class Error(RuntimeError):
    """A refusal or a failure, in one sentence: tensor or parameter, dimension, found, expected.

    Unless a call returns, nothing was written to its outputs.
    """

    code: Code

    def __init__(self, message: str, code: int = 6) -> None:
        super().__init__(message)
        self.code = Code(code)


def refuse(sentence: str, code: str = "BAD_VALUE") -> Error:
    """The Error for what only the Python half can see."""
    return Error(sentence, Code[code])
