"""Functions around attention: a cache of keys and values, rotation by position, and merging of partial results. They run on the CPU."""
from __future__ import annotations

from typing import Any, Optional, Sequence

from . import _arrays, _core, options
from .error import refuse
from .options import NORMS


def append(cache_key: Any, cache_value: Any, key: Any, value: Any, lengths: Any, *, page_table: Any = None, counts: Any = None,
           rope: Optional[tuple[Any, Any]] = None, rope_interleaved: bool = False, rope_trailing: bool = False, positions: Any = None,
           rope_sections: Optional[str] = None, sections: Optional[Sequence[int]] = None, window_left: Optional[int] = None,
           key_scales: Any = None, value_scales: Any = None, cu_seqlens: Any = None, key_norm: Optional[str] = None, key_norm_weight: Any = None,
           key_norm_bias: Any = None, norm_epsilon: Optional[float] = None, value_norm: bool = False, layout: str = "bhsd") -> None:
    """Writes keys and values to a cache, in place: token t of batch row b to position lengths[b] + t.

    cache_key [B,H_kv,capacity,d], cache_value [B,H_kv,capacity,d_v]: writable arrays, float32, float16 or bfloat16; cache_value and value
    may be None, if value is a part of key. With page_table, int [B,max_pages], the cache is pages [pages,H_kv,page_size,d].
    key [B,H_kv,T,d], value [B,H_kv,T,d_v]: what is stored in 16 bits is rounded once.
    key_scales, value_scales: float32 [B,H_kv,capacity,n] or [pages,H_kv,page_size,n], exactly for a cache of int8. n is 1, d / 32 or d / 64.
    A scale is the largest |x| of the entries that share it, divided by 127.
    lengths [B]: valid keys before the call. counts [B]: so many of the T tokens are appended; None: all.
    rope (cos, sin), each [P, rotary_dim / 2], rope_interleaved, rope_trailing, rope_sections and sections as in sdpa: keys are rotated before they
    are stored, at positions lengths[b] + t, or at positions [B,T] (with sections [B,S,T]), or from positions [B] on. layout "bshd": all of them
    are [B,T,H,d], pages are [pages,page_size,H_kv,d].
    window_left: queries see no key further back than this many keys before their own. Pages with older keys only may then be written again,
    so that page_table[b, j] may name page j % n of a ring of n pages.
    cu_seqlens [B+1], from 0 to the number of all new tokens: packed tokens. key and value lose their B: [H_kv,total,d] or with "bshd"
    [total,H_kv,d]. Batch row b gets tokens cu_seqlens[b] .. cu_seqlens[b + 1] - 1; positions are [B] or [1,total] (with sections [1,S,total]),
    and there are no counts.
    key_norm "rms", "rms_plus_one" or "layer": of each row of the keys, before they are rotated, with key_norm_weight and, of "layer",
    key_norm_bias [d] (None: a factor of 1, a bias of 0) and norm_epsilon. value_norm: each row of the values becomes x / sqrt(mean(x^2) + norm_epsilon).

    All checks come first: if it raises polyhead.Error, the cache is unchanged. Afterwards the caller's lengths must grow by counts; to take
    tokens back, make them smaller.
    """
    options.check("append", locals())
    if cu_seqlens is not None:
        key, value = _batch_of_packed("key", key), _batch_of_packed("value", value)
    arguments = {"cache_key": cache_key, "cache_value": cache_value, "page_table": _arrays.small("page_table", page_table, "int32"),
                 "key": key, "value": value, "lengths": _arrays.small("lengths", lengths, "int32"),
                 "counts": _arrays.small("counts", counts, "int32"), "window_left": window_left, "key_scales": key_scales,
                 "value_scales": value_scales, **_rotation(rope, rope_interleaved, rope_trailing, positions, rope_sections, sections),
                 "cu_seqlens": _arrays.small("cu_seqlens", cu_seqlens, "int32"), "key_norm": 0 if key_norm is None else 1 + NORMS.index(key_norm),
                 "key_norm_weight": _arrays.small("key_norm_weight", key_norm_weight, "float32"),
                 "key_norm_bias": _arrays.small("key_norm_bias", key_norm_bias, "float32"),
                 "norm_epsilon": 0.0 if norm_epsilon is None else float(norm_epsilon), "value_norm": bool(value_norm)}
    _core.append(arguments, layout)


