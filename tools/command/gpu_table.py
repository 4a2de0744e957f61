"""The subcommand gpu-table: generates every GPU kernel of the table for every API, checks and runs it, and writes the tables of docs/measured/gpu.md."""
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile

from . import build, environment, kernel_table
from .places import PYTHON, ROOT, Failure, jobs, step
from .places import environment as environment_of_children

DOCUMENT = os.path.join(ROOT, "docs", "measured", "gpu.md")
CHECK = os.path.join(ROOT, "tests", "gpu_sources", "check.py")
# API -> the device that runs it on the CPU; None: there is none.
RUNS = {"opencl": "opencl", "cuda_80": "cuda", "cuda_86": None, "vulkan": "vulkan", "metal": None, "webgpu": None}
HEADINGS = {"opencl": "OpenCL", "cuda_80": "CUDA 8.0", "cuda_86": "CUDA 8.6", "vulkan": "Vulkan", "metal": "Metal", "webgpu": "WebGPU"}
SECONDS = 600
# Kernels compiled in the process have their own Halide runtime, so the setting of runtime/devices/vulkan_device.cpp does not reach it.
VULKAN_ALLOCATOR = "0:1:0:0:256"


def kernels():
    """[(name, flags, whether it is f32)] of the GPU kernels of the table, as cmake/polyhead_kernel_table.cmake makes them."""
    found = []
    for name, tags, flags in kernel_table.kernels():
        if not {"gpu", "gpu_only"} & tags:
            continue
        flags = kernel_table.without(flags, "--target", *([] if "gpu_only" in tags else ["--tiling"]))
        found.append((name + "_gpu", flags, "--dtype" not in flags))
    return found


