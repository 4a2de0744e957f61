"""The product as others link it: what every ELF file of the build says, plug-ins that are opened and closed, a program with a Halide of its own,
folders of hostile libraries, drivers that say when they are touched."""
import argparse
import os
import re
import subprocess
import sys
import tempfile

PLUGIN = r"""
#include <attention.h>
#include <polyhead/polyhead.h>
#include <vector>
extern "C" __attribute__((visibility("default"))) int use_it(int threads) {
    // Scores of 0: the first query answers with the mean of the values 0 to 39 that it sees, which is the first one under a causal mask.
    const int H = attention.problem.num_heads, D = attention.problem.head_dim, T = 40;
    polyhead::set_num_threads(threads);
    std::vector<float> q(size_t(H) * T * D, 0.0f), v(q.size()), out(q.size());
    for (int h = 0; h < H; h++) { for (int t = 0; t < T; t++) { for (int d = 0; d < D; d++) { v[size_t((h * T + t) * D + d)] = float(t); } } }
    polyhead::SdpaArgs a;
    a.query = a.key = polyhead::view(q.data(), {1, H, T, D});
    a.value = polyhead::view(v.data(), {1, H, T, D});
    a.out = polyhead::view(out.data(), {1, H, T, D});
    const polyhead::Status status = attention.run(a);
    const float first = attention.problem.causal ? 0.0f : 19.5f;
    return status.ok() && out[0] > first - 0.001f && out[0] < first + 0.001f && polyhead::num_threads() == threads ? H : -1;
}
extern "C" __attribute__((visibility("default"))) int threads_of_it(void) { return polyhead::num_threads(); }
"""

HOST = r"""
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <dlfcn.h>
static int entries(const char *folder) { int n = 0; DIR *d = opendir(folder); while (readdir(d)) { n++; } closedir(d); return n; }
static int lines(const char *word) {
    char line[4096]; int n = 0; FILE *f = std::fopen("/proc/self/maps", "r");
    while (std::fgets(line, sizeof line, f)) { n += std::strstr(line, word) != nullptr; }
    std::fclose(f);
    return n;
}
typedef int (*Use)(int); typedef int (*Threads)();
int main(int argc, char **argv) {
    const int flags = RTLD_NOW | (std::strcmp(argv[1], "global") == 0 ? RTLD_GLOBAL : RTLD_LOCAL);
    int threads_before = 0, maps_before = 0;
    for (int round = 0; round < 21; round++) {
        void *open[2];
        for (int i = 0; i < 2; i++) {
            open[i] = dlopen(argv[2 + i], flags);
            if (!open[i]) { std::puts(dlerror()); return 2; }
            const int heads = reinterpret_cast<Use>(dlsym(open[i], "use_it"))(2 + i);
            if (heads != std::atoi(argv[4 + i])) { std::printf("%s answered %d\n", argv[2 + i], heads); return 3; }
        }
        if (reinterpret_cast<Threads>(dlsym(open[0], "threads_of_it"))() != 2) { std::puts("the second one changed the threads of the first"); return 4; }
        for (int i = 1; i >= 0; i--) {
            dlclose(open[i]);
            if (lines(argv[2 + i] + 2) != 0) { std::printf("%s is still there\n", argv[2 + i]); return 5; }
        }
        if (round == 0) { threads_before = entries("/proc/self/task"); maps_before = lines(""); }
    }
    if (entries("/proc/self/task") != threads_before) { std::puts("threads are left"); return 6; }
    if (lines("") > maps_before + 10) { std::printf("%d mappings became %d\n", maps_before, lines("")); return 7; } // arenas of the heap; a leak is 20
}
"""

