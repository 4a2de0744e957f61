"""A fresh process up to its first answer: imports a library, prepares one case in the first way that it has, computes it once."""

import argparse
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--path", action="append", default=[])
    parser.add_argument("--module", required=True)
    parser.add_argument("--case", required=True)
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    sys.path[:0] = options.path
    from compare import cases, worker

    worker.confine(options.threads)
    import importlib

    case = next(c for c in cases.all_cases() + cases.small_cases() if c.name == options.case)
    module = importlib.import_module(options.module)
    tensors = cases.inputs(case, options.dtype)
    for way, kinds in module.PEERS.items():
        if options.dtype not in kinds.get(case.shape["kind"], ()):
            continue
        try:
            run, fetch = module.make(way, case.shape, options.dtype, tensors, options.threads)
        except NotImplementedError:
            continue
        run()
        fetch()
        print("answered", flush=True)
        return 0
    print("no such operation", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
