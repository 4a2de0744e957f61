#!/usr/bin/env python3
"""How far the sentence embedding moves when heads of MiniLM go: least important first by ablation and by output norm, and at random.

    run.py                            the table and the plot of docs/guides/pruning.md
    run.py --step 12 --seeds 2        the same, coarser
    run.py --sliced 36                how many heads the model is sliced by at the end
    run.py --times --rounds 31        only bytes and time of one layer with fewer heads
"""
import argparse
import json
import pathlib
import time

import numpy as np

from encoder import EMBED_DIM, NUM_HEADS, NUM_LAYERS, Encoder, model_dir, tokenize
from polyhead import num_threads, prune, set_num_threads

HEADS = NUM_LAYERS * NUM_HEADS
HERE = pathlib.Path(__file__).resolve().parent
LEFT = HEADS - NUM_LAYERS  # as many can go: a layer keeps one head


def errors(full, changed):
    """1 - cosine of each sentence, averaged; the largest difference of an element."""
    return 1 - float((full * changed).sum(axis=1).mean()), float(np.abs(full - changed).max())


def importance_of(encoder, ids, lengths):
    """Both measures over all layers, [6,12] each."""
    seen = []
    encoder.embed(ids, lengths, seen=seen)
    norm = np.array([prune.output_norm(layer, x, kv_lengths=lengths) for layer, x in zip(encoder.layers, seen)])
    ablation = prune.model_ablation(lambda gates: encoder.embed(ids, lengths, gates), (NUM_LAYERS, NUM_HEADS),
                                    distance=lambda full, changed: errors(full, changed)[0])
    return {"ablation": ablation, "output norm": norm}


def gates_of(kept):
    gates = np.zeros((NUM_LAYERS, NUM_HEADS), np.float32)
    for row, heads in zip(gates, kept):
        row[heads] = 1
    return gates


def curves(encoder, importance, ids, lengths, counts, seeds):
    """name -> errors [counts, 2]; "random" -> [seeds, counts, 2]."""
    full = encoder.embed(ids, lengths)

    def curve(ranks):
        return [errors(full, encoder.embed(ids, lengths, gates_of(prune.kept_heads(ranks, count)))) for count in counts]

    found = {name: np.array(curve(ranks)) for name, ranks in importance.items()}
    shuffled = [np.random.default_rng(seed).permutation(HEADS).reshape(NUM_LAYERS, NUM_HEADS) for seed in range(seeds)]
    found["random"] = np.array([curve(ranks) for ranks in shuffled])
    return found


def table(counts, found):
    """The rows of the report, in Markdown."""
    yield "| heads removed of %d | ablation: 1 − cos | max abs | output norm: 1 − cos | max abs | random: 1 − cos | max abs |" % HEADS
    yield "|--:|--:|--:|--:|--:|--:|--:|"
    mean, spread = found["random"].mean(axis=0), found["random"].std(axis=0)
    for i, count in enumerate(counts):
        cells = ["%.4f | %.3f" % tuple(found[name][i]) for name in ("ablation", "output norm")]
        yield "| %d | %s | %s | %.4f ± %.4f | %.3f ± %.3f |" % (count, cells[0], cells[1], mean[i, 0], spread[i, 0], mean[i, 1], spread[i, 1])


def plot(path, counts, found):
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "polyhead", "font.size": 9})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 3.6))
    mean, spread = found["random"][..., 0].mean(axis=0), found["random"][..., 0].std(axis=0)
    axes.fill_between(counts, mean - spread, mean + spread, color="0.85", label="random, one standard deviation")
    axes.plot(counts, mean, color="0.5", label="random, mean of %d" % len(found["random"]))
    axes.plot(counts, found["output norm"][:, 0], color="tab:orange", label="by output norm")
    axes.plot(counts, found["ablation"][:, 0], color="tab:blue", label="by ablation")
    axes.set(xlabel="heads removed of %d" % HEADS, ylabel="1 − cosine to the full model's embedding", xlim=(0, counts[-1]), ylim=(0, None))
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if str(path).endswith(".svg") else None)


