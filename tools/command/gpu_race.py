"""The subcommand bench gpu-race: a folder with kernels of tensor cores, a program and a script, for minutes on a machine with a GPU."""
import hashlib
import json
import os
import shutil
import subprocess

from . import build, environment
from .places import BUILD, PYTHON, ROOT, Failure, call, step
from .places import environment as child_environment

PROGRAM, SOURCES = "polyhead_race", os.path.join(ROOT, "bench", "race")
SCRIPTS = ("race.py", "race_clocks.py", "race_program.py", "race_report.py", "race_torch.py")
MOST_BYTES = 64 << 20


def predictions(folder):
    """{kernel: TFLOP/s} that the model predicts for an H100. A kernel that ptxas refuses is not packed."""
    done = subprocess.run([PYTHON, "-B", os.path.join(ROOT, "instruments", "gpu_model", "command.py"), "--folder", folder], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, env=child_environment())
    refused = done.stderr.splitlines()
    if done.returncode != 0 or refused:
        raise Failure("a kernel cannot be packed: %s" % (refused or ["the model failed"])[0])
    return json.loads(done.stdout)


def pack(folder):
    """Writes everything that the race needs into the folder, which must be new or one of an earlier race."""
    if os.path.isdir(folder) and os.listdir(folder) and not os.path.exists(os.path.join(folder, "package.json")):
        raise Failure("--pack: found files of something else in %s, expected a new folder" % folder)
    environment.ensure("build", "bench", "test")
    build.configure(parts=["BENCH"])
    build.build("release", [PROGRAM])
    step("assemble and predict")
    program = os.path.join(build.directory("release"), "bench", "race", PROGRAM)
    kernels = os.path.join(build.directory("release"), "bench", "race", "polyhead_kernels")
    known = {name: tflops for name, tflops in predictions(kernels).items() if not any(word in name for word in ("small", "decode", "f32"))}
    os.makedirs(folder, exist_ok=True)
    for path in [program] + [os.path.join(SOURCES, name) for name in SCRIPTS]:
        shutil.copy2(path, folder)
    with open(program, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    with open(os.path.join(folder, "package.json"), "w", encoding="utf-8") as file:
        json.dump({"commit": build.head_commit(), "program": digest, "predicted": known}, file, indent=1)
    size = sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))
    if size > MOST_BYTES:
        raise Failure("the package has %.1f MiB, at most %d" % (size / 2**20, MOST_BYTES >> 20))
    print("%s: %d kernels with predictions, %.1f MiB; on the machine with the GPU: python3 race.py" % (folder, len(known), size / 2**20))


def bench(options):
    folder = os.path.abspath(options.pack or os.path.join(BUILD, "gpu_race"))
    pack(folder)
    if options.pack:
        return 0
    step("bench gpu-race")
    words = ["--rounds", options.rounds] if options.rounds else []
    return call([PYTHON, "-B", os.path.join(folder, "race.py"), "--output", folder, *words], check=False)
