"""A tour of the Python package, in cells: run it as a script, or cell by cell in an editor that knows `# %%`.

    ./polyhead setup
    .venv/bin/python examples/030_python/tour.py
"""
import tempfile

import numpy as np

import polyhead
from polyhead import expressions as x

rng = np.random.default_rng(0)


def normal(*shape):
    return rng.standard_normal(shape).astype(np.float32)


# %% Attention of given tensors: [batch, heads, seq_len, head_dim]. The first call of a problem compiles its kernel, later ones find it.
query, key, value = normal(2, 8, 100, 64), normal(2, 2, 120, 64), normal(2, 2, 120, 64)  # 8 heads share 2 key/value heads
out = polyhead.sdpa(query, key, value)
print("sdpa", out.shape, out.dtype)

# %% Masks, modifiers and outputs go together. lse and weights follow out.
lengths = [120, 57]
out, lse, weights = polyhead.sdpa(query, key, value, kv_lengths=lengths, is_causal=True, causal_alignment="bottom_right",
                                  window=(64, 0), softcap=30.0, return_lse=True, return_weights=True)
assert weights[1, :, :, 57:].max() == 0  # beyond the second row's length
assert np.allclose(weights.sum(-1)[np.isfinite(lse)], 1, atol=1e-5)
assert np.isneginf(lse[1, :, 0]).all() and out[1, :, 0].max() == 0  # a query that sees no key

# %% A boolean mask says what takes part, an additive one is added. Neither is expanded: [T_kv] serves every batch row, head and query.
padding = np.arange(120) < 100
assert np.allclose(polyhead.sdpa(query, key, value, padding), polyhead.sdpa(query, key[:, :, :100], value[:, :, :100]), atol=1e-5)

# %% Your own rule, compiled into the kernel: as text or as a function. Keys that it excludes for whole tiles are not visited.
out_text = polyhead.sdpa(query, key, value, expression="score = score - 0.1 * abs(q - kv)\nmask = kv <= q")
out_function = polyhead.sdpa(query, key, value, expression=lambda score, q, kv: (score - 0.1 * abs(q - kv), kv <= q))
assert np.array_equal(out_text, out_function)
documents = np.sort(rng.integers(0, 4, (2, 120)), 1).astype(np.int32)
polyhead.sdpa(query, key, value, expression=lambda b, q, kv, doc: doc[b, q] == doc[b, kv], tensors={"doc": documents})
print("text of a function:", x.text_of(lambda score, q, kv: x.where(kv <= q, score, score / 2), {}))

# %% Decoding over a cache that you own: the arrays keep their size, kv_lengths says how much of them counts. Nothing is copied.
capacity, tokens = 64, 10
cache_key, cache_value = np.zeros((1, 2, capacity, 64), np.float32), np.zeros((1, 2, capacity, 64), np.float32)
steps = normal(tokens, 1, 8, 1, 64), normal(tokens, 1, 2, 1, 64), normal(tokens, 1, 2, 1, 64)
for n, (q, k, v) in enumerate(zip(*steps)):
    cache_key[:, :, n:n + 1], cache_value[:, :, n:n + 1] = k, v
    out = polyhead.sdpa(q, cache_key, cache_value, kv_lengths=[n + 1])
together = [np.concatenate(list(part), 2) for part in steps]
assert np.allclose(out, polyhead.sdpa(*together, is_causal=True)[:, :, -1:], atol=1e-5)

# %% Or with past and present, as ONNX has them. Neighbours in one buffer are joined by index, others by a copy.
out, present_key, _ = polyhead.sdpa(q, cache_key[:, :, 9:10], cache_value[:, :, 9:10], past_key=cache_key[:, :, :9],
                                    past_value=cache_value[:, :, :9], is_causal=True, return_present=True)
assert np.shares_memory(present_key, cache_key) and present_key.shape[2] == 10

# %% The layer of torch.nn, with its names, shapes and masks (True is masked out), always batch first.
layer = polyhead.MultiheadAttention(48, 4)
layer.load_state_dict({"in_proj_weight": normal(144, 48), "in_proj_bias": normal(144), "out_proj.weight": normal(48, 48),
                       "out_proj.bias": normal(48)})
tokens = normal(2, 20, 48)
out, weights = layer(tokens, key_padding_mask=np.arange(20) >= np.array([[20], [12]]), need_weights=True)
print("layer", out.shape, weights.shape)

# %% Kernels as objects: what they are, which code runs, and a library for programs in C and C++.
kernel = polyhead.compile("sdpa", num_heads=8, num_kv_heads=2, head_dim=64, causal="top_left")
print(kernel, kernel.manifest["flops"]["formula"])
print(kernel.explain(query=query, key=key, value=value))
with tempfile.TemporaryDirectory() as folder:
    print([file.name for file in kernel.export(folder, "causal_attention")])

# %% What cannot be done is refused in a sentence, with a code.
try:
    polyhead.sdpa(query, key, value[:, :, :50])
except polyhead.Error as error:
    print(error.code.name, "-", error)
