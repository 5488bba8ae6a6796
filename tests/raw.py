"""Random raw checkpoints as the hub has them, in numpy: for MLX and for transformers alike.

Norms are zero-centred, conv1d is [C, 1, K], the head is under ``mtp.``. Dense, with experts
(``qwen3_5_moe``: fused), and Qwen3-Next (numbered experts, projections interleaved by key head).
"""

from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]

HIDDEN, VOCAB, HEADS, KV_HEADS, HEAD_DIM = 64, 2048, 4, 2, 32
LINEAR = {"key_heads": 2, "value_heads": 4, "dim": 32}
EXPERTS, EXPERT_WIDTH, CONV = 8, 32, 4
LAYERS, EVERY = 4, 2

COMMON: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "intermediate_size": 128,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "vocab_size": VOCAB,
    "linear_num_key_heads": LINEAR["key_heads"],
    "linear_num_value_heads": LINEAR["value_heads"],
    "linear_key_head_dim": LINEAR["dim"],
    "linear_value_head_dim": LINEAR["dim"],
    "linear_conv_kernel_dim": CONV,
    "full_attention_interval": EVERY,
    "layer_types": ["linear_attention", "full_attention"] * (LAYERS // EVERY),
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "max_position_embeddings": 4096,
    "num_experts": EXPERTS,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": EXPERT_WIDTH,
    "shared_expert_intermediate_size": 48,
    "norm_topk_prob": True,
    "mtp_num_hidden_layers": 1,
    "dtype": "float32",
}
ROPE = {"rope_theta": 10000.0, "partial_rotary_factor": 0.25}


def text_config(family: str) -> dict[str, Any]:
    if family == "qwen3_next":
        sparse = {"decoder_sparse_step": 1, "mlp_only_layers": []}
        return {"model_type": "qwen3_next", **COMMON, **ROPE, **sparse}
    rope = {"rope_parameters": {"rope_type": "default", **ROPE}}
    return {"model_type": "qwen3_5_moe_text", **COMMON, **rope}


def config(family: str) -> dict[str, Any]:
    """The whole config.json."""
    if family == "qwen3_next":
        return text_config(family)
    text = text_config(family)
    return {"model_type": "qwen3_5_moe", "text_config": text, "tie_word_embeddings": False}


def trunk_prefix(family: str) -> str:
    return "model." if family == "qwen3_next" else "model.language_model."


def checkpoint(family: str, seed: int = 0) -> Arrays:
    draw = _Draw(np.random.default_rng(seed))
    prefix = trunk_prefix(family)
    out = {
        f"{prefix}embed_tokens.weight": draw.matrix(VOCAB, HIDDEN),
        f"{prefix}norm.weight": draw.norm(HIDDEN),
        "lm_head.weight": draw.matrix(VOCAB, HIDDEN),
    }
    for n in range(LAYERS):
        out |= _layer(draw, f"{prefix}layers.{n}.", family, full=(n + 1) % EVERY == 0)
    out |= _layer(draw, "mtp.layers.0.", family, full=True)
    out["mtp.fc.weight"] = draw.matrix(HIDDEN, 2 * HIDDEN)
    for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        out[f"mtp.{name}.weight"] = draw.norm(HIDDEN)
    return out


class _Draw:
    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def matrix(self, *shape: int) -> np.ndarray:
        """Large enough for varied greedy output."""
        return self.rng.normal(0, 1.7 / np.sqrt(shape[-1]), shape).astype(np.float32)

    def norm(self, size: int) -> np.ndarray:
        return self.rng.normal(0, 0.1, size).astype(np.float32)


def _layer(draw: _Draw, prefix: str, family: str, full: bool) -> Arrays:
    mixer = _attention(draw) if full else _recurrent(draw, family)
    parts = {**mixer, **_experts(draw, family)}
    parts["input_layernorm.weight"] = draw.norm(HIDDEN)
    parts["post_attention_layernorm.weight"] = draw.norm(HIDDEN)
    return {prefix + name: value for name, value in parts.items()}


