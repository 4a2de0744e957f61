"""The log of measurements: one JSON object per line, on disk before the next one is made, so that a killed tuner loses nothing."""
from __future__ import annotations

import hashlib
import json
import os
import pathlib
from typing import Any, Iterator

from ..error import refuse


def task_id(**key: Any) -> str:
    """Measurements are taken up again only for exactly this: problem, shape, target, threads, versions."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]


class Log:
    def __init__(self, path: str) -> None:
        self.path = pathlib.Path(path)
        self.broken = 0
        self._entries = list(self._read())
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "ab")  # noqa: SIM115 (stays open)
            if self.path.stat().st_size and not self.path.read_bytes().endswith(b"\n"):
                self._file.write(b"\n")  # the line at which it was killed
        except OSError as error:
            raise refuse("log: cannot write '%s': %s" % (self.path, error.strerror)) from error

    def _read(self) -> Iterator[dict[str, Any]]:
        if not self.path.is_file():
            return
        for line in self.path.read_bytes().splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                entry = None
            if isinstance(entry, dict) and isinstance(entry.get("task"), str) and isinstance(entry.get("kind"), str):
                yield entry
            elif line.strip():
                self.broken += 1

    def append(self, **entry: Any) -> None:
        self._entries.append(entry)
        self._file.write(json.dumps(entry).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def entries(self, task: str, kind: str) -> list[dict[str, Any]]:
        return [e for e in self._entries if e["task"] == task and e["kind"] == kind]

    def close(self) -> None:
        self._file.close()
