"""Tables of a rotation, and the scale of the softmax, from the configuration of a model as Hugging Face writes it (config.json)."""
from __future__ import annotations

import math
from typing import Any, Callable, Mapping, NamedTuple, Optional

import numpy

from . import options
from .error import refuse

Array = numpy.ndarray[Any, Any]


class RopeTables(NamedTuple):
    """What sdpa(rope=(cos, sin), scale=softmax_scale) takes."""

    cos: Array  # float32 [rows, rotary_dim / 2]
    sin: Array
    softmax_scale: float


class _Rotation(NamedTuple):
    """What a configuration says of the rotation of one kind of layer."""

    kind: str
    numbers: Mapping[str, Any]  # rope_parameters, or rope_scaling of older files
    config: Mapping[str, Any]
    head_dim: int  # entries of a head that may be rotated

    def number(self, name: str, otherwise: Any = None) -> Any:
        """A number of the rotation, or of the model."""
        for place in (self.numbers, self.config):
            if place.get(name) is not None:
                return place[name]
        if otherwise is None:
            raise refuse("%s: missing in the configuration, expected a value, because its rope_type is %s" % (name, self.kind))
        return otherwise

    def theta(self) -> float:
        return float(self.number("rope_theta", 10000.0))

    def dim(self) -> int:
        """Entries that are rotated."""
        return int(self.head_dim * self.number("partial_rotary_factor", self.config.get("rotary_pct") or 1.0))

    def trained_length(self) -> int:
        named = "original_max_position_embeddings"
        return int(self.number(named if self.numbers.get(named) or self.config.get(named) else "max_position_embeddings"))

    def factor(self) -> float:
        """By how much sequences may be longer than those of the training."""
        given = self.numbers.get("factor")
        return float(given) if given is not None else self.number("max_position_embeddings") / self.trained_length()

    def exponents(self) -> Array:
        return numpy.arange(0, self.dim(), 2, dtype=numpy.float64) / self.dim()

    def frequencies(self) -> Array:
        """Radians from a position to the next one, of each pair, without scaling."""
        return self.theta() ** -self.exponents()


# By rope_type: frequencies for sequences up to a length, and the factor of cos and sin.
_Made = tuple[Array, float]


def _default(r: _Rotation, _length: int) -> _Made:
    return r.frequencies(), 1.0


def _linear(r: _Rotation, _length: int) -> _Made:
    return r.frequencies() / r.number("factor"), 1.0


def _dynamic(r: _Rotation, length: int) -> _Made:
    trained, factor, dim = int(r.number("max_position_embeddings")), float(r.number("factor")), r.dim()
    stretched = factor * max(length, trained) / trained - (factor - 1)
    return (r.theta() * stretched ** (dim / (dim - 2))) ** -r.exponents(), 1.0


def _mscale(factor: float, by: float) -> float:
    return 0.1 * by * math.log(factor) + 1.0 if factor > 1 else 1.0


