"""User expressions in C++ that are refused: one message with the user's file, and no library."""
import argparse
import os
import subprocess
import sys

REFUSED = [  # kernel, and what its build says
    ("expression_does_not_compile", "does_not_compile.cpp:5:"),
    ("expression_wrong_type", "wrong_type.cpp: score() gives bool, expected float32"),
    ("expression_unknown_tensor", "unknown_tensor.cpp: unknown tensor 'biaz'"),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("cmake", "build", "kernels"):
        parser.add_argument("--" + name, required=True)
    options = parser.parse_args()
    failures = 0
    for kernel, message in REFUSED:
        done = subprocess.run([options.cmake, "--build", options.build, "--target", kernel + "_generate"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        left = [name for name in os.listdir(options.kernels) if name.startswith(kernel + ".")]
        if done.returncode == 0 or message not in done.stdout or left:
            failures += 1
            print("FAILED: %s: expected '%s' and no library, left %s, said\n%s" % (kernel, message, left, done.stdout))
    print("%d failures" % failures)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
