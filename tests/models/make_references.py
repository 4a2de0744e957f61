"""Makes tests/data/models/*.npz: attention layers of small models of Hugging Face Transformers, computed in float64.

    python -m venv /tmp/transformers && /tmp/transformers/bin/pip install torch transformers==5.24.*
    /tmp/transformers/bin/python tests/models/make_references.py [CASE ...]

Every file has the configuration of a model, and of each of its attention layers weights, inputs and outputs: of a prompt and of single tokens
behind it, with the cache, the masks and the rotation of the model. Inputs of the layers are random, whatever the layers before them give.
Weights and inputs are whole numbers of UNITS, so that int8 holds them exactly. tests/python_model_references.py reads the files; it needs neither
PyTorch nor Transformers.
"""
import inspect
import json
import os
import re
import sys

import numpy as np
import torch

# Transformers computes norms, tables and the softmax in float32 in models of every type: float64 here, by the same code.
torch.float32 = torch.float = torch.float64
torch.Tensor.float = torch.Tensor.double
torch.set_default_dtype(torch.float64)

import transformers  # noqa: E402

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data", "models")
PROMPT, STEPS, SEED = 9, 32, 1
TOKENS = PROMPT + STEPS
UNITS = {"matrix": 256, "vector": 64, "input": 64}

DIVIDED = dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=1, intermediate_size=8, vocab_size=8,
               max_position_embeddings=64, pad_token_id=0)
