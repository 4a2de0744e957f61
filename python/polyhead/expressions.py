"""User expressions as Python functions: each is called once with symbols and becomes text as in docs/guides/expressions.md.

    from polyhead import expressions as x

    polyhead.sdpa(query, key, value, expression=lambda score, h, q, kv, slope: score - slope[h] * abs(q - kv), tensors={"slope": slopes})
    polyhead.sdpa(query, key, value, expression=lambda q, kv: (kv <= q) & (q - kv < 256))

The parameters of a function name what it needs: score, b, h, q, kv, p, seq_len_q, seq_len_kv, kv_length (q_idx and kv_idx as in PyTorch's
flex_attention), and the tensors of the call. It returns the new score, a condition (true: the key takes part), or both as a pair.
"""
from __future__ import annotations

import inspect
import math
from typing import Any, Callable, Mapping, Sequence, Union

from . import _arrays
from .error import refuse

NAMES = {"score": "float", "b": "int", "h": "int", "q": "int", "kv": "int", "p": "int", "seq_len_q": "int", "seq_len_kv": "int",
         "kv_length": "int"}
ALIASES = {"q_idx": "q", "kv_idx": "kv"}
DTYPES = {"float": "f32", "int": "i32", "bool": "bool"}

Value = Union["Term", int, float, bool]


class Term:
    """A part of an expression: its text, and whether it is a float, an int or a bool."""

    __slots__ = ("kind", "text")
    __array_priority__ = 1000  # NumPy's numbers then use our operators
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, text: str, kind: str) -> None:
        self.text, self.kind = text, kind

    def __bool__(self) -> bool:
        raise TypeError("expression: found a condition that Python evaluates, as in `and`, `or`, `not`, `if` and a < b < c; "
                        "expected &, |, ~ and polyhead.expressions.where")

    def __add__(self, other: Value) -> Term: return _number("+", self, other)
    def __radd__(self, other: Value) -> Term: return _number("+", other, self)
    def __sub__(self, other: Value) -> Term: return _number("-", self, other)
    def __rsub__(self, other: Value) -> Term: return _number("-", other, self)
    def __mul__(self, other: Value) -> Term: return _number("*", self, other)
    def __rmul__(self, other: Value) -> Term: return _number("*", other, self)
    def __mod__(self, other: Value) -> Term: return _number("%", self, other)
    def __rmod__(self, other: Value) -> Term: return _number("%", other, self)
    def __truediv__(self, other: Value) -> Term: return _number("/", self * 1.0, other)
    def __rtruediv__(self, other: Value) -> Term: return _number("/", _term(other) * 1.0, self)
    def __floordiv__(self, other: Value) -> Term: return _floor_divide(self, other)
    def __rfloordiv__(self, other: Value) -> Term: return _floor_divide(other, self)
    def __neg__(self) -> Term: return Term("(-%s)" % self.text, self.kind)
    def __abs__(self) -> Term: return Term("abs(%s)" % self.text, self.kind)
    def __lt__(self, other: Value) -> Term: return _truth("<", self, other)
    def __le__(self, other: Value) -> Term: return _truth("<=", self, other)
    def __gt__(self, other: Value) -> Term: return _truth(">", self, other)
    def __ge__(self, other: Value) -> Term: return _truth(">=", self, other)
    def __eq__(self, other: Value) -> Term: return _truth("==", self, other)  # type: ignore[override]
    def __ne__(self, other: Value) -> Term: return _truth("!=", self, other)  # type: ignore[override]
    def __and__(self, other: Value) -> Term: return _truth("and", self, other)
    def __rand__(self, other: Value) -> Term: return _truth("and", other, self)
    def __or__(self, other: Value) -> Term: return _truth("or", self, other)
    def __ror__(self, other: Value) -> Term: return _truth("or", other, self)
    def __invert__(self) -> Term: return Term("(not %s)" % self.text, "bool")


class Tensor(Term):
    """A tensor of the call; tensor[h, kv - q] is an element of it."""

    __slots__ = ("rank",)

    def __init__(self, name: str, kind: str, rank: int) -> None:
        super().__init__(name, kind)
        self.rank = rank

    def __getitem__(self, indices: Any) -> Term:
        indices = indices if isinstance(indices, tuple) else (indices,)
        if len(indices) != self.rank:
            raise refuse("expression: %s has %d dimensions, found %d indices" % (self.text, self.rank, len(indices)), "WRONG_SHAPE")
        return Term("%s[%s]" % (self.text, ", ".join(_term(i).text for i in indices)), self.kind)