def _attention(draw: _Draw) -> Arrays:
    return {
        "self_attn.q_proj.weight": draw.matrix(HEADS * HEAD_DIM * 2, HIDDEN),
        "self_attn.k_proj.weight": draw.matrix(KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.v_proj.weight": draw.matrix(KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.o_proj.weight": draw.matrix(HIDDEN, HEADS * HEAD_DIM),
        "self_attn.q_norm.weight": draw.norm(HEAD_DIM),
        "self_attn.k_norm.weight": draw.norm(HEAD_DIM),
    }


def _recurrent(draw: _Draw, family: str) -> Arrays:
    keys, values = (LINEAR[kind] * LINEAR["dim"] for kind in ("key_heads", "value_heads"))
    heads = LINEAR["value_heads"]
    if family == "qwen3_next":
        projections = {
            "in_proj_qkvz": draw.matrix(2 * keys + 2 * values, HIDDEN),
            "in_proj_ba": draw.matrix(2 * heads, HIDDEN),
        }
    else:
        projections = {
            "in_proj_qkv": draw.matrix(2 * keys + values, HIDDEN),
            "in_proj_z": draw.matrix(values, HIDDEN),
            "in_proj_b": draw.matrix(heads, HIDDEN),
            "in_proj_a": draw.matrix(heads, HIDDEN),
        }
    parts = {f"linear_attn.{name}.weight": value for name, value in projections.items()}
    return {
        **parts,
        "linear_attn.conv1d.weight": draw.rng.normal(0, 0.5, (2 * keys + values, 1, CONV)).astype(
            np.float32
        ),
        "linear_attn.A_log": np.log(draw.rng.uniform(1, 16, heads)).astype(np.float32),
        "linear_attn.dt_bias": draw.rng.uniform(0, 1, heads).astype(np.float32),
        "linear_attn.norm.weight": 1 + draw.norm(LINEAR["dim"]),
        "linear_attn.out_proj.weight": draw.matrix(HIDDEN, values),
    }


def _experts(draw: _Draw, family: str) -> Arrays:
    gate_up = draw.matrix(EXPERTS, 2 * EXPERT_WIDTH, HIDDEN)
    down = draw.matrix(EXPERTS, HIDDEN, EXPERT_WIDTH)
    shared = COMMON["shared_expert_intermediate_size"]
    parts = {
        "mlp.gate.weight": draw.matrix(EXPERTS, HIDDEN),
        "mlp.shared_expert.gate_proj.weight": draw.matrix(shared, HIDDEN),
        "mlp.shared_expert.up_proj.weight": draw.matrix(shared, HIDDEN),
        "mlp.shared_expert.down_proj.weight": draw.matrix(HIDDEN, shared),
        "mlp.shared_expert_gate.weight": draw.matrix(1, HIDDEN),
        "mlp.experts.gate_up_proj": gate_up,
        "mlp.experts.down_proj": down,
    }
    return number_experts(parts) if family == "qwen3_next" else parts


def number_experts(weights: Arrays) -> Arrays:
    """Fused experts as one tensor an expert and projection."""
    out = {}
    for name, value in weights.items():
        if name.endswith("experts.gate_up_proj"):
            stem = name.removesuffix("gate_up_proj")
            for e, both in enumerate(value):
                out[f"{stem}{e}.gate_proj.weight"], out[f"{stem}{e}.up_proj.weight"] = np.split(
                    both, 2
                )
        elif name.endswith("experts.down_proj"):
            stem = name.removesuffix("down_proj")
            out |= {f"{stem}{e}.down_proj.weight": one for e, one in enumerate(value)}
        else:
            out[name] = value
    return out


def fuse_experts(weights: Arrays) -> Arrays:
    """Back from ``number_experts``."""
    out = {name: value for name, value in weights.items() if ".experts." not in name}
    stems = {name.split(".experts.")[0] for name in weights if ".experts.0." in name}
    for stem in stems:
        each = [
            {p: weights[f"{stem}.experts.{e}.{p}_proj.weight"] for p in ("gate", "up", "down")}
            for e in range(EXPERTS)
        ]
        out[f"{stem}.experts.gate_up_proj"] = np.stack(
            [np.concatenate([one["gate"], one["up"]]) for one in each]
        )
        out[f"{stem}.experts.down_proj"] = np.stack([one["down"] for one in each])
    return out


def transpose_experts(weights: Arrays) -> Arrays:
    """Fused experts in the layout of a matrix product."""
    fused = ("experts.gate_up_proj", "experts.down_proj")
    return {
        name: np.ascontiguousarray(v.swapaxes(1, 2)) if name.endswith(fused) else v
        for name, v in weights.items()
    }
