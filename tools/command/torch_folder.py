"""PyTorch for the subcommand parity: a virtual environment under build/, made at the first call."""
import collections
import glob
import os
import re
import shutil
import subprocess
import sys

from .places import BUILD, ROOT, Failure, call, environment, output, step

FOLDER = os.path.join(BUILD, "torch")
PYTHON = os.path.join(FOLDER, "bin", "python")
REQUIREMENTS = os.path.join(ROOT, "tests", "conformance", "torch_requirements.txt")
STAMP = os.path.join(FOLDER, "made")
SYSTEM = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64")


def requirements():
    with open(REQUIREMENTS, encoding="utf-8") as file:
        return file.read()


def ensure():
    """The path of a Python that can import torch."""
    if os.path.exists(STAMP):
        with open(STAMP, encoding="utf-8") as file:
            if file.read() == requirements():
                return PYTHON
    step("PyTorch into build/torch (540 MB to download, once)")
    shutil.rmtree(FOLDER, ignore_errors=True)
    call([sys.executable, "-m", "venv", FOLDER], env=dict(environment(), PATH=os.environ.get("PATH", os.defpath)))
    pip = [PYTHON, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-deps", "--only-binary=:all:", "--require-hashes", "-r",
           REQUIREMENTS]
    if call(pip, check=False) != 0:
        raise Failure("pip could not install %s; its message is above" % os.path.relpath(REQUIREMENTS, ROOT))
    for library in glob.glob(os.path.join(FOLDER, "lib", "python3*", "site-packages", "torch", "lib")):
        stand_in(library)
    if output([PYTHON, "-c", "import torch; print(torch.ones(2).sum())"]) is None:
        raise Failure("PyTorch cannot be imported from %s" % FOLDER)
    with open(STAMP, "w", encoding="utf-8") as file:
        file.write(requirements())
    return PYTHON


def words(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def names(path, which):
    return {line.split()[-1] for line in words("nm", "-D", which, path).splitlines() if line.strip()}


def stand_in(folder):
    """Makes empty libraries in place of NVIDIA's. torch needs them when it is loaded, but on the CPU nothing calls them."""
    libraries = sorted(glob.glob(os.path.join(folder, "*.so*")))
    present, missing, system, versions = {os.path.basename(path) for path in libraries}, set(), set(), collections.defaultdict(set)
    for path in libraries:
        for name in re.findall(r"NEEDED.*\[(.*)\]", words("readelf", "-d", path)):
            found = [os.path.join(place, name) for place in SYSTEM if os.path.exists(os.path.join(place, name))]
            if name not in present:
                system.update(found[:1]) if found else missing.add(name)
        library = None
        for line in words("readelf", "-VW", path).splitlines():
            file, version = re.search(r"File: (\S+)", line), re.search(r"Name: (\S+)", line)
            library = file.group(1) if file else library
            if version and library:
                versions[library].add(version.group(1))
    defined = {name.partition("@")[0] for path in libraries + sorted(system) for name in names(path, "--defined-only")}
    wanted = collections.defaultdict(set)  # version -> symbols
    for symbol in set().union(*(names(path, "--undefined-only") for path in libraries)) if libraries else ():
        name, _, version = symbol.partition("@")
        if name not in defined and (version or name.startswith(("cu", "__cuda", "nccl", "nv"))):
            wanted[version.strip("@")].add(name)
    for number, library in enumerate(sorted(missing)):
        own = sorted(versions[library])
        symbols = [name for version in own + ([""] if number == 0 else []) for name in sorted(wanted[version])]
        write_library(os.path.join(folder, library), symbols, {version: wanted[version] for version in own})


def write_library(path, symbols, versions):
    """A library whose functions return 0."""
    source, script = path + ".S", path + ".map"
    with open(source, "w", encoding="utf-8") as file:
        file.write(".text\n" + "".join(".globl %s\n.type %s,@function\n%s:\n" % (name, name, name) for name in symbols))
        file.write("\txorl %eax, %eax\n\tret\n")
    command = [os.environ.get("CC") or "gcc", "-shared", "-nostdlib", "-o", path, source, "-Wl,-soname," + os.path.basename(path)]
    if versions:
        with open(script, "w", encoding="utf-8") as file:
            file.writelines("%s { global: %s };\n" % (v, " ".join(n + ";" for n in sorted(known)) or "none;") for v, known in versions.items())
        command.append("-Wl,--version-script=" + script)
    call(command)
