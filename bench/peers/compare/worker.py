"""The process of one library at one number of threads: prepares cases, returns sampled rows, times calls on request.

Started by workers.py. Orders come as JSON lines on the standard input, answers go to what was the standard output when it started; what
libraries print goes to the standard error.
"""

import argparse
import ctypes
import gc
import importlib
import json
import os
import signal
import sys
import time

SLICE_CALLS = 3  # at least so many calls count in a slice


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--path", action="append", default=[], help="folders that modules are imported from")
    parser.add_argument("--module", required=True)
    parser.add_argument("--threads", type=int, required=True)
    return parser.parse_args()


def die_with_parent():
    """The kernel ends this process when the bench ends, also while it is stopped."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def confine(threads):
    """This process on as many cores as it has threads, whatever the library thinks of their number."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "HL_NUM_THREADS"):
        os.environ[name] = str(threads)


def others_cpu_seconds():
    """CPU seconds that everybody but this process has used so far, stolen ones too; 0 where the system does not tell."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(word) for word in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return 0.0
    own = os.times()
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK") - own.user - own.system


class Worker:
    """The library of one module, and the case that is prepared."""

    def __init__(self, module, threads):
        self.module, self.threads = importlib.import_module(module), threads
        self.ways, self.run = {}, []

    def hello(self, _):
        return dict(version=str(getattr(self.module, "VERSION", "")), package=getattr(self.module, "PACKAGE", ""))

    def prepare(self, order):
        """Every way in which the library does this case: its name and the file with the sampled rows, or why not."""
        from compare import cases

        self.drop({})
        case = cases.named(order["case"])
        kind, dtype = case.shape["kind"], order["dtype"]
        data = [cases.inputs(case, dtype, copy) for copy in range(cases.copies(case, dtype))]
        return dict(ways=[self.way(name, case, data, order) for name, kinds in self.module.PEERS.items() if dtype in kinds.get(kind, ())])

    def way(self, name, case, data, order):
        started = time.perf_counter()
        try:
            made = [self.module.make(name, case.shape, order["dtype"], tensors, self.threads) for tensors in data]
            made[0][0]()
            rows = self.sampled(case, made[0][1]())
        except NotImplementedError as error:
            return dict(how=name, missing=str(error))
        except Exception as error:  # whatever a library raises is its result for this case
            return dict(how=name, error=one_line(error))
        self.ways[name] = [run for run, _ in made]
        file = os.path.join(order["folder"], "%d.npy" % len(self.ways))
        import numpy

        numpy.save(file, rows)
        return dict(how=name, rows=file, prepare_seconds=time.perf_counter() - started)

    @staticmethod
    def sampled(case, answer):
        import numpy
        from compare import reference

        return numpy.asarray(answer, numpy.float64)[reference.sample(case)]

    def choose(self, order):
        """The fastest of the ways that gave the right answer stays."""
        seconds = {name: min(self.calls(self.ways[name], 0.05)[0]) for name in order["ways"]}
        best = min(seconds, key=seconds.get)
        self.run, self.ways = self.ways[best], {}
        gc.collect()
        return dict(how=best, seconds=seconds)

    def time(self, order):
        """One slice: seconds of each call, and how many cores others used meanwhile."""
        before, started = others_cpu_seconds(), time.perf_counter()
        seconds, _ = self.calls(self.run, order["seconds"])
        busy = (others_cpu_seconds() - before) / (time.perf_counter() - started)
        return dict(seconds=seconds, others_busy=max(0.0, busy))

    @staticmethod
    def calls(runs, budget):
        """Calls over all copies of the tensors in turn. The first one only warms: it finds other tensors in the caches."""
        runs[-1]()
        taken, clock = [], time.perf_counter
        start = end = clock()
        while end - start < budget or len(taken) < SLICE_CALLS:
            call = runs[len(taken) % len(runs)]
            begin = clock()
            call()
            end = clock()
            taken.append(end - begin)
        return taken, end - start

    def drop(self, order):
        """Gives the tensors back; on request says how many bytes they and all that a call needs beside them were."""
        from compare import memory

        self.ways, most = {}, None
        if order.get("memory") and self.run:
            memory.resident()
            most = memory.most_during(self.run[0])
        self.run = []
        held = memory.resident()
        return dict(memory_bytes=None if most is None or held is None else most - held)


def one_line(error):
    text = " ".join(str(error).split())
    return ("%s: %s" % (type(error).__name__, text))[:300]


def main():
    options = arguments()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the bench's to answer
    confine(options.threads)
    sys.path[:0] = options.path

    def say(answer):
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        worker = Worker(options.module, options.threads)
    except Exception as error:  # missing or broken: a sentence for the parent
        say(dict(error=one_line(error)))
        return 1
    say(worker.hello({}))
    for line in sys.stdin:
        order = json.loads(line)
        try:
            say(getattr(worker, order.pop("do"))(order))
        except Exception as error:
            say(dict(error=one_line(error)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
