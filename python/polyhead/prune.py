"""polyhead.prune: how much each head matters on your data, and the layer without those that do not.

    layer = prune.load("layer.safetensors", num_heads=12)            # or prune.Layer(state_dict, 12)
    importance = prune.ablation(layer, x, kv_lengths=lengths)        # or prune.output_norm
    smaller = layer.keep(prune.kept_heads(importance, remove=6))
    smaller.save("pruned.safetensors")
    print(smaller.generate_line("pruned"), prune.compare(layer, smaller, x))

See docs/guides/pruning.md. `./polyhead prune` is the same as a command.
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
    """A layer and its pruned form: packed weights, tensors as they came, and the median over turns of the time of a call."""

    weights_bytes: tuple[int, int]
    tensor_bytes: tuple[int, int]
    milliseconds: tuple[float, float]
    time_ratio: float     # median over rounds of the ratio of two neighbouring turns
    kept_fraction: float  # of the heads


def compare(full: Layer, pruned: Layer, query: Any, key: Any = None, value: Any = None, *, kv_lengths: Any = None, rounds: int = 15,
            seconds: float = 0.02, clock: Callable[[], float] = time.perf_counter, pruned_arguments: Optional[dict[str, Any]] = None,
            **arguments: Any) -> Comparison:
    """Bytes and time of both. The layers are called in turns; the shortest of at least three calls stands for a turn, because other
    programs only add to it. A turn lasts about so many seconds; both have as many calls.

    clock: time.process_time counts the processor's time instead, which is steadier where other programs run; for one thread.
    pruned_arguments: tensors per head (sinks, alibi_slopes) that the pruned layer needs in another length.
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
    """Seconds of the shortest of so many calls."""
    kernel, arguments = call
    shortest = float("inf")
    for _ in range(repeats):
        started = clock()
        kernel(**arguments)
        shortest = min(shortest, clock() - started)
    return shortest
