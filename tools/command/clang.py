"""The clang that builds the fuzzers: its packages, and whether it is installed."""
import os
import shutil
import subprocess
import tempfile

# libFuzzer is a part of clang's own libraries, which the compiler's package only recommends.
PACKAGES = ["clang", "libclang-rt-dev"]
SOURCE = """#include <vector>
extern "C" int LLVMFuzzerTestOneInput(const unsigned char *, unsigned long) { return 0; }
"""


def fuzzing_compiler():
    """The path of a clang++ that can build fuzzers with sanitizers, or ""."""
    compiler = shutil.which("clang++")
    if compiler is None:
        return ""
    with tempfile.TemporaryDirectory() as folder:
        command = [compiler, "-x", "c++", "-", "-fsanitize=fuzzer,address,undefined", "-o", os.path.join(folder, "fuzzer")]
        done = subprocess.run(command, input=SOURCE, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return compiler if done.returncode == 0 else ""
