#!/usr/bin/env python3
"""A device of the parent in a child by fork: every use is an error that names fork, the CPU works on, and the parent is not disturbed."""
import os
import signal
import unittest

import numpy as np

import polyhead

API = os.environ.get("POLYHEAD_TEST_DEVICE", "opencl")


def refused(use):
    try:
        use()
    except polyhead.Error as error:
        return "before fork" in str(error)
    return False


class ForkedDevice(unittest.TestCase):
    def test_a_child_gets_an_error(self):
        q = np.ones((1, 2, 5, 16), np.float32)
        device = polyhead.Device(API)
        self.assertTrue(np.allclose(polyhead.sdpa(q, q, q, device=device), q))
        child = os.fork()
        if child == 0:
            signal.alarm(120)
            code = 1
            try:
                checks = [refused(lambda: polyhead.sdpa(q, q, q, device=device)), refused(lambda: polyhead.Device(API)),
                          polyhead.device_count(API) == 0, np.allclose(polyhead.sdpa(q, q, q), q)]
                del device
                code = 0 if all(checks) else 2
            finally:
                os._exit(code)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertTrue(np.allclose(polyhead.sdpa(q, q, q, device=device), q))


if __name__ == "__main__":
    unittest.main()
