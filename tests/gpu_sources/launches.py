"""Reads how kernels are launched (threads per block, bytes of shared memory) out of the listing of --emit stmt."""
import re

AXES = ("blocks_x", "blocks_y", "blocks_z", "threads_x", "threads_y", "threads_z", "shared_bytes")
LAUNCH = re.compile(r"halide_(cuda|opencl|vulkan|metal|webgpu|d3d12compute)_run\(\w+\[0\], \"(\w+)\", ")
NAME = re.compile(r"[A-Za-z_][\w.$]*")
FUNCTIONS = {"min": min, "max": max, "select": lambda c, a, b: a if c else b}


def split_arguments(text, count):
    """The first `count` arguments of a call, of which `text` begins after the opening bracket."""
    found, depth, word = [], 0, ""
    for letter in text:
        if letter == "," and depth == 0:
            found.append(word.strip())
            word = ""
            if len(found) == count:
                return found
            continue
        depth += (letter in "([") - (letter in ")]")
        if depth < 0:
            break
        word += letter
    return found + [word.strip()]


def constant(text, lets, depth=0):
    """The value of an expression of constants and lets, or None where it depends on the call."""
    text = re.sub(r"\(u?int\d+\)", "", text)
    names = set(NAME.findall(text)) - set(FUNCTIONS)
    if any(name not in lets for name in names) or depth > 20 or '"' in text:
        return None
    values = {name: constant(lets[name], lets, depth + 1) for name in names}
    if None in values.values():
        return None
    text = NAME.sub(lambda m: m.group() if m.group() in FUNCTIONS else "(%d)" % values[m.group()], text)
    if not re.fullmatch(r"[\d\s()+\-*/%<>=!&|,a-z]*", text):
        return None
    try:
        return int(eval(text.replace("/", "//").replace("&&", " and ").replace("||", " or "), {"__builtins__": {}}, FUNCTIONS))
    except (SyntaxError, TypeError, ZeroDivisionError, NameError):
        return None


def launches(path):
    """{kernel: {axis: number, or None where it depends on the call}} of one listing."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    lets = dict(re.findall(r"^\s*let ([\w.$]+) = (.*)$", text, re.M))
    found = {}
    for match in LAUNCH.finditer(text):
        words = split_arguments(text[match.end():match.end() + 4000], len(AXES))
        found[match.group(2)] = {axis: constant(word, lets) for axis, word in zip(AXES, words)}
    return found
