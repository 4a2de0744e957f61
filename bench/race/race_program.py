"""The program with the kernels: asked by lines, and started again when a fault of a kernel ends it."""
import json
import subprocess


class Fault(Exception):
    """A sentence about a call that failed."""


class Program:
    def __init__(self, path, device):
        self.command = [path, "--device", str(device)]
        self.child, self.starts = None, 0

    def ask(self, line):
        """The answer, a dictionary; {"error": sentence} also when the program ended. A fault on a device stays in its context, so a new program goes on."""
        if self.child is None:
            self.starts += 1
            self.child = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            self.child.stdin.write(line + "\n")
            self.child.stdin.flush()
            text = self.child.stdout.readline()
        except OSError:
            text = ""
        if not text:
            status = self.child.wait()
            self.forget()
            return {"error": "the program ended (exit status %d)" % status}
        told = json.loads(text)
        if told.get("error") and not (told.get("no_device") or told.get("unsupported")):
            self.close()
        return told

    def close(self):
        if self.child is not None:
            self.child.stdin.close()
            self.child.wait()
            self.forget()

    def forget(self):
        self.child.stdout.close()
        try:
            self.child.stdin.close()
        except OSError:  # what was not read by a program that has ended
            pass
        self.child = None

    def profiled(self, tool, output, commands):
        """Runs commands in a program of its own under Nsight Compute; its exit status."""
        words = [tool, "--set", "full", "--force-overwrite", "--launch-count", "1", "-o", output] + self.command + ["--commands", commands]
        return subprocess.call(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
