"""What this machine is, in a few facts for the head of a table."""

import datetime
import os
import platform
import re
import subprocess

from . import linked


def first(pattern, file):
    try:
        with open(file, encoding="utf-8") as text:
            found = re.search(pattern, text.read(), re.M)
    except OSError:
        return ""
    return found.group(1).strip() if found else ""


def level_caches():
    """{"L1d": "32K", ...} of the first core."""
    folder, found = "/sys/devices/system/cpu/cpu0/cache", {}
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith("index"))
    except OSError:
        return found
    for name in names:
        level, kind, size = (first(r"(\S+)", os.path.join(folder, name, part)) for part in ("level", "type", "size"))
        if kind != "Instruction" and size:
            found["L" + level + ("d" if kind == "Data" else "")] = size
    return found


def git(*words):
    done = subprocess.run(["git", *words], cwd=linked.ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def facts():
    memory = first(r"^MemTotal:\s+(\d+)", "/proc/meminfo")
    return dict(
        processor=first(r"^model name\s*:\s*(.+)$", "/proc/cpuinfo") or platform.processor() or platform.machine(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        virtual="hypervisor" in first(r"^flags\s*:\s*(.+)$", "/proc/cpuinfo").split(),
        caches=level_caches(), memory_gib=round(int(memory) / 2**20, 1) if memory else None, system=platform.platform(),
        python=platform.python_version(), commit=git("rev-parse", "--short", "HEAD"),
        changed=bool(git("status", "--porcelain", "--untracked-files=no")),
        date=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"))  # fmt: skip


def sentence(machine):
    cores = "%d core%s" % (machine["cores"], "" if machine["cores"] == 1 else "s")
    memory = ", %g GiB" % machine["memory_gib"] if machine["memory_gib"] else ""
    return "%s of %s%s%s" % (cores, machine["processor"], " in a virtual machine" if machine["virtual"] else "", memory)
