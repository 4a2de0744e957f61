"""polyhead.prune: how important each head is on your data, and the layer without unimportant heads.

    layer = prune.load("layer.safetensors", num_heads=12)            # or prune.Layer(state_dict, 12)
    importance = prune.ablation(layer, x, kv_lengths=lengths)        # or prune.output_norm
    smaller = layer.keep(prune.kept_heads(importance, remove=6))
    smaller.save("pruned.safetensors")
    print(smaller.generate_line("pruned"), prune.compare(layer, smaller, x))

See docs/guides/pruning.md. The command `./polyhead prune` does the same.
"""
from __future__ import annotations

import statistics
import time
from typing import Any, Callable, NamedTuple, Optional

import numpy

from .prune_importance import MEASURES, ablation, kept_heads, model_ablation, output_norm, rank, relative_change
from .prune_layer import Layer, load

__all__ = ["Comparison", "Layer", "MEASURES", "ablation", "compare", "kept_heads", "load", "model_ablation", "output_norm", "rank",
           "relative_change"]


class Comparison(NamedTuple):
    """A layer and its pruned form: bytes of the packed weights and of the given tensors, and the median time of a call."""

    weights_bytes: tuple[int, int]
    tensor_bytes: tuple[int, int]
    milliseconds: tuple[float, float]
    time_ratio: float     # median over the rounds: time pruned / time full
    kept_fraction: float  # of the heads


def compare(full: Layer, pruned: Layer, query: Any, key: Any = None, value: Any = None, *, kv_lengths: Any = None, rounds: int = 15,
            seconds: float = 0.02, clock: Callable[[], float] = time.perf_counter, pruned_arguments: Optional[dict[str, Any]] = None,
            **arguments: Any) -> Comparison:
    """Compares bytes and time of both layers. In each round both layers have a turn of at least three calls; a turn lasts about `seconds`.
    The shortest call of a turn counts, because other programs can only make a call longer. Both layers have the same number of calls.

    clock: time.process_time measures processor time instead; with one thread it varies less while other programs run.
    pruned_arguments: tensors per head (sinks, alibi_slopes), in the length that the pruned layer needs.
    """
    calls, weights = [], []
    for layer, changed in ((full, {}), (pruned, pruned_arguments or {})):
        kernel = layer.kernel(cross=key is not None)
        packed = layer.pack(kernel)
        given = {"query": query, "key": key, "value": key if value is None else value, "kv_lengths": kv_lengths, "weights": packed,
                 "out": numpy.empty(query.shape, numpy.float32), **arguments, **changed}
        calls.append((kernel, {name: tensor for name, tensor in given.items() if tensor is not None}))
        weights.append(packed.nbytes)
    repeats = max(3, round(seconds / max(min(_shortest(call, 3, clock) for call in calls), 1e-6)))
    times = [[_shortest(call, repeats, clock) for call in calls] for _ in range(max(1, rounds))]
    before, after = (statistics.median(pair[i] for pair in times) for i in (0, 1))
    return Comparison((weights[0], weights[1]), (full.nbytes, pruned.nbytes), (before * 1e3, after * 1e3),
                      statistics.median(b / a for a, b in times), pruned.num_heads / full.num_heads)


def _shortest(call: Any, repeats: int, clock: Callable[[], float]) -> float:
    """The seconds of the shortest of `repeats` calls."""
    kernel, arguments = call
    shortest = float("inf")
    for _ in range(repeats):
        started = clock()
        kernel(**arguments)
        shortest = min(shortest, clock() - started)
    return shortest
