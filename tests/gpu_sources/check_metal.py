"""Holds Metal source to its language as far as Linux can: Clang's front end over metal.h, and what Metal has not got."""
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
MAX_THREADS, MAX_SHARED_BYTES, MAX_BUFFERS = 1024, 32 * 1024, 31
FORBIDDEN = re.compile(r"\b(double\w*|long double|goto|new|delete|throw|try|dynamic_cast|asm|virtual|std::\w+)\b")
CONSTRUCTOR = re.compile(r"\b((?:float|int|uint|half|short|ushort|bool)[24])\(")


def front_end():
    """clang-tidy of .venv: it parses with all of Clang's front end, and it is installed for ./polyhead check anyway."""
    path = os.path.join(os.path.dirname(sys.executable), "clang-tidy")
    return path if os.path.exists(path) else None


def code_of(text):
    """Without the preamble that Halide puts before every module, without comments."""
    body = text[text.index("#define halide_maybe_unused"):] if "#define halide_maybe_unused" in text else text
    return re.sub(r"//.*", "", body)


def parse(text):
    """The first errors of the front end, or nothing."""
    tool = front_end()
    if tool is None:
        return ["clang-tidy was not found beside %s: ./polyhead setup --all installs it" % sys.executable]
    text = re.sub(r"\[\[[^\]]*\]\]", "", text).replace("#include <metal_stdlib>", '#include "metal.h"')
    text = CONSTRUCTOR.sub(r"make_\1(", text)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kernel.cpp")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        done = subprocess.run([tool, "--quiet", "--checks=-*,misc-definitions-in-headers", "--config={}", path, "--", "-xc++", "-std=c++14", "-nostdinc",
                               "-I" + HERE, "-w", "-Wno-user-defined-literals"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    errors = [line.split("kernel.cpp:")[-1] for line in done.stdout.splitlines() if " error: " in line]
    if done.returncode != 0 and not errors:
        errors = [(done.stdout + done.stderr).strip()[:500] or "clang-tidy ended with status %d" % done.returncode]
    return errors[:5]


def entry_points(text):
    return re.findall(r"^kernel void (\w+)\(", text, re.M)


def check(text, dtype, launches):
    """Sentences about one Metal source; `launches` as launches.launches() reads them."""
    faults = parse(text)
    code = code_of(text)
    names = entry_points(text)
    if not names:
        faults.append("no kernel function")
    faults += ["'%s' is not Metal" % word for word in sorted(set(FORBIDDEN.findall(code)))]
    if dtype == "f32" and re.search(r"\bhalf\d?\b", code):
        faults.append("'half' in a kernel of f32")
    for name in names:
        buffers = [int(n) for n in re.findall(r"\[\[ buffer\((\d+)\) \]\]", code[code.index("kernel void %s(" % name):].split("{", 1)[0])]
        if buffers and max(buffers) >= MAX_BUFFERS:
            faults.append("%s: buffer %d, Metal has %d" % (name, max(buffers), MAX_BUFFERS))
        faults += launch_faults(name, launches.get(name))
    return faults


def launch_faults(name, launch):
    if launch is None:
        return ["%s: never launched" % name]
    threads = [launch["threads_" + axis] for axis in "xyz"]
    if None in threads or launch["shared_bytes"] is None:
        return ["%s: threads %s and threadgroup bytes %s are not constants" % (name, threads, launch["shared_bytes"])]
    faults = []
    if threads[0] * threads[1] * threads[2] > MAX_THREADS:
        faults.append("%s: %d threads, Metal has %d" % (name, threads[0] * threads[1] * threads[2], MAX_THREADS))
    if launch["shared_bytes"] > MAX_SHARED_BYTES:
        faults.append("%s: %d bytes of threadgroup memory, Metal has %d" % (name, launch["shared_bytes"], MAX_SHARED_BYTES))
    return faults
