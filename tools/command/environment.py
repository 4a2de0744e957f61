"""Set-up: Debian packages if they may be installed, and .venv from requirements/. Only what a command needs; a second run is fast."""
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig

from . import clang, gpu
from .build import PARTS
from .places import BUILD, PYTHON, ROOT, VENV, Failure, call, environment, output, step

STAMP = os.path.join(VENV, "polyhead-setup.json")
# Debian package -> a header or program that shows that it is installed, so that other distributions work, too.
TO_BUILD = {
    "g++": "program g++",                               # compiler of the runtime, the tools and the tests
    "nlohmann-json3-dev": "header nlohmann/json.hpp",    # manifests
    "libcli11-dev": "header CLI/CLI.hpp",                # command line of the generator
}
TO_BENCH = {"libbenchmark-dev": "header benchmark/benchmark.h"}  # bench framework
TO_TEST = {"catch2": "header catch2/catch.hpp catch2/catch_all.hpp"}  # test framework, 2 or 3
# A compiler and an emulator: the runtime is built for AArch64, too.
OTHER_MACHINES = ["g++-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user"]
TO_LOAD = {"liblzma-dev": "header lzma.h"}  # compresses the ready kernels of a wheel
# The sources of locales: tests run in one with a decimal comma.
LOCALES, LOCALES_FILE = "locales", "/usr/share/i18n/locales/de_DE"

# The headers for a distribution's Python. They build the Python package; other Pythons contain their headers.
PYTHON_HEADERS = "libpython3-dev"

# What a command may need: Debian packages, and a file requirements/NAME.txt. The file lists every package: pip installs no others.
NEEDS = {
    "build": TO_BUILD,
    "arrays": {},
    "model": {},
    "package": TO_LOAD,
    "wheel": {},
    "plots": {},
    "tune": {},
    "bench": {**TO_BENCH, **TO_LOAD},
    "test": {**TO_TEST, **TO_BENCH, **TO_LOAD},
    "check": {},
}

PACKAGE = ("build", "arrays", "package")  # what the Python package needs


def parts():
    """The parts of the build that this machine can build when all needs are installed."""
    return [part for part in PARTS if part != "PYTHON" or has_python_headers()]


def compiler():
    return os.environ.get("CXX") or "g++"


def missing_headers(headers):
    """The headers that the compiler does not find; one run of the compiler checks all."""
    lines = "".join("#if !__has_include(<%s>)\nmissing %s\n#endif\n" % (name, name) for name in headers)
    done = subprocess.run(compiler().split() + ["-x", "c++", "-E", "-P", "-"], input=lines, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True)
    return {line.split()[1] for line in done.stdout.splitlines() if line.startswith("missing ")}


def missing_packages(wanted):
    """The Debian packages that are neither installed nor replaced by something else."""
    missing = []
    if shutil.which(compiler().split()[0]) is None:
        return list(wanted)
    headers = {package: probe.split()[1:] for package, probe in wanted.items() if probe.startswith("header ")}
    absent = missing_headers([name for names in headers.values() for name in names]) if headers else set()
    for package, names in headers.items():
        if all(name in absent for name in names):
            missing.append(package)
    return missing


def can_make_venv():
    probe = "import ensurepip, venv"
    return subprocess.call([sys.executable, "-c", probe], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0


def administrator():
    """The words before a command that run it as administrator, or None. sudo is used only if the user agrees: at the terminal, or by
    POLYHEAD_SUDO=1 where there is none."""
    if shutil.which("apt-get") is None:
        return None
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        return None
    if os.environ.get("POLYHEAD_SUDO") == "1":
        return ["sudo", "-n"]
    if sys.stdin.isatty() and sys.stdout.isatty():
        return ["sudo"] if input("Install them with sudo? [y/N] ").strip().lower() in ("y", "yes") else None
    return None


def install_packages(packages):
    """Prints which packages are missing, then installs them if that is allowed."""
    sentence = "please install these packages first: apt-get install %s (or set POLYHEAD_SUDO=1, and sudo does it)" % " ".join(packages)
    step("Debian packages: %s" % " ".join(packages))
    words = administrator()
    if words is None:
        raise Failure(sentence)
    install = words + ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-q", "--no-install-recommends"] + packages
    if call(install, check=False) != 0:
        # Package lists may be missing or old.
        call(words + ["apt-get", "update", "-q"], check=False)
        if call(install, check=False) != 0:
            raise Failure(sentence)


def install_if_allowed(packages, without):
    """Installs packages that a command does not strictly need."""
    try:
        install_packages(packages)
    except Failure as failure:
        print("polyhead: %s; %s" % (without, failure), file=sys.stderr)


def install_for_gpu_tests():
    """Installs what runs GPU kernels on the CPU."""
    packages = gpu.missing_packages()
    if packages:
        install_if_allowed(packages, "without them GPU kernels are not tested")


def install_for_fuzzers():
    if not clang.fuzzing_compiler():
        install_if_allowed(clang.PACKAGES, "without it nothing is fuzzed")


def install_for_locales():
    if not os.path.exists(LOCALES_FILE):
        install_if_allowed([LOCALES], "without it no test runs with a decimal comma")


def install_for_other_machines():
    """Installs a compiler and an emulator for AArch64."""
    if not all(shutil.which(tool) for tool in ("aarch64-linux-gnu-g++", "qemu-aarch64")):
        install_if_allowed(OTHER_MACHINES, "without them nothing is compiled for another machine")


def install_for_several_builds():
    """Installs ccache, so that builds share their objects: tests build the libraries as other projects do."""
    if not shutil.which("ccache"):
        install_if_allowed(["ccache"], "without it every build compiles everything")


def has_python_headers():
    return os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))


