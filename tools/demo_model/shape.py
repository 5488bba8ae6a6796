"""The demo model's dimensions, in the words of Hugging Face's Qwen3.5 config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Shape:
    vocab: int = 2048
    hidden: int = 192
    intermediate: int = 512
    layers: int = 4
    full_attention_interval: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    rotary_factor: float = 0.25
    rope_theta: float = 10_000.0
    linear_key_heads: int = 2
    linear_value_heads: int = 4
    linear_key_dim: int = 64
    linear_value_dim: int = 64
    conv_kernel: int = 4
    eps: float = 1e-6
    max_positions: int = 8192

    @property
    def key_width(self) -> int:
        return self.linear_key_heads * self.linear_key_dim

    @property
    def value_width(self) -> int:
        return self.linear_value_heads * self.linear_value_dim

    def is_full(self, layer: int) -> bool:
        return (layer + 1) % self.full_attention_interval == 0


def hf_config(shape: Shape, eos: int, pad: int) -> dict[str, Any]:
    """The `config.json` of a Qwen3.5 checkpoint with this shape."""
    text = {
        "model_type": "qwen3_5_text",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": shape.eps,
        "max_position_embeddings": shape.max_positions,
        "initializer_range": 0.02,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "attn_output_gate": True,
        "full_attention_interval": shape.full_attention_interval,
        "layer_types": [
            "full_attention" if shape.is_full(i) else "linear_attention"
            for i in range(shape.layers)
        ],
        "linear_num_key_heads": shape.linear_key_heads,
        "linear_num_value_heads": shape.linear_value_heads,
        "linear_key_head_dim": shape.linear_key_dim,
        "linear_value_head_dim": shape.linear_value_dim,
        "linear_conv_kernel_dim": shape.conv_kernel,
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
        "partial_rotary_factor": shape.rotary_factor,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": shape.rope_theta,
            "partial_rotary_factor": shape.rotary_factor,
        },
        "tie_word_embeddings": True,
        "use_cache": True,
        "eos_token_id": eos,
        "pad_token_id": pad,
        "dtype": "bfloat16",
    }
    return {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5",
        "text_config": text,
        "tie_word_embeddings": True,
        "eos_token_id": eos,
        "pad_token_id": pad,
        "dtype": "bfloat16",
    }
