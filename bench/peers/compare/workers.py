"""The processes of the libraries, seen from the bench: started, given orders one at a time, stopped in between, ended."""

import collections
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PEERS = HERE.parent
START_SECONDS, ORDER_SECONDS = 120, 300

FORWARD = (("pytorch", "PyTorch", "pytorch"), ("onnxruntime", "ONNX Runtime", "onnx_runtime"), ("openvino", "OpenVINO", "openvino_cpu"))
BACKWARD = (("pytorch", "PyTorch", "pytorch_backward"), ("products", "PyTorch by products", "pytorch_products"))

# label: as shown; module: its adapter; python: the interpreter that has the library; path: where the adapter lies.
Peer = collections.namedtuple("Peer", "name label module python path")


class Gone(Exception):
    """One sentence: a process has ended or hangs."""


def known_peers(python, adapters, backward=False):
    """{name: Peer}: ours first, then those that the bench installs (with gradients: two ways of PyTorch), then those of a folder of adapters."""
    paths = (str(PEERS),)
    found = [Peer("polyhead", "polyhead", "peer_polyhead", sys.executable, paths)]
    for name, label, module in BACKWARD if backward else FORWARD:
        found.append(Peer(name, label, "compare.adapters." + module, python, paths))
    for file in sorted(pathlib.Path(adapters).glob("peer_*.py")) if adapters else ():
        name = file.stem[len("peer_") :]
        if name != "polyhead":
            found.append(Peer(name, name, file.stem, python, (*paths, str(file.parent))))
    return {peer.name: peer for peer in found}


def signal_name(status):
    try:
        return "signal " + signal.Signals(-status).name
    except ValueError:
        return "signal %d" % -status


class Process:
    """A child that answers each line of JSON with one line. It is stopped between requests, so that its spinning threads take no time."""

    def __init__(self, command, label, environment=None):
        self.label, self.buffer = label, b""
        self.log = tempfile.TemporaryFile()
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env=environment, bufsize=0)

    def ask(self, order, seconds=ORDER_SECONDS):
        """The answer; raises Gone when there is none."""
        self.signal(signal.SIGCONT)
        try:
            self.child.stdin.write((json.dumps(order) + "\n").encode())
            answer = self.read(seconds)
        except BrokenPipeError:
            raise Gone(self.final_message()) from None
        self.signal(signal.SIGSTOP)
        return answer

    def read(self, seconds=START_SECONDS):
        deadline = time.monotonic() + seconds
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([self.child.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                self.end()
                raise Gone("%s gave no answer in %d s, so it was ended" % (self.label, seconds))
            part = os.read(self.child.stdout.fileno(), 1 << 16)
            if not part:
                raise Gone(self.final_message())
            self.buffer += part
        line, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(line)

    def final_message(self):
        """How the process ended, and the last line that it wrote."""
        self.child.wait()
        self.log.seek(0)
        lines = [line.strip() for line in self.log.read().decode(errors="replace").splitlines() if line.strip()]
        status = self.child.returncode
        how = signal_name(status) if status < 0 else "exit status %d" % status
        return "%s ended with %s%s" % (self.label, how, ": " + lines[-1][:200] if lines else "")

    def signal(self, number):
        if self.child.poll() is None:
            self.child.send_signal(number)

    def end(self):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        for stream in (self.child.stdin, self.child.stdout, self.log):
            stream.close()


def worker_command(peer, threads):
    command = [peer.python, str(HERE / "worker.py"), "--module", peer.module, "--threads", str(threads)]
    for folder in peer.path:
        command += ["--path", folder]
    return command


def start(peer, threads):
    """(process, its description of itself); raises Gone when it cannot be used."""
    process = Process(worker_command(peer, threads), peer.label)
    try:
        hello = process.read()
    except Gone:
        process.end()
        raise
    if "error" in hello:
        process.end()
        raise Gone("%s cannot be used: %s" % (peer.label, hello["error"]))
    process.signal(signal.SIGSTOP)
    return process, hello


class Roofs:
    """The program polyhead_roof: rates of this machine at one number of threads, with the peak of a type."""

    def __init__(self, program, threads, dtype):
        environment = dict(os.environ)
        self.process = Process([program, "--threads", str(threads), "--dtype", dtype], "polyhead_roof", environment)
        self.name = self.process.read()["fma"]
        self.process.signal(signal.SIGSTOP)

    def measure(self, kind, seconds=0.05):
        """kind: "fma" in GFLOP/s, "copy" or "read" in GB/s."""
        return self.process.ask(dict(kind=kind, seconds=seconds))["rate"]

    def end(self):
        self.process.end()
