"""Runs a script of the tests, and says what unittest skips in it, in the lines that ./polyhead test reads.

    run_script.py SCRIPT ARGUMENT...
"""
import os
import sys
import unittest


def say_skips():
    """Every skip prints "NOT RUN: the case: the reason", with unittest's own output."""
    result = unittest.TextTestResult
    skipped = result.addSkip

    def add_skip(self, test, reason):
        skipped(self, test, reason)
        print("\nNOT RUN: %s: %s" % (test.id(), reason.replace("\n", " ").replace(": ", ", ")), flush=True)

    result.addSkip = add_skip


if __name__ == "__main__":
    say_skips()
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    __file__ = sys.argv[0]
    with open(__file__, encoding="utf-8") as _file:
        _code = compile(_file.read(), os.path.abspath(__file__), "exec")
    __doc__ = None  # the script's, if it has one
    exec(_code, globals())  # as the main module, which unittest and multiprocessing look into
