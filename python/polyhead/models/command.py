"""The command generate --from: prints the attention layers of a model with what they cost, and makes their kernels."""
from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import textwrap
from typing import Any, Optional, Sequence

from .. import _core
from ..env_command import generator
from ..error import Error, refuse
from ..kernel import flags_of
from ..tuning.problem import DECODE_MOST, parse
from .configuration import layers_of, load
from .counts import Counts, counts_of
from .layer import Layer
from .table import MODELS

EPILOG = """\
examples:
  ./polyhead generate --from config.json --print
  ./polyhead generate --from config.json --dtype bf16 --page-size 16 --target portable -o kernels

All other options are those of `polyhead generate`, for every kernel; fields of a problem for attention alone.
%s
See docs/guides/models.md.
""" % textwrap.fill("model_type: %s" % ", ".join(MODELS), 100)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="polyhead generate", description="Prints the attention layers of a model with what they cost, and writes their kernels.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    top.add_argument("--from", dest="config", metavar="FILE", nargs="?", help="the config.json of a model, as Hugging Face writes it")
    top.add_argument("--print", dest="only_print", action="store_true", help="write no kernels")
    top.add_argument("--dtype", choices=list(_core.storage_types), default="f32", help="storage type (default f32)")
    lengths = top.add_mutually_exclusive_group()
    lengths.add_argument("--decode", action="store_true", help="only the variants for calls of up to %d tokens" % DECODE_MOST)
    lengths.add_argument("--prefill", action="store_true", help="only the variants for longer calls")
    top.add_argument("--context", type=int, default=4096, metavar="N", help="tokens that a token sees, for bytes of caches and FLOPs (default 4096)")
    top.add_argument("-o", "--output", "--output-directory", default=".", metavar="DIR", help="where the files go (default: here)")
    return top


def bytes_text(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 10000:
            return "%d %s" % (count, unit)
        count = round(count / 1024)
    return "%d GiB" % count


def layers_text(numbers: Sequence[int]) -> str:
    """0-3, 5: the numbers, neighbours together. Numbers with one distance: 0, 2 .. 30."""
    steps = {second - first for first, second in zip(numbers, numbers[1:])}
    if len(numbers) > 3 and len(steps) == 1 and steps != {1}:
        return "%d, %d .. %d" % (numbers[0], numbers[1], numbers[-1])
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else "%d-%d" % (first, last) for first, last in runs)


def row_of(name: str, layers: str, count: int, one: Counts) -> tuple[str, ...]:
    c = one.times(count)
    return name, str(count), layers, "{:,}".format(c.parameters), bytes_text(c.weights_bytes), bytes_text(c.cache_token_bytes), \
        bytes_text(c.cache_bytes), "%.4g" % (c.flops / 1e6)


HEAD = ("kind", "layers", "which", "parameters", "weights", "cache of a token", "cache", "MFLOP of a token")


def table_of(layers: Sequence[Layer], dtype: str, context: int) -> list[str]:
    """Sums over the layers of each kind, and over all of them."""
    counted = [(layer, counts_of(layer, dtype, context)) for layer in layers]
    rows = [HEAD, *(row_of(layer.kind, layers_text(layer.layers), len(layer.layers), one) for layer, one in counted)]
    sums = Counts(*map(sum, zip(*(one.times(len(layer.layers)) for layer, one in counted))))
    total = row_of("all", "", 1, sums)
    rows.append((total[0], str(sum(len(layer.layers) for layer in layers)), *total[2:]))
    widths = [max(map(len, column)) for column in zip(*rows)]
    texts = (2, 0)  # columns of words: to the left
    return ["  ".join(cell.ljust(width) if place in texts else cell.rjust(width) for place, (cell, width) in enumerate(zip(row, widths))).rstrip()
            for row in rows]


def numbers_text(layer: Layer) -> str:
    """What each call is given, of numbers and tensors that do not change."""
    words = ["%s=%s" % (name, value if isinstance(value, tuple) else "%.8g" % value) for name, value in layer.numbers.items()]
    words += [name for name in ("sinks", "query_norm_weight", "key_norm_weight") if name in layer.names]
    if layer.fields.get("rope"):
        of_type = ", layer_type=%r" % layer.layer_type if layer.layer_type not in (None, "attention") else ""
        words.append("cos and sin of rope_tables(config, rows%s)" % of_type)
    return ", ".join(words)


def shown(layers: Sequence[Layer], options: argparse.Namespace, further: Sequence[str]) -> list[str]:
    lines = ["%s: attention of %d layers, %s, a context of %d tokens" % (
        layers[0].model_type, sum(len(layer.layers) for layer in layers), options.dtype, options.context), ""]
    lines += table_of(layers, options.dtype, options.context)
    for layer in layers:
        lines.append("")
        lines += ["polyhead generate %s %s" % (name, shlex.join(words)) for name, words in commands(layer, options, further).items()]
        lines.append("  a call takes %s" % numbers_text(layer))
        if layer.reads is not None:
            lines.append("  it reads the cache of layer %d" % layer.reads)
        lines += ["  " + sentence for sentence in layer.caller]
    return lines


def without_fields(words: Sequence[str]) -> list[str]:
    """The words without fields of a problem."""
    kept: list[str] = []
    skipped = False  # the word before was a field that takes a value
    for word in words:
        field = word[2:].partition("=")[0].replace("-", "_") if word.startswith("--") else ""
        if field in _core.problem_fields:
            skipped = "=" not in word and _core.problem_fields[field] is not None
        elif not skipped:
            kept.append(word)
        else:
            skipped = False
    return kept


def commands(layer: Layer, options: argparse.Namespace, further: Sequence[str]) -> dict[str, list[str]]:
    """The words of `polyhead generate` by name of the kernel."""
    found = {}
    for name, fields in layer.kernels().items():
        found[name] = flags_of({**fields, "dtype": options.dtype})
        if "num_heads" in fields:
            if options.decode or options.prefill:
                found[name] += ["--seq-len-q-range", "1:%d" % DECODE_MOST if options.decode else "%d:" % (DECODE_MOST + 1)]
            found[name] += further
        else:
            found[name] += without_fields(further)
    return found


def run(options: argparse.Namespace, further: list[str]) -> int:
    if not options.config:
        raise refuse("from: found no file, expected the config.json of a model")
    if options.context < 1:
        raise refuse("context: found %d, expected a number from 1" % options.context)
    layers = layers_of(load(options.config))
    print("\n".join(shown(layers, options, further)), flush=True)
    if options.only_print:
        return 0
    if not _core.environment()["halide_found"]:
        raise refuse("generate: found no Halide 21, expected it: pip install 'polyhead[generate]'", "UNSUPPORTED")
    kernels: dict[str, Any] = {name: words for layer in layers for name, words in commands(layer, options, further).items()}
    for number, (name, words) in enumerate(kernels.items(), 1):
        print("[%d/%d] %s" % (number, len(kernels), os.path.join(options.output, name + ".a")), flush=True)
        done = subprocess.call([generator(), name, *words, "-o", options.output])
        if done != 0:
            return done
    return 0


def main(arguments: Optional[list[str]] = None) -> int:
    options, further = parse(parser(), arguments)
    try:
        return run(options, further)
    except (Error, OSError) as error:
        print("polyhead generate: %s" % error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
