"""The project's rules that a script can check: which folder may schedule, define or include what; sizes, names, first lines."""
import ast
import functools
import os
import re
import subprocess
import sys

import check_fields

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CODE = (".cpp", ".h", ".c")
COMMENT_STARTS = ("//", "/*", "#", '"""', "<!--")

LOOP_DIRECTIVES = re.compile(
    r"\.(compute_at|compute_root|compute_with|compute_inline|store_at|store_root|hoist_storage\w*|store_in|fold_storage|split|tile|fuse"
    r"|reorder|reorder_storage|vectorize|unroll|parallel|serial|prefetch|specialize|async|ring_buffer|atomic|gpu\w*|partition\w*)\s*\(")
MACHINE_WORDS = re.compile(
    r"\b(Target|get_target|get_host_target|Machine|machine_of|natural_vector_size|has_feature|vector_width|native_vector\w*)\b")
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]')
# Folders that a folder must not include: only compile/ includes both generators/ and schedules/. Halide stays in those three.
STRANGERS = {
    "contract": ("machines", "runtime", "plan", "generators", "schedules", "compile", "tools", "python", "Halide"),  # the ground floor
    "machines": ("runtime", "plan", "generators", "schedules", "compile", "tools", "python", "Halide"),
    "plan": ("generators", "schedules", "compile", "tools", "python", "Halide"),
    "generators": ("schedules", "compile", "tools"),
    "schedules": ("compile", "tools"),
    "compile": ("load", "python"),
    "load": ("generators", "schedules", "compile", "python", "Halide"),
    "instruments": ("plan", "generators", "schedules", "compile", "python", "Halide"),
    "bench": ("generators", "schedules"),
    "runtime": ("machines", "plan", "generators", "schedules", "compile", "tools", "Halide"),
    "python": ("generators", "schedules", "compile", "Halide"),
}
# The leaves: nothing else is made of them, but tests of the examples.
LEAVES = ("bench", "tests", "examples")
FRAME_NAME = re.compile(r'const char \*name\(\) const override \{ return "(\w+_\w+)"; \}')
# A Func made from a name or an expression is a new one; an empty Func and a copy are not.
FUNC_MADE = re.compile(r'\bFunc\s+\w+\s*[({]\s*("|\w+\s*[)}])|\bFunc\s*[({]\s*["\w]')
CALLED = re.compile(r"\s*[\w.\->\[\]]+\(")
ASSIGNED = re.compile(r"\s*[+*|&-]?=[^=]")
# Numbers from 3 on, but places in a list and counts of dimensions.
TUNED_NUMBER = re.compile(r"(?<![\w.])([3-9]|\d{2,})(?![\w.])")
STRUCTURAL = re.compile(r"\[\d+\]|\.size\(\) == \d+")
# What machines/ knows, and where else its names stand: where targets are read, and where the code of a kernel is bound to its helpers.
REGISTERS_COMPARED = re.compile(r"\bregisters\s*[=!<>]=?\s*\d")
INSTRUCTION_OR_API = re.compile(
    r"\bv?(?:pmaddwd|pdpbusd|dpbf16ps|dpbusd)\b|\btdpbf16ps\b|\bpolyhead_amx_\w*|\bPOLYHEAD_CPU_\w+|\bPOLYHEAD_(?:CUDA|OPENCL|VULKAN|METAL|WEBGPU)\b"
    r"|\bTarget::(?:CUDA|OpenCL|Vulkan|Metal|WebGPU)\b")
# Environment variables that the product reads, and the page that lists them.
ENVIRONMENT_GUIDE = "docs/guides/environment.md"
VARIABLE = re.compile(r'"((?:POLYHEAD|HL|XDG)_[A-Z_]*[A-Z]|TMPDIR)"')
VARIABLE_ROOMS = ("runtime", "load", "plan", "compile", "contract", "python", "tools")
MACHINE_ROOMS = ("plan", "generators", "schedules", "compile", "load", "tools")
MACHINES_NAMED = ("plan/host.cpp", "plan/named_targets.cpp", "plan/target.cpp", "plan/target_features.cpp", "compile/compile.cpp", "tools/elf_symbols.cpp")
# An operation that is compared by its name, in C++ and in Python; bytes of a dtype that are chosen by a condition.
OPERATION = re.compile(r"""\bPOLYHEAD_(?:SDPA|MHA|LINEAR)\b|(?:[!=]=|\bin) *\(?["'](?:sdpa|mha|linear)["']|["'](?:sdpa|mha|linear)["'] *[!=]=""")
TABLE_OF_HEADER = re.compile(r"(static )?constexpr [\w:<>*\s]+\[\w*\] *[={]")
BYTES_CHOSEN = re.compile(r"(?:\bPOLYHEAD_(?:F32|F16|BF16|I8|I32|BOOL)\b|\bdtype\b).*\?[^:?]*\b[1248]u? *:[^:?]*\b[1248]u?\b"
                          r"|\b[1248] if [^#]*\bdtype\b.* else [1248]\b")
