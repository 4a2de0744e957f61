"""Gradients of attention and dropout from Python, beside NumPy in float64: layouts, further gradients, packed tokens, what is dropped. In every
run a third of the cases."""
import unittest

import numpy as np

import polyhead
from python_inputs import random
from tier import sampled_cases

B, H, H_KV, T, T_KV, D = 2, 4, 2, 21, 150, 16
SCALE = D ** -0.5


def philox(counter, key, rounds):
    """Philox4x32 of Salmon, Moraes, Dror and Shaw."""
    low, shift = np.uint64(0xffffffff), np.uint64(32)
    c, k = [np.asarray(x, np.uint64) for x in counter], [np.uint64(x) for x in key]
    for _ in range(rounds):
        first, second = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(second >> shift) ^ c[1] ^ k[0], second & low, (first >> shift) ^ c[3] ^ k[1], first & low]
        k = [(k[0] + np.uint64(0x9E3779B9)) & low, (k[1] + np.uint64(0xBB67AE85)) & low]
    return c


def kept(shape, p, seed, offset):
    """What weights [B,H,T_q,T_kv] are multiplied by: docs/internals/algorithm.md, section 9."""
    b, h, q, kv = np.indices(shape)
    words = np.stack(philox([kv // 128 * 16 + kv % 16, q + ((b >> 16) << 24), (b << 16) + h, np.full(shape, offset)],
                            [seed & 0xffffffff, seed >> 32], 7), -1)
    place = kv // 16 % 8
    word = np.take_along_axis(words, (place // 2)[..., None], -1)[..., 0]
    decision = (word >> (np.uint64(16) * (place % 2).astype(np.uint64))) & np.uint64(0xffff)
    threshold = max(int((1 - np.float32(p)) * 65536 + 0.5), 1)
    return np.where(decision < threshold, 65536 / threshold, 0.0)


class Case:
    """A call of bhsd arrays and its gradients in float64."""

    def __init__(self, bias=None, causal=False, keep=None, batch=B, keys=T_KV, query=None):
        self.query, self.key, self.value, self.grad_out = (random(i, batch, heads, tokens, D) for i, (heads, tokens) in
                                                           enumerate(((H, T), (H_KV, keys), (H_KV, keys), (H, T))))
        self.query = self.query if query is None else query
        q, k, v, g = (x.astype("float64") for x in (self.query, self.key, self.value, self.grad_out))
        k, v = (np.repeat(x, H // H_KV, 1) for x in (k, v))
        logits = q @ k.swapaxes(-1, -2) * SCALE + (0 if bias is None else bias)
        if causal:
            logits = np.where(np.arange(keys) <= np.arange(T)[:, None], logits, -np.inf)
        largest = logits.max(-1, keepdims=True)
        self.lse = (largest + np.log(np.exp(logits - largest).sum(-1, keepdims=True)))[..., 0].astype("float32")
        weights = np.exp(logits - largest) / np.exp(logits - largest).sum(-1, keepdims=True)
        keep = 1.0 if keep is None else keep
        self.out = ((weights * keep) @ v).astype("float32")
        by_weight = g @ v.swapaxes(-1, -2) * keep
        self.by_logit = weights * (by_weight - (by_weight * weights).sum(-1, keepdims=True))
        self.expected = [self.by_logit @ k * SCALE, self.of_group(self.by_logit.swapaxes(-1, -2) @ q * SCALE),
                         self.of_group((weights * keep).swapaxes(-1, -2) @ g)]

    @staticmethod
    def of_group(x):
        return x.reshape(x.shape[0], H_KV, H // H_KV, *x.shape[2:]).sum(2)

    def arrays(self):
        return self.grad_out, self.query, self.key, self.value, self.out, self.lse


class Gradients(unittest.TestCase):
    def check(self, found, expected):
        self.assertEqual([x.shape for x in found], [x.shape for x in expected])
        for one, other in zip(found, expected):
            np.testing.assert_allclose(one.astype("float64"), other, rtol=1e-5, atol=1e-5)

    def test_what_sdpa_returned(self):
        case = Case(causal=True)
        out, lse = polyhead.sdpa(case.query, case.key, case.value, is_causal=True, return_lse=True)
        self.check(polyhead.sdpa_backward(case.grad_out, case.query, case.key, case.value, out, lse, is_causal=True), case.expected)

    def test_layouts(self):
        case = Case()
        turned = [x.swapaxes(1, 2) for x in case.arrays()[:5]]
        self.check([x.swapaxes(1, 2) for x in polyhead.sdpa_backward(*turned, case.lse, layout="bshd")], case.expected)
        one = [x[0] for x in case.arrays()]
        self.check(polyhead.sdpa_backward(*one), [x[0] for x in case.expected])

    def test_a_bias_for_all_batch_rows(self):
        bias = random(9, H, T, T_KV)
        case = Case(bias)
        found = polyhead.sdpa_backward(*case.arrays(), bias=bias, return_grads=("bias",))
        self.check(found, [*case.expected, case.by_logit.sum(0)])

    def test_weight_and_bias_of_a_norm(self):
        given, weight, bias = random(9, B, H, T, D), random(10, D), random(11, D)
        centred = given - given.mean(-1, keepdims=True, dtype="float64")
        normalised = centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + 1e-6)
        case = Case(query=normalised * weight + bias)
        of_weight, of_bias = (case.expected[0] * normalised).sum((0, 1, 2)), case.expected[0].sum((0, 1, 2))
        words = {"query_norm": "layer", "query_norm_weight": weight, "query_norm_bias": bias}
        for names, expected in ((("query_norm_bias", "query_norm_weight"), [of_weight, of_bias]), (("query_norm_bias",), [of_bias])):
            found = polyhead.sdpa_backward(case.grad_out, given, *case.arrays()[2:], return_grads=names, **words)
            self.check(found[1:], [*case.expected[1:], *expected])

    def test_packed_tokens_have_the_bits_of_their_sequences(self):
        case = Case()
        packed = [np.concatenate(list(x), 1) for x in case.arrays()]  # [H,total,...]
        found = polyhead.sdpa_backward(*packed, cu_seqlens_q=[0, T, 2 * T], cu_seqlens_kv=[0, T_KV, 2 * T_KV])
        alone = polyhead.sdpa_backward(*case.arrays())
        for one, other in zip(found, alone):
            np.testing.assert_array_equal(one, np.concatenate(list(other), 1))

    def test_tensors_of_an_expression(self):
        """By name, with dropout and without, of a text and of a function; the score is the table's element."""
        table, index = random(9, H, 7), np.arange(T)[:, None] * np.arange(T_KV) % 9 - 1
        clamped = np.clip(index, 0, 6)
        of_pair = table[:, clamped]
        text = "tensor table: f32[h, 7]; tensor index: i32[q, kv]; score = score + table[h, index[q, kv]]"
        words = {"dropout_p": 0.25, "dropout_seed": 77, "dropout_offset": 3}
        for dropout, keep in (({}, 1.0), (words, kept((B, H, T, T_KV), 0.25, 77, 3))):
            case, expected = Case(of_pair, keep=keep), np.zeros(table.shape)
            for h in range(H):
                np.add.at(expected[h], clamped, case.by_logit[:, h].sum(0))
            for expression in (text,) if dropout else (text, lambda score, h, q, kv, table, index: score + table[h, index[q, kv]]):
                found = polyhead.sdpa_backward(*case.arrays(), expression=expression, return_grads=("table",),
                                               tensors={"table": table, "index": index.astype("int32")}, **dropout)
                self.check(found, [*case.expected, expected])

    def test_packed_tokens_and_tensors_of_an_expression(self):
        """A tensor of tokens has a part for each sequence, and one of sequences a row, also where a sequence has no tokens."""
        case = Case()
        of_keys, of_rows = random(5, B, T_KV), random(6, B + 1, 3)
        text = "tensor k: f32[b, kv]; tensor r: f32[b, 3]; score = score + k[b, kv] * r[b, q % 3]"
        alone = polyhead.sdpa_backward(*case.arrays(), expression=text, tensors={"k": of_keys, "r": of_rows[:B]}, return_grads=("k", "r"))
        packed = [np.concatenate(list(x), 1) for x in case.arrays()]
        words = {"expression": text, "cu_seqlens_q": [0, T, 2 * T, 2 * T], "cu_seqlens_kv": [0, T_KV, 2 * T_KV, 2 * T_KV]}
        found = polyhead.sdpa_backward(*packed, tensors={"k": of_keys.reshape(1, -1), "r": of_rows}, return_grads=("k", "r"), **words)
        np.testing.assert_array_equal(found[3], alone[3].reshape(1, -1))
        np.testing.assert_array_equal(found[4], np.concatenate([alone[4], np.zeros((1, 3))]))
        shared = text.replace("r: f32[b, 3]", "r: f32[3]").replace("r[b, ", "r[")
        with self.assertRaisesRegex(polyhead.Error, "^cu_seqlens_q: given, expected none, because grad_r is a sum over all sequences$"):
            polyhead.sdpa_backward(*packed, tensors={"k": of_keys.reshape(1, -1), "r": of_rows[0]}, return_grads=("r",),
                                   **{**words, "expression": shared})

    def test_gradients_that_cannot_be_made(self):
        case = Case()
        for sentence, text in (
                ("an index follows the score, expected indices of b, h, q, kv, lengths and tensors",
                 "tensor t: f32[9]; score = score + t[floor(score)]"),
                ("dimension 1 has no fixed extent, expected a number, because each task adds up the gradients of all elements that its "
                 "queries and keys may read", "tensor t: f32[2, *]; score = score + t[0, q * kv]"),
                ("queries and keys of a head may read more than 65536 elements, expected at most that, because each task has sums of its "
                 "own; score_bias has a gradient of any size", "tensor t: f32[2, 65537]; score = score + t[0, q * kv]")):
            with self.assertRaisesRegex(polyhead.Error, "expression: grad t: " + sentence):
                polyhead.sdpa_backward(*case.arrays(), expression=text, tensors={"t": random(3, 2, 9)}, return_grads=("t",))

    def test_refusals(self):
        case = Case()
        for sentence, words in (("return_grads: found 'key', expected bias, alibi_slopes, sinks, gate, query_norm_weight, "
                                 "query_norm_bias, key_norm_weight or key_norm_bias", {"return_grads": ("key",)}),
                                ("return_grads: found sinks without sinks, expected both", {"return_grads": ("sinks",)}),
                                ("dropout_p: value 1, expected a number from 0 to 0.99999", {"dropout_p": 1.0})):
            with self.assertRaises(polyhead.Error) as caught:
                polyhead.sdpa_backward(*case.arrays(), **words)
            self.assertEqual(str(caught.exception), sentence)
        with self.assertRaisesRegex(polyhead.Error, "^grad_out: extent 20 of dimension 2, expected 21 as in query$"):
            polyhead.sdpa_backward(case.grad_out[:, :, 1:], *case.arrays()[1:])


class Dropout(unittest.TestCase):
    def test_known_answers(self):
        for rounds, words in ((7, "5f6fb709 0d893f64 4f121f81 4f730a48"), (10, "6627e8d5 e169c58d bc57ac4c 9b00dbd8")):
            self.assertEqual(" ".join("%08x" % int(x) for x in philox([0] * 4, [0, 0], rounds)), words)

    def test_forward_and_backward_drop_the_same(self):
        words = {"dropout_p": 0.25, "dropout_seed": 12345678901234567, "dropout_offset": 7}
        case = Case(keep=kept((B, H, T, T_KV), 0.25, words["dropout_seed"], 7))
        out, lse = polyhead.sdpa(case.query, case.key, case.value, return_lse=True, **words)
        np.testing.assert_allclose(out, case.out, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(lse, case.lse, rtol=1e-5, atol=1e-5)
        found = polyhead.sdpa_backward(case.grad_out, case.query, case.key, case.value, out, lse, **words)
        for one, other in zip(found, case.expected):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)

    def test_every_machine_drops_the_same(self):
        """Values are unit vectors, so that out is the weights after dropout."""
        keys, seed = 200, (1 << 63) + 5
        query, key = random(1, 1, 2, 33, D), random(2, 1, 2, keys, D)
        value = np.broadcast_to(np.eye(keys, dtype="float32"), (1, 2, keys, keys))
        expected = kept((1, 2, 33, keys), 0.1, seed, 3) > 0
        for target in ("host", "x86-64-v3,x86-64-v2", "x86-64-v2"):
            kernel = polyhead.compile("sdpa", num_heads=2, head_dim=D, head_dim_v=keys, dropout=True, target=target)
            out = kernel(query=query, key=key, value=value, dropout_p=0.1, dropout_seed=seed, dropout_offset=3)
            np.testing.assert_array_equal(out > 0, expected)

    def test_uniform_of_expressions(self):
        """The same numbers on every machine, with the shares that they say; a mask drops a pair without a new scale."""
        keys, seed = 200, -5
        query, key = random(1, 1, 2, 33, D), random(2, 1, 2, keys, D)
        value = np.broadcast_to(np.eye(keys, dtype="float32"), (1, 2, keys, keys))
        b, h, q, kv = np.indices((1, 2, 33, keys))
        number = (philox([kv, q, h, b], [seed & 0xffffffff, 0x66696e75], 7)[0] >> np.uint64(8)) / 2.0 ** 24
        for target in ("host", "x86-64-v3,x86-64-v2", "x86-64-v2"):
            kernel = polyhead.compile("sdpa", num_heads=2, head_dim=D, head_dim_v=keys, target=target,
                                      expression="tensor seed: i32; mask = uniform(seed, b, h, q, kv) < 0.9 or kv == 0")
            out = kernel(query=query, key=key, value=value, tensors={"seed": np.int32(seed)})
            np.testing.assert_array_equal(out > 0, (number < np.float32(0.9)) | (kv == 0))  # numbers of a text are floats
        self.assertLess(abs(int((number < 0.9).sum()) - number.size * 0.9), 4 * (number.size * 0.09) ** 0.5)
        self.assertLess(abs(number.mean() - 0.5), 4 * (number.size * 12) ** -0.5)

    def test_shares(self):
        for p in (0.1, 0.5, 0.9):
            shape = (2, 3, 64, 512)
            count, all_of = int((kept(shape, p, 99, 0) > 0).sum()), int(np.prod(shape))
            self.assertLess(abs(count - all_of * (1 - p)), 4 * (all_of * p * (1 - p)) ** 0.5)


load_tests = sampled_cases(__file__, 3)

if __name__ == "__main__":
    unittest.main()