# A program with pipelines of its own: it says what its Halide does about errors, memory and loops.
FOREIGN = r"""
#include <HalideRuntime.h>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include "foreign.h"
#include <attention.h>
#include <polyhead/polyhead.h>
static int errors = 0, mallocs = 0, frees = 0, loops = 0;
static void *take(void *, size_t n) { mallocs++; return std::malloc(n); }
static void give(void *, void *p) { frees++; std::free(p); }
static int loop(void *, halide_task_t f, int min, int n, uint8_t *c) { loops++; for (int i = 0; i < n; i++) { f(nullptr, min + i, c); } return 0; }
static int pipeline(float *data, int n, int bits) {
    halide_dimension_t dim = {0, n, 1, 0};
    halide_buffer_t out = {};
    out.host = reinterpret_cast<uint8_t *>(data);
    out.type = halide_type_t(halide_type_float, uint8_t(bits));
    out.dimensions = 1;
    out.dim = &dim;
    return foreign(&out);
}
int main() {
    halide_set_error_handler([](void *, const char *) { errors++; });
    halide_set_custom_malloc(take);
    halide_set_custom_free(give);
    halide_set_custom_do_par_for(loop);
    for (int round = 0; round < 2; round++) {
        std::vector<float> data(1000);
        if (pipeline(data.data(), 1000, 32) != 0 || data[999] != 999.0f) { std::puts("the pipeline is wrong"); return 1; }
        if (pipeline(data.data(), 1000, 64) == 0) { std::puts("no error"); return 2; }
        if (errors != round + 1 || loops == 0 || mallocs == 0 || mallocs != frees) {
            std::printf("%d errors, %d loops, %d mallocs, %d frees\n", errors, loops, mallocs, frees); return 3;
        }
        const int before = mallocs + frees + loops;
        const int H = attention.problem.num_heads, D = attention.problem.head_dim, T = 300;
        polyhead::set_num_threads(2);
        std::vector<float> q(size_t(H) * T * D, 1.0f), o(q.size());
        polyhead::SdpaArgs a;
        a.query = a.key = a.value = polyhead::view(q.data(), {1, H, T, D});
        a.out = polyhead::view(o.data(), {1, H, T, D});
        if (!attention.run(a).ok() || o[0] < 0.999f || o[0] > 1.001f) { std::puts("attention is wrong"); return 4; }
        if (mallocs + frees + loops != before) { std::puts("attention used the program's Halide"); return 5; }
    }
}
"""

FOREIGN_PIPELINE = r"""
import sys
import halide as hl
x = hl.Var("x")
staged, foreign = hl.Func("staged"), hl.Func("foreign")
staged[x] = hl.f32(x)
foreign[x] = staged[x]
staged.compute_root()
foreign.parallel(x, 100)
foreign.compile_to_static_library(sys.argv[1], [], "foreign")
"""

# A kernel for the CPU in a program that could open devices: here, in a child, and where a device is asked for.
COULD_OPEN = r"""
#include <attention.h>
#include <polyhead/polyhead.h>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>
static bool attend() {
    std::vector<float> q(160, 1.0f), o(160);
    polyhead::SdpaArgs a;
    a.query = a.key = a.value = polyhead::view(q.data(), {1, 1, 40, 4});
    a.out = polyhead::view(o.data(), {1, 1, 40, 4});
    return attention.run(a).ok();
}
int main(int argc, char **argv) {
    if (!attend()) { return 1; }
    const pid_t child = fork();
    if (child == 0) { std::_Exit(attend() ? 0 : 1); }
    int status = 0;
    waitpid(child, &status, 0);
    if (argc > 1) {
        polyhead::Device device;
        (void)polyhead::Device::open(std::strcmp(argv[1], "cuda") == 0 ? polyhead::Api::cuda : polyhead::Api::opencl, 0, &device);
    }
    return status;
}
"""

IN_PYTHON = r"""
import os, sys
sys.path.insert(0, sys.argv[1])
import numpy, polyhead
x = numpy.ones((1, 1, 3, 4), numpy.float32)
def attend():
    assert abs(polyhead.sdpa(x, x, x) - 1).max() < 1e-5
    polyhead.clear_cache()
attend()
child = os.fork()
if child == 0:
    attend()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
if len(sys.argv) > 2:
    try:
        polyhead.Device(sys.argv[2])
    except polyhead.Error:
        pass
"""

HOSTILE = r"""
#include <stdio.h>
__attribute__((constructor)) static void loaded(void) { FILE *f = fopen(HERE "/loaded", "a"); fputs(NAME "\n", f); fclose(f); }
"""


class Failed(Exception):
    pass


def run(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False, **options)
    if done.returncode != 0:
        raise Failed("%s ended with status %d:\n%s" % (" ".join(command), done.returncode, done.stdout))
    return done.stdout


