"""A model of the speed of attention kernels of tensor cores, from their machine code. Nothing in it is fitted.

A kernel is the steps that a warp makes with a chunk of keys. The model lets the warps of one scheduler make them: what they need of a resource
is shared by those that work at the same time, products of several groups of warps take turns, and barriers are waited for.
"""
import collections
import math
import re
from dataclasses import dataclass

# Instructions by what they need, from the start of their names; others only take their turn at the scheduler.
HALF = ("FMNMX", "IMNMX", "VIMNMX", "VIADDMNMX", "ISETP", "FSETP", "FSEL", "SEL", "LOP3", "IADD3", "VIADD", "SHF", "LEA", "PRMT", "F2FP", "F2I", "I2F",
        "IMAD", "FRND", "VOTE", "R2UR", "PLOP3", "MOV", "IABS")
FULL = ("FFMA", "FADD", "FMUL")
LANES = 32
BYTES_OF_LANES = {"LDSM": 512, "LDGSTS": 512}  # of shared memory, by a warp
PRODUCT, GROUP_PRODUCT, GROUP_WAIT, BARRIER, VOTE = "HMMA", "HGMMA", "WARPGROUP.DEPBAR", "BAR", "VOTE"
ARRIVAL, PHASE_WAIT = "SYNCS.ARRIVE", "SYNCS.PHASECHK"  # of barriers in shared memory
FLOP_OF_PRODUCT = 2 * 16 * 8 * 16
WARPS_OF_GROUP = 4
TINY = 1e-9


@dataclass
class Kernel:
    """What the model needs to know of a kernel. Steps of a warp, in the order of a chunk:
    ("work", {instruction: count}), ("product", cycles of the whole multiprocessor), ("wait", products that may be left), ("barrier",),
    ("arrival",) at a barrier in memory, ("phase", steps back to the arrival that it waits for)."""
    name: str
    head_dim: int
    rows: int        # queries of a block
    keys: int        # of a chunk
    warps: int       # of a block that compute
    blocks: int      # of a multiprocessor at the same time
    steps: list
    causal: bool = False
    longest_first: bool = True
    shared_copies: int = 1  # blocks that one copy of keys and values serves


@dataclass
class Shape:
    """A call: batch x heads sequences of as many queries as keys."""
    batch: int
    heads: int
    length: int