PRODUCT_ROOMS = ("machines", "plan", "generators", "schedules", "compile", "load", "runtime", "tools", "python", "cmake")
# A loop nest in the documents: a block whose first line is a parallel loop or the blocks of a grid. Its left column names Funcs and knobs.
LOOP_NEST = re.compile(r"^    (?:parallel|blocks) \(")
DOCUMENT_LINK = re.compile(r"\]\(([^)\s]+)\)")
NEST_WORD = re.compile(r"\b[a-z]+(?:_[a-z0-9]+)+\b")
NEST_NAMES = re.compile(r"^ +([a-z_]+(?:, [a-z_]+)*)(?::|$)")
# What follows the locale of the process, and where texts with numbers are made without it.
LOCALE_CODE = re.compile(r"\b(strto(?:d|f|ld)|atof|sto[dfl]|setlocale|is(?:alpha|digit|alnum|space|upper|lower|punct|xdigit)|to(?:lower|upper)"
                         r"|[io]?stringstream)\b(?=\s*[({\w>&*])")
LOCALE_FORMAT = re.compile(r'"[^"]*%[-+ #0-9*]*(?:\.(?:[1-9*]\d*))?[eEfgGaA](?![^"]*\bPRI)[^"]*"')
LOCALE_ROOMS = ("runtime", "plan", "generators", "schedules", "compile", "load", "tools", "python")
LOCALE_ALLOWED = ("plan/text.h", "runtime/status.cpp")  # where it is made the same in every locale
# What chooses inputs of tests. An input that it draws again, leaves out or cuts down is one that nothing tests.
GENERATORS = ["tests/support/%s.cpp" % name for name in ("check_ragged", "feature_matrix", "random_problem", "shapes")]
GENERATORS += ["instruments/calls/%s.cpp" % name for name in ("extras", "layouts", "mask_values")]
GENERATORS += ["tests/fuzz/%s.cpp" % name for name in ("edits", "fuzz_cache", "fuzz_calls", "fuzz_pack", "fuzz_pool", "stand_ins")]
GENERATORS += ["tests/" + name for name in (
    "gpu_splits.cpp", "gpu_sweep.cpp", "python_histories.py", "random_tiling.h", "soak/cases.cpp", "sweep_features.cpp", "sweep_random.cpp",
    "sweep_tilings.cpp")]
# `continue`, loops until something is drawn, and bounds of what was drawn; not a loop that fills a list or reads a fuzzer's bytes.
LEAVES_OUT = re.compile(r"\bcontinue\b|\bwhile\b|\bfor \(int attempt\b|\bfor \([^;]*;[^;]*\|\|[^;]*;|\b(min|max|clamp)\b[^;]*\brandom\.\w")
FILLS = re.compile(r"\bwhile \(.*\.size\(\)\)? < |\bwhile \(!bytes->empty\(\)\)")
EXCLUDED = re.compile(r"(//|#) EXCLUDED: [^:]+: \S")
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b")
MACHINE_PATHS = re.compile(r"(?<![\w./])/(wo" r"rk|ho" r"me|ro" r"ot|Us" r"ers|scra" r"tch)/\w")


def files():
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                            stdout=subprocess.PIPE).stdout.decode()
    return sorted(name for name in set(listed.split("\0")) if name and os.path.isfile(os.path.join(ROOT, name)))


def lines_of(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read().split("\n")


def code_only(lines):
    """The lines without comments and string contents, so that comments and texts may use words that code may not."""
    text = "\n".join(lines)

    def blank(match):
        spaces = re.sub(r"[^\n]", " ", match.group(0))
        return '"' + spaces[1:-1] + '"' if match.group(0).startswith('"') else spaces

    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S).split("\n")


def cpp_functions(lines):
    """(first line, length) of functions, found by clang-format's layout: the closing brace is below the first word."""
    start = None
    for number, line in enumerate(lines, 1):
        if start is None and line.endswith("{") and ("(" in line or line.startswith(") ")) and re.match(r"(    )?[A-Za-z_~:]", line):
            if not re.match(r"\s*(namespace|struct|class|enum|extern|union|if|for|while|switch|else|do|return)\b", line):
                start = (number, "}" if line[0] != " " else "    }")
        elif start and line.rstrip(";") == start[1]:
            yield start[0], number - start[0] + 1
            start = None


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno - node.lineno + 1


