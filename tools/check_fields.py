"""Fields of a problem and of a call: every door has every field, under one name."""
import re

# What a field of polyhead_args is called at a door that has another form for it: one optional for two numbers, a pair, the first input.
SPOKEN = {
    "has_softmax_scale": "softmax_scale", "has_window": "window", "window_left": "window", "window_right": "window",
    "num_expression_tensors": "expression_tensors",
}
# Written by the library, or what a program in C or C++ has (its threads, its memory, plans): Python has none of these.
WITHOUT_DOOR = {"size", "op", "scratch", "scratch_bytes", "executor", "plan"}

PROBLEM, ARGUMENTS = "runtime/include/polyhead/c_problem.h", "runtime/include/polyhead/c_api.h"
CPP, CPP_BACKWARD = "runtime/include/polyhead/arguments.h", "runtime/include/polyhead/backward_arguments.h"
PYTHON_CALL, TABLE = "python/src/call.cpp", "contract/tensors.h"
WORDS, CMAKE = "contract/problem_fields.h", "cmake/polyhead_problem_words.cmake"


def members(text, struct):
    """Names of the members of a C struct, in order."""
    body = re.search(r"typedef struct %s \{(.*?)\n\} %s;" % (struct, struct), text, flags=re.S).group(1)
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    return [re.findall(r"\w+", part)[-1] for line in body.split(";") if line.strip() for part in line.split(",")]


def names_of(text):
    return set(re.findall(r"\w+", text))


def cmake_words(read):
    """The text of the CMake file with the words of polyhead_add_kernel() that are fields of a problem."""
    rows = re.findall(r'field::(\w+)\("(\w+)"', read(WORDS))
    lists = {"SWITCHES": [name for kind, name in rows if kind == "yes_no"], "VALUES": [name for kind, name in rows if kind != "yes_no"]}
    text = "# Words of a problem in polyhead_add_kernel(), written by `./polyhead check --fix` from %s.\n" % WORDS
    for kind, names in lists.items():
        # One string each: CACHE among other words would make set() write to CMake's cache.
        text += 'set(POLYHEAD_PROBLEM_%s\n    "%s"\n)\n' % (kind, ";".join(name.upper() for name in names))
    return text


def problem_complaints(read):
    """read(path): the text of a file."""
    numbers = [name for name in members(read(PROBLEM), "polyhead_problem") if name not in ("size", "expression")]
    words = set(re.findall(r'field::\w+\("(\w+)"', read(WORDS)))
    for name in numbers:
        if name not in words:
            yield WORDS, "problem_fields: no row for %s" % name
    if read(CMAKE) != cmake_words(read):
        yield CMAKE, "differs from %s: ./polyhead check --fix writes it" % WORDS


def call_complaints(read):
    fields = [name for name in members(read(ARGUMENTS), "polyhead_args") if name not in WITHOUT_DOOR]
    headers = read(CPP) + read(CPP_BACKWARD)
    structs = "\n".join(re.findall(r"^struct \w*Args\b.*?^\};", headers, flags=re.S | re.M))
    cpp, table = names_of(structs), set(re.findall(r"&(?:A|polyhead_args)::(\w+)", read(TABLE)))
    binding = read(PYTHON_CALL)
    python = set(re.findall(r"args_?\.(\w+)|polyhead_args::(\w+)", binding))
    python = {name for pair in python for name in pair if name} | table
    set_in_cpp = set(re.findall(r"\bargs(?:\.|->)(\w+) =", headers))
    for name in fields:
        spoken = SPOKEN.get(name, name)
        if spoken not in cpp:
            yield CPP, "no argument struct has %s" % spoken
        if name not in set_in_cpp:
            yield CPP, "args.%s is never set" % name
        if name not in python:
            yield PYTHON_CALL, "%s cannot be given" % name


def complaints(read):
    for name, text in (*problem_complaints(read), *call_complaints(read)):
        yield name, 1, text
