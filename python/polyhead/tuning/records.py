"""Files of tuning records: read, with a message for each bad entry; changed completely or not at all; merged; compared."""
from __future__ import annotations

import datetime
import json
import os
import pathlib
import platform
import subprocess
from typing import Any, Callable, Iterable, Optional

from .. import _core, _files
from ..error import refuse

Record = dict[str, Any]
KEY = ("problem", "target_class", "min_seq_len_q", "max_seq_len_q", "batch", "seq_len_q", "seq_len_kv", "threads")


def key_of(record: Record) -> tuple[Any, ...]:
    """What a record is for. A file has at most one usable record for the same key."""
    return (*(json.dumps(record.get(name)) for name in KEY), _cpu(record))


def _cpu(record: Record) -> str:
    """The processor that the record was measured on."""
    measured_on = record.get("machine")
    return str(measured_on.get("cpu", "")) if isinstance(measured_on, dict) else ""


def read(path: str) -> tuple[list[Record], list[str]]:
    """(usable records, a message for each of the others)."""
    _, usable, _, complaints = _parsed(_bytes(path), path)
    return usable, complaints


def _parsed(data: bytes, path: str) -> tuple[Optional[dict[str, Any]], list[Record], list[Any], list[str]]:
    """(members of a text that is a list of records, usable records, all other entries, a message for each of those). The generator decides
    what is a list of records, so that nothing is added to a file that it would not read."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None, [], [], ["%s: found text that is not UTF-8, expected tuning records" % os.path.basename(path)]
    found = json.loads(_core.tuning_records(text, os.path.basename(path)))
    try:
        document = json.loads(text) if found["listed"] else None
    except (ValueError, RecursionError):
        return None, [], [], ["%s: found other JSON, expected tuning records" % os.path.basename(path)]
    entries = document["records"] if document else []
    usable = set(found["usable"])
    return document, [entries[i] for i in found["usable"]], [e for i, e in enumerate(entries) if i not in usable], found["complaints"]


def _bytes(path: str) -> bytes:
    try:
        return pathlib.Path(path).read_bytes()
    except OSError as error:
        raise refuse("records: cannot read '%s': %s" % (path, error.strerror)) from error


def check_output(path: str) -> None:
    """Raises an Error if records cannot be written there. Called before anything is measured."""
    _change(path, None)


def add(path: str, new: Iterable[Record]) -> None:
    """Adds records to a file. They replace older usable records with the same key; all others stay."""
    _change(path, lambda usable, others: (_with(usable, new), others))


def remove(path: str, record: Record) -> None:
    """Removes one record from a file."""
    _change(path, lambda usable, others: ([r for r in usable if key_of(r) != key_of(record)], others))


def _change(path: str, edit: Optional[Callable[[list[Record], list[Any]], tuple[list[Record], list[Any]]]]) -> None:
    """Edits the entries of a file, or only checks that this is possible. Other writers wait; readers never see an incomplete file."""
    try:
        with _files.replacing(path) as file:
            old = file.read()
            document, usable, others = _document(old, path)
            if edit is not None:
                file.write(_text(document, *edit(usable, others)))
    except OSError as error:
        raise refuse("records: cannot write '%s': %s" % (path, error.strerror or error)) from error


def _document(data: Optional[bytes], path: str) -> tuple[dict[str, Any], list[Record], list[Any]]:
    """(the members of a file of records, usable records, all other entries). An empty file has no records."""
    document, usable, others, _ = _parsed(data or b'{"format": 1, "records": []}', path)
    if document is None:
        raise refuse("records: '%s' is no file of tuning records and was not changed, expected {\"format\": 1, \"records\": [...]}" % path)
    return document, usable, others


def _text(document: dict[str, Any], usable: list[Record], others: list[Any]) -> bytes:
    """One record per line, so that files can be compared. Sorted by key, the latest measured machines first; then all other entries."""
    records = sorted(usable, key=_place)
    last: dict[tuple[Any, ...], str] = {}
    for r in records:
        last[_group(r)] = max(last.get(_group(r), ""), str(r.get("date", "")))
    records.sort(key=lambda r: last[_group(r)], reverse=True)
    records.sort(key=lambda r: (r["problem"], r["target_class"]))
    lines = [json.dumps(r, ensure_ascii=False) for r in [*records, *others]]
    members = "".join(", %s: %s" % (json.dumps(name, ensure_ascii=False), json.dumps(value, ensure_ascii=False))
                      for name, value in document.items() if name not in ("format", "records"))
    return ('{"format": 1%s, "records": [\n' % members + ",\n".join(lines) + "\n]}\n").encode("utf-8")


def _place(record: Record) -> tuple[Any, ...]:
    return (*(str(record.get(name)) for name in KEY), _cpu(record))


def _group(record: Record) -> tuple[Any, ...]:
    """Records with the same group were measured together and serve a problem together."""
    return record["problem"], record["target_class"], _cpu(record)


def _with(usable: list[Record], new: Iterable[Record]) -> list[Record]:
    for record in new:
        usable = [r for r in usable if key_of(r) != key_of(record) and not _is_covered(r, record)]
        usable.append(record)
    return usable


def _is_covered(old: Record, record: Record) -> bool:
    """True when a new tuning of a problem replaces this old range, which would otherwise be found first."""
    last_old, last_new = (r["max_seq_len_q"] or float("inf") for r in (old, record))
    overlaps = old["min_seq_len_q"] <= last_new and record["min_seq_len_q"] <= last_old
    return _group(old) == _group(record) and overlaps and old.get("run") != record.get("run")


def merge(paths: list[str], output: str) -> tuple[int, list[str]]:
    """Joins all records of the files into another file. Of two records with the same key the newer one stays; at the same date the faster.
    Returns the number of records in that file, and a message for each that cannot be used here."""
    complaints: list[str] = []
    usable: list[Record] = []
    others: list[Any] = []
    for path in paths:
        _, more, more_others = _document(_bytes(path), path)
        usable, others = usable + more, others + more_others
        complaints += read(path)[1]
    count = 0

    def edit(old: list[Record], old_others: list[Any]) -> tuple[list[Record], list[Any]]:
        nonlocal count
        best: dict[tuple[Any, ...], Record] = {}
        for record in [*old, *usable]:
            other = best.get(key_of(record))
            if other is None or _order(record) > _order(other):
                best[key_of(record)] = record
        kept = list({json.dumps(entry): entry for entry in [*old_others, *others]}.values())
        count = len(best) + len(kept)
        return list(best.values()), kept

    _change(output, edit)
    return count, complaints


def _order(record: Record) -> tuple[str, float]:
    return str(record.get("date", "")), -float(record["median_ms"])


def compare(first: str, second: str) -> tuple[list[tuple[str, Record, Record]], list[str]]:
    """[(what differs, record of the first file or {}, of the second or {})], without equal records."""
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
    """This machine: processor, cores, caches, and the target string with the features that kernels were compiled for."""
    found: dict[str, Any] = {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count(), "target": target, "caches": {}}
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
        found["cpu"] = names[0] if names else found["cpu"]
        for folder in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
            level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
            found["caches"]["L%s%s" % (level, {"Data": "d", "Instruction": "i"}.get(kind, ""))] = size
    except (OSError, IndexError):
        pass  # a system without these files has a shorter description
    return found


def commit() -> str:
    """The commit of the checkout that this package belongs to, otherwise the version of the package."""
    folder = pathlib.Path(__file__).resolve().parent
    try:
        done = subprocess.run(["git", "-C", str(folder), "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, check=True)
        return done.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return _core.version


def today() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
