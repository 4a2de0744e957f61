"""Reads PTX: its kernels, their innermost loops, and how many instructions of each kind these hold."""
import collections
import re

ENTRY = re.compile(r"^\.(?:visible )?\.?entry (\w+)\(", re.M)
LABEL = re.compile(r"^(\$?[\w$]+):")
BRANCH = re.compile(r"\bbra(?:\.uni)?\s+(\$?[\w$]+)")
KINDS = (  # name of the count, and what an opcode of this kind begins with
    ("fma", re.compile(r"fma\.rn\.f32")),
    ("ld_global", re.compile(r"ld\.global")),
    ("ld_shared", re.compile(r"ld\.shared")),
    ("st_shared", re.compile(r"st\.shared")),
    ("local", re.compile(r"(?:ld|st)\.local")),
    ("shuffle", re.compile(r"shfl\.sync")),
    ("exp2", re.compile(r"ex2\.approx")),
    ("barrier", re.compile(r"bar\.sync|barrier\.")),
    ("all", re.compile(r"")),
)


def entries(text):
    """{kernel: [line of code]} without comments and declarations."""
    found = {}
    starts = [match for match in ENTRY.finditer(text)] + [None]
    for match, after in zip(starts, starts[1:]):
        body = text[match.end():after.start() if after else len(text)]
        body = body[body.index("{\n") + 2:] if "{\n" in body else body
        lines = [re.sub(r"\s*//.*", "", line).strip() for line in body.split("\n")]
        found[match.group(1)] = [line for line in lines if line and line[0] not in ".{}()"]
    return found


class Block:
    def __init__(self, label):
        self.label, self.lines, self.next = label, [], []


def blocks_of(lines):
    """Basic blocks with the numbers of those that may follow."""
    blocks, fresh = [Block("")], False
    for line in lines:
        label = LABEL.match(line)
        if label or fresh:
            blocks.append(Block(label.group(1) if label else ""))
        fresh = False
        if not label:
            blocks[-1].lines.append(line)
            fresh = bool(BRANCH.search(line)) or re.search(r"\b(ret|exit|trap)\b", line) is not None
    numbers = {block.label: i for i, block in enumerate(blocks) if block.label}
    for i, block in enumerate(blocks):
        last = block.lines[-1] if block.lines else ""
        branch = BRANCH.search(last)
        if branch:
            block.next.append(numbers[branch.group(1)])
        leaves = not last.startswith("@") and (branch or re.search(r"\b(ret|exit|trap)\b", last))
        if not leaves and i + 1 < len(blocks):
            block.next.append(i + 1)
    return blocks


def dominators(blocks):
    """For each block the set of those through which every way to it leads."""
    before = collections.defaultdict(set)
    for i, block in enumerate(blocks):
        for j in block.next:
            before[j].add(i)
    every = set(range(len(blocks)))
    found = [{0}] + [set(every) for _ in blocks[1:]]
    changed = True
    while changed:
        changed = False
        for i in range(1, len(blocks)):
            ways = [found[j] for j in before[i]]
            new = {i} | (set.intersection(*ways) if ways else set())
            changed |= new != found[i]
            found[i] = new
    return found, before


def innermost_loops(blocks):
    """Sets of block numbers: natural loops that contain no other."""
    doms, before = dominators(blocks)
    loops = collections.defaultdict(set)
    for i, block in enumerate(blocks):
        for head in block.next:
            if head in doms[i]:
                body, left = loops[head], [i]
                body.add(head)
                while left:
                    at = left.pop()
                    if at not in body:
                        body.add(at)
                        left += before[at]
    return [body for head, body in loops.items() if not any(other in body for other in loops if other != head)]


def count(lines):
    counts = collections.Counter()
    for line in lines:
        opcode = re.sub(r"^@!?%\w+\s+", "", line)
        for name, kind in KINDS:
            counts[name] += kind.match(opcode) is not None
    return counts


def kernels(text):
    """{kernel: {"whole": counts, "loops": [counts of each innermost loop, most multiply-adds first]}}."""
    found = {}
    for name, lines in entries(text).items():
        blocks = blocks_of(lines)
        loops = [count([line for i in body for line in blocks[i].lines]) for body in innermost_loops(blocks)]
        found[name] = {"whole": count(lines), "loops": sorted(loops, key=lambda c: -c["fma"])}
    return found