def where(condition: Value, yes: Value, no: Value) -> Term:
    """The value yes where the condition holds, else the value no."""
    a, b = _term(yes), _term(no)
    return Term("select(%s, %s, %s)" % (_term(condition).text, a.text, b.text), _common(a, b))


def minimum(a: Value, b: Value) -> Term:
    return Term("min(%s, %s)" % (_term(a).text, _term(b).text), _common(_term(a), _term(b)))


def maximum(a: Value, b: Value) -> Term:
    return Term("max(%s, %s)" % (_term(a).text, _term(b).text), _common(_term(a), _term(b)))


def exp(x: Value) -> Term: return Term("exp(%s)" % _term(x).text, "float")
def log(x: Value) -> Term: return Term("log(%s)" % _term(x).text, "float")
def tanh(x: Value) -> Term: return Term("tanh(%s)" % _term(x).text, "float")
def sqrt(x: Value) -> Term: return Term("sqrt(%s)" % _term(x).text, "float")
def floor(x: Value) -> Term: return Term("floor(%s)" % _term(x).text, "int")


def uniform(seed: Value, b: Value, h: Value, q: Value, kv: Value) -> Term:
    """A random number in [0, 1) that only these five integers decide, on every machine."""
    return Term("uniform(%s)" % ", ".join(_term(x).text for x in (seed, b, h, q, kv)), "float")


def text_of(function: Callable[..., Any], tensors: Mapping[str, Any], fixed: Sequence[str] = ()) -> str:
    """The text of the expression that a function defines. fixed: tensors that are declared with their extents."""
    arguments, declared = {}, []
    for name in inspect.signature(function).parameters:
        known = ALIASES.get(name, name)
        if known in NAMES:
            arguments[name] = Term(known, NAMES[known])
        elif name in tensors:
            array = tensors[name]
            _arrays.require_arrays(**{name: array})
            kind = {"bool": "bool", "int32": "int", "int64": "int"}.get(_arrays.dtype_name(array), "float")
            rank, extents = len(array.shape), [str(extent) if name in fixed else "*" for extent in array.shape]
            declared.append("tensor %s: %s%s" % (name, DTYPES[kind], "[%s]" % ", ".join(extents) if rank else ""))
            arguments[name] = Tensor(name, kind, rank)
        else:
            raise refuse("expression: unknown parameter %s; known are %s, and the tensors of the call" % (name, ", ".join(NAMES)))
    result = function(**arguments)
    parts = [_term(x) for x in (result if isinstance(result, tuple) else (result,))]
    if len(parts) > 2 or len({part.kind == "bool" for part in parts}) != len(parts):
        raise refuse("expression: the function returned %d values, expected a score, a condition, or one of each" % len(parts))
    return "\n".join(declared + ["%s = %s" % ("mask" if part.kind == "bool" else "score", part.text) for part in parts])


def _term(value: Value) -> Term:
    if isinstance(value, Term):
        return value
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, bool):
        return Term("true" if value else "false", "bool")
    if isinstance(value, int):
        return Term("(%d)" % value, "int")
    if isinstance(value, float) and math.isfinite(value):
        text = "%.9g" % value
        return Term("(%s)" % (text if "." in text or "e" in text else text + ".0"), "float")
    raise TypeError("expression: found %r, expected a finite number or a part of the expression" % (value,))


def _common(a: Term, b: Term) -> str:
    return a.kind if a.kind == b.kind else "float"


def _number(operator: str, a: Value, b: Value) -> Term:
    a, b = _term(a), _term(b)
    return Term("(%s %s %s)" % (a.text, operator, b.text), _common(a, b))


def _floor_divide(a: Value, b: Value) -> Term:
    quotient = _number("/", a, b)  # the quotient of ints is rounded down
    return quotient if quotient.kind == "int" else floor(quotient)


def _truth(operator: str, a: Value, b: Value) -> Term:
    return Term("(%s %s %s)" % (_term(a).text, operator, _term(b).text), "bool")
