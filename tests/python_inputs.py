"""Inputs for the tests of the Python package."""
import numpy as np


def random(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


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
