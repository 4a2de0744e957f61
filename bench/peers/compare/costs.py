"""What a library costs apart from the time of a call: installed bytes, and seconds from the start of a process to its first answer."""

import json
import pathlib
import statistics
import subprocess
import threading
import time

from . import workers, linked


def installed(peer, package):
    """Bytes of a package and of what it requires, as pip installed them; a sentence under "error" when that is unknown."""
    command = [peer.python, str(workers.HERE / "installed.py"), package]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return dict(error="the installed size of %s cannot be told: %s" % (package, (done.stderr.strip().splitlines() or ["no reason"])[-1]))
    return json.loads(done.stdout)


def first_answer(command):
    """Seconds until the process prints "answered"; raises Gone when it does not."""
    started = time.perf_counter()
    done = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    patience = threading.Timer(workers.ORDER_SECONDS, done.kill)
    patience.start()
    line = done.stdout.readline()
    taken = time.perf_counter() - started
    _, errors = done.communicate()
    patience.cancel()
    if line.strip() != "answered":
        raise workers.Gone((errors.strip().splitlines() or ["no answer"])[-1][:200])
    return taken


def cold_starts(commands, runs, say):
    """{name: {seconds: [...]} or {error}}: processes in turn; the first turn, which fills the file cache, does not count."""
    found = {name: dict(seconds=[]) for name in commands}
    for turn in range(runs + 1 if runs else 0):
        for name, command in commands.items():
            if "error" in found[name]:
                continue
            try:
                taken = first_answer(command)
            except (workers.Gone, OSError) as gone:
                found[name] = dict(error=str(gone))
                say("cold start of %s: %s" % (name, gone))
                continue
            if turn:
                found[name]["seconds"].append(taken)
    for entry in found.values():
        if entry.get("seconds"):
            entry["median"] = statistics.median(entry["seconds"])
    return found


def worker_commands(peers, case, dtype, threads):
    commands = {}
    for peer in peers:
        command = [peer.python, str(workers.HERE / "first_answer.py"), "--module", peer.module, "--case", case.name, "--dtype", dtype,
                   "--threads", str(threads)]  # fmt: skip
        for folder in peer.path:
            command += ["--path", folder]
        commands[peer.name] = command
    return commands


def python_package_bytes(peer):
    """The Python package of this checkout and what it needs to compile: its module, Halide and NumPy."""
    sizes = {name: installed(peer, name).get("bytes", 0) for name in ("halide", "numpy")}
    command = [peer.python, "-c", "import polyhead; print(polyhead.__path__[0])"]
    folder = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    own = sum(path.resolve().stat().st_size for path in pathlib.Path(folder).glob("*") if path.is_file()) if folder else 0
    return dict(bytes=own + sum(sizes.values()), packages=dict(sizes, polyhead=own))


def all_costs(peers, packages, case, options, folder, say):
    """(library_bytes, cold_start), each {name: facts}. polyhead has two entries: linked ahead of time, and in Python with its compiler."""
    sizes, commands = {}, worker_commands(peers, case, options.dtype, options.threads[-1])
    for peer in peers:
        if peer.name == "polyhead":
            sizes[peer.name] = python_package_bytes(peer)
        elif packages.get(peer.name):
            sizes[peer.name] = installed(peer, packages[peer.name])
    try:
        sizes["polyhead linked"], program = linked.build(case, options.dtype, options.build, folder)
        commands["polyhead linked"] = [str(program), *linked.arguments(case), str(options.threads[-1])]
    except (OSError, subprocess.CalledProcessError) as error:
        say("a program with a linked kernel could not be built: %s" % error)
    return sizes, cold_starts(commands, options.cold_starts, say)
