"""Files of tuning records: read with a sentence per bad entry, written whole or not at all, merged and compared."""
from __future__ import annotations

import datetime
import json
import os
import pathlib
import platform
import subprocess
import tempfile
from typing import Any, Iterable

from .. import _core
from ..error import refuse

Record = dict[str, Any]
KEY = ("problem", "target_class", "min_seq_len_q", "max_seq_len_q", "batch", "seq_len_q", "seq_len_kv", "threads")


def key_of(record: Record) -> tuple[Any, ...]:
    """What a record is for; one file has at most one of each."""
    return tuple(record.get(name) for name in KEY)


def read(path: str) -> tuple[list[Record], list[str]]:
    """(usable records, a sentence for each of the others)."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise refuse("records: cannot read '%s': %s" % (path, error.strerror)) from error
    found = json.loads(_core.tuning_records(text, os.path.basename(path)))
    entries = json.loads(text)["records"] if found["usable"] else []
    return [entries[i] for i in found["usable"]], found["complaints"]


def write(path: str, records: Iterable[Record]) -> None:
    """One record per line, sorted, so that files can be compared; renamed into place at the end."""
    lines = [json.dumps(r, ensure_ascii=False) for r in sorted(records, key=lambda r: tuple(map(str, key_of(r))))]
    text = '{"format": 1, "records": [\n' + ",\n".join(lines) + "\n]}\n"
    target = pathlib.Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix="." + target.name, dir=target.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except OSError as error:
        raise refuse("records: cannot write '%s': %s" % (path, error.strerror)) from error


def add(path: str, new: Iterable[Record]) -> list[str]:
    """Puts records into a file, in the place of older ones for the same; returns what was wrong with the file."""
    old, complaints = read(path) if os.path.exists(path) else ([], [])
    kept = {key_of(r): r for r in old}
    for record in new:
        _drop_overlapping(kept, record)
        kept[key_of(record)] = record
    write(path, kept.values())
    return complaints


def remove(path: str, record: Record) -> None:
    """Takes one record out of a file."""
    found, _ = read(path)
    write(path, [r for r in found if key_of(r) != key_of(record)])


def _drop_overlapping(kept: dict[tuple[Any, ...], Record], record: Record) -> None:
    """A new tuning of a problem replaces ranges of the old one that it covers, or the old ones would win by their order."""
    for key, old in list(kept.items()):
        same = old["problem"] == record["problem"] and old["target_class"] == record["target_class"]
        last_old, last_new = old["max_seq_len_q"] or float("inf"), record["max_seq_len_q"] or float("inf")
        if same and old["min_seq_len_q"] <= last_new and record["min_seq_len_q"] <= last_old and old.get("run") != record.get("run"):
            del kept[key]


def merge(paths: list[str]) -> tuple[list[Record], list[str]]:
    """All records of the files; of two for the same the newer one, of equally old ones the faster."""
    best: dict[tuple[Any, ...], Record] = {}
    complaints: list[str] = []
    for path in paths:
        records, wrong = read(path)
        complaints += wrong
        for record in records:
            other = best.get(key_of(record))
            if other is None or _order(record) > _order(other):
                best[key_of(record)] = record
    return list(best.values()), complaints


def _order(record: Record) -> tuple[str, float]:
    return str(record.get("date", "")), -float(record["median_ms"])


def compare(first: str, second: str) -> tuple[list[tuple[str, Record, Record]], list[str]]:
    """[(what differs, record of the first file or {}, of the second or {})]; equal ones are left out."""
    (a, wrong_a), (b, wrong_b) = read(first), read(second)
    left, right = {key_of(r): r for r in a}, {key_of(r): r for r in b}
    rows = []
    for key in sorted({*left, *right}, key=str):
        old, new = left.get(key, {}), right.get(key, {})
        if not old or not new:
            rows.append(("only in %s" % (second if new else first), old, new))
        elif (old["frame"], old["tiling"]) != (new["frame"], new["tiling"]):
            rows.append(("other tiling", old, new))
        elif old["median_ms"] != new["median_ms"]:
            rows.append(("other time", old, new))
    return rows, wrong_a + wrong_b


def machine(target: str) -> dict[str, Any]:
    """What this machine is: processor, cores, caches, and the target string with the features that kernels were compiled for."""
    found: dict[str, Any] = {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count(), "target": target, "caches": {}}
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
        found["cpu"] = names[0] if names else found["cpu"]
        for folder in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
            level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
            found["caches"]["L%s%s" % (level, {"Data": "d", "Instruction": "i"}.get(kind, ""))] = size
    except (OSError, IndexError):
        pass  # systems without these files are described by less
    return found


def commit() -> str:
    """Of the checkout that this package is linked from, otherwise its version."""
    folder = pathlib.Path(__file__).resolve().parent
    try:
        done = subprocess.run(["git", "-C", str(folder), "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, check=True)
        return done.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return _core.version


def today() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
