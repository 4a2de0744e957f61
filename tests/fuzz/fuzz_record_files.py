"""Record files and logs of the tuner with random edits: each is read, added to, merged and compared, or refused with a sentence, and what
is refused stays as it was. New inputs for --seconds; --input FILE repeats one."""
import argparse
import json
import os
import pathlib
import random
import sys
import tempfile
import time

from drive import SECONDS
from polyhead import Error
from polyhead.tuning import records
from polyhead.tuning.log import Log

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tuning_record import record  # noqa: E402

RECORD = record(machine={"cpu": "x"})
ENTRY = {"task": "a", "kind": "measured", "frame": "query_lanes", "tiling": "q_tile=16", "ratio": 0.5, "ms": 1.0}
VALUES = [None, True, False, 0, -1, 1, 2**31, -(2**63), 2**64, 10**400, 0.5, -0.0, 1e308, float("inf"), float("nan"), "", "x", "\ud800", "é", "\0",
          "--op sdpa", "2026-01-02", [], [[]], {}, {"cpu": None}, RECORD, [RECORD]]
TOKENS = [b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\u", b"\\ud800", b"\n", b"\0", b"\xff", b"\xc3", b"1e999", b"-", b"NaN", b"Infinity", b"null",
          b'"records": [', b'"format": 1', b'{"task": ', b"[" * 20, b"[" * 5000, b"//", b"/*", b"\xef\xbb\xbf"]
WHOLE = json.dumps({"format": 1, "records": [RECORD]})
KNOWN = [WHOLE.encode() + b"\0", b"\xef\xbb\xbf" + WHOLE.encode(), WHOLE.encode() + b"\xff", WHOLE.replace("2.0", "1e999").encode(),
         WHOLE.replace("2.0", "1" + 5000 * "0").encode(), WHOLE.replace('"a"', r'"\ud800"').encode(), WHOLE.replace("2.0", "NaN").encode(),
         WHOLE.replace("[", 5000 * "[").encode(), WHOLE[:-1].encode() + b', "records": []}', b""]  # what was found, or readers disagree on


def changed(value, choices):
    """The value with one of its parts replaced, removed or repeated."""
    if not isinstance(value, (dict, list)) or not value or choices.random() < 0.1:
        return choices.choice(VALUES)
    copy = value.copy()
    where = choices.choice(list(copy)) if isinstance(copy, dict) else choices.randrange(len(copy))
    what = choices.random()
    if what < 0.15:
        del copy[where]
    elif what < 0.3:
        other = choices.choice(VALUES)
        if isinstance(copy, dict):
            copy[choices.choice(["format", "records", "problem", "machine", "date", "new"])] = other
        else:
            copy.insert(where, choices.choice([copy[where], other]))
    else:
        copy[where] = changed(copy[where], choices)
    return copy


def edited(data, choices):
    """The bytes with something inserted, removed or overwritten."""
    at = choices.randrange(len(data) + 1)
    to = min(len(data), at + choices.choice([0, 0, 1, 2, 8, 60]))
    return data[:at] + choices.choice([b"", bytes([choices.randrange(256)]), choices.choice(TOKENS), data[at:to] * 2]) + data[to:]


def new_input(choices):
    document = {"format": 1, "records": [RECORD, {**RECORD, "min_seq_len_q": 1, "max_seq_len_q": 16}]} if choices.random() < 0.8 else ENTRY
    for _ in range(choices.randrange(4)):
        document = changed(document, choices)
    data = json.dumps(document, ensure_ascii=choices.random() < 0.5).encode("utf-8", "surrogatepass")
    for _ in range(choices.choice([0, 0, 1, 2, 5])):
        data = edited(data, choices)
    return data


def refused(action):
    """Whether it was refused with one sentence; everything else that is thrown is a finding."""
    try:
        action()
    except Error as error:
        sentence = str(error)
        assert sentence and len(sentence) < 2000 and "\n" not in sentence, sentence[:500]
        return True
    return False


def opened(path):
    Log(str(path)).close()


def try_input(data, folder):
    path, good, merged = (folder / name for name in ("input", "good.json", "merged.json"))
    good.write_text(json.dumps({"format": 1, "records": [RECORD]}))
    path.write_bytes(data)
    merged.unlink(missing_ok=True)
    unusable = []  # a complaint for each
    for action in (lambda: unusable.extend(records.read(str(path))[1]), lambda: records.compare(str(path), str(good)),
                   lambda: records.compare(str(good), str(path)), lambda: records.check_output(str(path)), lambda: opened(path)):
        refused(action)
        assert path.read_bytes() == data, "reading has changed the file"
    if not refused(lambda: records.merge([str(good), str(path)], str(merged))):
        usable, _ = records.read(str(merged))
        assert records.key_of(RECORD) in map(records.key_of, usable), "lost in a merge"
    if refused(lambda: records.add(str(path), [RECORD])):
        assert path.read_bytes() == data, "a refusal has changed the file"
        return
    usable, complaints = records.read(str(path))
    assert RECORD in usable, "an added record cannot be read"
    assert len(complaints) == (len(unusable) if data else 0), "entries that cannot be used were not kept"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--input")
    options = parser.parse_args()
    choices, runs, end = random.Random(os.environ.get("POLYHEAD_SWEEP_SEED", "")), 0, time.monotonic() + options.seconds
    known = iter(KNOWN)
    with tempfile.TemporaryDirectory() as folder:
        while True:
            data = pathlib.Path(options.input).read_bytes() if options.input else next(known, None)
            data = new_input(choices) if data is None else data
            try:
                try_input(data, pathlib.Path(folder))
            except BaseException:
                print("FOUND by fuzz_record_files, for --input:\n%r" % data, flush=True)
                raise
            runs += 1
            if options.input or time.monotonic() > end:
                break
    print("fuzz_record_files: %d runs" % runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
