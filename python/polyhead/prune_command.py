"""The command ./polyhead prune: ranks the heads of one layer, writes the layer without the heads to remove, reports bytes and time."""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
from typing import Any, Optional

import numpy

from . import num_threads, prune
from .error import Error, refuse
from .prune_importance import number_to_remove

EPILOG = """\
examples:
  ./polyhead prune --weights layer.safetensors --num-heads 12 --input x.npy --remove 6 -o out
  ./polyhead prune --weights model.safetensors --prefix encoder.layer.0.attention. --num-heads 12 --keep 0,3,5-8 -o out

See docs/guides/pruning.md.
"""
ARRAYS = ("query", "key", "value", "kv_lengths")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="polyhead prune", description="Ranks the heads of a layer on your data, and writes it without those that should go.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--weights", metavar="FILE", required=True, help="safetensors file with the layer's tensors, by PyTorch's names or BERT's")
    top.add_argument("--prefix", default="", help="what stands before these names in the file, with its dot")
    top.add_argument("--num-heads", type=int, required=True, metavar="H")
    top.add_argument("--num-kv-heads", type=int, metavar="H_KV", help="default: from the shapes")
    top.add_argument("--input", metavar="FILE", help="data.npy: query [batch, seq_len, D]; or data.npz: query, and as needed key, value, kv_lengths")
    which = top.add_mutually_exclusive_group()
    which.add_argument("--remove", metavar="N", help="how many heads go, or with a point the fraction: 6 or 0.5; without it heads are only ranked")
    which.add_argument("--keep", metavar="LIST", help="the heads that stay, without ranking: 0,3,5-8")
    top.add_argument("--by", choices=sorted(prune.MEASURES), default="ablation", help="what importance is (default ablation)")
    top.add_argument("--causal", action="store_true", help="the layer is causal")
    top.add_argument("--name", default="pruned", help="of the file and of the kernel in the generate line (default pruned)")
    top.add_argument("-o", "--output-directory", metavar="DIR", default=".", help="where NAME.safetensors goes (default: here)")
    top.add_argument("--rounds", type=int, default=15, help="rounds of the time measurement, 0 leaves it out (default 15)")
    top.add_argument("--json", action="store_true", help="the report as JSON")
    return top


def read_heads(text: str) -> list[int]:
    """"0,3,5-8" as numbers."""
    heads: list[int] = []
    for word in text.split(","):
        first, dash, last = word.strip().partition("-")
        if not (first.isdecimal() and (not dash or last.isdecimal())) or (dash and int(last) < int(first)) or max(len(first), len(last)) > 6:
            raise refuse("keep: found '%s', expected heads such as 0,3,5-8" % text)
        heads += range(int(first), int(last or first) + 1) if dash else [int(first)]
    return heads


def read_remove(text: str) -> Any:
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise refuse("remove: found '%s', expected a number of heads or a fraction such as 0.5" % text) from None


def read_input(path: str, layer: prune.Layer) -> dict[str, Any]:
    """The user's arrays, by name, in float32."""
    try:
        loaded = numpy.load(path, allow_pickle=False)
        arrays = {"query": loaded} if isinstance(loaded, numpy.ndarray) else {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError, EOFError) as error:
        raise refuse("input: cannot read '%s' as .npy or .npz: %s" % (path, error)) from error
    for name in arrays:
        if name not in ARRAYS:
            raise refuse("input: found '%s', expected %s" % (name, ", ".join(ARRAYS)))
    if "query" not in arrays:
        raise refuse("input: no query in '%s'" % path, "NULL_POINTER")
    if "value" in arrays and "key" not in arrays:
        raise refuse("input: found value without key, expected both or none", "NULL_POINTER")
    for name, width in (("query", layer.embed_dim), ("key", layer.kdim), ("value", layer.vdim)):
        if name in arrays:
            arrays[name] = _tokens_of(name, arrays[name], width)
    if "kv_lengths" in arrays:
        lengths = arrays["kv_lengths"]
        keys = arrays.get("key", arrays["query"])
        if lengths.dtype.kind not in "iu" or lengths.shape != keys.shape[:1] or (lengths < 0).any() or (lengths > keys.shape[1]).any():
            raise refuse("kv_lengths: found %s of %s, expected [%d] integers from 0 to %d" % (
                list(lengths.shape), lengths.dtype, keys.shape[0], keys.shape[1]))
        arrays["kv_lengths"] = lengths.astype(numpy.int32)
    return arrays


