"""A random Qwen 3.5 hybrid with an MTP head, small enough to run thousands of forwards."""

from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.models.qwen3_5 import Model, ModelArgs

from llm_mtplx.architectures.mtp_head import MTPHead
from llm_mtplx.architectures.trunk import Trunk

TEXT_CONFIG: dict[str, Any] = {
    "model_type": "qwen3_5_text",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 64,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 2,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "max_position_embeddings": 4096,
    "mtp_num_hidden_layers": 1,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.25,
    },
}


def random_model(seed: int = 0, **overrides: Any) -> Model:
    """mlx-lm's model in float32 with weights large enough for varied greedy output."""
    mx.random.seed(seed)
    model = Model(ModelArgs("qwen3_5", {**TEXT_CONFIG, **overrides}))
    model.eval()
    scaled = [
        (name, value * 3.0 if value.ndim == 2 and "embed" not in name else value)
        for name, value in tree_flatten(model.parameters())
    ]
    model.load_weights(scaled)
    mx.eval(model.parameters())
    return model


def random_trunk_and_head(seed: int = 0, **overrides: Any) -> tuple[Trunk, MTPHead]:
    trunk = Trunk(random_model(seed, **overrides))
    head = MTPHead(trunk.args)
    head.eval()
    mx.eval(head.parameters())
    return trunk, head