SMALL = dict(DIVIDED, head_dim=16)
TWO = dict(SMALL, num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"], sliding_window=12)
SLIDING = dict(rope_type="default", rope_theta=100.0)
GEMMA4 = dict(SMALL, head_dim=8, global_head_dim=16, sliding_window=12, hidden_size_per_layer_input=4, vocab_size_per_layer_input=8, rope_parameters={
    "sliding_attention": SLIDING, "full_attention": dict(rope_type="proportional", partial_rotary_factor=0.25, rope_theta=1000.0)})
LONG = dict(rope_type="longrope", rope_theta=1000.0, original_max_position_embeddings=24, short_factor=[1 + 0.1 * i for i in range(8)],
            long_factor=[1 + 0.5 * i for i in range(8)])


def llama(**numbers):
    return "llama", dict(SMALL, rope_parameters=numbers, attention_bias=numbers["rope_type"] == "yarn")


# Case: model_type, configuration. The first part of a name of a rotation is no model_type.
CASES = {
    "bert": ("bert", dict(hidden_size=32, num_attention_heads=4, num_hidden_layers=1, intermediate_size=8, vocab_size=8)),
    "vit": ("vit", dict(hidden_size=32, num_attention_heads=4, num_hidden_layers=1, intermediate_size=8, image_size=24, patch_size=4)),
    "llama": llama(rope_type="default", rope_theta=100.0),
    "rope_linear": llama(rope_type="linear", rope_theta=100.0, factor=4.0),
    "rope_dynamic": ("llama", dict(llama(rope_type="dynamic", rope_theta=100.0, factor=2.0)[1], max_position_embeddings=24)),
    "rope_yarn": llama(rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=16, beta_fast=2.0, beta_slow=0.5),
    "rope_longrope": ("llama", dict(llama(**LONG)[1], max_position_embeddings=96)),
    "rope_llama3": llama(rope_type="llama3", rope_theta=100.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                         original_max_position_embeddings=32),
    "rope_proportional": llama(rope_type="proportional", rope_theta=100.0, partial_rotary_factor=0.5),
    "mistral": ("mistral", dict(SMALL, sliding_window=12)),
    "qwen2": ("qwen2", dict(DIVIDED, num_hidden_layers=2, use_sliding_window=True, sliding_window=12, max_window_layers=1)),
    "qwen3": ("qwen3", dict(SMALL, num_hidden_layers=2, use_sliding_window=True, sliding_window=12, max_window_layers=1)),
    "qwen3_next": ("qwen3_next", dict(SMALL, layer_types=["full_attention"], mlp_only_layers=[0], rope_parameters=dict(
        rope_type="default", rope_theta=100.0, partial_rotary_factor=0.25))),
    "qwen3_vl_text": ("qwen3_vl_text", dict(SMALL, rope_parameters=dict(rope_type="default", rope_theta=100.0, mrope_section=[4, 2, 2]))),
    "gemma2": ("gemma2", dict(TWO, query_pre_attn_scalar=24, attn_logit_softcapping=5.0)),
    "gemma3_text": ("gemma3_text", dict(TWO, query_pre_attn_scalar=24, rope_parameters={
        "sliding_attention": SLIDING, "full_attention": dict(rope_type="linear", factor=8.0, rope_theta=1000.0)})),
    "gemma4_text": ("gemma4_text", dict(GEMMA4, num_hidden_layers=4, num_kv_shared_layers=2, layer_types=TWO["layer_types"] * 2)),
    "gemma4_text_value_from_key": ("gemma4_text", dict(GEMMA4, num_hidden_layers=2, layer_types=TWO["layer_types"], attention_k_eq_v=True,
                                                       num_global_key_value_heads=1)),
    "olmo2": ("olmo2", DIVIDED),
    "gpt_oss": ("gpt_oss", dict(TWO, num_local_experts=2, num_experts_per_tok=1, rope_parameters=dict(
        rope_type="yarn", rope_theta=150.0, factor=4.0, beta_fast=2.0, beta_slow=0.5, truncate=False, original_max_position_embeddings=16))),
    "deepseek_v3": ("deepseek_v3", dict(
        hidden_size=32, num_attention_heads=4, num_key_value_heads=4, num_hidden_layers=1, intermediate_size=8, vocab_size=8, q_lora_rank=24,
        kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=16, first_k_dense_replace=1, max_position_embeddings=64,
        rope_parameters=dict(rope_type="yarn", rope_theta=100.0, factor=4.0, mscale=1.0, mscale_all_dim=0.8, beta_fast=2.0, beta_slow=0.5,
                             original_max_position_embeddings=16))),
}
# Modules whose input is that of a layer, and whose output is: BERT adds the input and norms in the module around both.
INNER = {"bert": (r"layer\.(\d+)\.attention\.self$", r"layer\.(\d+)\.attention\.output\.dense$"),
         "vit": (r"layers\.(\d+)\.attention$",) * 2}
OF_DECODER = (r"layers\.(\d+)\.self_attn$",) * 2


def random_weights(module, prefix, rng):
    """Gives the tensors of a module random values; int8 by name."""
    made = {}
    for name, tensor in module.named_parameters():
        matrix = tensor.dim() > 1
        unit = UNITS["matrix" if matrix else "vector"]
        begins = 0 if matrix or "norm" not in name else int(tensor.detach().flatten()[0]) * unit  # of a norm: 1, or 0 where 1 is added
        whole = begins + rng.integers(-127, 128, tensor.shape) // (1 if matrix else 4)
        made[prefix + "." + name] = whole.astype(np.int8)
        with torch.no_grad():
            tensor.copy_(torch.from_numpy(whole / unit))
    return made


class Recorder:
    """Puts random inputs into the attention layers of a model, and keeps what they give."""

    def __init__(self, model, patterns, rng):
        self.inputs, self.outs, self.weights, self.first = {}, {}, {}, 0
        for name, module in model.named_modules():
            begins, ends = (re.search(pattern, name) for pattern in patterns)
            if begins:
                number = int(begins.group(1))
                self.inputs[number] = rng.integers(-63, 64, (TOKENS, model.config.hidden_size)).astype(np.int8)
                self.outs[number] = []
                module.register_forward_pre_hook(lambda _, args, kwargs, number=number: self.replace(number, args, kwargs), with_kwargs=True)
            if begins or ends:
                self.weights.update(random_weights(module, name, rng))
            if ends:
                module.register_forward_hook(lambda _, _args, out, number=int(ends.group(1)): self.keep(number, out))

    def replace(self, number, args, kwargs):
        given = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
        rows = self.inputs[number][self.first:self.first + given.shape[1]]
        assert rows.shape[0] == given.shape[1] and given.dtype == torch.float64
        new = torch.from_numpy(rows / UNITS["input"])[None]
        return (args, {**kwargs, "hidden_states": new}) if "hidden_states" in kwargs else ((new, *args[1:]), kwargs)

    def keep(self, number, out):
        out = out[0] if isinstance(out, tuple) else out
        assert out.dtype == torch.float64
        self.outs[number].append(out[0].detach().numpy())


def picture_positions():
    """int [3,T]: three tokens of text, an image of 2 rows and 3 columns, and text."""
    text, image = np.arange(3), np.stack([np.zeros(6), np.repeat([0, 1], 3), np.tile(np.arange(3), 2)]) + 3
    return np.concatenate([np.stack([text] * 3), image, np.stack([np.arange(STEPS) + 6] * 3)], 1).astype(np.int32)


def run(model, recorder, model_type, positions):
    width = model.config.hidden_size
    with torch.no_grad():
        if model_type == "vit":
            model(pixel_values=torch.zeros(1, 3, 24, 24))
        elif model_type == "bert":
            model(inputs_embeds=torch.ones(1, TOKENS, width), attention_mask=(torch.arange(TOKENS) < TOKENS - 8)[None].long())
        else:
            cache = transformers.DynamicCache(config=model.config)
            named = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
            for count in [PROMPT] + [1] * STEPS:
                last = recorder.first + count
                extra = {} if positions is None else {"position_ids": torch.from_numpy(positions[:, None, recorder.first:last]).long()}
                if model_type == "gemma4_text":
                    extra["per_layer_inputs"] = torch.zeros(1, count, model.config.num_hidden_layers, GEMMA4["hidden_size_per_layer_input"])
                model(inputs_embeds=torch.randn(1, count, width), use_cache=True, **{named: cache}, **extra)
                recorder.first = last


def made(case):
    model_type, numbers = CASES[case]
    rng = np.random.default_rng([SEED, *case.encode()])
    torch.manual_seed(SEED)
    config = transformers.AutoConfig.for_model(model_type, **numbers)
    config._attn_implementation = config._experts_implementation = "eager"
    model = transformers.AutoModel.from_config(config, dtype=torch.float64).eval()
    recorder = Recorder(model, INNER.get(model_type, OF_DECODER), rng)
    positions = picture_positions() if model_type == "qwen3_vl_text" else None
    run(model, recorder, model_type, positions)
    about = {"config": config.to_dict(), "prompt": PROMPT, "units": UNITS, "valid": TOKENS - 8 if model_type == "bert" else None,
             "made by": "Transformers %s, PyTorch %s" % (transformers.__version__, torch.__version__)}
    arrays = {"about": np.array(json.dumps(about)), **{"weights/" + name: tensor for name, tensor in recorder.weights.items()}}
    for number, outs in recorder.outs.items():
        out = np.concatenate(outs)
        arrays.update({"input/%d" % number: recorder.inputs[number][:len(out)], "out/%d" % number: out.astype(np.float32)})
    if positions is not None:
        arrays["positions"] = positions
    return arrays


def main():
    os.makedirs(FOLDER, exist_ok=True)
    for case in sys.argv[1:] or CASES:
        path = os.path.join(FOLDER, case + ".npz")
        np.savez_compressed(path, **made(case))
        print("%s: %d bytes" % (os.path.relpath(path), os.path.getsize(path)))


if __name__ == "__main__":
    main()
