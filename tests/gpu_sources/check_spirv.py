"""Holds SPIR-V modules to their specification and to Vulkan's rules with spirv-val."""
import re
import shutil
import subprocess
import tempfile

MAX_THREADS, MAX_SHARED_BYTES = 1024, 32 * 1024
ENVIRONMENT = "vulkan1.1"


def entry_points(module):
    """Names of the entry points: OpEntryPoint is opcode 15, its name the words from the fourth on."""
    found, at = [], 20
    while at + 4 <= len(module):
        word = int.from_bytes(module[at:at + 4], "little")
        if word >> 16 == 0:
            break
        if word & 0xFFFF == 15:
            found.append(module[at + 12:at + 4 * (word >> 16)].split(b"\0")[0].decode())
        at += 4 * (word >> 16)
    return found


def check(module, launches):
    """Sentences about one module; `launches` as launches.launches() reads them."""
    tool = shutil.which("spirv-val")
    if tool is None:
        return ["spirv-val was not found: ./polyhead setup installs Debian's spirv-tools"]
    names = entry_points(module)
    faults = [] if names else ["no entry point"]
    with tempfile.NamedTemporaryFile(suffix=".spv") as file:
        file.write(module)
        file.flush()
        done = subprocess.run([tool, "--target-env", ENVIRONMENT, file.name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        faults.append(re.sub(r"^error: ", "", (done.stdout.strip() or "spirv-val failed").splitlines()[0]))
    for name in names:
        launch = launches.get(name)
        if launch is None:
            faults.append("%s: never launched" % name)
            continue
        threads = [launch["threads_" + axis] for axis in "xyz"]
        if None in threads or launch["shared_bytes"] is None:
            faults.append("%s: threads %s and shared bytes %s are not constants" % (name, threads, launch["shared_bytes"]))
        elif threads[0] * threads[1] * threads[2] > MAX_THREADS or launch["shared_bytes"] > MAX_SHARED_BYTES:
            faults.append("%s: %s threads and %d shared bytes, at most %d and %d" % (name, threads, launch["shared_bytes"], MAX_THREADS, MAX_SHARED_BYTES))
    return faults
