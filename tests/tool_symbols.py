"""Holds header and library of a kernel together: those of one generation link and run, those of two do not link."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

NAME = "same_name"
BASE = ["--op", "sdpa", "--num-heads", "2", "--head-dim", "8", "--target", "x86-64-linux", "--seq-len-q", "20", "--expression", "score = 2 * score"]
OTHERS = {  # by what differs from BASE
    "a dimension": ["--head-dim", "12"],
    "a field that shapes no tensor": ["--causal"],
    "the expression": ["--expression", "score = 3 * score"],
    "the target": ["--target", "x86-64-linux-sse41"],
    "the tiling": ["--tiling", "kv_tile=64"],
    "the query length": ["--seq-len-q", "21"],
}
PROGRAM = r"""
#include <stdio.h>
#include "same_name.h"

static polyhead_tensor rows(float *data) {
    polyhead_tensor tensor = {data, POLYHEAD_F32, 4, {1, 2, 20, 8}, {320, 160, 8, 1}, NULL, 0};
    return tensor;
}

int main(void) {
    static float in[320], out[320];
    polyhead_args args = polyhead_args_of(POLYHEAD_SDPA);
    polyhead_status status;
    int i;
    for (i = 0; i < 320; i++) {
        in[i] = 0.5f;
    }
    args.query = rows(in);
    args.key = rows(in);
    args.value = rows(in);
    args.out = rows(out);
    status = polyhead_run(&same_name, &args);
    printf("%d %s\n", (int)status.code, status.message);
    return status.code == 0 && out[319] > 0.4999f && out[319] < 0.5001f ? 0 : 1;
}
"""


class Folder:
    """The three files of one generation under NAME."""

    def __init__(self, options, path, arguments):
        self.options, self.path = options, path
        subprocess.run([options.generate, NAME, *arguments, "-o", path], check=True)

    def variants(self):
        with open(os.path.join(self.path, NAME + ".json"), encoding="utf-8") as file:
            return json.load(file)["variants"]

    def program_with(self, library):
        """The program from this header and that folder's library, and the output of the linker."""
        program = os.path.join(self.path, "program")
        source = program + ".c"
        with open(source, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        command = self.options.cc.split() + ["-I" + self.options.include, "-I" + self.path, source, os.path.join(library.path, NAME + ".a"),
                                             self.options.library, "-o", program, "-lstdc++", "-lm", "-lpthread", "-ldl"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return (program if done.returncode == 0 else None), done.stdout


def changed(arguments, by):
    """`arguments` with the flag of `by` replaced or added."""
    words = list(arguments)
    if by[0] in words:
        at = words.index(by[0])
        words[at:at + len(by)] = by
        return words
    return words + by


def failures_of(base, others):
    failures = []
    program, said = base.program_with(base)
    if not program or subprocess.run([program]).returncode != 0:
        failures.append("header and library of one generation do not work together: %s" % said)
    for what, other in others.items():
        for header, library in ((base, other), (other, base)):
            program, said = header.program_with(library)
            if program or "undefined reference to `polyhead_%s" % NAME not in said:
                failures.append("%s differs, and header and library of the two were linked: %s" % (what, said))
    names = [variant["name"] for variant in base.variants()]
    if names != ["polyhead_%s_%d" % (NAME, i) for i in range(len(names))]:
        failures.append("names of variants: found %s" % names)
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("generate", "include", "library", "cc"):
        parser.add_argument("--" + name, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        base = Folder(options, os.path.join(folder, "base"), BASE)
        again = Folder(options, os.path.join(folder, "again"), BASE)
        others = {what: Folder(options, os.path.join(folder, what.replace(" ", "_")), changed(BASE, by)) for what, by in OTHERS.items()}
        failures = failures_of(base, others)
        if not base.program_with(again)[0]:
            failures.append("the same problem generated twice does not link")
    for failure in failures:
        print("FAILED: " + failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
