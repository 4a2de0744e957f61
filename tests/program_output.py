"""What programs of a test say."""


def own_words(stderr):
    """Standard error without what AddressSanitizer says of Halide's stacks, in builds that have it."""
    return "".join(line for line in stderr.splitlines(True) if "makecontext/swapcontext" not in line)
