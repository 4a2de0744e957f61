#!/usr/bin/env python3
"""Children of a Python process by fork: multiprocessing works, with the parent's threads, while it is busy, and after it compiled."""
import multiprocessing
import os
import signal
import tempfile
import threading
import time
import unittest

import numpy as np

os.environ["POLYHEAD_CACHE"] = "off"  # a compiler is wanted, also where the disk has the kernel
import polyhead  # noqa: E402


def attention(q):
    return polyhead.sdpa(q, q, q)


def bits_of(q):
    signal.alarm(120)  # a child that hangs is a signal
    return attention(q).tobytes()


def with_threads(arguments):
    threads, q = arguments
    signal.alarm(120)
    polyhead.set_num_threads(threads)
    return attention(q).tobytes()


class Fork(unittest.TestCase):
    def setUp(self):
        self.q = np.random.default_rng(1).standard_normal((2, 4, 50, 32)).astype(np.float32)
        self.context = multiprocessing.get_context("fork")

    def tearDown(self):
        polyhead.set_num_threads(0)

    def test_a_pool_of_children(self):
        for threads in (1, 2, 4, 16):
            with self.subTest(threads=threads):
                polyhead.set_num_threads(threads)
                expected = attention(self.q).tobytes()
                with self.context.Pool(2) as pool:
                    self.assertEqual(pool.map(bits_of, [self.q] * 4), [expected] * 4)
                    self.assertEqual(pool.map(with_threads, [(n, self.q) for n in (1, 3, 2)]), [expected] * 3)

    def ended(self, body):
        """Exit code of a child that runs body, or minus the signal that ended it."""
        child = self.context.Process(target=body)
        child.start()
        child.join(150)
        alive = child.is_alive()
        if alive:
            child.kill()
            child.join()
        self.assertFalse(alive, "the child hangs")
        return child.exitcode

    def test_a_busy_parent(self):
        polyhead.set_num_threads(4)
        expected = attention(self.q).tobytes()
        end = threading.Event()

        def work():
            while not end.is_set():
                attention(self.q)

        busy = [threading.Thread(target=work) for _ in range(3)]
        for thread in busy:
            thread.start()

        def body():
            os._exit(0 if bits_of(self.q) == expected else 3)

        try:
            for _ in range(10):
                self.assertEqual(self.ended(body), 0)
        finally:
            end.set()
            for thread in busy:
                thread.join()

    def test_a_parent_that_compiles(self):
        other = np.ones((1, 2, 5, 40), np.float32)
        begun, failures = threading.Event(), []

        def compiles():
            begun.set()
            if not np.allclose(attention(other), other, rtol=1e-6):
                failures.append("wrong")

        def body():
            signal.alarm(120)
            os._exit(0 if np.allclose(attention(other), other, rtol=1e-6) else 3)

        thread = threading.Thread(target=compiles)
        thread.start()
        begun.wait()
        time.sleep(0.2)  # in the middle of the compiler, most likely; wherever it is, the child must end
        self.assertEqual(self.ended(body), 0)
        thread.join()
        self.assertEqual(failures, [])

    def test_children_at_any_moment_of_a_compilation(self):
        """The child of a process that compiles in two threads, and writes a library in a third, can do all of it itself."""
        words = [dict(num_heads=2, head_dim=8, expression="score = score * %d" % n) for n in (2, 3)]
        other = np.ones((1, 2, 1, 8), np.float32)
        written = polyhead.compile("sdpa", num_heads=2, head_dim=8)
        failures = []

        def work(i, folder):
            try:
                if i == 2:
                    written.export(folder)
                elif not np.array_equal(polyhead.compile("sdpa", **words[i])(query=other, key=other, value=other), other):
                    failures.append("wrong")
            except Exception as error:  # noqa: BLE001
                failures.append(error)

        def body():
            signal.alarm(200)
            with tempfile.TemporaryDirectory() as folder:
                for i in range(3):
                    work(i, folder)
            os._exit(3 if failures else 0)

        with tempfile.TemporaryDirectory() as folder:
            threads = [threading.Thread(target=work, args=(i, folder)) for i in range(3)]
            for thread in threads:
                thread.start()
            children = []
            for _ in range(3):
                time.sleep(0.1)
                children.append(self.context.Process(target=body))
                children[-1].start()
            for child in children:
                child.join(250)
                self.assertEqual(child.exitcode, 0)
            for thread in threads:
                thread.join()
        self.assertEqual(failures, [])

    def test_a_child_compiles(self):
        attention(self.q)
        other = np.ones((1, 2, 5, 24), np.float32)

        def body():
            signal.alarm(120)
            os._exit(0 if np.allclose(attention(other), other, rtol=1e-6) else 3)

        self.assertEqual(self.ended(body), 0)


if __name__ == "__main__":
    unittest.main()
