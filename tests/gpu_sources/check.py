"""Checks the GPU code of one kernel: what its archive holds, or what the generator makes of its flags for another API."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import check_metal
import check_ptx
import check_spirv
import check_wgsl
import embedded
from launches import launches

# API -> target of the generator, language of the code in the object
APIS = {
    "cuda_80": ("x86-64-linux-cuda-cuda_capability_80", "ptx"),
    "cuda_86": ("x86-64-linux-cuda-cuda_capability_86", "ptx"),
    "vulkan": ("x86-64-linux-vulkan", "spirv"),
    "metal": ("arm-64-osx-metal", "metal"),
    "webgpu": ("x86-64-linux-webgpu", "wgsl"),
}


def is_strict(problem):
    """Whether the kernel must do with registers alone: a linear layer, or heads of at most 128 dimensions."""
    dims = [problem.get("head_dim", 0), problem.get("head_dim_v", 0)]
    return max(dims) <= check_ptx.STRICT_HEAD_DIM


def check_source(language, source, problem, runs):
    """(sentences, records) of one source."""
    if language == "ptx":
        return check_ptx.check(source, is_strict(problem), runs)
    if language == "metal":
        return check_metal.check(source, problem["dtype"], runs), []
    if language == "wgsl":
        return check_wgsl.check(source, problem["dtype"], runs), []
    return check_spirv.check(source, runs), []


def wrong_shared_memory(stated, runs):
    """Sentences when the manifest states other bytes of a block than the code asks for."""
    asked = max([run["shared_bytes"] or 0 for run in runs.values()], default=0)
    return [] if stated == asked else ["the manifest states %s bytes of shared memory, the code asks for %d" % (stated, asked)]


def check_archive(stem, language):
    """(sentences, records) of STEM.a, with STEM.json and the listings beside it."""
    with open(stem + ".json", encoding="utf-8") as file:
        manifest = json.load(file)
    problem, stated = manifest["problem"], {v["name"]: v.get("shared_bytes", 0) for v in manifest["variants"]}
    found = embedded.sources(stem + ".a", language)
    faults, records = [] if found else ["%s.a holds no %s" % (stem, language)], []
    for name, source in found:
        listing = os.path.join(os.path.dirname(stem), os.path.splitext(name)[0] + ".stmt")
        if not os.path.exists(listing):
            faults.append("%s is missing; the kernel must be generated with --emit stmt" % listing)
            continue
        runs = launches(listing)
        more, numbers = check_source(language, source, problem, runs)
        faults += more + wrong_shared_memory(stated.get(os.path.splitext(name)[0]), runs)
        records += [dict(record, object=name) for record in numbers]
    return faults, records


def generate_and_check(generator, name, api, flags):
    """(sentences, records) of a kernel made here and now; a refusal of the generator is a sentence."""
    target, language = APIS[api]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([generator, name] + flags + ["--target", target, "--untested-target", "--emit", "stmt", "-o", folder],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            return [(done.stdout.strip() or "polyhead-generate ended with status %d" % done.returncode).splitlines()[-1]], []
        return check_archive(os.path.join(folder, name), language)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--api", choices=sorted(APIS), required=True)
    parser.add_argument("--archive", metavar="FILE", help="the kernel's archive, with manifest and listings beside it; else it is generated")
    parser.add_argument("--generate", metavar="PROGRAM", help="polyhead-generate")
    parser.add_argument("--record", metavar="FILE", help="write the numbers there")
    options, flags = parser.parse_known_args()
    try:
        if options.archive:
            faults, records = check_archive(os.path.splitext(options.archive)[0], APIS[options.api][1])
        else:
            faults, records = generate_and_check(options.generate, options.name, options.api, flags)
    except (OSError, RuntimeError) as error:
        faults, records = [str(error)], []
    if options.record:
        with open(options.record, "w", encoding="utf-8") as file:
            json.dump({"name": options.name, "api": options.api, "faults": faults, "records": records}, file, indent=1)
    for fault in faults:
        print("FAILED %s, %s: %s" % (options.name, options.api, fault))
    print("%s, %s: %s" % (options.name, options.api, "%d faults" % len(faults) if faults else "good"))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
