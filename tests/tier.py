"""How much the tests in Python do, from the environment."""
import os
import zlib

ALL = os.environ.get("POLYHEAD_TEST_ALL") in ("1", "every")  # the long form; otherwise the quick one


def sampled(name, items, step):
    """All items in the long form. Otherwise one of `step` neighbours; which one rotates with the name and POLYHEAD_SWEEP_SEED."""
    first = zlib.crc32((os.environ.get("POLYHEAD_SWEEP_SEED", "1") + name).encode()) % min(step, len(items))
    return list(items) if ALL else list(items)[first::step]