def check_file(name, lines):
    """Checks size, first line and paths of a text file."""
    is_code = name.endswith(CODE)
    if is_code or name.endswith((".py", ".cmake")) or os.path.basename(name) in ("CMakeLists.txt", "polyhead", "table.txt"):
        limit = 250 if name.startswith("runtime/include/") and name.endswith("polyhead.h") else 500
        if len(lines) - 1 > limit:
            yield 1, "%d lines, the limit is %d" % (len(lines) - 1, limit)
        first = lines[1] if lines[0].startswith("#!") and len(lines) > 1 else lines[0]
        if not first.startswith(COMMENT_STARTS):
            yield 1, "the first line does not say what the file is for"
        functions = cpp_functions(lines) if is_code else python_functions("\n".join(lines)) if name.endswith(".py") else ()
        for number, length in functions:
            if length > 60:
                yield number, "a function of %d lines, the limit is 60" % length
    for number, line in enumerate(lines, 1):
        if UNFINISHED.search(line):
            yield number, "marks unfinished work, expected the work itself"
        if MACHINE_PATHS.search(line):
            yield number, "has a path that exists only on one machine"


def statements(lines):
    """(number of the first line, text) of each statement, which ends with a semicolon or a brace."""
    start, text = 1, ""
    for number, line in enumerate(lines, 1):
        for part in re.split(r"(?<=[;{}])", line):
            start = start if text.strip() else number
            text += part + " "
            if part.endswith((";", "{", "}")):
                yield start, text
                text = ""


def defines_func(statement):
    """True for x(...) = and x(...) +=, with any calls inside the parentheses."""
    called = CALLED.match(statement)
    depth = 0
    for at in range(called.end() - 1 if called else len(statement), len(statement)):
        depth += {"(": 1, ")": -1}.get(statement[at], 0)
        if depth == 0:
            return bool(ASSIGNED.match(statement, at + 1))
    return False


def check_includes(name, lines):
    room = name.split("/")[0]
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        included = os.path.normpath(os.path.join(os.path.dirname(name), match.group(1))) if match else ""
        for stranger in STRANGERS.get(room, ()) + tuple(leaf for leaf in LEAVES if leaf != room and (room, leaf) != ("tests", "examples")):
            if included.startswith(stranger + "/") or (match and match.group(1).startswith((stranger + "/", stranger + ".h"))):
                yield number, "%s/ must not include %s" % (room, stranger)


def frame_names():
    """The names in the table of frames, without those that are also ordinary words."""
    return {name for path in files() if path.startswith("plan/frames/") for line in lines_of(path) for name in FRAME_NAME.findall(line)}


def check_frame_names(name, lines, names=None):
    """Code must ask the frame itself, and not compare its name."""
    words = "|".join(sorted(names or frame_names()))
    compared = re.compile(r"""([!=]=|\bin)\s*\(?["'](%s)["']|["'](%s)["']\s*[!=]=|STREQUAL "(%s)\"""" % (words, words, words))
    for number, line in enumerate(lines, 1):
        if compared.search(line):
            yield number, "a frame is compared by its name: ask the table of frames (plan/frames/)"


def check_generators(name, lines):
    for number, line in enumerate(code_only(lines), 1):
        for match in LOOP_DIRECTIVES.finditer(line):
            yield number, "generators/ must not schedule: .%s() belongs in schedules/" % match.group(1)
        for match in MACHINE_WORDS.finditer(line):
            yield number, "generators/ must not depend on the machine: %s belongs in schedules/" % match.group(1)


def check_schedules(name, lines):
    code = code_only(lines)
    for number, line in enumerate(code, 1):
        if FUNC_MADE.search(line):
            yield number, "schedules/ must make Funcs only with in(), clone_in() or rfactor()"
    for number, text in statements(code):
        if defines_func(text):
            yield number, "schedules/ must not define a Func"


def check_machines(name, lines):
    """A fact of a machine, an instruction or an API is a row of machines/; code asks the row."""
    if name in MACHINES_NAMED:
        return
    for number, line in enumerate(lines, 1):
        code = re.split(r"//|^\s*\*|^#", line)[0]
        if REGISTERS_COMPARED.search(code):
            yield number, "a number of registers: ask Machine::fits() or another question of machines/machine.h"
        for match in INSTRUCTION_OR_API.finditer(code):
            yield number, "%s is a name of machines/ (products.h, machines.h): ask the row" % match.group(0)


