"""Installs polyhead to a fresh prefix and uses it from outside: find_package, a moved prefix, and a plain compiler line."""
import argparse
import glob
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

from commands import run

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
REFUSALS = [  # arguments of polyhead_add_kernel, and what its message must name
    ("OP mha EMBED_DIM 64 NUM_HEADS 4 FROBNICATE 3", "FROBNICATE"),
    ("OP mha EMBED_DIM 64", "NUM_HEADS"),
    ("EMBED_DIM 64", "OP is missing"),
    ("OP conv EMBED_DIM 64", "conv"),
    ("OP sdpa NUM_HEADS HEAD_DIM 64", "NUM_HEADS"),
    ("OP sdpa NUM_HEADS 4 HEAD_DIM 64 CAUSAL top_left CAUSAL bottom_right", "CAUSAL is given twice"),
    ("OP sdpa NUM_HEADS 4 HEAD_DIM 64 EXPRESSION_FILE nowhere.txt", "nowhere.txt is not a file"),
    ("OP sdpa NUM_HEADS 4 HEAD_DIM 64 EXPRESSION mask=true EXPRESSION_FILE nowhere.txt", "EXPRESSION and EXPRESSION_FILE, expected one"),
    ("OP sdpa NUM_HEADS 4 HEAD_DIM 64 TUNED nowhere.json", "nowhere.json is not a file of tuning records"),
    ("OP sdpa NUM_HEADS 4 HEAD_DIM 64 EXPRESSION_SOURCE main.cpp", "find_package(Halide)"),
]


def expect_no_halide(program):
    libraries = run(["ldd", program])
    if "Halide" in libraries:
        sys.exit("%s needs libHalide:\n%s" % (program, libraries))


def expect_record(manifest):
    with open(manifest, encoding="utf-8") as file:
        found = [variant.get("tuning_record", "") for variant in json.load(file)["variants"]]
    if platform.machine() == "x86_64" and not any(" of tuned.json, distance 0.00: " in record for record in found):
        sys.exit("%s does not say that a variant is from tuned.json: %s" % (manifest, found))


def configuration(options, prefix, source, build):
    return [options.cmake, "-Werror=dev", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_MAKE_PROGRAM=" + options.make_program,
            "-DCMAKE_CXX_COMPILER=" + options.cxx, "-DCMAKE_PREFIX_PATH=" + prefix, "-DCMAKE_BUILD_TYPE=Release"]


