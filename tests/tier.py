"""How much the tests in Python do, from the environment."""
import os

ALL = os.environ.get("POLYHEAD_TEST_ALL") == "1"  # the long form; otherwise the quick one
