"""How much the tests in Python do, from the environment."""
import os
import unittest
import zlib

ALL = os.environ.get("POLYHEAD_TEST_ALL") in ("1", "every")  # the long form; otherwise the quick one


def sampled(name, items, step):
    """All items in the long form. Otherwise one of `step` neighbours; which one rotates with the name and POLYHEAD_SWEEP_SEED."""
    first = zlib.crc32((os.environ.get("POLYHEAD_SWEEP_SEED", "1") + name).encode()) % min(step, len(items))
    return list(items) if ALL else list(items)[first::step]


def sampled_cases(script, step):
    """The load_tests of a script: sampled() over its cases. A case that is named on the command line runs whatever the sample."""

    def load_tests(_loader, tests, _pattern):
        return unittest.TestSuite(sampled(os.path.basename(script), [case for group in tests for case in group], step))

    return load_tests
