"""Attention in float64 with NumPy, for the tests of the Python package: the formula of docs/internals/algorithm.md, written once more."""
import numpy as np


def random(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def visible(seq_len_q, seq_len_kv, lengths=None, causal=False, window=(-1, -1), from_end=False, batch=1):
    """bool [B,1,T_q,T_kv]: which keys a query sees by length, causal rule and window."""
    lengths = np.full(batch, seq_len_kv) if lengths is None else np.asarray(lengths)
    q, k = np.arange(seq_len_q)[:, None], np.arange(seq_len_kv)[None, :]
    n = lengths[:, None, None]
    p = q + (n - seq_len_q if from_end else 0)
    seen = (k < n) & np.ones_like(p, bool)
    if causal:
        seen &= k <= p
    if window[0] >= 0:
        seen &= k >= p - window[0]
    if window[1] >= 0:
        seen &= k <= p + window[1]
    return seen[:, None]


def attention(query, key, value, seen=True, add=0.0, scale=None, softcap=0.0, sinks=None, gate=None):
    """out, weights, lse, scores in float64; add: everything that is added to the logits."""
    query, key, value = (np.asarray(x).astype(np.float64) for x in (query, key, value))
    group = query.shape[1] // key.shape[1]
    key, value = np.repeat(key, group, 1), np.repeat(value, group, 1)
    scores = query @ key.swapaxes(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    capped = softcap * np.tanh(scores / softcap) if softcap else scores
    logits = np.where(seen, capped + add, -np.inf)
    largest = logits.max(-1, keepdims=True, initial=-np.inf)
    empty = np.isneginf(largest)
    probs = np.exp(logits - np.where(empty, 0, largest))
    total = probs.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks[:, None, None] - np.where(empty, 0, largest))
    weights = np.where(empty, 0, probs / np.where(empty, 1, total))
    with np.errstate(divide="ignore"):
        lse = np.where(empty, -np.inf, np.log(np.where(empty, 1, total)) + np.where(empty, 0, largest))[..., 0]
    out = weights @ value
    return out if gate is None else out * np.asarray(gate)[:, None, None], weights, lse, scores


def layer(state, heads, query, key=None, value=None, seen=True, add=0.0, kv_heads=None):
    """nn.MultiheadAttention in float64: out and weights [B,H,T_q,T_kv]. seen and add broadcast as in attention()."""
    key = query if key is None else key
    value = key if value is None else value
    kv_heads = kv_heads or heads
    width = state["out_proj.weight"].shape[0]
    size = width // heads
    bounds = (width, width + kv_heads * size)
    if "in_proj_weight" in state:
        matrices = np.split(state["in_proj_weight"].astype(np.float64), bounds)
    else:
        matrices = [state[n + "_proj_weight"].astype(np.float64) for n in "qkv"]
    biases = np.split(state["in_proj_bias"].astype(np.float64), bounds) if "in_proj_bias" in state else (0.0, 0.0, 0.0)
    parts = []
    for x, matrix, bias, count in zip((query, key, value), matrices, biases, (heads, kv_heads, kv_heads)):
        y = x.astype(np.float64) @ matrix.T + bias
        parts.append(y.reshape(*y.shape[:2], count, size).transpose(0, 2, 1, 3))
    out, weights, _, _ = attention(*parts, seen=seen, add=add)
    out = out.transpose(0, 2, 1, 3).reshape(query.shape)
    return out @ state["out_proj.weight"].astype(np.float64).T + state.get("out_proj.bias", np.zeros(1)).astype(np.float64), weights


def state_dict(seed, embed_dim, heads, kv_heads=None, kdim=None, vdim=None, bias=True):
    """Random weights by the names and shapes of torch.nn.MultiheadAttention."""
    rng = np.random.default_rng(seed)

    def tensor(*shape):
        return (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    kv_width = embed_dim // heads * (kv_heads or heads)
    if kdim is None and vdim is None:
        state = {"in_proj_weight": tensor(embed_dim + 2 * kv_width, embed_dim)}
    else:
        state = {"q_proj_weight": tensor(embed_dim, embed_dim), "k_proj_weight": tensor(kv_width, kdim or embed_dim),
                 "v_proj_weight": tensor(kv_width, vdim or embed_dim)}
    state["out_proj.weight"] = tensor(embed_dim, embed_dim)
    if bias:
        state.update({"in_proj_bias": tensor(embed_dim + 2 * kv_width), "out_proj.bias": tensor(embed_dim)})
    return state
