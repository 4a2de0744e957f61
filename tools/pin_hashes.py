"""Writes under each pin of requirements/*.txt the SHA-256 of its wheels for all Pythons and systems, from the package index of pip.

    tools/pin_hashes.py            rewrites the files; after a pin was added or changed
    tools/pin_hashes.py --check    compares them with the index, and changes nothing
"""
import json
import os
import re
import sys
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = (os.path.join(ROOT, "requirements"), os.path.join(ROOT, "bench", "peers", "requirements"), os.path.join(ROOT, "tests", "conformance"))
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)([^\\]*?)\s*\\?$")
HASH = "    --hash=sha256:"


def index():
    return os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def wheels(name, version):
    """The sorted hashes of the wheels of one version; a wheel's name is NAME-VERSION-TAGS.whl, with the name's dashes as underscores."""
    request = urllib.request.Request("%s/%s/" % (index(), canonical(name)), headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    with urllib.request.urlopen(request) as answer:
        files = json.load(answer)["files"]
    found = {file["hashes"]["sha256"] for file in files
             if file["filename"].endswith(".whl") and canonical(file["filename"].split("-")[0]) == canonical(name)
             and file["filename"].split("-")[1] == version}
    if not found:
        sys.exit("%s==%s: the index has no wheel" % (name, version))
    return sorted(found)


def with_hashes(lines):
    """The lines of a file, each pin with its hashes; comments stay where they are."""
    for line in lines:
        pin = PIN.match(line)
        if line.startswith(HASH):
            continue
        if not pin:
            yield line
            continue
        hashes = wheels(pin.group(1), pin.group(2))
        yield "%s==%s%s \\" % (pin.group(1), pin.group(2), pin.group(3))
        yield from (HASH + value + (" \\" if value != hashes[-1] else "") for value in hashes)


def main():
    old = 0
    for folder in FOLDERS:
        for name in sorted(os.listdir(folder)):
            if not name.endswith(".txt"):
                continue
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8") as file:
                before = file.read().splitlines()
            after = list(with_hashes(before))
            if before != after:
                old += 1
                print("%s: other hashes" % os.path.relpath(path, ROOT))
                if "--check" not in sys.argv:
                    with open(path, "w", encoding="utf-8") as file:
                        file.write("\n".join(after) + "\n")
    return 1 if old and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