def by_cmake(options, prefix, folder):
    configure = configuration(options, prefix, HERE, folder)
    run(configure)
    run([options.cmake, "--build", folder])
    program = os.path.join(folder, "consumer")
    print(run([program]).strip())
    expect_no_halide(program)
    expect_record(os.path.join(folder, "polyhead_kernels", "consumer_attention.json"))
    for arguments, named in REFUSALS:
        command = configure[:5] + [folder + "-refused"] + configure[6:] + ["-DREFUSED=" + arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        text = " ".join(done.stdout.split())
        if done.returncode == 0 or "polyhead_add_kernel(refused)" not in text or named not in text:
            sys.exit("'%s' was not refused with a sentence that names '%s':\n%s" % (arguments, named, done.stdout))
    limited = folder + "-limited"
    run(configure[:5] + [limited] + configure[6:] + ["-DREFUSED=OP sdpa NUM_HEADS 4 HEAD_DIM 64 LIMIT_SECONDS 0.001 LIMIT_MEGABYTES 4000", "-DPOLYHEAD_TUNED=off"])
    done = subprocess.run([options.cmake, "--build", limited, "--target", "refused_generate"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode == 0 or "limit_seconds: the compiler took more than 0.001 s" not in done.stdout:
        sys.exit("a kernel was not refused for LIMIT_SECONDS:\n" + done.stdout)
    if " --no-tuned" not in done.stdout: # the failed command is shown
        sys.exit("POLYHEAD_TUNED=off does not reach the generator:\n" + done.stdout)


def cmake_blocks(*path):
    """The CMake lines that a document shows."""
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return re.findall(r"^```cmake\n(.*?)^```$", file.read(), re.M | re.S)


def by_readme(options, prefix, folder):
    """The CMake lines of README.md, for the program that it shows."""
    lines, = cmake_blocks("README.md")
    os.makedirs(folder)
    shutil.copy(os.path.join(ROOT, "examples", "001_sdpa", "main.cpp"), folder)
    with open(os.path.join(folder, "CMakeLists.txt"), "w", encoding="utf-8") as project:
        project.write("cmake_minimum_required(VERSION 3.28)\nproject(app LANGUAGES CXX)\nadd_executable(app main.cpp)\n" + lines)
    build = os.path.join(folder, "build")
    records = shutil.copy(os.path.join(HERE, "tuned.json"), folder)
    os.environ["POLYHEAD_TUNED"] = records  # when the project is configured, and not when it is built
    run(configuration(options, prefix, folder, build))
    os.environ["POLYHEAD_TUNED"] = os.path.join(folder, "not there.json")
    run([options.cmake, "--build", build])
    print(run([os.path.join(build, "app")]).strip())
    for name in os.listdir(os.path.join(build, "polyhead_kernels")):
        if name.endswith(".json"):
            with open(os.path.join(build, "polyhead_kernels", name), encoding="utf-8") as file:
                if json.load(file).get("tuned") != records:
                    sys.exit("%s does not say that %s was asked" % (name, records))
    if "Kernel " in run([options.cmake, "--build", build, "--", "-n"]):
        sys.exit("a kernel would be made again although nothing changed")
    os.utime(records)
    if "Kernel " not in run([options.cmake, "--build", build, "--", "-n"]):
        sys.exit("no kernel is made again when the file of tuning records changes")
    del os.environ["POLYHEAD_TUNED"]


def by_guides(options, prefix, folder):
    """The CMake lines of the guides, configured one after another."""
    head = "cmake_minimum_required(VERSION 3.28)\nproject(app LANGUAGES CXX)\nfind_package(Halide REQUIRED)\nfind_package(polyhead REQUIRED)\n"
    count = 0
    for guide in sorted(os.listdir(os.path.join(ROOT, "docs", "guides"))):
        for lines in cmake_blocks("docs", "guides", guide):
            count += 1
            project = os.path.join(folder, str(count))
            os.makedirs(project)
            shutil.copy(os.path.join(HERE, "tuned.json"), project)
            for name in ("main.cpp", "relative_bias.cpp"):
                open(os.path.join(project, name), "w", encoding="utf-8").close()
            os.symlink(ROOT, os.path.join(project, "polyhead"))
            with open(os.path.join(project, "CMakeLists.txt"), "w", encoding="utf-8") as file:
                whole, subdirectory = "find_package(polyhead" in lines, "add_subdirectory(" in lines
                file.write(lines if whole else (head.replace("find_package(polyhead REQUIRED)\n", "") if subdirectory else head) + lines)
            run(configuration(options, prefix, project, os.path.join(project, "build")) + ["-DHalide_DIR=" + options.halide])
    print("guides: %d CMake blocks" % count)


def by_hand(options, prefix, folder):
    os.makedirs(folder)
    run([os.path.join(prefix, "bin", "polyhead-generate"), "consumer_attention", "--op", "sdpa", "--num-heads", "4", "--num-kv-heads", "2",
         "--head-dim", "16", "--causal", "-o", folder])
    shutil.copy(os.path.join(HERE, "main.cpp"), folder)
    library = os.path.join(prefix, options.libdir, "libpolyhead.a")
    run(options.cxx.split() + ["-std=c++17", "-I.", "-I" + os.path.join(prefix, "include"), "main.cpp", "consumer_attention.a", library,
                               "-lpthread", "-ldl", "-o", "consumer"], cwd=folder)
    program = os.path.join(folder, "consumer")
    print(run([program]).strip())
    expect_no_halide(program)


def by_pkg_config(options, prefix, folder):
    """A program in C11, linked by gcc with what pkg-config says."""
    os.makedirs(folder)
    run([os.path.join(prefix, "bin", "polyhead-generate"), "two", "--op", "sdpa", "--num-heads", "1", "--head-dim", "16", "-o", folder])
    with open(os.path.join(folder, "main.c"), "w", encoding="utf-8") as file:
        file.write('#include "two.h"\nint main(void) { polyhead_args args = polyhead_args_of(POLYHEAD_SDPA); '
                   "return polyhead_run(&two, &args).code != POLYHEAD_NULL_POINTER; }\n")
    environment = dict(os.environ, PKG_CONFIG_PATH=os.path.join(prefix, options.libdir, "pkgconfig"))
    for words in (["polyhead"], ["--static", "polyhead"], ["polyhead-gpu"]):
        flags = run(["pkg-config", "--cflags", "--libs"] + words, env=environment).split()
        assert "-lstdc++" in flags and not any("Halide" in flag for flag in flags), flags
        run([options.cc, "-std=c11", "-Wall", "-Wextra", "-Werror", "main.c", "two.a"] + flags + ["-o", "program"], cwd=folder)
        run([os.path.join(folder, "program")])
    print("pkg-config: ok")


def exported(options, prefix, folder):
    """A library with a kernel for several CPUs inside: installed, moved, and found by a project that knows it alone. No generator is there then."""
    of_library, installed, moved = (os.path.join(folder, name) for name in ("library", "installed", "moved"))
    targets = ["x86-64-v4", "x86-64-v3", "x86-64"] if platform.machine() == "x86_64" else ["host"]
    run(configuration(options, prefix, os.path.join(HERE, "exported", "library"), of_library) + ["-DMEAN_TARGETS=" + ";".join(targets)])
    run([options.cmake, "--build", of_library])
    run([options.cmake, "--install", of_library, "--prefix", installed])
    os.rename(installed, moved)
    runtime = os.path.join(folder, "runtime")
    run([options.cmake, "--install", options.build, "--component", "runtime", "--prefix", runtime])
    for place, _, names in os.walk(runtime):
        assert not any("Halide" in name or "generate" in name for name in names), (place, names)
    build = os.path.join(folder, "program")
    run(configuration(options, moved + ";" + runtime, os.path.join(HERE, "exported", "program"), build))
    run([options.cmake, "--build", build])
    program = os.path.join(build, "program")
    expect_no_halide(program)
    print("exported: " + run([program]).splitlines()[0])
    if platform.machine() == "x86_64":
        for limit, target in (("none", "x86-64-linux"), ("avx2", "x86-64-linux-avx-avx2-f16c-fma-sse41")):
            said = run([program], env=dict(os.environ, POLYHEAD_CPU_FEATURES=limit))
            assert target + "," in said or target + "\n" in said or target + " " in said, "with %s the program ran:\n%s" % (limit, said)


def packages(options, folder):
    """What cpack makes of the runtime: a .deb and a .tar.gz with the libraries, headers, CMake package and licenses. (The generator's has libHalide,
    which takes a minute to compress.)"""
    cpack = os.path.join(os.path.dirname(options.cmake), "cpack")
    run([cpack, "--config", os.path.join(options.build, "CPackConfig.cmake"), "-B", folder, "-D", "CPACK_COMPONENTS_ALL=runtime"])
    archive, = glob.glob(os.path.join(folder, "*.tar.gz"))
    with tarfile.open(archive) as file:
        names = file.getnames()
    for wanted in (options.libdir + "/libpolyhead.a", "include/polyhead/polyhead.h", "polyheadConfig.cmake", "polyhead.pc", "doc/polyhead/NOTICE"):
        assert any(name.endswith(wanted) for name in names), (wanted, names)
    assert not any("Halide" in name or "polyhead-generate" in name for name in names), names
    deb, = glob.glob(os.path.join(folder, "libpolyhead-dev_*.deb"))
    if shutil.which("dpkg-deb"):
        fields = run(["dpkg-deb", "-f", deb])
        assert "Package: libpolyhead-dev" in fields and "Halide" not in run(["dpkg-deb", "-c", deb]), fields
    print("packages: ok")


def as_subdirectory(options, folder):
    """A project with polyhead as a subdirectory builds what it asks for."""
    project = os.path.join(HERE, "subdirectory")
    def configured(name, *more):
        return configuration(options, "", project, os.path.join(folder, name)) + ["-DPOLYHEAD_SOURCE=" + ROOT, *more]
    halide = "-DHalide_DIR=" + options.halide
    run(configured("nothing", halide))
    def commands(name):
        return run([options.make_program, "-C", os.path.join(folder, name), "-t", "commands", "all"])
    assert " -c " not in commands("nothing"), "a project that asks for nothing builds:\n" + commands("nothing")
    run(configured("runtime", halide, "-DUSES_RUNTIME=ON"))
    said = commands("runtime")
    assert "libpolyhead.a" in said and "generate" not in said and "libpolyhead_gpu" not in said, "a project that asks for the runtime builds:\n" + said
    for missing, sentence in (("Halide", "polyhead: Halide 21 was not found, and the generator needs it"),
                              ("CLI11", "polyhead: CLI11 was not found, and the generator needs it")):
        command = configured("without" + missing, halide, "-DCMAKE_DISABLE_FIND_PACKAGE_%s=ON" % missing)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        text = " ".join(done.stdout.split())
        assert done.returncode != 0 and sentence in text and text.count("CMake Error") == 1, text
    print("subdirectory: ok")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("cmake", "build", "make-program", "cc", "cxx", "libdir", "halide"):
        parser.add_argument("--" + name, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        first, prefix = os.path.join(folder, "first"), os.path.join(folder, "prefix")
        run([options.cmake, "--install", options.build, "--prefix", first])
        os.rename(first, prefix)  # a package must not know where it was installed
        by_cmake(options, prefix, os.path.join(folder, "by_cmake"))
        by_readme(options, prefix, os.path.join(folder, "by_readme"))
        by_guides(options, prefix, os.path.join(folder, "by_guides"))
        by_hand(options, prefix, os.path.join(folder, "by_hand"))
        by_pkg_config(options, prefix, os.path.join(folder, "by_pkg_config"))
        exported(options, prefix, os.path.join(folder, "exported"))
        packages(options, os.path.join(folder, "packages"))
        as_subdirectory(options, os.path.join(folder, "as_subdirectory"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
