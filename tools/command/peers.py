"""The subcommand bench peers: other libraries in a virtual environment under build/, then the bench in bench/peers/compare."""
import glob
import hashlib
import os
import shlex
import shutil
import sys

from . import build, environment, package, torch_folder
from .places import BUILD, PYTHON, ROOT, Failure, call, output, step
from .places import environment as child_environment

FOLDER = os.path.join(BUILD, "peers-venv")
PEERS_PYTHON = os.path.join(FOLDER, "bin", "python")
REQUIREMENTS = os.path.join(ROOT, "bench", "peers", "requirements")
# name -> module, and what its first installation downloads
PEERS = {"pytorch": ("torch", "540 MB"), "onnxruntime": ("onnxruntime", "20 MB"), "openvino": ("openvino", "60 MB")}
TARGETS = ["polyhead_roof", "polyhead-generate", "polyhead"]


def requirements(name):
    return os.path.join(REQUIREMENTS, name + ".txt")


def fingerprint(name):
    with open(requirements(name), "rb") as file:
        return hashlib.sha256(file.read() + sys.version.encode()).hexdigest()


def installed(name):
    stamp = os.path.join(FOLDER, name + ".made")
    if not os.path.exists(stamp):
        return False
    with open(stamp, encoding="ascii") as file:
        return file.read() == fingerprint(name)


def make_folder():
    if output([PEERS_PYTHON, "-c", "import sys"]) is None:
        shutil.rmtree(FOLDER, ignore_errors=True)
        # Made with the interpreter of .venv, because the module of the Python package is built for it.
        if call([PYTHON, "-m", "venv", FOLDER], check=False) != 0:
            raise Failure("the virtual environment %s could not be made" % os.path.relpath(FOLDER, ROOT))


def install(name):
    """Why the library cannot be used, or "". After a failure the next run tries again."""
    module, size = PEERS[name]
    step("%s into %s (about %s to download, once)" % (name, os.path.relpath(FOLDER, ROOT), size))
    pip = [PEERS_PYTHON, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-deps", "--only-binary=:all:", "--require-hashes", "--retries", "2",
           "-r", requirements(name)]
    if call(pip, check=False) != 0:
        return "pip could not install %s" % os.path.relpath(requirements(name), ROOT)
    if name == "pytorch":
        for library in glob.glob(os.path.join(FOLDER, "lib", "python3*", "site-packages", "torch", "lib")):
            torch_folder.stand_in(library)
    if output([PEERS_PYTHON, "-c", "import " + module]) is None:
        return "%s is installed but cannot be imported" % module
    with open(os.path.join(FOLDER, name + ".made"), "w", encoding="ascii") as file:
        file.write(fingerprint(name))
    return ""


def ensure(names):
    """{name: reason} of the libraries that cannot be used."""
    make_folder()
    absent = {}
    for name in names:
        reason = "" if installed(name) else install(name)
        if reason:
            absent[name] = reason
            print("polyhead: %s; the bench continues without it" % reason, file=sys.stderr)
    return absent


def add_options(command):
    command.add_argument("peers", metavar="NAMES", nargs="?", default="", help="names with commas between them (default: all)")
    command.add_argument("--dtype", choices=("f32", "bf16", "f16"), help="the type of all tensors (default f32)")
    command.add_argument("--backward", action="store_true", help="gradients and training steps instead of the other cases")
    command.add_argument("--cases", metavar="REGEX", help="only the cases whose names match")
    command.add_argument("--report", metavar="FILE", nargs="?", const="peers.html", help="also a page with plots (default peers.html)")
    command.add_argument("--from", dest="source", metavar="FILE", help="measure nothing, show the results in this JSON")
    command.add_argument("--markdown", action="store_true", help="the table as Markdown")
    command.add_argument("--adapters", metavar="DIR", help="a folder with peer_NAME.py for other libraries")


def command_line(options, absent):
    command = [PYTHON, "-m", "compare", options.peers, "--python", PEERS_PYTHON]
    for name in ("dtype", "rounds", "threads", "cases", "json", "report", "adapters"):
        value = getattr(options, name)
        if value is not None:
            command += ["--" + name, os.path.abspath(value) if name in ("json", "report", "adapters") else value]
    for name in ("markdown", "backward"):
        if getattr(options, name):
            command.append("--" + name)
    if options.source:
        command += ["--from", os.path.abspath(options.source)]
    for name, reason in absent.items():
        command += ["--absent", "%s=%s" % (name, reason)]
    return command


def bench(options):
    environment.ensure("build", "arrays", "plots")
    absent = {}
    if not options.source:
        package.ready("bench peers", "bench")
        build.configure(parts=["BENCH"])
        build.build("release", TARGETS, quiet=build.ninja_idle("release", TARGETS))
        if options.backward:  # the others have no gradients
            absent = ensure(["pytorch"])
            absent.update((("products", reason) for reason in absent.values()))
        else:
            asked = [word.strip() for word in options.peers.split(",") if word.strip()]
            absent = ensure([name for name in PEERS if not asked or name in asked])
    child = child_environment()
    child["PYTHONPATH"] = os.pathsep.join([os.path.join(ROOT, "bench", "peers"), os.path.join(build.directory("release"), "python")])
    child["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(FOLDER, "inductor")
    if options.no_tuned:
        child["POLYHEAD_TUNED"] = "off"
    child["POLYHEAD_COMMAND"] = shlex.join(["./polyhead"] + sys.argv[1:])
    step("bench peers")
    return call(command_line(options, absent), check=False, env=child)
