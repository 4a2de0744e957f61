"""Set-up: Debian packages when they may be installed, and .venv from requirements.txt; repeated runs cost nothing."""
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig

from . import gpu
from .places import BUILD, PYTHON, ROOT, VENV, Failure, call, environment, output, step

STAMP = os.path.join(VENV, "polyhead-setup.json")
# Debian package -> a header or program that shows it is there (so other distributions work too).
PACKAGES = {
    "g++": "program g++",                               # compiler of the runtime, the tools and the tests
    "catch2": "header catch2/catch.hpp catch2/catch_all.hpp",  # test framework, 2 or 3
    "libbenchmark-dev": "header benchmark/benchmark.h",  # bench framework
    "nlohmann-json3-dev": "header nlohmann/json.hpp",    # manifests
    "libcli11-dev": "header CLI/CLI.hpp",                # command line of the generator
}

# Headers of a distribution's Python, which the Python package is built with; other Pythons bring theirs.
PYTHON_HEADERS = "libpython3-dev"


def compiler():
    return os.environ.get("CXX") or "g++"


def missing_headers(headers):
    """Those of the headers that the compiler does not find, asked in one run."""
    lines = "".join("#if !__has_include(<%s>)\nmissing %s\n#endif\n" % (name, name) for name in headers)
    done = subprocess.run(compiler().split() + ["-x", "c++", "-E", "-P", "-"], input=lines, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True)
    return {line.split()[1] for line in done.stdout.splitlines() if line.startswith("missing ")}


def missing_packages():
    missing = []
    if shutil.which(compiler().split()[0]) is None:
        return list(PACKAGES)
    headers = {package: probe.split()[1:] for package, probe in PACKAGES.items() if probe.startswith("header ")}
    absent = missing_headers([name for names in headers.values() for name in names])
    for package, names in headers.items():
        if all(name in absent for name in names):
            missing.append(package)
    return missing


def can_make_venv():
    probe = "import ensurepip, venv"
    return subprocess.call([sys.executable, "-c", probe], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0


def administrator():
    """The words that run a command as administrator without asking, or None."""
    if shutil.which("apt-get") is None:
        return None
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") and subprocess.call(["sudo", "-n", "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0:
        return ["sudo", "-n"]
    return None


def install_packages(packages):
    words = administrator()
    sentence = "please install these packages first: apt-get install %s" % " ".join(packages)
    if words is None:
        raise Failure(sentence)
    step("Debian packages: %s" % " ".join(packages))
    install = words + ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-q", "--no-install-recommends"] + packages
    if call(install, check=False) != 0:
        # Package lists may be missing or old.
        call(words + ["apt-get", "update", "-q"], check=False)
        if call(install, check=False) != 0:
            raise Failure(sentence)


def install_for_gpu_tests():
    """What runs GPU kernels on the CPU. Only tests need it, so a user who may not install packages goes on without."""
    packages = gpu.missing_packages()
    if packages and administrator() is not None:
        try:
            install_packages(packages)
        except Failure as failure:
            print("polyhead: %s" % failure, file=sys.stderr)
        packages = gpu.missing_packages()
    if packages:
        step("GPU kernels cannot be tested on this machine's CPU; that needs: apt-get install %s" % " ".join(packages))


def has_python_headers():
    return os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))


def install_for_python_package():
    """Python's headers. C++ users go on without."""
    if not has_python_headers() and administrator() is not None:
        try:
            install_packages([PYTHON_HEADERS])
        except Failure as failure:
            print("polyhead: %s" % failure, file=sys.stderr)
    if not has_python_headers():
        step("the Python package cannot be built; that needs: apt-get install %s" % PYTHON_HEADERS)


def fingerprint():
    text = json.dumps([sorted(PACKAGES), sorted(gpu.PACKAGES), PYTHON_HEADERS, VENV, sys.version_info[:2]])
    with open(os.path.join(ROOT, "requirements.txt"), encoding="utf-8") as file:
        return hashlib.sha256((text + file.read()).encode()).hexdigest()


def stamped():
    try:
        with open(STAMP, encoding="utf-8") as file:
            return json.load(file).get("fingerprint") == fingerprint() and os.path.exists(PYTHON)
    except (OSError, ValueError):
        return False


def make_venv():
    step("Python packages into .venv (a few minutes the first time)")
    if os.path.isdir(VENV):
        shutil.rmtree(VENV)
    call([sys.executable, "-m", "venv", VENV], env=dict(environment(), PATH=os.environ.get("PATH", os.defpath)))
    pip = [PYTHON, "-m", "pip", "install", "--no-cache-dir", "--no-deps", "--only-binary=:all:", "-r", "requirements.txt"]
    if call(pip, check=False) != 0:
        raise Failure("pip could not install requirements.txt; its message is above")
    link_package()


def link_package():
    """Makes `import polyhead` in .venv find the package that the release build makes."""
    folder = output([PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    if folder:
        with open(os.path.join(folder.strip(), "polyhead.pth"), "w", encoding="utf-8") as file:
            file.write(os.path.join(BUILD, "release", "python") + "\n")


def ensure(force=False):
    """Makes everything that the other commands need. Cheap when nothing is to do."""
    if force or not stamped():
        packages = missing_packages()
        if not can_make_venv():
            packages.append("python3-venv")
        if packages:
            install_packages(packages)
            left = missing_packages()
            if left:
                raise Failure("still missing after installing: %s" % " ".join(left))
        install_for_gpu_tests()
        install_for_python_package()
        make_venv()
        with open(STAMP, "w", encoding="utf-8") as file:
            json.dump({"fingerprint": fingerprint()}, file)
