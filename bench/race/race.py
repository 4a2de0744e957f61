"""One race of kernels of tensor cores on a GPU, and one report: layouts, answers, speed in turns with PyTorch, clocks, profiles.

    python3 race.py                    on the machine with the GPU, in the folder that ./polyhead bench gpu-race --pack wrote

Needs nothing but Python and a driver; uses PyTorch, nvidia-smi and ncu where they are. Writes report.md and report.json. Ends with 0 when every kernel was
right, 1 when one was not, 3 at the first step that needs a GPU when there is none.
"""
import argparse
import hashlib
import json
import os
import platform
import shutil
import sys
import time

import race_clocks
import race_program
import race_report
import race_torch

HERE = os.path.dirname(os.path.abspath(__file__))
NO_GPU = 3
SLICE, MOST_CALLS = 0.05, 10000  # seconds of each side in each round, and calls
TOKENS, LENGTH = 16384, 4096
# (batch, rows, keys) of a call: tails everywhere, one long sequence; of a layer, of decoding.
ANSWERS, ANSWERS_OF_LAYERS, ANSWERS_OF_DECODING = ((2, 197, 197), (1, 333, 1000), (1, 2048, 2048)), ((2, 197, 197),), ((3, 1, 1000), (2, 5, 4096))
LAYOUTS, LAYOUTS_OF_DECODING = ((512, 512), (140, 140)), ((8, 500),)
DECODING = ((16, 1, 4096), (16, 1, 32768))
SMALL = {"answers": ((1, 37, 70),), "answers_of_decoding": ((1, 1, 130),), "layouts": ((140, 140),), "layouts_of_decoding": ((8, 150),)}


def is_decoding(kernel):
    return "decode" in kernel["name"]


def step(number, text):
    print("\n%d. %s" % (number, text), flush=True)


