"""polyhead.MultiheadAttention: names, shapes and masks of PyTorch, against float64."""
import unittest

import numpy as np

import polyhead
from python_inputs import random, state_dict
from polyhead.reference import layer
from tier import sampled_cases

B, T, S, EMBED, HEADS = 2, 7, 9, 48, 4


def made(embed_dim=EMBED, heads=HEADS, seed=1, **options):
    state = state_dict(seed, embed_dim, heads, **{k: v for k, v in options.items() if k != "num_kv_heads"}, kv_heads=options.get("num_kv_heads"))
    module = polyhead.MultiheadAttention(embed_dim, heads, **options)
    module.load_state_dict(state)
    return module, state


class Layer(unittest.TestCase):
    def close(self, found, expected):
        self.assertEqual(found.shape, expected.shape)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)

    def test_self_attention_and_its_weights(self):
        module, state = made()
        x = random(2, B, T, EMBED)
        expected = layer(state, HEADS, x)
        out, weights = module(x)
        self.close(out, expected[0])
        self.assertIsNone(weights)
        self.close(module(x, x, x, need_weights=True)[1], expected[1].mean(1))
        out, weights = module(x[0], need_weights=True, average_attn_weights=False)
        self.close(out, expected[0][0])
        self.close(weights, expected[1][0])

    def test_cross_attention_with_other_widths(self):
        query, key, value = random(4, B, T, EMBED), random(5, B, S, 20), random(6, B, S, 36)
        for bias in (True, False):
            module, state = made(kdim=20, vdim=36, bias=bias, seed=3)
            self.close(module(query, key, value)[0], layer(state, HEADS, query, key, value)[0])
        with self.assertRaises(polyhead.Error):
            module(query)

    def test_shared_key_heads(self):
        module, state = made(num_kv_heads=2, seed=7)
        x = random(8, B, T, EMBED)
        self.close(module(x, is_causal=True)[0], layer(state, HEADS, x, kv_heads=2, seen=np.tril(np.ones((T, T), bool)))[0])

    def test_masks_mean_what_they_mean_in_pytorch(self):
        module, state = made()
        x, y = random(9, B, T, EMBED), random(10, B, S, EMBED)
        rng = np.random.default_rng(0)
        padding = np.arange(S) >= np.array([[6], [9]])
        masked = rng.random((T, S)) < 0.3
        per_head = rng.random((B * HEADS, T, S)) < 0.3
        masked[:, 0] = per_head[..., 0] = False
        added = rng.standard_normal((T, S)).astype(np.float32)
        heads = per_head.reshape(B, HEADS, T, S)
        for options, seen, add in (
                (dict(key_padding_mask=padding), ~padding[:, None, None], 0),
                (dict(attn_mask=masked), ~masked, 0),
                (dict(attn_mask=masked, key_padding_mask=padding), ~masked & ~padding[:, None, None], 0),
                (dict(attn_mask=per_head, key_padding_mask=padding), ~heads & ~padding[:, None, None], 0),
                (dict(attn_mask=added, key_padding_mask=padding), ~padding[:, None, None], added),
                (dict(attn_mask=added, key_padding_mask=np.where(padding, -np.inf, 0).astype(np.float32)), ~padding[:, None, None], added)):
            out, weights = module(x, y, y, need_weights=True, average_attn_weights=False, **options)
            expected = layer(state, HEADS, x, y, y, seen=seen, add=add)
            self.close(out, expected[0])
            self.close(weights, expected[1])

    def test_causal_cross_attention_begins_at_the_first_key(self):
        module, state = made()
        x, y = random(17, B, T, EMBED), random(18, B, T + 4, EMBED)
        out = module(x, y, y, is_causal=True)[0]
        self.close(out, layer(state, HEADS, x, y, y, seen=np.tril(np.ones((T, T + 4), bool)))[0])

    def test_masks_that_are_broadcast(self):
        """A mask of stride 0, along keys, queries, heads or all of them, is the mask that it shows."""
        module, state = made()
        x = random(19, B, T, EMBED)
        column, row, one = np.arange(T)[:, None] % 3 == 1, np.arange(T)[None] % 3 == 1, np.zeros((1, 1), bool)
        head = (np.arange(B * HEADS) % HEADS == 1)[:, None, None]
        for mask in (np.broadcast_to(part, (T, T)) for part in (column, row, one)):
            for given in (mask, np.broadcast_to(np.where(mask[:1, :1] if mask.strides == (0, 0) else mask, -2.5, 0.5).astype(np.float32), (T, T))):
                add = given if given.dtype == np.float32 else 0
                seen = ~mask if given.dtype == bool else np.ones((T, T), bool)
                self.close(module(x, attn_mask=given)[0], layer(state, HEADS, x, seen=seen, add=add)[0])
        per_head = np.broadcast_to(head, (B * HEADS, T, T))
        seen = ~per_head.reshape(B, HEADS, T, T)
        self.close(module(x, attn_mask=per_head)[0], layer(state, HEADS, x, seen=seen)[0])
        for padding in (np.broadcast_to(one, (B, T)), np.broadcast_to(row, (B, T))):
            self.close(module(x, attn_mask=per_head, key_padding_mask=padding)[0], layer(state, HEADS, x, seen=seen & ~padding[:, None, None])[0])
        with self.assertRaisesRegex(polyhead.Error, "attn_mask: found"):
            module(x, attn_mask=np.broadcast_to(one, (T, T + 1)))

    def test_a_query_that_sees_nothing_gets_the_bias(self):
        module, state = made()
        x = random(11, 1, T, EMBED)
        out, weights = module(x, attn_mask=np.ones((T, T), bool), need_weights=True)
        self.close(out, np.broadcast_to(state["out_proj.bias"], x.shape))
        self.assertEqual(abs(weights).max(), 0)

    def test_other_storage_types(self):
        module, state = made()
        x = random(12, B, T, EMBED)
        out, _ = module(x.astype(np.float64))
        self.assertEqual(out.dtype, np.float64)
        self.close(out, layer(state, HEADS, x)[0])

    def test_refusals(self):
        def refused(sentence, call):
            with self.assertRaises(polyhead.Error) as caught:
                call()
            self.assertIn(sentence, str(caught.exception))

        module, state = made()
        x = random(13, B, T, EMBED)
        refused("batch_first: found False", lambda: polyhead.MultiheadAttention(8, 2, batch_first=False))
        refused("embed_dim 770 is not divisible by num_heads 12", lambda: polyhead.MultiheadAttention(770, 12))
        refused("expected load_state_dict()", lambda: polyhead.MultiheadAttention(8, 2)(x))
        refused("out_proj.weight: missing", lambda: module.load_state_dict({"in_proj_weight": state["in_proj_weight"]}))
        refused("bias_k: unexpected", lambda: module.load_state_dict({**state, "bias_k": x}))
        refused("in_proj_weight: found [144, 40], expected [144, 48]",
                lambda: module.load_state_dict({**state, "in_proj_weight": state["in_proj_weight"][:, :40]}))
        refused("in_proj_weight: unexpected", lambda: polyhead.MultiheadAttention(EMBED, HEADS, kdim=20).load_state_dict(state))
        refused("attn_mask: found [3, 3]", lambda: module(x, attn_mask=np.ones((3, 3), bool)))
        refused("key_padding_mask: found [2, 3]", lambda: module(x, key_padding_mask=np.ones((2, 3), bool)))
        refused("query: rank 4", lambda: module(x[None]))
        refused("input: extent 40", lambda: module(x[..., :40].copy()))
        with self.assertRaises(TypeError):
            module(x, attn_mask=np.ones((T, T), int))
        with self.assertRaises(TypeError):
            module("x")


load_tests = sampled_cases(__file__, 3)

if __name__ == "__main__":
    unittest.main()
