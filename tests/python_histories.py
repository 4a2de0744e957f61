"""Random histories of caches: sequences join, grow, fork, take tokens back, move between pages and leave; every step against float64.

Free memory is NaN, so nothing is read outside of a sequence's own keys. The bits of a step depend neither on its neighbours, nor on the
order of pages, nor on the number of threads. POLYHEAD_TEST_ALL chooses how many histories there are."""
import collections
import os
import unittest

import ml_dtypes
import numpy as np

import polyhead
from polyhead.reference import attention, visible

H, H_KV, D, D_V, ROWS, POSITIONS, STEPS, LONGEST_STEP = 4, 2, 16, 24, 4, 64, 8, 6
HISTORIES = {"1": 250, "third": 84}.get(os.environ.get("POLYHEAD_TEST_ALL", ""), 10)  # of each form

# page_size 0: contiguous. window_left: pages are a ring.
Form = collections.namedtuple("Form", "dtype page_size window_left")
FORMS = [Form(np.float32, 0, None), Form(np.float32, 4, None), Form(np.float32, 4, 9), Form(np.float16, 1, None),
         Form(ml_dtypes.bfloat16, 8, None), Form(ml_dtypes.bfloat16, 8, 5), Form(np.int8, 0, None), Form(np.int8, 4, 9)]
TOLERANCE = {np.float32: 2e-5, np.float16: 4e-3, ml_dtypes.bfloat16: 3e-2, np.int8: 2e-5}


def stored(tokens, dtype):
    """What a cache of this type holds of new tokens, in float64: int8 has one scale for each head of a token."""
    if dtype != np.int8:
        return tokens.astype(np.float64)
    scale = np.abs(tokens).max(-1, keepdims=True, initial=0) / np.float32(127)
    return np.rint(tokens / scale).astype(np.float64) * scale


class Sequence:
    """What a sequence holds: key [n,H_kv,d] and value [n,H_kv,d_v] in float64, its pages by column, or its row of the batch."""

    def __init__(self, row, pages=()):
        self.row, self.pages, self.written = row, list(pages), 0
        self.key, self.value = np.zeros((0, H_KV, D)), np.zeros((0, H_KV, D_V))

    @property
    def length(self):
        return len(self.key)

    def cut(self, length):
        self.key, self.value = self.key[:length], self.value[:length]