class Script:
    def __init__(self, options):
        self.options = options
        self.small, self.kernels, self.prepared = options.small, [], {}
        self.found = {"small": options.small, "package": {}, "device": "", "layouts": {}, "answers": {}, "unsupported": {}, "races": [], "clocks": {}, "profiles": [], "seconds": {}}
        self.program = race_program.Program(os.path.join(HERE, options.program), options.device)

    # What each step does. A step returns the number of faults.
    def package(self):
        path = os.path.join(HERE, "package.json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                self.found["package"] = json.load(file)
        self.kernels = self.program.ask("kernels")["kernels"]
        self.found["machine"] = "%s, Python %s" % (platform.platform(), platform.python_version())
        print("   %d kernels; %s" % (len(self.kernels), self.found["machine"]))
        with open(self.program.command[0], "rb") as file:
            whole = hashlib.sha256(file.read()).hexdigest() == self.found["package"].get("program")
        if self.found["package"] and not whole:
            print("   FAILED %s is not the one that was packed" % self.options.program)
        return 1 if self.found["package"] and not whole else 0

    def device(self):
        told = self.program.ask("device")
        if told.get("no_device"):
            print("race.py: %s: steps 2 to 8 need a GPU and were not run" % told["error"], flush=True)
            raise SystemExit(NO_GPU)
        self.found["device"] = told["device"]
        print("   %s; %s" % (told["device"], race_clocks.now() or "no nvidia-smi: clocks are not known"))
        return 0

    def checked(self, what, command, shapes_of):
        faults = 0
        for kernel in self.kernels:
            for shape in shapes_of(kernel):
                told = self.program.ask("%s %s %s" % (command, kernel["name"], " ".join(map(str, shape))))
                if told.get("unsupported"):  # wgmma on a device that has none
                    self.found["unsupported"].setdefault(kernel["name"], told["error"])
                    break
                error = told.get("error", "")
                self.found[what].setdefault(kernel["name"], []).append({"shape": shape, "error": error})
                if error:
                    print("   FAILED %s %s: %s" % (kernel["name"], shape, error), flush=True)
                    faults += 1
                    break  # it does not race, and to compare every row of a wrong answer takes long
        print("   %d kernels, %d not for this device, %d faults" % (len(self.found[what]), len(self.found["unsupported"]), faults))
        return faults

    def layouts(self):
        usual, decoding = (SMALL["layouts"], SMALL["layouts_of_decoding"]) if self.small else (LAYOUTS, LAYOUTS_OF_DECODING)
        return self.checked("layouts", "layouts", lambda kernel: [] if kernel["op"] != "sdpa" else decoding if is_decoding(kernel) else usual)

    def answers(self):
        usual, decoding = (SMALL["answers"], SMALL["answers_of_decoding"]) if self.small else (ANSWERS, ANSWERS_OF_DECODING)
        return self.checked("answers", "answers", lambda kernel: decoding if is_decoding(kernel) else usual if kernel["op"] == "sdpa" else ANSWERS_OF_LAYERS)

    def right(self, kernel):
        """Whether the kernel passed the steps before: only such kernels race."""
        return not any(one["error"] for what in ("layouts", "answers") for one in self.found[what].get(kernel["name"], []))

    def groups(self):
        """[(title, kernels of one problem, (batch, rows, keys))] of the races."""
        problems = {}
        for kernel in self.kernels:
            key = (kernel["op"], kernel["dtype"], kernel["head_dim"], kernel["heads"], kernel["kv_heads"], kernel["causal"], is_decoding(kernel))
            problems.setdefault(key, []).append(kernel)
        found = []
        for (op, dtype, dim, heads, kv_heads, causal, decoding), kernels in problems.items():
            if self.small:
                shapes = [(1, 1, 130)] if decoding else [(1, 64, 64)]
            else:
                shapes = DECODING if decoding else [(TOKENS // LENGTH, LENGTH, LENGTH)]
            for shape in shapes:
                title = "%s %s, d %d, %d heads over %d%s, B %d, %d x %d" % ((op, dtype, dim, heads, kv_heads, ", causal" if causal else "") + shape)
                found.append((title, kernels, shape))
        return found

    def prepare(self, name, shape):
        told = self.program.ask("prepare %s %d %d %d" % ((name,) + shape))
        self.prepared[name] = self.program.starts
        return told

    def timed(self, name, shape, calls):
        if self.prepared.get(name) != self.program.starts:  # a fault of another kernel ended the program
            self.prepare(name, shape)
        told = self.program.ask("time %s %d" % (name, calls))
        if told.get("error"):
            raise race_program.Fault(told["error"])
        return told["seconds"]

    def race(self, title, kernels, shape):
        """Medians come later: here are the seconds of a call of each side in each round."""
        one = {"title": title, "kernel": kernels[0], "shape": shape, "flops": 0.0, "seconds": {}, "variants": {}, "notes": {}}
        sides, notes, calls = {}, one["notes"], {}
        for kernel in kernels:
            name = kernel["name"]
            told = self.prepare(name, shape) if self.right(kernel) else {"error": "wrong, did not race"}
            if told.get("error"):
                notes[name] = told["error"]
                continue
            one["flops"], one["variants"][name] = told["flops"], told["variant"]
            sides[name] = lambda count, name=name: self.timed(name, shape, count)
        sides.update(race_torch.sides(kernels[0], shape, notes))

        def run(name, count):
            try:
                return sides[name](count)
            except (RuntimeError, race_program.Fault) as error:
                notes[name] = str(error)
                del sides[name]
                return None

        for name in list(sides):
            first = run(name, 1) and run(name, 2)  # the first call loads code
            if first:
                calls[name] = max(1, min(MOST_CALLS, int(SLICE / first)))
        mark = race_clocks.mark()
        for number in range(self.options.rounds):
            names = list(sides)
            for name in names[number % max(1, len(names)):] + names[:number % max(1, len(names))]:
                one["seconds"].setdefault(name, []).append(run(name, calls[name]))
        one["seconds"] = {name: seconds for name, seconds in one["seconds"].items() if name in sides}
        one["clocks"] = race_clocks.since(mark)
        self.program.ask("release")
        race_torch.release()
        self.found["races"].append(one)
        for line in race_report.lines_of_race(one, self.found["package"]):
            print("   " + line, flush=True)
        return 0

    def races(self, wanted):
        return sum(self.race(*group) for group in self.groups() if wanted(group[1][0]))

    def clocks(self):
        self.found["clocks"] = race_clocks.summary()
        print("   " + (json.dumps(self.found["clocks"]) if self.found["clocks"] else "no nvidia-smi: clocks are not known"))
        return 0

    def profiles(self):
        tool = shutil.which("ncu")
        names = race_report.best_and_worst(self.found["races"], self.found["package"])
        if tool is None or not names:
            print("   %s: not run" % ("no ncu" if tool is None else "no race"))
            return 0
        for name, shape in names:
            output = os.path.join(self.options.output, name)
            commands = "prepare %s %d %d %d;time %s 1" % ((name,) + tuple(shape) + (name,))
            status = self.program.profiled(tool, output, commands)
            self.found["profiles"].append({"kernel": name, "file": output + ".ncu-rep", "status": status})
            print("   %s: %s" % (name, "%s.ncu-rep" % output if status == 0 else "ncu ended with %d" % status))
        return 0

    def run(self):
        def is_tile(kernel):
            return kernel["op"] == "sdpa" and not is_decoding(kernel)

        steps = [("the package, and the device", lambda: self.package() + self.device()),
                 ("layouts: inputs with one entry per row", self.layouts),
                 ("every kernel against float64", self.answers),
                 ("attention: candidates in turns%s" % race_torch.told(), lambda: self.races(is_tile)),
                 ("a layer of width 2,048", lambda: self.races(lambda kernel: kernel["op"] == "mha")),
                 ("decoding", lambda: self.races(is_decoding)),
                 ("clocks", self.clocks),
                 ("profiles of the best and the worst", self.profiles)]
        faults = 0
        for number, (text, action) in enumerate(steps, 1):
            step(number, text)
            start = time.monotonic()
            faults += action()
            self.found["seconds"][text] = round(time.monotonic() - start, 1)
            race_report.write(self.options.output, self.found, faults)  # also what a later step may not live to see
        print("\nwrote %s" % os.path.join(self.options.output, "report.md"))
        return 1 if faults else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=int, default=0, help="number of the CUDA device (default 0)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each race (default 7)")
    parser.add_argument("--output", metavar="DIR", default=".", help="where the report goes (default: here)")
    parser.add_argument("--small", action="store_true", help="tiny shapes, for an emulator: the speeds say nothing")
    parser.add_argument("--program", default="polyhead_race", help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.makedirs(options.output, exist_ok=True)
    script = Script(options)
    with race_clocks.logging(options.output):
        try:
            return script.run()
        finally:
            script.program.close()


if __name__ == "__main__":
    sys.exit(main())