def check_operations(name, lines):
    """What an operation is, is a row of contract/operations.h and contract/tensors.h; code asks the row."""
    for number, line in enumerate(lines, 1):
        if OPERATION.search(re.split(r"//|^\s*\*", line)[0]) and not name.startswith("runtime/include/"):
            yield number, "an operation is named: ask its row (contract/operations.h, contract/tensors.h)"


def check_tables(name, lines):
    """A table of a header is one object: functions of headers compare addresses of its rows, in whatever file they were compiled."""
    for number, line in enumerate(code_only(lines), 1):
        if name.endswith(".h") and TABLE_OF_HEADER.match(line):
            yield number, "a table of a header is inline constexpr, or each file has its own"


def check_bytes(name, lines):
    for number, line in enumerate(lines, 1):
        if BYTES_CHOSEN.search(line.split("//")[0]):
            yield number, "bytes of a dtype: ask dtype_bytes() (contract/dtypes.h), in Python the dtype's itemsize"


def known_names():
    """Identifiers of the code that makes and schedules Funcs, knobs among them."""
    rooms = ("generators/", "schedules/", "plan/tiling", "contract/", "runtime/include/")
    return {word for path in files() if path.startswith(rooms) and path.endswith(CODE)
            for line in code_only(lines_of(path)) for word in re.findall(r"\w+", line)}


def check_loop_nests(name, lines, names=None):
    """Funcs and knobs that a loop nest of the documents names exist in the code."""
    inside = False
    for number, line in enumerate(lines, 1):
        inside = bool(LOOP_NEST.match(line)) or (inside and line.startswith("    "))
        if not inside:
            continue
        left = re.split(r"(?<=\S)  ", line)[0]
        listed = NEST_NAMES.match(left)
        for word in {*NEST_WORD.findall(left), *(listed.group(1).split(", ") if listed else ())}:
            if word not in names:
                yield number, "%s is no name of generators/, schedules/ or the knobs" % word


def check_links(name, lines):
    """Links of a document to files of the project lead somewhere."""
    for number, line in enumerate(lines, 1):
        for link in DOCUMENT_LINK.findall(line):
            path = os.path.join(ROOT, os.path.dirname(name), link.partition("#")[0])
            if not re.match(r"[a-z]+:|#", link) and not os.path.exists(path):
                yield number, "the link to %s leads nowhere" % link


def check_numbers(name, lines):
    """A number of a schedule is a knob, a fact of the machine, or a constant that has a name and a reason."""
    for number, line in enumerate(code_only(lines), 1):
        rest = STRUCTURAL.sub("", line)
        if not line.lstrip().startswith(("#", "constexpr")) and TUNED_NUMBER.search(rest):
            yield number, "a number in a schedule: make it a knob (plan/tiling_knobs.h) or a named constexpr"


def check_locale(name, lines):
    """Numbers are read and written by what plan/text.h and runtime/status.h offer."""
    if name.split("/")[0] not in LOCALE_ROOMS or name in LOCALE_ALLOWED:
        return
    for number, (line, code) in enumerate(zip(lines, code_only(lines)), 1):
        for match in LOCALE_CODE.finditer(code):
            yield number, "%s follows the locale: use plan/text.h" % match.group(1)
        if LOCALE_FORMAT.search(line) and not line.lstrip().startswith("//"):
            yield number, "a format of floats follows the locale: use number_text() or NumberText"


def check_excluded(name, lines):
    """A generator of inputs that leaves some out says which, and what rule or limit allows it: EXCLUDED: INPUT: RULE."""
    code = code_only(lines) if name.endswith(CODE) else [line.split("#")[0] for line in lines]
    for number, line in enumerate(code):
        if not LEAVES_OUT.search(line) or FILLS.search(line):
            continue
        first = number
        while first > 0 and lines[first - 1].lstrip().startswith(("//", "#")):
            first -= 1
        if not any(EXCLUDED.search(text) for text in lines[first:number + 1]):
            yield number + 1, "a generator leaves inputs out: expected \"EXCLUDED: INPUT: RULE\" here or above, with the rule or limit that allows it"


def documented_variables(text=None):
    """Names of the table in the guide of environment variables."""
    rows = (text or "\n".join(lines_of(ENVIRONMENT_GUIDE))).split("\n")
    return {name for row in rows if row.startswith("| `") for name in re.findall(r"`([A-Z_]+)`", row.split("|")[1])}


def variables_of(lines):
    """(line, name) of each environment variable that a source of the product reads."""
    for number, line in enumerate(lines, 1):
        for name in VARIABLE.findall(line):
            if not name.startswith("POLYHEAD_TUNE_"): # between a tuner and its processes
                yield number, name