def is_elf(path):
    if os.path.islink(path) or not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def check_dynamic(path):
    """Where an executable or shared library looks for libraries, and what it asks of the system."""
    text = run(["readelf", "-dlW", path])
    faults = []
    for places in re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", text):
        faults += ["RUNPATH element '%s' of '%s'" % (place, places) for place in places.split(":")
                   if not (place.startswith("/") or place.startswith("$ORIGIN"))]
    if "(TEXTREL)" in text or re.search(r"FLAGS\).*TEXTREL", text):
        faults.append("TEXTREL")
    stack = re.search(r"GNU_STACK +(?:0x\w+ +){5}(\S+)", text)
    if not stack or "E" in stack.group(1):
        faults.append("an executable stack")
    return faults


def check_archive(path):
    """What the objects of an archive show to a program that links it."""
    faults = []
    for line in run(["readelf", "-sW", path]).splitlines():
        words = line.split()
        if len(words) < 8 or words[4] not in ("GLOBAL", "WEAK", "UNIQUE"):
            continue
        binding, visibility, section, name = words[4], words[5], words[6], words[7]
        if binding == "UNIQUE":
            faults.append("%s is unique in a process" % name)
        elif section != "UND" and visibility != "HIDDEN":
            faults.append("%s is visible" % name)
        elif name.startswith("halide_") or (name.startswith("_Z") and "6Halide7Runtime" in name):
            faults.append("%s is a name of Halide's" % name)
    sections = run(["readelf", "-SW", path])
    if sections.count("\nFile: ") > sections.count(".note.GNU-stack"):
        faults.append("an object without .note.GNU-stack, which asks for an executable stack")
    return faults


def check_files(options):
    """Every ELF file of the build but those that a test or the fuzzer made to be wrong, and the archives that are shipped."""
    count = 0
    for folder, folders, files in os.walk(options.build):
        folders[:] = [name for name in folders if name not in ("CMakeFiles", "pocl_cache", "corpus", "found")]
        for name in files:
            path = os.path.join(folder, name)
            if name.endswith(".o") or not is_elf(path):
                continue
            count += 1
            faults = check_dynamic(path)
            if faults:
                raise Failed("%s: %s" % (path, "; ".join(faults)))
    if count < 3:
        raise Failed("found %d ELF files in %s" % (count, options.build))
    shipped = [options.library, options.gpu_library] + [os.path.join(options.work, "one", "attention.a")]
    for path in shipped:
        faults = check_archive(path)
        if faults:
            raise Failed("%s: %s" % (path, "; ".join(faults[:5])))
    print("%d ELF files, %d archives" % (count, len(shipped)))


def generate(options, folder, *flags):
    out = os.path.join(options.work, folder)
    run([options.generate, "attention", "--op", "sdpa", "--head-dim", "4", "--no-tuned", "--target", "x86-64-linux" if options.x86 else "host",
         "--tiling", "frame=query_lanes", *flags, "-o", out])
    return out


def compile_cxx(options, source, out, *words):
    path = os.path.join(options.work, os.path.basename(out) + ".cpp")
    with open(path, "w", encoding="utf-8") as file:
        file.write(source)
    run([options.cxx, "-std=c++17", "-O1", "-I" + options.include, path, *words, "-lpthread", "-ldl", "-o", os.path.join(options.work, out)])


def check_plugins(options):
    """Two plug-ins with kernels of one name and different problems; no flag of the linker."""
    for plugin, folder in (("one.so", "one"), ("two.so", "two")):
        kernel = os.path.join(options.work, folder)
        compile_cxx(options, PLUGIN, plugin, "-shared", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-I" + kernel,
                    os.path.join(kernel, "attention.a"), options.library)
        shown = {line.split()[-1] for line in run(["nm", "-D", "--defined-only", os.path.join(options.work, plugin)]).splitlines()}
        # Instances of templates of the standard library that the plug-in's own file has are its compiler's.
        shown = {name for name in shown if not re.match(r"_ZN?K?S|_ZT[SIV]S|_init$|_fini$", name)}
        if shown != {"use_it", "threads_of_it"}:
            raise Failed("%s shows %s" % (plugin, sorted(shown)[:8]))
    compile_cxx(options, HOST, "host")
    for plugin, folder in (("plain_one.so", "one"), ("plain_two.so", "two")):  # by somebody who hides nothing
        kernel = os.path.join(options.work, folder)
        compile_cxx(options, PLUGIN, plugin, "-shared", "-fPIC", "-I" + kernel, os.path.join(kernel, "attention.a"), options.library)
    for flags in ("local", "global"):
        for names in (["./one.so", "./two.so"], ["./plain_one.so", "./plain_two.so"]):
            run([os.path.join(options.work, "host"), flags, *names, "1", "2"], cwd=options.work, timeout=120)


