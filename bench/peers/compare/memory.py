"""Memory of this process, as Linux tells it; None elsewhere."""

import ctypes
import gc
import re


def status(name):
    """Bytes of a line of /proc/self/status."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            found = re.search(r"^%s:\s+(\d+) kB$" % name, file.read(), re.M)
    except OSError:
        return None
    return 1024 * int(found.group(1)) if found else None


def resident():
    """Bytes that are held, after all that nobody needs went back to the system."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:  # another C library
        pass
    return status("VmRSS")


def most_during(call):
    """The most that is resident while call() runs."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")  # the mark of the most that was resident goes back to what is
    except OSError:
        return None
    call()
    return status("VmHWM")
