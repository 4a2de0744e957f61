"""The one table of models: model_type -> what makes its layers, and what its files leave out because it is usual."""
from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple

from .decoder import Config, Decoder, Gemma2, Gemma3, Gemma4, GptOss, Mistral, Olmo2, Qwen2, Qwen3, Qwen3Next, Qwen3VL
from .layer import Layer
from .others import bert, deepseek_v3, vit


class Row(NamedTuple):
    said: str  # the models, as people call them
    layers: Callable[[Config], list[Layer]]
    defaults: Mapping[str, Any] = {}


_GEMMA = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "rms_norm_eps": 1e-6}
_QWEN = {"rms_norm_eps": 1e-6, "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
_GEMMA_4_ROPE = {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                 "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0}}

MODELS: Mapping[str, Row] = {
    "bert": Row("BERT", bert),
    "vit": Row("ViT", vit, {"qkv_bias": True}),
    "llama": Row("Llama 2 and 3", Decoder()),
    "mistral": Row("Mistral", Mistral(), {"num_key_value_heads": 8, "sliding_window": 4096}),
    "qwen2": Row("Qwen2, Qwen2.5", Qwen2(), _QWEN),
    "qwen3": Row("Qwen3", Qwen3(), {**_QWEN, "head_dim": 128}),
    "qwen3_next": Row("Qwen3-Next, its attention layers", Qwen3Next(), {
        "num_key_value_heads": 2, "head_dim": 256, "rms_norm_eps": 1e-6, "partial_rotary_factor": 0.25, "full_attention_interval": 4}),
    "qwen3_vl_text": Row("Qwen3-VL, its text model", Qwen3VL(), {"head_dim": 128, "rms_norm_eps": 1e-6, "rope_theta": 500000.0}),
    "gemma2": Row("Gemma 2", Gemma2(), {**_GEMMA, "query_pre_attn_scalar": 256, "sliding_window": 4096, "attn_logit_softcapping": 50.0}),
    "gemma3_text": Row("Gemma 3, its text model", Gemma3(), {
        **_GEMMA, "query_pre_attn_scalar": 256, "sliding_window": 4096, "sliding_window_pattern": 6, "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0}),
    "gemma4_text": Row("Gemma 4, its text model", Gemma4(), {**_GEMMA, "sliding_window": 512, "rope_parameters": _GEMMA_4_ROPE}),
    "olmo2": Row("OLMo 2", Olmo2(), {"rms_norm_eps": 1e-5}),
    "gpt_oss": Row("gpt-oss", GptOss(), {
        "num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128, "attention_bias": True, "rope_theta": 150000.0,
        "rope_parameters": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                            "original_max_position_embeddings": 4096}}),
    "deepseek_v3": Row("DeepSeek-V3", deepseek_v3, {"rope_interleave": True}),
}
