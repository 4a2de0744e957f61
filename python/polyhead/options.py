"""The options of the package in one table: which values a keyword takes. What is wrong is refused by name, before anything else is done."""
from __future__ import annotations

import difflib
import functools
import numbers
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence

import numpy

from . import _core
from .error import refuse


class Rule(NamedTuple):
    """What a keyword takes. Another type is a TypeError; what is none of the words, where there are some, is an Error."""

    expected: str
    accepts: Callable[[Any], bool]
    words: tuple[str, ...] = ()
    or_none: bool = False  # None is right: most keywords of most calls are None, so this is asked before `accepts`

    def takes(self, value: Any) -> bool:
        return (value is None and self.or_none) or self.accepts(value)


def is_flag(value: Any) -> bool:
    return isinstance(value, (bool, numpy.bool_))


def is_whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not is_flag(value)


def is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not is_flag(value)


def is_array(value: Any) -> bool:
    return isinstance(getattr(value, "shape", None), tuple) and hasattr(value, "dtype")


def _is_list(value: Any) -> bool:
    return is_array(value) or hasattr(value, "__dlpack__") or isinstance(value, (list, tuple)) or is_number(value)


def _is_pair(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == 2


def _is_sections(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) in (2, 3) and all(WHOLE.accepts(one) for one in value)


def _or_none(rule: Rule) -> Rule:
    return rule._replace(expected=rule.expected + " or None", or_none=True)


def one_of(*words: str) -> Rule:
    text = ", ".join(words[:-1]) + " or " + words[-1] if len(words) > 1 else words[0]
    return Rule(text, lambda value: isinstance(value, str) and value in words, words)


FLAG = Rule("True or False", is_flag)
WHOLE = Rule("a whole number", lambda value: is_whole(value) and -2**31 <= value < 2**31)
NUMBER = Rule("a number", is_number)
ARRAY = Rule("an array: numpy, or anything with DLPack", is_array)
SMALL = Rule("an array or numbers", _is_list)
NAME = Rule("a text", lambda value: isinstance(value, str))
PATH = Rule("a path", lambda value: isinstance(value, (str, bytes)) or hasattr(value, "__fspath__"))
DEVICE = _or_none(Rule("the name of a device, such as 'cuda:0', or a Device", lambda value: isinstance(value, (str, _core.Device))))
ROPE = _or_none(Rule("(cos, sin)", _is_pair))
LAYOUT = one_of("bhsd", "bshd", "bsd")
COUNT = _or_none(WHOLE)
OPS = {word: number for number, word in enumerate(_core.problem_fields["op"])}  # polyhead_op
NORMS = _core.problem_fields["query_norm"][1:]  # polyhead_norm, from 1
NORM = _or_none(one_of(*NORMS))
_CONFIG = Rule("the content of config.json as a dict", lambda value: isinstance(value, Mapping) or hasattr(value, "to_dict"))
TUNED = _or_none(Rule("a path, True or False", lambda value: is_flag(value) or PATH.accepts(value)))

# By keyword; what a function takes otherwise stands under its name.
RULES: dict[str, Mapping[str, Rule]] = {
    "": {
        "query": ARRAY, "key": ARRAY, "value": ARRAY, "input": ARRAY, "attn_mask": _or_none(ARRAY), "bias": _or_none(ARRAY), "out": _or_none(ARRAY),
        "past_key": _or_none(ARRAY), "past_value": _or_none(ARRAY), "key_scales": _or_none(ARRAY), "value_scales": _or_none(ARRAY),
        "lse": _or_none(ARRAY), "cache_key": ARRAY, "cache_value": _or_none(ARRAY), "key_cache": _or_none(ARRAY), "value_cache": _or_none(ARRAY),
        "kv_lengths": _or_none(SMALL), "lengths": SMALL, "counts": _or_none(SMALL), "page_table": _or_none(SMALL), "cache_lengths": _or_none(SMALL),
        "cu_seqlens": _or_none(SMALL), "cu_seqlens_q": _or_none(SMALL), "cu_seqlens_kv": _or_none(SMALL), "alibi_slopes": _or_none(SMALL), "sinks": _or_none(SMALL),
        "head_gate": _or_none(SMALL), "positions": _or_none(SMALL), "positions_q": _or_none(SMALL), "positions_kv": _or_none(SMALL),
        "position_offsets": _or_none(SMALL), "cos": SMALL, "sin": SMALL, "rope": ROPE, "rope_interleaved": FLAG, "interleaved": FLAG,
        "rope_trailing": FLAG, "trailing": FLAG, "gate": _or_none(ARRAY), "query_norm": NORM, "key_norm": NORM, "value_norm": FLAG,
        "precision": one_of(*_core.problem_fields["precision"]),
        "query_norm_weight": _or_none(SMALL), "query_norm_bias": _or_none(SMALL), "key_norm_weight": _or_none(SMALL),
        "key_norm_bias": _or_none(SMALL), "norm_epsilon": NUMBER, "dropout_p": NUMBER,
        "dropout_seed": Rule("a whole number from 0 to 2^64 - 1", lambda value: is_whole(value) and 0 <= value < 1 << 64),
        "dropout_offset": Rule("a whole number from 0 to 2^32 - 1", lambda value: is_whole(value) and 0 <= value < 1 << 32),
        "rope_sections": _or_none(one_of(*_core.problem_fields["rope_sections"][1:])),
        "sections": _or_none(Rule("two or three whole numbers", _is_sections)),
        "is_causal": FLAG, "causal_alignment": one_of("top_left", "bottom_right"), "scale": _or_none(NUMBER), "softcap": NUMBER,
        "window": Rule("(left, right), two whole numbers", lambda value: _is_pair(value) and all(is_whole(one) for one in value)),
        "window_left": COUNT, "layout": LAYOUT, "num_heads": COUNT, "return_lse": FLAG, "return_present": FLAG,
        "return_weights": Rule("True, False or 'mean'", lambda value: is_flag(value) or (isinstance(value, str) and value == "mean"), ("mean",)),
        "return_scores": _or_none(one_of("scaled", "capped", "logits")),
        "expression": _or_none(Rule("a text or a function", lambda value: isinstance(value, str) or callable(value))),
        "tensors": _or_none(Rule("a dict of arrays by name", lambda value: isinstance(value, Mapping))),
        "device": DEVICE, "key_padding_mask": _or_none(ARRAY), "need_weights": FLAG, "average_attn_weights": FLAG,
        "source": WHOLE, "target": WHOLE, "parts": Rule("a list of (out, lse)", lambda value: not isinstance(value, (str, bytes)) and hasattr(value, "__iter__")),
        "tuned": TUNED, "tiling": NAME, "op": NAME, "directory": PATH, "name": NAME,
    },
    "sdpa_backward": {"grad_out": ARRAY, "out": ARRAY, "lse": ARRAY,
                      "return_grads": Rule("a list of names", lambda value: isinstance(value, (list, tuple)))},
    "linear_backward": {"grad_out": ARRAY, "weight": ARRAY, "bias": FLAG},
    "append": {"layout": one_of("bhsd", "bshd"), "value": _or_none(ARRAY), "norm_epsilon": _or_none(NUMBER)},
    "rope": {"layout": one_of("bhsd", "bshd")},
    "normalize": {"norm": one_of(*NORMS), "epsilon": NUMBER, "weight": _or_none(SMALL), "bias": _or_none(SMALL)},
    "rope_sections_of": {"config": _CONFIG},
    "rope_tables": {"config": _CONFIG,
                    "rows": Rule("a whole number from 0 to 2^24", lambda value: is_whole(value) and 0 <= value <= 1 << 24),
                    "length": COUNT, "layer_type": _or_none(NAME)},
    "compile": {"target": NAME},
    "MultiheadAttention": {
        "embed_dim": WHOLE, "num_heads": WHOLE, "num_kv_heads": COUNT, "bias": FLAG, "kdim": COUNT, "vdim": COUNT, "batch_first": FLAG,
        "dtype": _or_none(one_of(*_core.storage_types)),
    },
    "__call__": {"key": _or_none(ARRAY), "value": _or_none(ARRAY), "keep_heads": FLAG},
    "backward": {"grad_out": ARRAY, "kept": Rule("what a call with keep_heads=True returned", lambda value: type(value).__name__ == "Kept")},
    "load_state_dict": {"state": Rule("a dict of tensors by name", lambda value: isinstance(value, Mapping))},
}


@functools.lru_cache(maxsize=None)
def _merged(function: str) -> Mapping[str, Rule]:
    """The rules of a function by keyword."""
    return {**RULES[""], **RULES.get(function, {})}


def rule_of(function: str, keyword: str) -> Rule:
    return _merged(function)[keyword]


def nearest(word: Any, words: Sequence[str]) -> str:
    """"; did you mean 'x'?", or nothing."""
    found = difflib.get_close_matches(word, words, 1, 0.5) if isinstance(word, str) else []
    return "; did you mean %s?" % found[0] if found else ""


def found_text(value: Any) -> str:
    """A value as a sentence shows it: short, on one line, and without asking an array for its elements."""
    if value is None or isinstance(value, (bool, int, float, str, bytes, numpy.bool_, numpy.number)):
        text = repr(value)
        return (text if len(text) <= 60 else text[:57] + "...").replace("\n", " ")
    return type(value).__name__


def check(function: str, arguments: Mapping[str, Any]) -> None:
    """Refuses the first argument whose value its rule does not take."""
    rules = _merged(function)
    for keyword, value in arguments.items():
        rule = rules[keyword]
        if not (value is None and rule.or_none) and not rule.accepts(value):
            require(keyword, value, rule)


def require(name: str, value: Any, rule: Rule) -> None:
    """Refuses a value that this rule does not take."""
    if rule.takes(value):
        return
    sentence = "%s: found %s, expected %s" % (name, found_text(value), rule.expected)
    if rule.words:
        raise refuse(sentence + nearest(value, rule.words))
    raise TypeError(sentence)


# Of compile() beside the fields of a problem.
COMPILE = {"no_bias": _or_none(FLAG), "untested_target": _or_none(FLAG), "limit_seconds": _or_none(NUMBER), "limit_megabytes": _or_none(NUMBER)}


def _rule_of_field(words: Optional[tuple[str, ...]]) -> Rule:
    """Of a field of a problem. True gives the option without a value, False and None leave it out."""
    if words is None:
        return _or_none(FLAG)
    if not words:
        return COUNT._replace(accepts=lambda value: value is False or WHOLE.accepts(value))
    return _or_none(Rule(one_of(*words).expected, lambda value: is_flag(value) or (isinstance(value, str) and value in words), words))


PROBLEM = {"expression": _or_none(NAME), **COMPILE, **{name: _rule_of_field(words) for name, words in _core.problem_fields.items()}}


def check_problem(problem: Mapping[str, Any]) -> None:
    """The keywords of compile(): the fields of a problem, as the options of `polyhead generate` have them."""
    for keyword, value in problem.items():
        if keyword not in PROBLEM:
            raise TypeError("compile() has no option %s%s" % (keyword, nearest(keyword, list(PROBLEM))))
        require(keyword, value, PROBLEM[keyword])