def ended(command, env):
    """(exit status, output). After a crash or a timeout the output is a sentence about it."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace", env=env, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return 1, "did not end within %d s" % SECONDS
    if done.returncode < 0:
        return 1, "crashed (signal %d)" % -done.returncode
    return done.returncode, done.stdout.strip()


def check_code(name, flags, api, folder):
    """The record of tests/gpu_sources/check.py: faults, and numbers for PTX."""
    record = os.path.join(folder, "%s.%s.json" % (name, api))
    place = ["--archive", os.path.join(build.directory("release"), "polyhead_kernels", name + ".a")] if api == "cuda_80" else \
        ["--generate", build.program("release", "polyhead-generate")] + flags
    _, text = ended([PYTHON, "-B", CHECK, name, "--api", api, "--record", record] + place, environment_of_children())
    if not os.path.exists(record):
        return {"faults": [text or "the check wrote nothing"], "records": []}
    with open(record, encoding="utf-8") as file:
        return json.load(file)


def run_kernel(name, flags, device):
    """(whether the answer was right, its largest error / tolerance or a sentence)."""
    env = dict(environment_of_children(), POLYHEAD_TEST_DEVICE=device, POLYHEAD_TEST_BUDGET="2e6")
    if device == "vulkan":
        env.setdefault("HL_VK_ALLOC_CONFIG", VULKAN_ALLOCATOR)
    if device == "cuda":
        env["LD_LIBRARY_PATH"] = os.path.join(build.directory("release"), "tests", "cuda_driver", "lib")
    command = [build.program("release", "gpu_error"), name] + (flags + ["--target", "host-vulkan"] if device == "vulkan" else [])
    status, text = ended(command, env)
    return status == 0, text.splitlines()[-1] if text else "no output"


def measure(kernel, folder):
    """{api: (cell, sentences)} of one kernel, and its PTX record."""
    name, flags, is_f32 = kernel
    cells, record = {}, None
    for api, device in RUNS.items():
        if not is_f32 and api in ("vulkan", "metal", "webgpu"):
            cells[api] = ("–", [])
            continue
        sentences, words = [], []
        if api != "opencl":
            checked = check_code(name, flags, api, folder)
            sentences += checked["faults"]
            words.append("checked" if not checked["faults"] else "faults")
            record = checked if api == "cuda_80" else record
        if device:
            good, text = run_kernel(name, flags, device)
            words.append("error %s" % text if good else "fails")
            sentences += [] if good else [text]
        cells[api] = (", ".join(words), sentences)
    return cells, record


def api_table(rows):
    lines = ["| kernel | %s |" % " | ".join(HEADINGS.values()), "|---|%s" % ("---|" * len(HEADINGS))]
    notes = {}
    for (name, _, _), (cells, _) in rows:
        words = []
        for api in HEADINGS:
            cell, sentences = cells[api]
            marks = [str(notes.setdefault(shortened(sentence), len(notes) + 1)) for sentence in sentences]
            words.append(cell + (" (%s)" % ", ".join(dict.fromkeys(marks)) if marks else ""))
        lines.append("| %s | %s |" % (name, " | ".join(words)))
    if notes:
        lines += ["", "Faults:", ""] + ["%d. %s" % (number, sentence) for sentence, number in notes.items()]
    return lines


def shortened(sentence):
    """The sentence without names of functions and shapes, so that kernels with the same fault share a note."""
    return re.sub(r"_kernel_\w+: ?", "", sentence)[:160].strip()


def ptx_table(rows):
    lines = ["| kernel | function | threads | shared bytes | registers 8.0, 9.0 | spilled bytes 8.0, 9.0 | loop: fma | ld.global | ld.shared | shfl | ex2 "
             "| all |", "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for (name, _, _), (_, record) in rows:
        by_kernel = {}
        for entry in (record or {}).get("records", []):
            by_kernel.setdefault((entry["object"], entry["kernel"]), {})[entry["architecture"]] = entry
        for (_, function), entries in by_kernel.items():
            old, new = entries.get("sm_80"), entries.get("sm_90")
            both = [entry for entry in (old, new) if entry]
            loop = both[0]["loops"][0] if both[0]["loops"] else both[0]["whole"]
            lines.append("| %s | %s | %s | %s | %s | %s | %d | %d | %d | %d | %d | %d |" % (
                name, function.replace("_kernel_", ""), both[0]["threads"], both[0]["shared_bytes"],
                ", ".join(str(entry["registers"]) for entry in both),
                ", ".join(str(entry["spill_stores"] + entry["spill_loads"]) for entry in both),
                *(loop[key] for key in ("fma", "ld_global", "ld_shared", "shuffle", "exp2", "all"))))
    return lines


def replace(text, marker, lines):
    """The document with new lines between the two comments of the marker."""
    begin, end = "<!-- %s: begin -->" % marker, "<!-- %s: end -->" % marker
    if begin not in text or end not in text:
        raise Failure("%s has no '%s'" % (os.path.relpath(DOCUMENT, ROOT), begin))
    return text[:text.index(begin) + len(begin)] + "\n" + "\n".join(lines) + "\n" + text[text.index(end):]


def make(options):
    environment.ensure(*environment.NEEDS)
    build.configure(parts=environment.parts())
    build.build("release", ["gpu_error", "polyhead-generate", "polyhead_cuda_driver"])
    wanted = [kernel for kernel in kernels() if re.search(options.filter or "", kernel[0])]
    step("%d kernels on %s" % (len(wanted), ", ".join(HEADINGS.values())))
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(jobs()) as pool:
        rows = []
        for kernel, measured in zip(wanted, pool.map(lambda kernel: measure(kernel, folder), wanted)):
            rows.append((kernel, measured))
            print("%-28s %s" % (kernel[0], "; ".join("%s: %s" % (api, cell) for api, (cell, _) in measured[0].items())), flush=True)
    if options.filter:
        sys.stdout.write("\n".join(api_table(rows) + [""] + ptx_table(rows)) + "\n")
        return 0
    with open(DOCUMENT, encoding="utf-8") as file:
        text = file.read()
    text = replace(replace(text, "apis", api_table(rows)), "ptxas", ptx_table(rows))
    with open(DOCUMENT, "w", encoding="utf-8") as file:
        file.write(text)
    print("wrote %s" % os.path.relpath(DOCUMENT, ROOT))
    return 0
