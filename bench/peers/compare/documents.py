"""Blocks of Markdown files that show results. They are written from files of results, and held against them.

A block begins with <!-- results: FILE [groups=a,b | groups=none] [names=c,d] [threads=1,2] -->, ends with <!-- end of results -->, and holds what markdown.lines() makes of
FILE, a path from the root of the project.
"""

import json
import pathlib
import re
import sys

from . import linked, markdown, whole

BLOCK = re.compile(r"(<!-- results: (\S+)((?: \w+=\S+)*) -->\n)(.*?)(<!-- end of results -->)", re.S)


def shown(path, words):
    options = dict(word.split("=") for word in words.split())
    document = json.loads((linked.ROOT / path).read_text(encoding="utf-8"))
    chosen = {}
    for word in ("groups", "names"):
        if word in options:
            chosen[word] = [] if options[word] == "none" else options[word].split(",")
    if "threads" in options:
        chosen["threads"] = [int(number) for number in options["threads"].split(",")]
    return "\n%s\n\n" % "\n".join(markdown.lines(document, **chosen))


def filled(text):
    new, blocks = BLOCK.subn(lambda found: found[1] + shown(found[2], found[3]) + found[5], text)
    if blocks != text.count("\n<!-- results"):
        raise ValueError("a block of results begins, and its first or last line is not as it should be")
    return new


def main(arguments):
    """python -m compare.documents [--write] FILE...: 1 and a sentence for a file whose blocks are not what the results say."""
    write, status = "--write" in arguments, 0
    for name in (word for word in arguments if word != "--write"):
        path = pathlib.Path(linked.ROOT, name)
        text = path.read_text(encoding="utf-8")
        try:
            new = filled(text)
        except (OSError, KeyError, ValueError) as error:
            print("%s: %s" % (name, error))
            status = 1
            continue
        if new != text and write:
            whole.write(path, new)
        elif new != text:
            print("%s: what it shows are not the results that it names; ./polyhead check --fix writes them" % name)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