class History:
    def __init__(self, form, seed):
        self.form, self.random = form, np.random.default_rng(seed)
        self.size = form.page_size or POSITIONS
        self.columns = POSITIONS // self.size
        self.ring = -(-(form.window_left + LONGEST_STEP + self.size - 1) // self.size) if form.window_left is not None else 0
        blocks = ROWS * self.columns + 3 if form.page_size else ROWS
        self.int8 = form.dtype == np.int8
        self.new_dtype = np.float32 if self.int8 else form.dtype  # of what is appended, and of queries
        self.cache = tuple(np.empty((blocks, self.size, H_KV, d), form.dtype) for d in (D, D_V))
        self.scales = {name: np.empty((blocks, self.size, H_KV, 1), np.float32) for name in ("key_scales", "value_scales")} if self.int8 else {}
        self.poison(slice(None))
        self.pool = polyhead.PagePool(blocks) if form.page_size else None
        self.window = (-1 if form.window_left is None else form.window_left, -1)
        self.sequences = []

    def chance(self, percent):
        return self.random.integers(100) < percent

    def tokens(self, count, heads, d):
        return self.random.standard_normal((count, heads, d)).astype(np.float32).astype(self.new_dtype)

    # Pages

    def release(self, pages):
        self.pool.release(pages)
        for page in pages:
            if self.pool.users(page) == 0:
                self.poison(page)

    def poison(self, block):
        for tensor in (*self.cache, *self.scales.values()):
            tensor[block] = -128 if tensor.dtype == np.int8 else np.nan

    def copy(self, source, target):
        heads_first = {name: tensor.swapaxes(1, 2) for name, tensor in self.scales.items()}
        polyhead.copy_page(*(tensor.swapaxes(1, 2) for tensor in self.cache), source, target, **heads_first)

    def copied(self, page):
        """A page of its own with what is in this one, whose user it no longer is."""
        own = self.pool.take(1)[0]
        self.copy(page, own)
        self.release([page])
        return own

    def make_room(self, sequence, count):
        """Pages for so many more tokens, each of which only this sequence uses."""
        if not self.form.page_size or self.ring:
            return
        end = sequence.length + count
        for column in range(sequence.length // self.size, -(-end // self.size)):
            if column == len(sequence.pages):
                sequence.pages += self.pool.take(1)
            elif self.pool.users(sequence.pages[column]) > 1:
                sequence.pages[column] = self.copied(sequence.pages[column])

    def table(self, sequences, counts):
        """Entries behind the pages in use are no pages."""
        table = self.random.choice([-5, 1 << 30], (len(sequences), self.columns)).astype(np.int32)
        for i, (sequence, count) in enumerate(zip(sequences, counts)):
            for column in range(-(-(sequence.length + count) // self.size)):
                table[i, column] = sequence.pages[column % self.ring if self.ring else column]
        return table

    # Events

    def join(self):
        free = sorted(set(range(ROWS)) - {sequence.row for sequence in self.sequences})
        if free:
            self.sequences.append(Sequence(self.random.choice(free), self.pool.take(self.ring) if self.ring else ()))
            return self.sequences[-1]
        return None

    def leave(self):
        sequence = self.sequences.pop(self.random.integers(len(self.sequences)))
        if self.form.page_size:
            self.release(sequence.pages)
        else:
            self.poison(sequence.row)

    def fork(self):
        parent, child = self.sequences[self.random.integers(len(self.sequences))], None if self.ring else self.join()
        if child is None:
            return
        child.key, child.value = parent.key, parent.value
        if self.form.page_size:
            child.pages = parent.pages[:-(-parent.length // self.size)]
            self.pool.share(child.pages)
        else:
            self.copy(parent.row, child.row)

    def take_back(self):
        sequence = self.sequences[self.random.integers(len(self.sequences))]
        length = int(self.random.integers(max(sequence.length, 1)))
        kept = -(-sequence.written // self.size) - self.ring  # the first column of a ring that was not written again
        if not self.ring or max(length - self.form.window_left, 0) // self.size >= kept:
            sequence.cut(length)

    def move_page(self):
        """Another order of the pages; the results keep their bits."""
        sequence = self.sequences[self.random.integers(len(self.sequences))]
        if sequence.pages:
            i = self.random.integers(len(sequence.pages))
            sequence.pages[i] = self.copied(sequence.pages[i])

    # A step

    def append(self, sequences, counts):
        most = max(counts)
        new = [[self.tokens(count, H_KV, d) for count in counts] for d in (D, D_V)]
        rows = len(sequences) if self.form.page_size else ROWS
        padded = [np.full((rows, most, H_KV, d), np.nan, np.float32).astype(self.new_dtype) for d in (D, D_V)]
        lengths, all_counts = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
        for i, (sequence, count) in enumerate(zip(sequences, counts)):
            row = i if self.form.page_size else sequence.row
            lengths[row], all_counts[row] = sequence.length, count
            for target, parts in zip(padded, new):
                target[row, :count] = parts[i]
        options = {"page_table": self.table(sequences, counts)} if self.form.page_size else {}
        polyhead.append(*self.cache, *padded, lengths, counts=all_counts, window_left=self.form.window_left, layout="bshd", **options,
                        **self.scales)
        for i, sequence in enumerate(sequences):
            sequence.key = np.concatenate([sequence.key, stored(new[0][i], self.form.dtype)])
            sequence.value = np.concatenate([sequence.value, stored(new[1][i], self.form.dtype)])
            sequence.written = max(sequence.written, sequence.length)

    def attention(self, sequences, queries):
        """out of each sequence, in one call over packed tokens."""
        if self.form.page_size:
            rows, options = sequences, {"page_table": self.table(sequences, [0] * len(sequences))}
        else:
            at = {sequence.row: sequence for sequence in sequences}
            rows, options = [at.get(row) for row in range(ROWS)], {}
        of = {sequence.row: query for sequence, query in zip(sequences, queries)}
        parts = [of[sequence.row] if sequence else self.tokens(0, H, D) for sequence in rows]
        starts = np.cumsum([0] + [len(part) for part in parts]).astype(np.int32)
        lengths = np.array([sequence.length if sequence else 0 for sequence in rows], np.int32)
        out = polyhead.sdpa(np.concatenate(parts), *self.cache, layout="bshd", cu_seqlens_q=starts, kv_lengths=lengths, is_causal=True,
                            causal_alignment="bottom_right", window=self.window, **options, **self.scales)
        found = {sequence.row: out[a:b] for sequence, a, b in zip(rows, starts, starts[1:]) if sequence}
        return [found[sequence.row] for sequence in sequences]

    def expected(self, sequence, query):
        count, length = len(query), sequence.length
        seen = visible(count, length, causal=True, window=self.window, from_end=True)
        heads_first = [x.astype(np.float64).swapaxes(0, 1)[None] for x in (query, sequence.key, sequence.value)]
        return attention(*heads_first, seen)[0][0].swapaxes(0, 1)

    def step(self):
        for event, percent in ((self.leave, 15), (self.take_back, 25), (self.fork, 25)):
            if self.sequences and self.chance(percent):
                event()
        if not self.sequences or self.chance(40):
            self.join()
        active = list(self.sequences)
        self.random.shuffle(active)
        # EXCLUDED: more tokens than the capacity: append refuses them (c_cache.h); tests/runtime_validation_cache.cpp
        counts = [int(min(self.random.choice([1, 1, 1, 2, LONGEST_STEP]), POSITIONS - sequence.length)) for sequence in active]
        if max(counts) == 0:
            return
        for sequence, count in zip(active, counts):
            self.make_room(sequence, count)
        self.append(active, counts)
        queries = [self.tokens(count, H, D) for count in counts]
        polyhead.set_num_threads(int(self.random.integers(1, 4)))
        found = self.attention(active, queries)
        tolerance = TOLERANCE[self.form.dtype]
        for sequence, query, out in zip(active, queries, found):
            if len(query):
                expected = self.expected(sequence, query)
                rounded = np.abs(self.expected(sequence, stored(query, np.int8)) - expected).max() if self.int8 else 0  # a query of int8
                np.testing.assert_allclose(out.astype(np.float64), expected, atol=tolerance + 2 * rounded, rtol=tolerance)
        if self.form.page_size:
            self.move_page()
        polyhead.set_num_threads(int(self.random.integers(1, 4)))
        some = [i for i in range(len(active)) if self.chance(60)] or [0]
        again = self.attention([active[i] for i in some], [queries[i] for i in some])
        for i, out in zip(some, again):
            np.testing.assert_array_equal(out.view(np.uint8), found[i].view(np.uint8))


class Histories(unittest.TestCase):
    def test_every_step(self):
        try:
            for number, form in enumerate(FORMS):
                for seed in range(HISTORIES):
                    with self.subTest(dtype=form.dtype.__name__, page_size=form.page_size, window_left=form.window_left, seed=seed):
                        history = History(form, (number, seed))
                        for _ in range(STEPS):
                            history.step()
        finally:
            polyhead.set_num_threads(0)

    def test_a_ring_that_is_too_short(self):
        """Six keys are in use and two new ones come: two pages of 4 do not hold them, three do."""
        new = np.ones((1, 2, 1, 8), np.float32)
        for pages, fits in ((2, False), (3, True)):
            cache = np.zeros((pages, 4, 1, 8), np.float32), np.zeros((pages, 4, 1, 8), np.float32)
            table = np.arange(16, dtype=np.int32)[None] % pages
            if fits:
                polyhead.append(*cache, new, new, [11], page_table=table, window_left=6, layout="bshd")
                self.assertEqual([int(x) for x in np.flatnonzero(cache[0][:, :, 0, 0])], [0, 11])
            else:
                with self.assertRaisesRegex(polyhead.Error, "page_table: page 1 at index 0, [13] is written, and used a second time"):
                    polyhead.append(*cache, new, new, [11], page_table=table, window_left=6, layout="bshd")
                self.assertFalse(cache[0].any())
        with self.assertRaisesRegex(polyhead.Error, "window_left: value -1, expected at least 0"):
            polyhead.append(*cache, new, new, [11], page_table=table, window_left=-1, layout="bshd")


if __name__ == "__main__":
    unittest.main()
