"""Writes NOTICE: whose code is inside of what this project makes, with each license as its package has it.

    tools/notice.py            writes the file
    tools/notice.py --check    compares it with the packages of this machine
"""
import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PATH = os.path.join(ROOT, "NOTICE")
PACKAGES = os.path.join(ROOT, ".venv", "lib*", "python3*", "site-packages")
HEAD = """NOTICE: code of others inside of what polyhead makes

polyhead itself has the license in LICENSE. Programs and libraries that are made with it have code of others inside:

    libpolyhead.a, and kernels on CPUs             nothing of others but the C++ library that the program is linked with;
                                                   Halide writes the code of kernels
    libpolyhead_gpu.a, and kernels on devices      Halide (its runtime)
    polyhead-generate                              CLI11, JSON for Modern C++; it loads libHalide, which has LLVM inside
    the Python package                             nanobind and robin_map, CLI11, JSON for Modern C++, liblzma
    a wheel                                        the same, libstdc++ and libgcc

Their licenses follow, as their packages have them.
"""
# Name, the file of its license, and the lines of it from one that matches to one that matches; none: all of them.
PARTS = [
    ("Halide, with LLVM and what else is in its package", PACKAGES + "/halide-*.dist-info/licenses/LICENSE.txt", None, None),
    ("nanobind", PACKAGES + "/nanobind-*.dist-info/licenses/LICENSE", None, None),
    ("robin_map", PACKAGES + "/nanobind/ext/robin_map/include/tsl/robin_map.h", r"MIT License", r"SOFTWARE\.$|\* SOFTWARE\.$"),
    ("CLI11", "/usr/share/doc/libcli11-dev/copyright", r"^Files: \*", r"SUCH DAMAGE\.$"),
    ("JSON for Modern C++", "/usr/share/doc/nlohmann-json3-dev/copyright", r"^Files: \*", r"^ SOFTWARE\.$"),
    ("liblzma", "/usr/include/lzma.h", r"public API of liblzma", r"do whatever you want"),
    ("libstdc++ and libgcc: the GNU General Public License, version 3, with this exception", "/usr/share/doc/gcc-12-base/copyright",
     r"^GCC RUNTIME LIBRARY EXCEPTION", r"consistent with the licensing"),
]


def license_of(pattern, first, last):
    """The lines of a license without marks of comments, or None where its package is not installed."""
    found = glob.glob(pattern)
    if not found:
        return None
    with open(found[0], encoding="utf-8") as file:
        lines = [line.rstrip() for line in file.read().expandtabs(8).splitlines()]
    if first:
        begin = next(i for i, line in enumerate(lines) if re.search(first, line))
        end = next(i for i, line in enumerate(lines) if i >= begin and re.search(last, line))
        lines = lines[begin:end + 1]
    return [re.sub(r"^ ?\*( |$)|^ \.$", "", line) for line in lines]


def section(name, lines):
    return "\n%s\n%s\n\n%s\n" % (name, "=" * len(name), "\n".join(lines).strip("\n"))


def complaints(text):
    """Names of parts whose license is not in the text as the package has it, and of packages that are not here."""
    wrong, missing = [], []
    for name, pattern, first, last in PARTS:
        lines = license_of(pattern, first, last)
        if lines is None:
            missing.append(name)
        elif section(name, lines) not in text:
            wrong.append(name)
    return wrong, missing


def main():
    if "--check" in sys.argv[1:]:
        with open(PATH, encoding="utf-8") as file:
            wrong, missing = complaints(file.read())
        for name in wrong:
            print("NOTICE: the license of %s is not that of its package: run tools/notice.py" % name)
        for name in missing:
            print("NOT RUN: the license of %s: its package is not installed" % name)
        return 1 if wrong else 0
    text = HEAD + "".join(section(name, license_of(pattern, first, last)) for name, pattern, first, last in PARTS)
    with open(PATH, "w", encoding="utf-8") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
