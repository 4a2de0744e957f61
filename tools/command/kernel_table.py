"""Reads kernels/table.txt, as cmake/polyhead_kernel_table.cmake does."""
import os
import re
import shlex

from .places import ROOT

LINE = re.compile(r"^([A-Za-z0-9_]+) *\(([a-z_ ]*)\) *: *(.*)$")


def kernels():
    """(name, tags, flags of `polyhead generate`) of every line."""
    with open(os.path.join(ROOT, "kernels", "table.txt"), encoding="utf-8") as table:
        for match in filter(None, map(LINE.match, table)):
            yield match.group(1), set(match.group(2).split()), shlex.split(match.group(3))


def without(flags, *options):
    """The flags of a line without these options and their values."""
    for option in options:
        if option in flags:
            place = flags.index(option)
            flags = flags[:place] + flags[place + 2:]
    return flags