def copy_page(cache_key: Any, cache_value: Any, source: int, target: int, *, key_scales: Any = None, value_scales: Any = None) -> None:
    """Copies a page of a cache, with its scales if it is int8: before a sequence writes to the last page that it shares with another one."""
    options.check("copy_page", locals())
    _core.copy_page({"cache_key": cache_key, "cache_value": cache_value, "key_scales": key_scales, "value_scales": value_scales}, source, target)


def rope(input: Any, cos: Any, sin: Any, *, interleaved: bool = False, trailing: bool = False, positions: Any = None,
         rope_sections: Optional[str] = None, sections: Optional[Sequence[int]] = None, layout: str = "bhsd", out: Any = None) -> Any:
    """input [B,H,T,d] with the leading (or trailing) entries of each row rotated by position; returns out, which may be input itself.

    cos, sin [P, rotary_dim / 2]: pairs (i, i + rotary_dim / 2), with interleaved (2i, 2i + 1), with trailing of the last entries. positions: int
    [B,T], or [B], those of the first tokens; None: 0, 1, 2 ... With rope_sections and sections, as in sdpa, [B,S,T]. layout "bshd": [B,T,H,d].
    """
    options.check("rope", locals())
    if out is None:
        out = _arrays.empty(input, input.shape)
    _core.rotate({"input": input, "out": out, **_rotation((cos, sin), interleaved, trailing, positions, rope_sections, sections)}, layout)
    return out


def normalize(input: Any, norm: str, *, epsilon: float, weight: Any = None, bias: Any = None, out: Any = None) -> Any:
    """input of rank 4 with each row of its last dimension d normalized, as append(key_norm=norm) does it; returns out, which may be input itself.

    norm "rms", "rms_plus_one" or "layer"; weight and, of "layer", bias [d]; None: a factor of 1, a bias of 0.
    """
    options.check("normalize", locals())
    if out is None:
        out = _arrays.empty(input, input.shape)
    _core.normalize({"input": input, "out": out, "norm": 1 + NORMS.index(norm), "epsilon": float(epsilon),
                     "weight": _arrays.small("weight", weight, "float32"), "bias": _arrays.small("bias", bias, "float32")})
    return out


def merge_states(parts: Sequence[tuple[Any, Any]], *, sinks: Any = None, out: Any = None, lse: Any = None) -> tuple[Any, Any]:
    """(out, lse) over all keys from (out, lse) of parts of the keys, as sdpa(..., return_lse=True) gives them: [B,H,T_q,d_v], [B,H,T_q].

    No key may be in two parts. sinks [H] count once: give them here and leave them out of the parts. out and lse may be those of a part.
    """
    options.check("merge_states", locals())
    pairs = [_pair(part) for part in parts]
    if not pairs:
        raise refuse("parts: found none, expected at least one (out, lse)")
    first, first_lse = pairs[0]
    out = _arrays.empty(first, first.shape) if out is None else out
    lse = _arrays.empty(first_lse, first_lse.shape) if lse is None else lse
    _core.merge_states(pairs, _arrays.small("sinks", sinks, "float32"), out, lse)
    return out, lse


def _batch_of_packed(name: str, array: Any) -> Any:
    """Packed tokens with a batch of 1."""
    if array is None:
        return None
    if len(array.shape) != 3:
        raise refuse("%s: rank %d, expected 3, because its tokens are packed" % (name, len(array.shape)), "WRONG_SHAPE")
    return array[None]


def _rotation(tables: Optional[tuple[Any, Any]], interleaved: bool, trailing: bool, positions: Any, rope_sections: Optional[str],
              sections: Optional[Sequence[int]]) -> dict[str, Any]:
    cos, sin = (None, None) if tables is None else tables
    number, pairs = _arrays.sections_of(rope_sections, sections)
    return {"rope_sections": number, "sections": pairs,
            "rope": 0 if tables is None else _arrays.rope_of(interleaved, trailing), "rope_cos": _arrays.small("rope_cos", cos, "float32"),
            "rope_sin": _arrays.small("rope_sin", sin, "float32"), "positions": _arrays.small("positions", positions, "int32")}


def _pair(part: Any) -> tuple[Any, Any]:
    """(out, lse) of a part."""
    pair = tuple(part) if isinstance(part, (tuple, list)) else ()
    if len(pair) != 2:
        raise TypeError("parts: found %s, expected (out, lse)" % (type(part).__name__ if not pair else "%d arrays" % len(pair)))
    _arrays.require_arrays(**{"out of a part": pair[0], "lse of a part": pair[1]})
    return pair