def requirements(need):
    """The file with the Python packages of a need, or None."""
    path = os.path.join(ROOT, "requirements", need + ".txt")
    return path if os.path.exists(path) else None


def fingerprint(need):
    text = json.dumps([sorted(NEEDS[need]), sorted(gpu.PACKAGES) + clang.PACKAGES + OTHER_MACHINES + [LOCALES] if need == "test" else []])
    path = requirements(need)
    if path is not None:
        with open(path, encoding="utf-8") as file:
            text += file.read()
    return hashlib.sha256(text.encode()).hexdigest()


def interpreter():
    """The folder of .venv and the version of Python that it is made for."""
    return "%s %d.%d" % (VENV, *sys.version_info[:2])


def stamps():
    """{need: fingerprint} of the needs that .venv has; empty if .venv must be made."""
    try:
        with open(STAMP, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    usable = isinstance(found, dict) and found.get("interpreter") == interpreter() and os.path.exists(PYTHON)
    return found if usable else {}


def make_venv():
    if os.path.isdir(VENV):
        shutil.rmtree(VENV)
    call([sys.executable, "-m", "venv", VENV], env=dict(environment(), PATH=os.environ.get("PATH", os.defpath)))
    link_package()


def install_requirements(needs):
    """Installs the Python packages of these needs into .venv with one run of pip."""
    files = [os.path.relpath(requirements(need), ROOT) for need in needs if requirements(need)]
    if not files:
        return
    step("Python packages into .venv: %s" % " ".join(files))
    pip = [PYTHON, "-m", "pip", "install", "--no-cache-dir", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    if call(pip + [word for file in files for word in ("-r", file)], check=False) != 0:
        raise Failure("pip could not install %s; its message is above" % " ".join(files))


def link_package():
    """Makes `import polyhead` in .venv find the package that the release build makes."""
    folder = output([PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    if folder:
        with open(os.path.join(folder.strip(), "polyhead.pth"), "w", encoding="utf-8") as file:
            file.write(os.path.join(BUILD, "release", "python") + "\n")


def ensure(*needs, force=False):
    """Installs what a command needs. Fast when there is nothing to do."""
    known = {} if force else stamps()
    new = [need for need in needs if known.get(need) != fingerprint(need)]
    if not new:
        return
    if not known and os.path.islink(VENV):
        raise Failure(".venv: found a link to %s, which is not changed, expected a folder of this checkout: remove the link" % os.path.realpath(VENV))
    wanted = {package: probe for need in new for package, probe in NEEDS[need].items()}
    packages = missing_packages(wanted)
    if not known and not can_make_venv():
        packages.append("python3-venv")
    if packages:
        install_packages(packages)
        left = missing_packages(wanted)
        if left:
            raise Failure("still missing after installing: %s" % " ".join(left))
    if "test" in new:
        install_for_gpu_tests()
        install_for_fuzzers()
        install_for_locales()
        install_for_other_machines()
    if "package" in new and not has_python_headers():
        install_if_allowed([PYTHON_HEADERS], "without it there is no Python package")
    if not known:
        make_venv()
    install_requirements(new)
    known.update((need, fingerprint(need)) for need in new)
    known["interpreter"] = interpreter()
    with open(STAMP, "w", encoding="utf-8") as file:
        json.dump(known, file)
