"""The command env: what a report of a fault should say of versions, machine, caches and drivers."""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import sys
from typing import Any, Optional

import numpy

from . import _core

DEVICES = ("cuda", "opencl", "vulkan")


def generator() -> str:
    """The path of polyhead-generate: of a wheel, or of a build."""
    folder = pathlib.Path(__file__).resolve().parent
    beside = pathlib.Path(_core.__file__).parent
    places = [folder / "bin" / "polyhead-generate", beside / "polyhead-generate"]
    return str(next((place for place in places if place.exists()), places[0]))


def processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def facts() -> dict[str, Any]:
    """Names and values; a part of each name that has several."""
    known = _core.environment()
    return {
        "polyhead": {"version": known["version"], "ABI": known["abi"], "Halide of its kernels": known["halide"],
                     "package": str(pathlib.Path(__file__).resolve().parent)},
        "Python": {"version": platform.python_version(), "implementation": platform.python_implementation(), "NumPy": numpy.__version__},
        "system": {"kernel": platform.platform(), "C library": " ".join(platform.libc_ver()), "CPU": processor(),
                   "CPU features": " ".join(known["cpu_features"]), "host": known["target"], "threads": _core.num_threads(), "wait": _core.wait()},
        "compiler": {"program": generator(), "Halide found": "yes" if known["halide_found"] else "no"},
        "cache": {"folder": known["cache"] or "off", "limit": "%d MB" % (known["cache_limit"] // 1000000)},
        "devices": {api: _core.device_count(api) for api in DEVICES},
        "environment": {name: value for name, value in sorted(os.environ.items()) if name.startswith(("POLYHEAD_", "HL_"))},
    }


def main(arguments: Optional[list[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="polyhead env", description="Prints versions, CPU, caches and drivers, for a report of a fault.", allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_args(arguments)
    if options.json:
        print(json.dumps(facts(), indent=4))
        return 0
    for group, entries in facts().items():
        print(group)
        for name, value in entries.items():
            print("  %-22s %s" % (name, value))
    return 0


if __name__ == "__main__":
    sys.exit(main())