def check_variables(_name, lines, documented=None):
    for number, name in variables_of(lines):
        if name not in (documented or documented_variables()):
            yield number, "%s is not in %s" % (name, ENVIRONMENT_GUIDE)


def check_guide_of_variables():
    """Each variable of the guide is one that the code reads."""
    sources = [name for name in files() if name.split("/")[0] in VARIABLE_ROOMS and name.endswith(CODE + (".py",))]
    text = "\n".join("\n".join(lines_of(name)) for name in sources)
    for name in sorted(documented_variables()):
        if '"%s"' % name not in text:
            yield ENVIRONMENT_GUIDE, 1, "nothing reads %s" % name


def check_tiling():
    """The list POLYHEAD_TILING_KNOBS makes the fields, the parameters and the record of a tiling; there are no other knobs."""
    header, source = "plan/tiling.h", "plan/tiling.cpp"
    body = re.search(r"struct Tiling \{(.*?)\n\};", "\n".join(code_only(lines_of(header))), flags=re.S)
    if body is None or "POLYHEAD_TILING_KNOBS(" not in body.group(1):
        yield header, 1, "the fields of Tiling are not made from POLYHEAD_TILING_KNOBS"
        return
    for field in re.findall(r"^\s+(?:int|int32_t|bool|float|double) (\w+)[^();]*;", body.group(1), flags=re.M):
        yield header, 1, "knob %s is not in POLYHEAD_TILING_KNOBS" % field
    text = "\n".join(lines_of(source))
    for function in ("Tiling::to_string", "Tiling::set"):
        found = re.search(re.escape(function) + r"\(.*?\n\}", text, flags=re.S)
        if found is None or "POLYHEAD_TILING_KNOBS(" not in found.group(0):
            yield source, 1, "%s does not use POLYHEAD_TILING_KNOBS" % function


def check_table():
    """Tests and benches read the kernel table, so every kernel of it is tested and timed."""
    names = [line.split()[0] for line in lines_of("kernels/table.txt") if line.strip() and not line.startswith("#")]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield "kernels/table.txt", 1, "kernel %s is listed twice" % name
    for folder in ("tests", "bench"):
        sources = [name for name in files() if name.startswith(folder + "/") and name.endswith(CODE)]
        if not any("kernel_table.h" in line for name in sources for line in lines_of(name)):
            yield folder, 1, "nothing in %s/ reads kernel_table.h" % folder


def complaints():
    named_frames = functools.partial(check_frame_names, names=frame_names())
    loop_nests = functools.partial(check_loop_nests, names=known_names())
    for name in files():
        try:
            lines = lines_of(name)
        except UnicodeDecodeError:
            continue
        checks = [check_file]
        if name.endswith(CODE):
            checks += [check_includes, check_locale, check_tables]
        if name.startswith("generators/") and name.endswith(CODE):
            checks.append(check_generators)
        if name.split("/")[0] in MACHINE_ROOMS and name.endswith(CODE):
            checks.append(check_machines)
        if name.endswith(CODE + (".py", ".cmake")) and not name.startswith("tests/"):
            checks.append(named_frames)
        if name.startswith("schedules/") and name.endswith(CODE):
            checks += [check_schedules, check_numbers]
        if name.split("/")[0] in PRODUCT_ROOMS and name.endswith(CODE + (".py", ".cmake")) and not name.startswith("tools/check_"):
            checks += [check_operations, check_bytes]
        if name.split("/")[0] in VARIABLE_ROOMS and name.endswith(CODE + (".py",)) and not name.startswith(("tools/check_", "tools/command/", "runtime/include/")):
            checks.append(check_variables)
        if name.endswith(".md"):
            checks.append(check_links)
        if name.startswith("docs/internals/schedules"):
            checks.append(loop_nests)
        if name in GENERATORS:
            checks.append(check_excluded)
        for check in checks:
            for number, text in check(name, lines):
                yield name, number, text
    yield from check_fields.complaints(lambda name: "\n".join(lines_of(name)))
    for name in sorted(set(GENERATORS) - set(files())):
        yield "tools/check_rules.py", 1, "GENERATORS names %s, which does not exist" % name
    yield from check_tiling()
    yield from check_table()
    yield from check_guide_of_variables()


def main():
    if "--fix" in sys.argv[1:]:
        with open(os.path.join(ROOT, check_fields.CMAKE), "w", encoding="utf-8") as file:
            file.write(check_fields.cmake_words(lambda name: "\n".join(lines_of(name))))
    count = 0
    for name, number, text in complaints():
        print("%s:%d: %s" % (name, number, text))
        count += 1
    print("rules: %s" % ("%d complaints" % count if count else "kept"))
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
