"""polyhead.MultiheadAttention and polyhead.sdpa against PyTorch in float64, over random configurations.

An error may be 1e-5 * max(1, largest expected) + 5e-6 * |expected| + 4 times the largest error of PyTorch in float32.
"""
import argparse
import random
import sys
import time

import torch

import polyhead

torch.set_grad_enabled(False)


def ratio(found, expected, plain):
    """The largest error, as a part of what is allowed."""
    found, plain = found.double(), plain.double()
    if found.shape != expected.shape or not bool(torch.isfinite(found).all()):
        return float("inf")
    if expected.numel() == 0:
        return 0.0
    allowed = 1e-5 * max(1.0, expected.abs().max().item()) + 5e-6 * expected.abs() + 4 * (plain - expected).abs().max()
    return ((found - expected).abs() / allowed).max().item()


def tensor(*shape):
    return torch.randn(*shape, dtype=torch.float32)


def chance(percent):
    return random.random() < percent / 100


def random_layer():
    heads = random.choice([1, 2, 3, 4, 8])
    embed_dim = heads * random.choice([4, 8, 12, 16, 20, 32])
    options = {"bias": chance(70), "kdim": None, "vdim": None}
    if chance(30):
        options.update(kdim=random.choice([10, 24]), vdim=random.choice([16, 30]))
    module = torch.nn.MultiheadAttention(embed_dim, heads, batch_first=True, **options)
    if options["bias"]:
        module.in_proj_bias.normal_(std=0.5)
        module.out_proj.bias.normal_(std=0.5)
    return module.eval(), embed_dim, heads, options


def random_inputs(embed_dim, options):
    batch, q, kv = random.randint(1, 4), random.randint(1, 40), random.randint(1, 40)
    if options["kdim"] is None and chance(60):
        x = tensor(batch, q, embed_dim)
        return x, x, x
    return tensor(batch, q, embed_dim), tensor(batch, kv, options["kdim"] or embed_dim), tensor(batch, kv, options["vdim"] or embed_dim)


def random_masks(query, key, heads):
    """Keyword arguments for PyTorch; every query sees a key, because PyTorch has NaN where one does not."""
    batch, q, kv = query.shape[0], query.shape[1], key.shape[1]
    masks = {}
    if chance(40):
        masked = torch.arange(kv) >= torch.randint(1, kv + 1, (batch, 1))
        masks["key_padding_mask"] = masked if chance(70) else torch.zeros(batch, kv).masked_fill_(masked, float("-inf"))
    kind = random.choice(["none", "bool", "float", "heads", "causal"])
    if kind == "causal" and q == kv:
        masks.update(attn_mask=torch.ones(q, kv, dtype=torch.bool).triu(1), is_causal=True)
    elif kind in ("bool", "heads"):
        masked = torch.rand(batch * heads if kind == "heads" else 1, q, kv) < 0.4
        masked[..., 0] = False
        masks["attn_mask"] = masked if kind == "heads" else masked[0]
    elif kind == "float":
        masks["attn_mask"] = tensor(q, kv)
    padding = masks.get("key_padding_mask")
    if padding is not None and "attn_mask" in masks and masks["attn_mask"].dtype != padding.dtype:  # PyTorch wants one type
        masks = {name: as_float(mask) if isinstance(mask, torch.Tensor) else mask for name, mask in masks.items()}
    return masks


def as_float(mask):
    return torch.zeros(mask.shape).masked_fill_(mask, float("-inf")) if mask.dtype == torch.bool else mask


def in_double(value):
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def one_layer():
    """One configuration: (ratio, words)."""
    module, embed_dim, heads, options = random_layer()
    mine = polyhead.MultiheadAttention(embed_dim, heads, **options)
    mine.load_state_dict(module.state_dict())
    inputs = random_inputs(embed_dim, options)
    masks = random_masks(inputs[0], inputs[1], heads)
    wanted = {"need_weights": chance(60), "average_attn_weights": chance(50)}
    if inputs[0].shape[0] == 1 and chance(50):
        inputs = tuple(x[0] for x in inputs)
        masks = {name: mask[0] if name == "key_padding_mask" else mask for name, mask in masks.items()}
    plain = module(*inputs, **wanted, **masks)
    expected = module.double()(*(x.double() for x in inputs), **wanted, **{name: in_double(mask) for name, mask in masks.items()})
    if masks.get("is_causal") and chance(50):
        masks.pop("attn_mask")  # what is_causal alone says
    found = mine(*inputs, **wanted, **masks)
    worst = max(ratio(f, e, p) for f, e, p in zip(found, expected, plain) if e is not None)
    words = "layer D %d H %d %s inputs %s masks %s %s" % (embed_dim, heads, options, [tuple(x.shape) for x in inputs], sorted(masks), wanted)
    return worst if (found[1] is None) == (expected[1] is None) else float("inf"), words


def one_sdpa():
    batch, q, kv = random.randint(1, 3), random.randint(1, 50), random.randint(1, 50)
    kv_heads, group = random.choice([1, 2, 3]), random.choice([1, 1, 2, 4])
    head_dim, head_dim_v = random.choice([(8, 8), (16, 16), (20, 12), (64, 64)])
    query, key, value = tensor(batch, kv_heads * group, q, head_dim), tensor(batch, kv_heads, kv, head_dim), tensor(batch, kv_heads, kv, head_dim_v)
    options = {"scale": random.choice([None, 0.3])}
    kind = random.choice(["none", "causal", "bool", "float"])
    if kind == "causal":
        options["is_causal"] = True
    elif kind != "none":
        shape = random.choice([(q, kv), (batch, 1, q, kv), (batch, kv_heads * group, q, kv), (batch, 1, 1, kv)])
        options["attn_mask"] = tensor(*shape) if kind == "float" else torch.rand(*shape) < 0.7
        if kind == "bool":
            options["attn_mask"][..., 0] = True
    theirs = torch.nn.functional.scaled_dot_product_attention
    plain = theirs(query, key, value, enable_gqa=group > 1, **options)
    expected = theirs(*(x.double() for x in (query, key, value)), enable_gqa=group > 1, **{n: in_double(v) for n, v in options.items()})
    found = polyhead.sdpa(query, key, value, **options)
    return ratio(found, expected, plain), "sdpa %s %s %s %s" % (tuple(query.shape), tuple(key.shape), head_dim_v, sorted(options))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    started, failures = time.monotonic(), 0
    for name, one, count in (("nn.MultiheadAttention", one_layer, options.count), ("scaled_dot_product_attention", one_sdpa, options.count // 4)):
        worst = 0.0
        for number in range(count):
            random.seed("%d/%s/%d" % (options.seed, name, number))
            torch.manual_seed(random.getrandbits(32))
            found, words = one()
            worst = max(worst, found)
            if not found <= 1:
                failures += 1
                print("FAILED %d: %.2f of the tolerance: %s" % (number, found, words), flush=True)
        print("%s: %d configurations, largest error %.2f of the tolerance" % (name, count, worst), flush=True)
    print("%d failed, %.0f s, PyTorch %s" % (failures, time.monotonic() - started, torch.__version__))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
