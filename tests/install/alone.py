"""The runtime without its generator: nothing of Halide is there when it is built, for this machine and for AArch64; a project for AArch64 takes
a generator that runs here, and its program runs in an emulator. The long form also builds and runs the tests of the runtime."""
import argparse
import os
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import tier  # noqa: E402
from commands import run  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ARM = ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64", "-DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc",
       "-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++"]
EMULATOR = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]


def configured(options, source, build, *arguments, expected=0):
    return run([options.cmake, "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_MAKE_PROGRAM=" + options.make_program, "-DCMAKE_BUILD_TYPE=Debug",
                *arguments], expected)


def built(options, build, *arguments):
    """The runtime, with CMake's package of Halide out of reach."""
    configured(options, ROOT, build, "-DPOLYHEAD_BUILD_GENERATOR=OFF", "-DCMAKE_DISABLE_FIND_PACKAGE_Halide=ON", *arguments)
    run([options.cmake, "--build", build])
    read = run([options.make_program, "-C", build, "-t", "deps"])
    assert "kernel_interface.h" in read, "Ninja does not know which headers were read"
    for header in ("HalideRuntime", "Halide.h"):
        assert header not in read, "a source of the runtime includes %s:\n%s" % (header, read)


def for_arm(options, folder):
    build, prefix, project = folder / "arm", folder / "prefix", folder / "project"
    built(options, build, *ARM, "-DPOLYHEAD_BUILD_TESTS=OFF")
    run([options.cmake, "--install", build, "--prefix", prefix])
    arguments = [*ARM, "-DCMAKE_PREFIX_PATH=%s" % prefix, "-DCMAKE_FIND_ROOT_PATH=%s" % prefix, "-DPOLYHEAD_DEFAULT_TARGET=arm-64-linux"]
    refused = " ".join(configured(options, HERE, folder / "refused", *arguments, expected=1).split())
    assert "this polyhead was built without its generator, expected POLYHEAD_GENERATE to be the path of polyhead-generate" in refused, refused
    configured(options, HERE, project, *arguments, "-DPOLYHEAD_GENERATE=" + options.generate, "-DPOLYHEAD_TUNED=off")
    run([options.cmake, "--build", project])
    print("AArch64: " + run([*EMULATOR, project / "consumer"]).strip())


def for_this_machine(options, folder):
    """With the tests that need no generator."""
    built(options, folder, "-DPOLYHEAD_BUILD_TESTS=ON", "-DCMAKE_CXX_COMPILER=" + options.cxx, "-DPython3_EXECUTABLE=" + sys.executable)
    run([options.cmake, "--build", folder, "--target", "polyhead_tests"])
    said = run([str(pathlib.Path(options.cmake).with_name("ctest")), "--test-dir", folder, "-E", "Sanitizer"])
    assert "100% tests passed" in said, said
    print("without the generator: " + [line for line in said.splitlines() if "tests passed" in line][0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("cmake", "make-program", "cxx", "generate"):
        parser.add_argument("--" + name, required=True)
    options = parser.parse_args()
    missing = [tool for tool in (ARM[-1].partition("=")[2], EMULATOR[0]) if not shutil.which(tool)]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if missing:
            print("NOT RUN: AArch64: %s is not installed" % missing[0])
        else:
            for_arm(options, folder)
        if tier.ALL or missing:
            for_this_machine(options, folder / "here")


if __name__ == "__main__":
    os.environ.pop("POLYHEAD_TUNED", None)
    main()
