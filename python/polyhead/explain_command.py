"""The command ./polyhead explain: which variant of a kernel a call runs, and why not those before it. It computes nothing."""
from __future__ import annotations

import argparse
import functools
import re
import sys
from typing import Any, Optional

import numpy

from . import _arrays, _core, set_num_threads
from .error import Error, refuse
from .kernel import Kernel
from .tuning.problem import LINEAR, LINEAR_BACKWARD, MHA, flags_of_name, kernel_table, parse

EPILOG = """\
examples:
  ./polyhead explain minilm_layer --query-length 16
  ./polyhead explain --op sdpa --num-heads 32 --num-kv-heads 8 --head-dim 128 --kv-lengths --query-length 1,512 --key-length 4096
  POLYHEAD_CPU_FEATURES=avx2 ./polyhead explain out/attention.json --query-length 128

All other flags are those of `polyhead generate`. Tensors that a call may leave out are left out. See docs/internals/design.md, section 5.
"""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="polyhead explain", description="Says which variant of a kernel a call runs, and why not those before it.",
                                  epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    top.add_argument("kernel", nargs="?", metavar="KERNEL", help="a name of kernels/table.txt, or a manifest NAME.json that a build has written")
    top.add_argument("--query-length", metavar="LIST", help="queries of a call, rows of a linear layer: 1,512 (default: the fixed length, otherwise 128)")
    top.add_argument("--key-length", metavar="LIST", help="keys of a call (default: the fixed length, otherwise as many as queries)")
    top.add_argument("--batch", type=int, default=1, help="batch rows of a call (default 1)")
    top.add_argument("--threads", type=int, default=0, help="of the call, for its scratch memory (default: as many as calls have)")
    return top


def lengths_of(option: str, text: Optional[str], default: int) -> list[int]:
    words = text.split(",") if text else [str(default)]
    if not all(word.strip().isdecimal() and len(word.strip()) < 10 for word in words):
        raise refuse("%s: found '%s', expected lengths such as 1,512" % (option, text))
    return [int(word) for word in words]


def zeros(*shape: int, dtype: str = "float32") -> numpy.ndarray:
    """Memory that is never read or written, if the kernel has this dtype."""
    return numpy.zeros(shape, _arrays.numpy_dtype(dtype))


def arguments_of(kernel: Kernel, batch: int, queries: int, keys: int) -> dict[str, Any]:
    """The tensors that every call of this kernel needs."""
    p = kernel.problem
    tensor = functools.partial(zeros, dtype=list(_arrays.DTYPES)[p["dtype"]])
    if p["op"] == LINEAR:
        return {"input": tensor(queries, p["embed_dim"]),
                "weights": kernel.pack(out_proj=zeros(p["out_features"], p["embed_dim"]), **bias(p, "out", p["out_features"]))}
    if p["op"] == LINEAR_BACKWARD:
        weight = zeros(p["out_features"], p["embed_dim"], dtype="float32") if p["f32_weights"] else tensor(p["out_features"], p["embed_dim"])
        return {"input": tensor(queries, p["embed_dim"]), "weight": weight, "grad_out": tensor(queries, p["out_features"])}
    if p["op"] != MHA:
        outermost, page_size = (1, p["page_size"]) if p["page_size"] else (batch, keys)  # every key in one page
        call = {"query": tensor(batch, p["num_heads"], queries, p["head_dim"])}
        if p["page_size"]:
            call["page_table"] = zeros(batch, -(-keys // page_size), dtype="int32")
        for name, width in (("key", p["head_dim"]), ("value", p["head_dim_v"]))[:1 if p["value_in_key"] else 2]:
            call[name] = (zeros if p["int8_cache"] else tensor)(outermost, p["num_kv_heads"], page_size, width,
                                                                **({"dtype": "int8"} if p["int8_cache"] else {}))
            if p["int8_cache"]:
                call[name + "_scales"] = zeros(outermost, p["num_kv_heads"], page_size, width // (p["scale_channels"] or width))
        return call
    widths = {"query": (p["num_heads"] * p["head_dim"], p["embed_dim"]), "key": (p["num_kv_heads"] * p["head_dim"], p["kdim"]),
              "value": (p["num_kv_heads"] * p["head_dim_v"], p["vdim"]), "out_proj": (p["embed_dim"], p["num_heads"] * p["head_dim_v"])}
    weights = {name: zeros(*shape) for name, shape in widths.items()}
    for name, (outputs, _) in widths.items():
        weights.update(bias(p, name.replace("_proj", ""), outputs))
    call = {"query": tensor(batch, queries, p["embed_dim"]), "weights": kernel.pack(**weights)}
    if p["cross"]:
        call.update(key=tensor(batch, keys, p["kdim"]), value=tensor(batch, keys, p["vdim"]))
    if p["cache"]:  # which the call fills
        blocks = -(-keys // p["page_size"]) if p["page_size"] else 1
        outermost, rows = (batch * blocks, p["page_size"]) if p["page_size"] else (batch, keys)
        call.update(key_cache=tensor(outermost, p["num_kv_heads"], rows, p["head_dim"]),
                    value_cache=tensor(outermost, p["num_kv_heads"], rows, p["head_dim_v"]),
                    cache_lengths=numpy.full(batch, keys - queries, numpy.int32))
        if p["page_size"]:
            call["page_table"] = numpy.arange(batch * blocks, dtype=numpy.int32).reshape(batch, blocks)
    return call


def bias(problem: dict[str, Any], name: str, width: int) -> dict[str, numpy.ndarray]:
    return {name + "_bias": zeros(width)} if problem["bias"] else {}


def explain(options: argparse.Namespace, flags: list[str]) -> None:
    if options.kernel and flags:
        raise refuse("kernel: found %s and flags of a problem, expected one of them" % options.kernel)
    if options.batch < 0 or options.threads < 0:
        raise refuse("explain: found --batch %d and --threads %d, expected numbers from 0" % (options.batch, options.threads))
    if not (options.kernel or flags):
        raise refuse("kernel: found none, expected a name of kernels/table.txt, a manifest NAME.json or flags of polyhead generate")
    if options.threads:
        set_num_threads(options.threads)
    kernel = Kernel(_core.kernel_of_flags(flags_of_name(options.kernel, kernel_table()) if options.kernel else flags))
    p = kernel.problem
    for queries in lengths_of("query-length", options.query_length, p["seq_len_q"] or 128):
        same = p["op"] == MHA and not p["cross"] and not p["cache"]
        keys = [queries] if same else lengths_of("key-length", options.key_length, p["seq_len_kv"] or queries)
        for number in keys:
            arguments = arguments_of(kernel, options.batch, queries, number)
            text = kernel.explain(**arguments).rstrip()
            print(text)
            runs = re.search(r"^ +runs \w+_(\d+):", text, re.MULTILINE)
            for reason in kernel._core.reasons()[int(runs.group(1))] if runs else []:
                print("    " + reason)


def main(argv: Optional[list[str]] = None) -> int:
    options, flags = parse(parser(), argv)
    try:
        explain(options, flags)
    except Error as error:
        print("polyhead explain: %s" % error, file=sys.stderr)
        return 1
    except MemoryError:
        print("polyhead explain: tensors of these lengths are more than this machine can address", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
