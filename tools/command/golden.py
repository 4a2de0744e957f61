"""The subcommand golden: hashes of the code of every kernel of the table, compared with those in golden/."""
import concurrent.futures
import hashlib
import os
import re
import subprocess
import tempfile
import xml.etree.ElementTree

from . import build, environment, kernel_table
from .places import ROOT, jobs, part_of, step
from .places import environment as environment_of_children

X86 = "x86-64-linux"
# Fixed targets, so that the hashes are the same on every machine.
CPU_TARGETS = {
    "x86-64": X86,
    "sse41": X86 + "-sse41",
    "avx2": X86 + "-avx2-avx-fma-f16c-sse41",
    "skylake": X86 + "-avx512_skylake-avx512-avx2-avx-fma-f16c-sse41",
    "zen4": X86 + "-avx512_zen4-avx512_cannonlake-avx512_skylake-avx512-avx2-avx-fma-f16c-sse41",
    "sapphirerapids": X86 + "-avx512_sapphirerapids-avx512_cannonlake-avx512_skylake-avx512-avx2-avx-avxvnni-fma-f16c-sse41",
    "arm-64": "arm-64-linux",
}
GPU_TARGETS = {
    "cuda": X86 + "-cuda-cuda_capability_50",
    "cuda_80": X86 + "-cuda-cuda_capability_80",
    "opencl": X86 + "-opencl",
    "vulkan": X86 + "-vulkan-vk_v13",
    "metal": "arm-64-osx-metal",
    "webgpu": X86 + "-webgpu",
}
# Of the kernels below, because four warps multiply in them; in others it is the code for 8.0.
BY_GROUPS = X86 + "-cuda-cuda_capability_90a"
KERNELS_BY_GROUPS = ("sdpa_h12_d64_f16", "sdpa_h16_d128_f16", "sdpa_h12_d64_bf16", "gqa_h8_kv2_d80_bf16", "mask_bias_h4_d64_f16")
OBJECT_TARGETS = ("avx2", "zen4")  # for which the kernels tagged fast are compiled, too
FILES = {"lowered": os.path.join(ROOT, "golden", "lowered.txt"), "objects": os.path.join(ROOT, "golden", "objects.txt")}
HEADERS = {
    "lowered": "# KERNEL TARGET: of each variant a hash of the lowered statement and of the code for a device, names numbered.\n",
    "objects": "# KERNEL TARGET: a hash of the assembly, of NAME.h and of the manifest, without symbols.\n",
}


def items():
    """(file, kernel, target) in the order of the files: {item: flags of `polyhead generate`}."""
    found = {}
    for name, tags, flags in kernel_table.kernels():
        flags = kernel_table.without(flags, "--target")
        labels = {} if "gpu_only" in tags else dict(CPU_TARGETS)
        if tags & {"gpu", "gpu_only"}:
            labels.update(GPU_TARGETS)
        if name in KERNELS_BY_GROUPS:
            labels["cuda_90a"] = BY_GROUPS
        for label, target in labels.items():
            words = [name] + flags + ["--target", target, "--untested-target", "--no-tuned"]
            found["lowered", name, label] = words
            if "fast" in tags and label in OBJECT_TARGETS:
                found["objects", name, label] = words
    return found


def hashed(text):
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def generator():
    return build.program("release", "polyhead-generate")


def generate(words, **options):
    """(standard output, sentence of a refusal or empty)."""
    variables = {name: value for name, value in environment_of_children().items() if not name.startswith("POLYHEAD_")}
    done = subprocess.run([generator()] + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=variables, check=False, **options)
    return done.stdout, done.stderr.strip() if done.returncode else ""


def lowered(words):
    text, refusal = generate(words + ["--list-lowered"])
    if refusal:
        return refusal
    variants = []
    for variant in re.split(r"^variant ", text, flags=re.M)[1:]:
        statement, *codes = variant.partition("\nstatement\n")[2].split("device code\n")
        variants.append("+".join([hashed(statement)] + [hashed(code) for code in codes]))
    return " ".join(variants)


# Symbols of a kernel hold a hash of everything that decides its interface; the names of Funcs are in symbols of loops.
HASH = re.compile(r"_[0-9a-f]{16}_")
SYMBOL = re.compile(r"(?<![%$\w.])\"?[A-Za-z_][\w.$]*\"?(?![\w(])")
CALLED = re.compile(r"polyhead_(?!.*(?:argv|par_for))\w+|mem\w+|exp2f?|\w+f")


def instructions(listing):
    """The instructions of an assembly, with symbols numbered and without comments and directives."""
    numbers, lines = {}, []
    for line in HASH.sub("_HASH_", listing).splitlines():
        line = line.partition("#")[0].strip()
        if not line or line.startswith(".") and not line.startswith(".LBB") or line.endswith(":") and not line.startswith(".L"):
            continue
        mnemonic, _, operands = line.partition("\t")

        def number(match):
            return match[0] if CALLED.fullmatch(match[0]) else "s%d" % numbers.setdefault(match[0], len(numbers))

        lines.append(mnemonic + " " + SYMBOL.sub(number, operands))
    return "\n".join(lines)


