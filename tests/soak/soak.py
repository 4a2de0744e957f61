"""Soak of the Python package: threads compile new expressions, run them and drop them, among refused calls and forks.

Every answer is held against NumPy. After each round the cache is emptied; memory, mappings, descriptors and threads then stay what they were
after the warm-up. Works for POLYHEAD_SOAK_SECONDS (10).
"""
import ctypes
import gc
import itertools
import os
import random
import signal
import sys
import threading
import time

import numpy as np

os.environ["POLYHEAD_CACHE"] = "off"  # a compiler is wanted, also where the disk has the kernel
import polyhead  # noqa: E402
from polyhead.reference import attention  # noqa: E402

THREADS, ROUNDS = 4, 4
LENGTHS = (1, 33)  # of queries and keys
LEAST_COMPILED = 3  # in a round, however slow the machine is
MOST_SECONDS_OF_CHILD = 120
# What an allocator may still move about; every compiled library that stays would hold 5 mappings.
SLACK = {"KiB of memory": 8 << 10, "mappings": 12, "descriptors": 0, "threads": 0}


def gauges():
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[1])
    with open("/proc/self/maps", encoding="utf-8") as file:
        mappings = len(file.readlines())
    return {"KiB of memory": pages * os.sysconf("SC_PAGESIZE") // 1024, "mappings": mappings, "descriptors": len(os.listdir("/proc/self/fd")),
            "threads": len(os.listdir("/proc/self/task"))}


class Soak:
    def __init__(self, seconds):
        self.seconds, self.numbers, self.failures = seconds, itertools.count(), []
        self.counts = dict.fromkeys(("compiled", "repeated", "refused", "forks"), 0)
        self.lock = threading.Lock()

    def count(self, name):
        with self.lock:
            self.counts[name] += 1

    def fail(self, text):
        self.failures.append(text)
        print("FAILED: %s" % text, flush=True)

    def compare(self, rng, text, factor, length=None):
        shape = (rng.choice((1, 2)), 2, length or rng.choice(LENGTHS), 16)
        values = np.random.default_rng(rng.randrange(1 << 30))
        query, key, value = (values.standard_normal(shape).astype(np.float32) for _ in range(3))
        found = polyhead.sdpa(query, key, value, expression=text)
        error = np.abs(found - attention(query, key, value, scale=factor / np.sqrt(query.shape[-1])).out).max()
        if not error < 1e-4:
            self.fail("%s differs by %g" % (text, error))

    def new_expression(self, rng):
        factor = 0.5 + next(self.numbers) / 1024
        text = "score = %r * score" % factor
        for name in ("compiled", "repeated", "repeated"):
            self.compare(rng, text, factor)
            self.count(name)

    def refused(self, rng):
        for wrong in ("score = scare * %d" % rng.randrange(1000), "mask = kv", "score = ((("):
            try:
                polyhead.sdpa(*[np.zeros((1, 2, 3, 16), np.float32)] * 3, expression=wrong)
                self.fail("%s was accepted" % wrong)
            except polyhead.Error:
                self.count("refused")

    def fork(self, rng):
        """A child runs what is compiled already, or compiles while its parent does, and leaves."""
        compiles = rng.random() < 0.2
        child = os.fork()
        if child == 0:
            try:
                self.compare(rng, "score = 1.5 * score", 1.5)
                if compiles:
                    self.new_expression(rng)
                os._exit(1 if self.failures else 0)
            except BaseException as error:  # a child must never get to what the parent has to do
                print(error, flush=True)
                os._exit(2)
        self.count("forks")
        end = time.monotonic() + MOST_SECONDS_OF_CHILD
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return self.fail("a forked child hangs")
            time.sleep(0.01)
        if status != 0:
            self.fail("a forked child ended with status %d, expected 0" % status)

    def work(self, seed, end, compiled):
        rng = random.Random(seed)
        while (time.monotonic() < end or self.counts["compiled"] < compiled) and not self.failures:
            try:
                rng.choice((self.new_expression, self.new_expression, self.refused))(rng)
                if rng.random() < 0.1:
                    polyhead.set_num_threads(rng.choice((1, 2, 4)))
            except Exception as error:  # whatever it is, it must not end a thread in silence
                self.fail("%s: %s" % (type(error).__name__, error))

    def round(self, number, start):
        for length in LENGTHS:  # for children
            self.compare(random.Random(0), "score = 1.5 * score", 1.5, length)
        end, compiled = start + self.seconds * (number + 1) / ROUNDS, self.counts["compiled"] + LEAST_COMPILED
        threads = [threading.Thread(target=self.work, args=(number * THREADS + i, end, compiled)) for i in range(THREADS)]
        for thread in threads:
            thread.start()
        rng = random.Random(-number)
        while any(thread.is_alive() for thread in threads) and not self.failures:
            self.fork(rng)
            time.sleep(0.2)
        for thread in threads:
            thread.join()
        polyhead.set_num_threads(2)
        self.compare(rng, "score = 1.5 * score", 1.5)
        polyhead.clear_cache()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        return gauges()

    def run(self):
        start, rounds = time.monotonic(), []
        for number in range(ROUNDS):
            rounds.append(self.round(number, start))
            print("round %d: %s" % (number + 1, ", ".join("%d %s" % (value, name) for name, value in rounds[-1].items())), flush=True)
            if self.failures:
                break
        print(", ".join("%d %s" % (value, name) for name, value in self.counts.items()))
        third = ROUNDS // 3
        for name, slack in SLACK.items() if not self.failures else ():
            before = min(values[name] for values in rounds[-2 * third:-third])
            after = min(values[name] for values in rounds[-third:])
            if after > before + slack:
                self.fail("%s: %d in the last third, %d in the one before, expected at most %d more" % (name, after, before, slack))
        return 1 if self.failures else 0


if __name__ == "__main__":
    sys.exit(Soak(float(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("POLYHEAD_SOAK_SECONDS", "10"))).run())
