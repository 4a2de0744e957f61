"""Processes whose N-th file operation or allocation fails, or is preceded by a signal: builds failing_calls.c and says how to use it."""
import errno
import os
import pathlib
import shlex
import subprocess


class Shim:
    """Counts operations on files below the folder `under`."""

    def __init__(self, folder, under, compiler):
        self.library, self.count_file, self.under = pathlib.Path(folder, "failing_calls.so"), pathlib.Path(folder, "count"), under
        source = pathlib.Path(__file__).with_suffix(".c")
        subprocess.run([*shlex.split(compiler), "-x", "c", "-shared", "-fPIC", "-O1", str(source), "-o", str(self.library), "-ldl", "-lpthread"], check=True)

    def environment(self, at, fails_with=errno.EIO, what="files", compiler=False):
        """For a process whose operation number `at` fails, or the compiler's: with an errno, or minus a signal. 0: they are only counted."""
        found = dict(LD_PRELOAD=str(self.library), FAIL_AT=str(at), FAIL_WITH=str(fails_with), FAIL_WHAT=what, FAIL_UNDER=str(self.under),
                     OPENBLAS_NUM_THREADS="1")  # its threads are made at import
        found.update({} if at else {"FAIL_COUNT": str(self.count_file)}, **({"FAIL_COMPILER": "1"} if compiler else {}))
        return {**os.environ, **found}

    def counted(self):
        """Operations of the process that was run last with at=0."""
        return int(self.count_file.read_text())