def objects(words):
    with tempfile.TemporaryDirectory() as folder:
        refusal = generate(words + ["--emit", "assembly", "-o", folder])[1]
        if refusal:
            return refusal
        texts = {"s": "", "h": "", "json": ""}
        for name in sorted(os.listdir(folder)):
            kind = name.rpartition(".")[2]
            if kind in texts:
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    texts[kind] += file.read()
    return " ".join([hashed(instructions(texts["s"]))] + [hashed(HASH.sub("_HASH_", texts[kind])) for kind in ("h", "json")])


# Programs whose tests compare sentences, and which of their tests.
SENTENCES = os.path.join(ROOT, "golden", "sentences.txt")
SENTENCE_TESTS = {"test_runtime": '~[.]~"fork:*"~"process:*"', "test_algorithm": "generator: *"}  # without those that change or fork their process
ADDRESS = re.compile(r"0x[0-9a-f]{9,}")
NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd]")  # values that tests show may be any characters
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


def sentences():
    """The sentences of refusals that tests compare: lines `TEST: SENTENCE`."""
    build.build("release", list(SENTENCE_TESTS))
    found = set()
    for program, tests in SENTENCE_TESTS.items():
        # Whether its tests pass is not asked here.
        report = subprocess.run([build.program("release", program), "--success", "--reporter", "xml", tests], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True, errors="replace", env=environment_of_children(), check=False).stdout
        for case in xml.etree.ElementTree.fromstring(NOT_XML.sub("?", report)).iter("TestCase"):
            for text in (text for expanded in case.iter("Expanded") for text in QUOTED.findall(expanded.text)):
                if re.search(r"\S: \S|, expected ", text):
                    found.add("%s: %s" % (case.get("name"), ADDRESS.sub("0x...", " ".join(text.split()))))
    return sorted(found)


def compare_sentences(writing):
    """Lines for sentences that came or went."""
    now = sentences()
    if writing:
        with open(SENTENCES, "w", encoding="utf-8") as file:
            file.write("# TEST: SENTENCE of a refusal, as the test compares it.\n")
            file.writelines(line + "\n" for line in now)
        return []
    with open(SENTENCES, encoding="utf-8") as file:
        before = [line.rstrip("\n") for line in file if not line.startswith("#")]
    return ["sentence no longer: " + line for line in before if line not in now] + ["sentence new: " + line for line in now if line not in before]


MAKERS = {"lowered": lowered, "objects": objects}


def read(file):
    """{(kernel, target): text} of a file of hashes."""
    if not os.path.exists(FILES[file]):
        return {}
    with open(FILES[file], encoding="utf-8") as lines:
        found = (line.rstrip("\n").split(" ", 2) for line in lines if not line.startswith("#"))
        return {(name, label.rstrip(":")): text for name, label, text in found}


def write(file, made, every):
    """Replaces the lines of what was made; those of kernels that are no longer in the table go."""
    known = {**read(file), **{item[1:]: text for item, text in made.items() if item[0] == file}}
    os.makedirs(os.path.dirname(FILES[file]), exist_ok=True)
    with open(FILES[file], "w", encoding="utf-8") as out:
        out.write(HEADERS[file])
        out.writelines("%s %s: %s\n" % (*item[1:], known[item[1:]]) for item in every if item[0] == file and item[1:] in known)


def sample(every, seed):
    """About half a minute of one core: a few lines, others for each seed."""
    order = sorted(every, key=lambda item: hashlib.sha256(" ".join((seed,) + item).encode()).hexdigest())
    return [item for item in order if item[0] == "objects"][:2] + [item for item in order if item[0] == "lowered" and item[2] in CPU_TARGETS][:7] + \
        [item for item in order if item[2] not in CPU_TARGETS][:2]


def differences(chosen, every, made):
    """Lines for what differs: kernel and target, before, now."""
    known = {file: read(file) for file in FILES}
    for item in chosen:
        before = known[item[0]].get(item[1:], "nothing")
        if before != made[item]:
            yield "%s %s %s\n  in golden/: %s\n  now: %s" % (*item, before, made[item])
    for file, lines in known.items():
        for name, label in lines:
            if (file, name, label) not in every:
                yield "%s %s %s: not in kernels/table.txt" % (file, name, label)


def make(chosen, every):
    with concurrent.futures.ThreadPoolExecutor(jobs()) as pool:
        return dict(zip(chosen, pool.map(lambda item: MAKERS[item[0]](every[item]), chosen)))


def golden(options):
    environment.ensure(*environment.PACKAGE, "test")
    build.configure("release", environment.parts())
    build.build("release", ["polyhead-generate"])
    every = items()
    chosen = part_of([item for item in every if re.search(options.filter or "", " ".join(item))], options.part)
    step("code of %d kernels and targets" % len(chosen))
    made = make(chosen, every)
    found = []
    if options.write:
        for file in FILES:
            write(file, made, every)
    else:
        found = list(differences(chosen, every, made))
    if not options.filter and options.part in (None, "1/1"):
        step("sentences")
        found += compare_sentences(options.write)
    print("\n".join(found + ["%d of %d compared, %d differ" % (len(chosen), len(every), len(found))]))
    return 1 if found else 0
