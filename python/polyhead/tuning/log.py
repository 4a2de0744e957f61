"""The log of measurements: one JSON object per line. Each is on disk before the next measurement, so that a killed tuner loses nothing."""
from __future__ import annotations

import errno
import hashlib
import json
import os
import pathlib
import stat
from typing import Any, Iterator

from ..error import Error, refuse

BEGIN = b'{"task": '  # every line begins with it


def task_id(**key: Any) -> str:
    """Old measurements are used again only if all of this is the same: problem, shape, target, threads, versions."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]


class Log:
    """Several tuners may append to one file: every line is one write."""

    def __init__(self, path: str) -> None:
        self.path = pathlib.Path(path)
        self.broken = 0
        try:
            data = self.path.read_bytes() if self.path.is_file() else b""
            self._entries = list(self._read(data))
            if data and not self._entries and not data.startswith(BEGIN):  # a first line that a kill cut off begins so, too
                raise refuse("log: '%s' is no log of measurements and was not changed, expected lines such as {\"task\": ...}" % self.path)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise self._failed(error) from error
        self._cut = bool(data) and not data.endswith(b"\n")  # the last line is incomplete because of a kill

    def _failed(self, error: OSError) -> Error:
        return refuse("log: cannot write '%s': %s" % (self.path, error.strerror))

    def _read(self, data: bytes) -> Iterator[dict[str, Any]]:
        for line in data.splitlines():
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                entry = None
            if isinstance(entry, dict) and isinstance(entry.get("task"), str) and isinstance(entry.get("kind"), str):
                yield entry
            elif line.strip():
                self.broken += 1

    def append(self, **entry: Any) -> None:
        """Writes an entry to disk, or raises an Error. After an error the next entry begins a new line."""
        line = (b"\n" if self._cut else b"") + json.dumps(entry).encode() + b"\n"
        self._cut = True
        try:
            if os.write(self._file, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if stat.S_ISREG(os.fstat(self._file).st_mode):
                os.fsync(self._file)
        except OSError as error:
            raise self._failed(error) from error
        self._cut = False
        self._entries.append(entry)

    def entries(self, task: str, kind: str) -> list[dict[str, Any]]:
        return [e for e in self._entries if e["task"] == task and e["kind"] == kind]

    def close(self) -> None:
        os.close(self._file)
