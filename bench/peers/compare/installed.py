"""Bytes that pip installed for a package and everything that it requires: one JSON object. Runs in the interpreter that has the package."""

import importlib.metadata as metadata
import json
import re
import sys


def distribution(name):
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None


def required(found):
    """Names of the packages that it requires here, without those of extras."""
    from packaging.requirements import Requirement

    for text in found.requires or ():
        asked = Requirement(text)
        if asked.marker is None or asked.marker.evaluate({"extra": ""}):
            yield asked.name


def size(found):
    return sum(file.locate().stat().st_size for file in found.files or () if file.locate().is_file() and not file.name.endswith(".pyc"))


def closure(name):
    """({package: bytes}, [required packages that are not installed])."""
    sizes, absent, waiting = {}, [], [name]
    while waiting:
        key = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if key in sizes or key in absent:
            continue
        found = distribution(key)
        if found is None:
            absent.append(key)
            continue
        sizes[key] = size(found)
        waiting += required(found)
    return sizes, absent


def main():
    sizes, absent = closure(sys.argv[1])
    print(json.dumps(dict(bytes=sum(sizes.values()), packages=sizes, absent=sorted(absent))))


if __name__ == "__main__":
    main()
