"""Which heads matter on the user's data: the norm of what a head adds, or the change of the output without it; ranks and choices."""
from __future__ import annotations

from typing import Any, Callable, Optional, Sequence, Union

import numpy

from .error import refuse
from .prune_layer import Layer


def output_norm(layer: Layer, query: Any, key: Any = None, value: Any = None, *, kv_lengths: Any = None, **arguments: Any) -> numpy.ndarray:
    """[H]: mean over tokens of |context_h W_O_h|, the norm of what head h adds to the layer's output.

    In self-attention the tokens after kv_lengths are padding and do not count.
    """
    def run(gate: numpy.ndarray) -> numpy.ndarray:
        return _tokens(layer(query, key, value, head_gate=gate, kv_lengths=kv_lengths, **arguments), key, kv_lengths)

    bias = run(numpy.zeros(layer.num_heads, numpy.float32))  # the output without any head
    alone = numpy.eye(layer.num_heads, dtype=numpy.float32)
    return numpy.array([numpy.linalg.norm(run(gate) - bias, axis=-1).mean() for gate in alone])


def ablation(layer: Layer, query: Any, key: Any = None, value: Any = None, *, kv_lengths: Any = None, **arguments: Any) -> numpy.ndarray:
    """[H]: relative change of the layer's output when the gate of head h is 0: |out - out without h| / |out| over all tokens."""
    def run(gate: numpy.ndarray) -> numpy.ndarray:
        return _tokens(layer(query, key, value, head_gate=gate, kv_lengths=kv_lengths, **arguments), key, kv_lengths)

    return model_ablation(run, (layer.num_heads,))


def relative_change(full: numpy.ndarray, changed: numpy.ndarray) -> float:
    """|full - changed| / |full|, in float64."""
    full, changed = numpy.asarray(full, numpy.float64), numpy.asarray(changed, numpy.float64)
    return float(numpy.linalg.norm(full - changed) / max(numpy.linalg.norm(full), numpy.finfo(numpy.float64).tiny))


def model_ablation(run: Callable[[numpy.ndarray], numpy.ndarray], shape: Sequence[int],
                   distance: Callable[[numpy.ndarray, numpy.ndarray], float] = relative_change) -> numpy.ndarray:
    """Like ablation(), for a whole model: run(gates) returns the model's output for gates of this shape, [H] or [layers, H].

    distance(output, output without the head) is the size of the change.
    """
    gates = numpy.ones(tuple(shape), numpy.float32)
    full = numpy.array(run(gates.copy()))
    changes = numpy.empty(gates.shape)
    for head in numpy.ndindex(*gates.shape):
        without = gates.copy()
        without[head] = 0
        changes[head] = distance(full, run(without))
    return changes


MEASURES = {"ablation": ablation, "output_norm": output_norm}


def rank(importance: Any) -> list[Any]:
    """The heads, least important first; equal ones in ascending order. [H]: numbers; [layers, H]: pairs (layer, head)."""
    importance = _checked(importance)
    order = numpy.argsort(importance, axis=None, kind="stable")
    if importance.ndim == 1:
        return [int(head) for head in order]
    return [(int(at // importance.shape[1]), int(at % importance.shape[1])) for at in order]


def kept_heads(importance: Any, remove: Union[int, float], num_kv_heads: Optional[int] = None) -> Any:
    """The heads that stay when the least important ones are removed. remove: their number, or as a float below 1 their fraction.

    [H]: a list of heads. With grouped heads whole groups are removed, least important sum first. If remove is not a number of whole groups
    but a multiple of num_kv_heads, the same number of heads is removed from every group. [layers, H]: a list per layer. The least
    important heads of all layers together are removed, and each layer keeps its most important head.
    """
    importance = _checked(importance)
    heads = importance.shape[-1]
    count = number_to_remove(remove, importance.size, largest=importance.size - (1 if importance.ndim == 1 else importance.shape[0]))
    if importance.ndim == 2:
        return _kept_of_layers(importance, count)
    groups = heads if num_kv_heads is None else num_kv_heads
    if groups < 1 or heads % groups:
        raise refuse("num_heads %d is not divisible by num_kv_heads %d" % (heads, groups))
    size = heads // groups
    table = importance.reshape(groups, size)
    if count % size == 0:
        gone = [group * size + i for group in rank(table.sum(axis=1))[: count // size] for i in range(size)]
    elif count % groups == 0:
        gone = [group * size + head for group in range(groups) for head in rank(table[group])[: count // groups]]
    else:
        raise refuse("remove: found %d of %d heads in groups of %d, expected a multiple of %d or of %d" % (count, heads, size, size, groups))
    return [head for head in range(heads) if head not in gone]


def number_to_remove(remove: Union[int, float], heads: int, largest: int) -> int:
    """The number of heads to remove, from a number or a fraction."""
    fraction = isinstance(remove, (float, numpy.floating))
    if isinstance(remove, bool) or not isinstance(remove, (int, float, numpy.integer, numpy.floating)) or not remove >= 0 or (
            fraction and remove >= 1):
        raise refuse("remove: found %r, expected a number of heads from 0 to %d, or a fraction below 1" % (remove, largest))
    count = int(round(remove * heads)) if fraction else int(remove)
    if count > largest:
        raise refuse("remove: found %d of %d heads, expected at most %d; a layer keeps one" % (count, heads, largest))
    return count


def _kept_of_layers(importance: numpy.ndarray, count: int) -> list[list[int]]:
    kept = [list(range(importance.shape[1])) for _ in importance]
    for layer, head in rank(importance):
        if count and len(kept[layer]) > 1:
            kept[layer].remove(head)
            count -= 1
    return kept


def _checked(importance: Any) -> numpy.ndarray:
    importance = numpy.asarray(importance, numpy.float64)
    if importance.ndim not in (1, 2) or importance.size == 0:
        raise refuse("importance: found %s, expected [heads] or [layers, heads]" % list(importance.shape), "WRONG_SHAPE")
    if numpy.isnan(importance).any():
        raise refuse("importance: found NaN, expected numbers; the data may hold NaN or infinity")
    return importance


def _tokens(out: numpy.ndarray, key: Any, kv_lengths: Any) -> numpy.ndarray:
    """[tokens, D] in float64, without padding."""
    out = numpy.asarray(out, numpy.float64)
    if key is not None or kv_lengths is None:
        return out.reshape(-1, out.shape[-1])
    return out[numpy.arange(out.shape[1]) < numpy.asarray(kv_lengths)[:, None]]