def _tokens_of(name: str, array: numpy.ndarray, width: int) -> numpy.ndarray:
    if array.dtype.kind != "f":
        raise refuse("%s: dtype %s, expected a float" % (name, array.dtype), "WRONG_DTYPE")
    if array.ndim == 2:
        array = array[None]
    if array.ndim != 3 or array.shape[2] != width or 0 in array.shape:
        raise refuse("%s: found %s, expected [batch, seq_len, %d]" % (name, list(array.shape), width), "WRONG_SHAPE")
    array = numpy.ascontiguousarray(array, numpy.float32)
    if not numpy.isfinite(array).all():
        raise refuse("%s: found NaN or infinity, expected finite numbers" % name)
    return array


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Makes the report; writes the file at the end."""
    layer = prune.load(options.weights, options.num_heads, options.num_kv_heads, prefix=options.prefix,
                       problem={"causal": "top_left"} if options.causal else None)
    kept: Optional[list[int]] = None if options.keep is None else read_heads(options.keep)
    removed = None if options.remove is None else read_remove(options.remove)
    if removed is not None:
        number_to_remove(removed, layer.num_heads, layer.num_heads - 1)
    pruned = None if kept is None else layer.keep(kept)
    if options.input is None and kept is None:
        raise refuse("input: missing, expected --input data.npy [batch, seq_len, %d], because heads are ranked on your data; or --keep LIST"
                     % layer.embed_dim, "NULL_POINTER")
    given = None if options.input is None else read_input(options.input, layer)
    target = pathlib.Path(options.output_directory) / (options.name + ".safetensors")
    if target.exists() and os.path.samefile(target, options.weights):
        raise refuse("output: '%s' is the file of the weights, expected another folder or --name" % target)
    report: dict[str, Any] = {
        "weights": options.weights, "prefix": options.prefix, "num_heads": layer.num_heads, "num_kv_heads": layer.num_kv_heads}
    if given is not None:
        importance = prune.MEASURES[options.by](layer, **given)
        report.update(by=options.by, importance=[float(x) for x in importance], ranked=prune.rank(importance))
        if removed is not None:
            kept = prune.kept_heads(importance, removed, layer.num_kv_heads)
            pruned = layer.keep(kept)
    if pruned is None or kept is None:
        return report
    report["kept"] = sorted(kept)
    cross = given is not None and "key" in given
    report["generate"] = pruned.generate_line(options.name, cross=cross, kv_lengths=given is not None and "kv_lengths" in given)
    if given is not None:
        report["output_change"] = _change(layer, pruned, given)
    report.update(_comparison(layer, pruned, given, options.rounds))
    metadata = {"num_heads": pruned.num_heads, "num_kv_heads": pruned.num_kv_heads, "kept": ",".join(map(str, report["kept"])),
                "generate": report["generate"]}
    report["written"], report["file_bytes"] = str(target), pruned.save(target, {name: str(value) for name, value in metadata.items()})
    return report


def _change(layer: prune.Layer, pruned: prune.Layer, given: dict[str, Any]) -> float:
    """The relative change of the output on the data, without padding."""
    real: Any = slice(None)
    if "kv_lengths" in given and "key" not in given:
        real = numpy.arange(given["query"].shape[1]) < given["kv_lengths"][:, None]
    return prune.relative_change(layer(**given)[real], pruned(**given)[real])


def _comparison(layer: prune.Layer, pruned: prune.Layer, given: Optional[dict[str, Any]], rounds: int) -> dict[str, Any]:
    """Bytes and times; on random tokens if there is no data."""
    if given is None:
        rng = numpy.random.default_rng(0)
        given = {"query": rng.standard_normal((1, 128, layer.embed_dim), numpy.float32)}
        if not layer.kdim == layer.vdim == layer.embed_dim:
            given.update(key=rng.standard_normal((1, 128, layer.kdim), numpy.float32),
                         value=rng.standard_normal((1, 128, layer.vdim), numpy.float32))
    found = prune.compare(layer, pruned, **given, rounds=max(rounds, 1), seconds=0.02 if rounds > 0 else 0)
    report: dict[str, Any] = {"kept_fraction": found.kept_fraction, "weights_bytes": found.weights_bytes, "tensor_bytes": found.tensor_bytes}
    if rounds > 0:
        report.update(milliseconds=found.milliseconds, time_ratio=found.time_ratio, shape=list(given["query"].shape), threads=num_threads(),
                      rounds=rounds)
    return report


def lines_of(report: dict[str, Any]) -> list[str]:
    """The report as text; the last line is the generate line."""
    lines = []
    if "ranked" in report:
        lines.append("heads by %s, least important first:" % report["by"])
        lines += ["  %3d  %.4g" % (head, report["importance"][head]) for head in report["ranked"]]
    if "kept" not in report:
        return lines
    lines.append("kept     %d of %d heads: %s" % (len(report["kept"]), report["num_heads"], " ".join(map(str, report["kept"]))))
    if "output_change" in report:
        lines.append("output   changes by %.2f %% on the data (root mean square)" % (100 * report["output_change"]))
    for name, key in (("weights", "weights_bytes"), ("tensors", "tensor_bytes")):
        before, after = report[key]
        lines.append("%-8s %d -> %d bytes, %.1f %%%s" % (name, before, after, 100 * after / before, " (packed)" if name == "weights" else ""))
    if "time_ratio" in report:
        before, after = report["milliseconds"]
        lines.append("time     %.3f -> %.3f ms, %.1f %%; query %s, %d threads, median of %d rounds in turns" % (
            before, after, 100 * report["time_ratio"], report["shape"], report["threads"], report["rounds"]))
    lines.append("written  %s, %d bytes" % (report["written"], report["file_bytes"]))
    return lines + [report["generate"]]


def main(arguments: Optional[list[str]] = None) -> int:
    options = parser().parse_args(arguments)
    try:
        report = run(options)
    except (Error, OSError) as error:
        print("polyhead: %s" % error, file=sys.stderr)
        return 1
    print(json.dumps(report, indent=1) if options.json else "\n".join(lines_of(report)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