def _yarn(r: _Rotation, _length: int) -> _Made:
    factor, dim = r.factor(), r.dim()
    pair_of = [dim * math.log(r.trained_length() / (turns * 2 * math.pi)) / (2 * math.log(r.theta()))
               for turns in (r.numbers.get("beta_fast") or 32, r.numbers.get("beta_slow") or 1)]  # with so many turns within the trained length
    if r.numbers.get("truncate", True):
        pair_of = [math.floor(pair_of[0]), math.ceil(pair_of[1])]
    first, last = max(pair_of[0], 0), min(pair_of[1], dim - 1)
    slow = numpy.clip((numpy.arange(dim // 2) - first) / (last - first if last != first else 0.001), 0, 1)
    attention = r.numbers.get("attention_factor")
    if attention is None:
        by, of_all = r.numbers.get("mscale"), r.numbers.get("mscale_all_dim")
        attention = _mscale(factor, by) / _mscale(factor, of_all) if by and of_all else _mscale(factor, 1.0)
    return r.frequencies() * (slow / factor + (1 - slow)), float(attention)


def _longrope(r: _Rotation, length: int) -> _Made:
    trained, factor = r.trained_length(), r.factor()
    name = "long_factor" if length > trained else "short_factor"
    factors = numpy.asarray(r.number(name), numpy.float64)
    if factors.shape != (r.dim() // 2,):
        raise refuse("%s: %d numbers in the configuration, expected %d, one for each pair" % (name, factors.size, r.dim() // 2))
    attention = r.numbers.get("attention_factor")
    if attention is None:
        attention = math.sqrt(1 + math.log(factor) / math.log(trained)) if factor > 1 else 1.0
    return r.frequencies() / factors, float(attention)


def _llama3(r: _Rotation, _length: int) -> _Made:
    low, high, whole = float(r.number("low_freq_factor")), float(r.number("high_freq_factor")), r.frequencies()
    turns = r.trained_length() * whole / (2 * math.pi)  # within the trained length
    fast = numpy.clip((turns - low) / (high - low), 0, 1)
    return whole * (fast + (1 - fast) / r.number("factor")), 1.0


def _proportional(r: _Rotation, _length: int) -> _Made:
    """The pairs of the whole head, of which only the first ones turn."""
    pairs = numpy.arange(r.head_dim // 2, dtype=numpy.float64)
    turning = pairs < r.number("partial_rotary_factor", 1.0) * r.head_dim // 2
    return turning * r.theta() ** (-2 * pairs / r.head_dim) / r.number("factor", 1.0), 1.0


_KINDS: dict[str, Callable[[_Rotation, int], _Made]] = {
    "default": _default, "linear": _linear, "dynamic": _dynamic, "yarn": _yarn, "longrope": _longrope, "llama3": _llama3,
    "proportional": _proportional,
}
_OTHER_NAMES = {"su": "longrope", "mrope": "default"}  # of older files


def _parameters(config: Mapping[str, Any], layer_type: Optional[str]) -> Mapping[str, Any]:
    """The parameters of one kind of layer, where each kind has its own."""
    found = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(found, Mapping):
        raise refuse("rope_parameters: found %s in the configuration, expected an object" % options.found_text(found))
    by_layer = [name for name, value in found.items() if isinstance(value, Mapping)]
    if by_layer:
        if layer_type not in by_layer:
            raise refuse("layer_type: found %r, expected %s, which the configuration has" % (layer_type, " or ".join(by_layer)))
        return found[layer_type]
    local = config.get("rope_local_base_freq")
    return {"rope_theta": local} if local is not None and layer_type == "sliding_attention" else found


_LISTS = ("short_factor", "long_factor")
_OF_ROTATION = ("factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
                "low_freq_factor", "high_freq_factor", *_LISTS)
_OF_MODEL = ("rope_theta", "rope_local_base_freq", "partial_rotary_factor", "rotary_pct", "max_position_embeddings", "head_dim", "global_head_dim",
             "qk_rope_head_dim", "qk_nope_head_dim", "hidden_size", "num_attention_heads", "query_pre_attn_scalar", "attention_multiplier")


def _check_numbers(numbers: Mapping[str, Any]) -> None:
    """Refuses what is read and is no number, so that tables need not ask. A file may have other entries, of any kind."""
    for name in (*_OF_ROTATION, *_OF_MODEL):
        value = numbers.get(name)
        many = name in _LISTS and isinstance(value, (list, tuple))
        if value is not None and not all(options.is_number(one) and 0 <= one < 1e30 for one in (value if many else [value])):
            raise refuse("%s: found %s in the configuration, expected %s" % (
                name, options.found_text(value), "numbers" if name in _LISTS else "a number from 0"))


def _made(r: _Rotation, length: int) -> _Made:
    """Frequencies and factor; refused where the numbers give none, as a theta of 0 does."""
    if r.dim() > r.head_dim:
        raise refuse("partial_rotary_factor: found %d entries to rotate in the configuration, expected at most the %d of a head" % (r.dim(), r.head_dim))
    try:
        with numpy.errstate(all="ignore"):
            frequencies, factor = _KINDS[r.kind](r, length)
    except (ArithmeticError, ValueError):
        frequencies, factor = numpy.array(math.nan), math.nan
    if not numpy.isfinite(frequencies).all() or not math.isfinite(factor):
        raise refuse("rope_parameters: found numbers of %s that give no finite frequencies, expected those of a model" % r.kind)
    return frequencies, factor


def _rotation(config: Mapping[str, Any], layer_type: Optional[str]) -> _Rotation:
    numbers = _parameters(config, layer_type)
    _check_numbers(config)
    _check_numbers(numbers)
    named = numbers.get("rope_type") or numbers.get("type") or "default"
    kind = _OTHER_NAMES.get(named, named) if isinstance(named, str) else ""
    if kind not in _KINDS:
        raise refuse("rope_type: found %s, expected %s" % (options.found_text(named), options.one_of(*_KINDS).expected) + options.nearest(kind, list(_KINDS)))
    of_layer = config.get("global_head_dim") if layer_type == "full_attention" else None
    head_dim = config.get("qk_rope_head_dim") or of_layer or config.get("head_dim")
    if head_dim is None:
        if not config.get("hidden_size") or not config.get("num_attention_heads"):
            raise refuse("head_dim: missing in the configuration, expected it, or hidden_size and num_attention_heads")
        head_dim = config["hidden_size"] // config["num_attention_heads"]
    return _Rotation(kind, numbers, config, int(head_dim))


def _softmax_scale(r: _Rotation) -> float:
    config = r.config
    if str(config.get("model_type", "")).startswith("gemma4"):
        return 1.0  # its query and key are normed
    if config.get("attention_multiplier") is not None:
        return float(config["attention_multiplier"])
    scale = float(config.get("query_pre_attn_scalar") or r.head_dim + (config.get("qk_nope_head_dim") or 0)) ** -0.5
    of_all = r.numbers.get("mscale_all_dim") if r.kind == "yarn" and config.get("qk_rope_head_dim") else None
    return scale * _mscale(r.factor(), of_all) ** 2 if of_all else scale


def _of_text(config: Any) -> Mapping[str, Any]:
    given: Mapping[str, Any] = config if isinstance(config, Mapping) else config.to_dict()
    return given.get("text_config") or given


def rope_sections_of(config: Any) -> dict[str, Any]:
    """The keywords rope_sections and sections of sdpa(), from mrope_section and mrope_interleaved of a configuration; {} if it has none.

    Whether pairs are neighbours is not in a configuration, and positions by direction come from the images and videos of a text.
    """
    options.check("rope_sections_of", locals())
    numbers = _parameters(_of_text(config), None)
    sections = numbers.get("mrope_section")
    if sections is None:
        return {}
    return {"rope_sections": "interleaved" if numbers.get("mrope_interleaved") else "contiguous", "sections": tuple(int(n) for n in sections)}


def rope_tables(config: Any, rows: int, *, length: Optional[int] = None, layer_type: Optional[str] = None) -> RopeTables:
    """cos and sin, float32 [rows, rotary_dim / 2] for the positions 0 to rows - 1, and the scale of the softmax.

    config: the content of a model's config.json, or an object with to_dict(). rope_type is default, linear, dynamic, yarn, longrope, llama3 or
    proportional; all is computed in float64 and rounded once. length: of the sequence, which dynamic and longrope depend on (None: rows).
    layer_type: "full_attention" or "sliding_attention" of models whose kinds of layers rotate differently. Which entries make a pair is not in
    a configuration: most models take (i, i + rotary_dim / 2).
    """
    options.check("rope_tables", locals())
    r = _rotation(_of_text(config), layer_type)
    if r.dim() < 2 or r.dim() % 2:
        raise refuse("rotary_dim: found %d in the configuration, expected an even number" % r.dim())
    frequencies, factor = _made(r, rows if length is None else length)
    angles = numpy.arange(rows, dtype=numpy.float64)[:, None] * frequencies
    return RopeTables((numpy.cos(angles) * factor).astype(numpy.float32), (numpy.sin(angles) * factor).astype(numpy.float32), _softmax_scale(r))