def common_shape(head_dim, length=4096):
    """The shape of the published figures: 16,384 tokens, heads x head_dim = 2,048."""
    return Shape(16384 // length, 2048 // head_dim, length)


def kind(opcode):
    return opcode.split(".")[0]


def needs(counts, machine):
    """{resource: cycles of one scheduler} that a warp needs for these instructions."""
    of_scheduler = {what: machine[what] / machine["schedulers"] for what in ("mufu", "half", "fp32", "shared", "tensor_flop")}
    total = collections.Counter()
    for name, count in counts.items():
        total["issue"] += count
        if name == "MUFU":
            total["mufu"] += count * LANES / of_scheduler["mufu"]
        elif name in HALF:
            total["half"] += count * LANES / of_scheduler["half"]
        elif name in FULL:
            total["fp32"] += count * LANES / of_scheduler["fp32"]
        elif name in BYTES_OF_LANES:
            total["shared"] += count * BYTES_OF_LANES[name] / of_scheduler["shared"]
        elif name == PRODUCT:
            total["tensor"] += count * FLOP_OF_PRODUCT / of_scheduler["tensor_flop"] / machine["mma_share"]
    return dict(total)


def latency(counts, machine):
    """Cycles in which nothing of this warp can go on: two exchanges of the lanes of a row follow each other."""
    return 2 * (machine["shared_latency"] + machine["latency"]) if counts.get("SHFL") else 0


def group_cycles(opcode, machine):
    """Cycles of a product HGMMA.64xNx16 on a whole multiprocessor."""
    m, n, k = (int(x) for x in re.search(r"(\d+)x(\d+)x(\d+)", opcode).groups())
    return 2.0 * m * n * k / machine["tensor_flop"] / machine["group_share"]


def steps_of(loop, machine):
    """The steps of a loop of machine code, [(opcode, operands)]. What follows a vote of the warp waits for all that comes before it."""
    by_groups = any(opcode.startswith(GROUP_PRODUCT) for opcode, _ in loop)
    return steps_of_groups(loop, machine) if by_groups else steps_of_warps(loop)


def steps_of_warps(loop):
    """Products of a warp and what they read from shared memory, then all else: each waits for the other."""
    products, rest = collections.Counter(), [collections.Counter()]
    for opcode, _ in loop:
        if kind(opcode) in (PRODUCT, *BYTES_OF_LANES):
            products[kind(opcode)] += 1
        elif not opcode.startswith(BARRIER):
            rest[-1][kind(opcode)] += 1
            if kind(opcode) == VOTE:
                rest.append(collections.Counter())
    barriers = [("barrier",)] * sum(opcode.startswith(BARRIER) for opcode, _ in loop)
    return barriers + [("work", dict(counts)) for counts in [products] + rest if counts]


def steps_of_groups(loop, machine):
    """In the order of the code. A group of products ends with a mark (gsb0). Who waits for a phase of a barrier has arrived there before."""
    steps, counts, cycles, arrivals, waits = [], collections.Counter(), 0.0, {}, []

    def end_of_work(*then):
        if counts:
            steps.append(("work", dict(counts)))
            counts.clear()
        steps.extend(then)

    for opcode, operands in loop:
        if opcode.startswith(BARRIER):
            end_of_work(("barrier",))
        elif opcode.startswith((ARRIVAL, PHASE_WAIT)):
            end_of_work(("arrival",))
            address = re.search(r"\[(.*?)\]", operands).group(1)
            if opcode.startswith(ARRIVAL):
                arrivals[address] = len(steps) - 1
            else:
                waits.append((len(steps) - 1, address))
        elif opcode.startswith(GROUP_WAIT):
            end_of_work(("wait", int(re.search(r"gsb0, (0x\d+)", operands).group(1), 16)))
        else:
            counts[kind(opcode)] += 1
            if opcode.startswith(GROUP_PRODUCT):
                cycles += group_cycles(opcode, machine)
                if "gsb0" in operands:
                    end_of_work(("product", cycles))
                    cycles = 0.0
            elif kind(opcode) == VOTE:
                end_of_work()
    end_of_work()
    for place, address in waits:
        if address not in arrivals:
            raise ValueError("the loop waits at [%s], expected that it arrives there, too" % address)
        back = (place - arrivals[address]) % len(steps)  # in the chunk before where it comes later in the code
        steps[place] = ("phase", back)
    return steps


def warps_of_scheduler(kernel):
    """The warps of a block are dealt out to the four schedulers."""
    return max(1, kernel.blocks * kernel.warps / WARPS_OF_GROUP)


class Warp:
    """A warp of the scheduler in the run below: where it is, and what it still has to do there."""

    def __init__(self, block, kernel, machine, begin):
        self.block, self.kernel, self.machine = block, kernel, machine
        self.begin = begin  # when its first chunk begins
        self.place = -1     # of all steps of all chunks
        self.products = []  # cycles that are left of those under way
        self.begin_next(0.0)

    def step(self):
        return self.kernel.steps[self.place % len(self.kernel.steps)]

    def begin_next(self, now):
        self.place += 1
        self.left, self.needs, self.pause = 0.0, {}, max(now, self.begin)
        if self.step()[0] == "work":
            demands = needs(self.step()[1], self.machine)
            self.left = max(demands.values(), default=0.0)  # alone it would take as long as the busiest resource
            self.needs = {what: cycles / self.left for what, cycles in demands.items() if self.left}
            self.pause += latency(self.step()[1], self.machine)


class Run:
    """Warps of one scheduler from the first to the last of so many chunks; the other schedulers of a multiprocessor do the same.
    Each begins so many cycles after the one before."""

    def __init__(self, kernel, machine, chunks, apart=0.0):
        self.last = chunks * len(kernel.steps)
        each, count = max(1, kernel.warps // WARPS_OF_GROUP), round(warps_of_scheduler(kernel))
        self.warps = [Warp(number // each, kernel, machine, number * apart) for number in range(count)]
        self.now = 0.0

    def is_over(self, warp):
        """Whether the step of this warp is over now; begins a product."""
        step = warp.step()
        if self.now < warp.pause - TINY:
            return False
        if step[0] == "work":
            return warp.left <= TINY
        if step[0] == "product":
            warp.products.append(step[1])
            return True
        if step[0] == "wait":
            return len(warp.products) <= step[1]
        if step[0] == "arrival":
            return True
        arrival = warp.place - (step[1] if step[0] == "phase" else 1)  # a barrier of the block: who stands there has passed the step before
        return all(other.place > arrival for other in self.warps if other.block == warp.block)

    def begin_what_can(self):
        begun = True
        while begun:
            begun = False
            for warp in self.warps:
                while warp.place < self.last and self.is_over(warp):
                    warp.begin_next(self.now)
                    begun = True

    def cycles(self):
        while True:
            self.begin_what_can()
            active = [warp for warp in self.warps if warp.place < self.last]
            working = [warp for warp in active if warp.left > TINY and self.now >= warp.begin - TINY]
            # A scheduler starts an instruction of any warp that is ready, so each of these has the same share of the tensor cores.
            multiplying = [warp for warp in self.warps if warp.products]
            asked = collections.Counter()
            for warp in working:
                asked.update(warp.needs)
            speeds = [1 / max(1.0, *(asked[what] for what in warp.needs)) for warp in working]
            times = [self.now + warp.left / speed for warp, speed in zip(working, speeds)] + [warp.pause for warp in active]
            times = [time for time in times + [self.now + warp.products[0] * len(multiplying) for warp in multiplying] if time > self.now + TINY]
            if not times:
                return self.now
            later = min(times)
            for warp, speed in zip(working, speeds):
                warp.left -= (later - self.now) * speed
            for warp in multiplying:
                warp.products[0] -= (later - self.now) / len(multiplying)
                if warp.products[0] <= TINY:
                    warp.products.pop(0)
            self.now = later


def chunks_of_tiles(kernel, length):
    """[chunks] of each tile of queries."""
    tiles = math.ceil(length / kernel.rows)
    seen = [min(length, (tile + 1) * kernel.rows) if kernel.causal else length for tile in range(tiles)]
    return [math.ceil(keys / kernel.keys) for keys in seen]


def copied_cycles(kernel, machine):
    """Cycles in which the second-level cache can give a multiprocessor the keys and values of a chunk of its blocks, of 16 bits."""
    bytes_ = 2 * 2 * kernel.keys * kernel.head_dim * kernel.blocks / kernel.shared_copies
    return bytes_ / (machine["l2_of_device"] / machine["multiprocessors"])


def busiest(kernel, machine):
    """{resource: cycles of a chunk of all blocks} if nothing else had to be waited for."""
    warps = warps_of_scheduler(kernel)
    total = collections.Counter({"L2": copied_cycles(kernel, machine)})
    for step in kernel.steps:
        if step[0] == "work":
            for what, cycles in needs(step[1], machine).items():
                total[what] += cycles * warps
        elif step[0] == "product":
            total["tensor"] += step[1] * warps
    return dict(total)


def predict(kernel, machine, shape, apart=False):
    """{"tflops", "share" of the peak of the tensor cores, "cycles" of a chunk, "binds"} of a call. apart: groups of warps, whose products are
    under way while they go on, do not begin at the same time, but a latency of the memory after each other."""
    tiles = chunks_of_tiles(kernel, shape.length)
    mean = sum(tiles) / len(tiles)
    few = max(1, math.floor(mean))
    # Between two whole numbers of chunks on a straight line.
    after_another = machine["memory_latency"] if apart and any(step[0] == "product" for step in kernel.steps) else 0
    one, two = (Run(kernel, machine, chunks, after_another).cycles() for chunks in (few, few + 1))
    cycles = one + (two - one) * (mean - few)
    floor = copied_cycles(kernel, machine) * mean
    ends = 2 * machine["memory_latency"]  # the first copies, and the stores
    blocks = len(tiles) * shape.batch * shape.heads
    rounds = blocks / (machine["multiprocessors"] * kernel.blocks)
    if not (kernel.causal and kernel.longest_first):
        rounds = math.ceil(rounds)  # blocks of one length end together
    seconds = rounds * (max(cycles, floor) + ends) / machine["gigahertz"] / 1e9
    flop = 4.0 * shape.batch * shape.heads * shape.length ** 2 * kernel.head_dim * (0.5 if kernel.causal else 1)
    tflops = flop / seconds / 1e12
    needed = busiest(kernel, machine)
    most = max(needed, key=needed.get)
    per_chunk = max(cycles, floor) / mean
    peak = machine["tensor_flop"] * machine["multiprocessors"] * machine["gigahertz"] / 1e3
    # A resource binds where it is in use nearly all the time; else what binds is that its users wait for each other.
    binds = most if needed[most] > 0.9 * per_chunk else "waits (%s %.0f %%)" % (most, 100 * needed[most] / per_chunk)
    return {"tflops": tflops, "share": tflops / peak, "cycles": per_chunk, "binds": binds, "needs": needed}