def check_foreign(options):
    script = os.path.join(options.work, "pipeline.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write(FOREIGN_PIPELINE)
    run([sys.executable, script, os.path.join(options.work, "foreign")])
    kernel = os.path.join(options.work, "one")
    ours, theirs = [os.path.join(kernel, "attention.a"), options.library], [os.path.join(options.work, "foreign.a")]
    for name, order in (("ours_first", ours + theirs), ("theirs_first", theirs + ours)):
        compile_cxx(options, FOREIGN, name, "-I" + kernel, "-I" + options.work, "-I" + options.halide_include, *order)
        run([os.path.join(options.work, name)], timeout=60)


DRIVERS = ("libcuda.so.1", "libcuda.so", "libOpenCL.so.1", "libOpenCL.so", "libvulkan.so.1", "libvulkan.so")


def make_hostile(options, name, libraries):
    """A folder of libraries that write their names when they are loaded."""
    folder = os.path.join(options.work, name)
    os.mkdir(folder)
    source = os.path.join(folder, "hostile.c")
    with open(source, "w", encoding="utf-8") as file:
        file.write(HOSTILE)
    for library in libraries:
        run([options.cc, "-shared", "-fPIC", '-DHERE="%s"' % folder, '-DNAME="%s"' % library, source, "-o", os.path.join(folder, library)])
    return folder


def loaded_from(folder):
    """The libraries of a folder that were loaded since the last call."""
    path = os.path.join(folder, "loaded")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        names = file.read().split()
    os.unlink(path)
    return names


def check_drivers(options):
    """No driver is loaded before a device is opened. That one is loaded then shows that the stand-ins would have told."""
    folder, kernel = make_hostile(options, "drivers", DRIVERS), os.path.join(options.work, "one")
    environment = dict(os.environ, LD_LIBRARY_PATH=folder)
    compile_cxx(options, COULD_OPEN, "could_open", "-I" + kernel, os.path.join(kernel, "attention.a"), options.gpu_library, options.library)
    programs = [[os.path.join(options.work, "could_open")]]
    if options.python_path:
        programs.append([sys.executable, "-I", "-c", IN_PYTHON, options.python_path])
    for program in programs:
        run(program, env=environment)
        touched = loaded_from(folder)
        if touched:
            raise Failed("a kernel for the CPU loaded %s" % touched)
        for api, driver in (("cuda", "libcuda"), ("opencl", "libOpenCL")):
            run(program + [api], env=environment)
            if not any(name.startswith(driver) for name in loaded_from(folder)):
                raise Failed("a device of %s was asked for, and no driver was loaded: this check proves nothing" % api)


def check_hostile_folder(options):
    folder = make_hostile(options, "hostile", ("libgcc_s.so.1", "libstdc++.so.6", "libHalide.so", "libm.so.6", "libtinfo.so.6", "libz.so.1") + DRIVERS)
    environment = {key: value for key, value in os.environ.items() if key not in ("LD_LIBRARY_PATH", "LD_PRELOAD")}
    run([options.generate, "--list-tilings", "k", "--op", "sdpa", "--num-heads", "1", "--head-dim", "4"], cwd=folder, env=environment)
    if options.python_path:
        program = ("import numpy, polyhead; x = numpy.ones((1, 1, 3, 4), numpy.float32); "
                   "assert abs(polyhead.sdpa(x, x, x) - 1).max() < 1e-5")
        # -I: the interpreter itself would take modules from the folder.
        run([sys.executable, "-I", "-c", "import sys; sys.path.insert(0, %r); %s" % (options.python_path, program)], cwd=folder, env=environment)
    touched = loaded_from(folder)
    if touched:
        raise Failed("loaded from the current folder: %s" % touched)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("generate", "library", "gpu-library", "include", "halide-include", "build", "cc", "cxx"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--python-path", default="", help="folder of the package polyhead; without it that check is left out")
    options = parser.parse_args()
    options.x86 = os.uname().machine == "x86_64"
    with tempfile.TemporaryDirectory() as options.work:
        try:
            generate(options, "one", "--num-heads", "1")
            generate(options, "two", "--num-heads", "2", "--causal", "top_left")
            for check in (check_files, check_plugins, check_foreign, check_drivers, check_hostile_folder):
                check(options)
        except (Failed, subprocess.TimeoutExpired) as failure:
            print("FAILED: %s" % failure)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