def sliced(encoder, importance, ids, lengths, count, rounds):
    """Slices the layers for real: the same embedding as with gates, and what that saves."""
    kept = prune.kept_heads(importance["ablation"], count)
    layers = [layer.keep(heads) for layer, heads in zip(encoder.layers, kept)]
    gated, cut = encoder.embed(ids, lengths, gates_of(kept)), encoder.embed(ids, lengths, layers=layers)
    x = np.random.default_rng(0).standard_normal((4, 128, EMBED_DIM), np.float32)
    threads = num_threads()
    set_num_threads(1)
    pairs = [prune.compare(full, pruned, x, rounds=rounds, clock=time.process_time) for full, pruned in zip(encoder.layers, layers)]
    set_num_threads(threads)
    total = {name: [sum(getattr(pair, name)[i] for pair in pairs) for i in (0, 1)] for name in ("weights_bytes", "milliseconds")}
    return {"removed": count, "kept": kept, "difference_to_gates": float(np.abs(gated - cut).max()), "shape": list(x.shape), **total}


def report_sliced(cut):
    before, after = cut["weights_bytes"]
    yield "Sliced: %d heads removed by ablation; heads left per layer %s, %.1f %% of all." % (
        cut["removed"], " ".join(str(len(heads)) for heads in cut["kept"]), 100 * (HEADS - cut["removed"]) / HEADS)
    yield "  largest difference to the embedding by gates: %.1e" % cut["difference_to_gates"]
    yield "  packed weights of the six attention layers: %d -> %d bytes, %.1f %%" % (before, after, 100 * after / before)
    before, after = cut["milliseconds"]
    yield "  processor time of the six attention layers on %s: %.2f -> %.2f ms, %.1f %%" % (cut["shape"], before, after, 100 * after / before)


def times(encoder, rounds):
    """Bytes and time of one layer sliced to a quarter, half and three quarters of its heads, as parts of the whole; in Markdown."""
    shapes, clocks = ((1, 128), (8, 128), (1, 512)), ((1, time.process_time), (2, time.perf_counter))
    names = ["%s, threads: %d, %s" % ("processor time" if n == 1 else "time", n, [*shape, EMBED_DIM]) for n, _ in clocks for shape in shapes]
    yield "| kept | bytes | " + " | ".join(names) + " |"
    yield "|--:|" + "--:|" * (1 + len(names))
    layer, rng = encoder.layers[0], np.random.default_rng(0)
    inputs = [rng.standard_normal((*shape, EMBED_DIM), np.float32) for shape in shapes]
    for kept in (3, 6, 9):
        pruned, cells = layer.keep(range(kept)), []
        for n, clock in clocks:
            for x in inputs:
                set_num_threads(n)
                found = prune.compare(layer, pruned, x, rounds=rounds, clock=clock)
                cells.append("%.1f %%" % (100 * found.time_ratio))
        cells.insert(0, "%.2f %%" % (100 * found.weights_bytes[1] / found.weights_bytes[0]))
        yield "| %d of %d, %d %% | %s |" % (kept, NUM_HEADS, 100 * kept / NUM_HEADS, " | ".join(cells))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", type=int, default=6, help="heads between two rows (default 6)")
    parser.add_argument("--seeds", type=int, default=8, help="random orders (default 8)")
    parser.add_argument("--sliced", type=int, default=36, metavar="N", help="slice the layers with N heads removed; 0: do not (default 36)")
    parser.add_argument("--rounds", type=int, default=15, help="of the time measurement (default 15)")
    parser.add_argument("--times", action="store_true", help="only bytes and time of one layer with 3, 6 and 9 of its heads")
    parser.add_argument("--plot", metavar="FILE", help="also draw the curves: .svg or .png")
    parser.add_argument("--json", metavar="FILE", help="also write all numbers")
    args = parser.parse_args()
    started = time.monotonic()
    texts = (HERE / "sentences.txt").read_text(encoding="utf-8").splitlines()
    model = model_dir()
    encoder = Encoder(model)
    if args.times:
        print("\n".join(times(encoder, args.rounds)))
        return
    halves = [tokenize(texts[i :: 2], model) for i in (0, 1)]
    print("Importance is measured on %d sentences, errors on %d others." % (len(halves[0][0]), len(halves[1][0])))
    importance = importance_of(encoder, *halves[0])
    counts = list(range(0, LEFT + 1, max(args.step, 1)))
    found = curves(encoder, importance, *halves[1], counts, max(args.seeds, 1))
    print("\n".join(table(counts, found)))
    result = {"counts": counts, "importance": importance, "errors": found}
    if args.sliced:
        result["sliced"] = sliced(encoder, importance, *halves[1], args.sliced, args.rounds)
        print("\n".join(report_sliced(result["sliced"])))
    if args.plot:
        plot(args.plot, counts, found)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(result, default=np.ndarray.tolist, indent=1) + "\n", encoding="utf-8")
    print("%.0f s" % (time.monotonic() - started))


if __name__ == "__main__":
    main()
