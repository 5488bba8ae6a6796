"""Model folders for tests, made from the bundled model by moving its tensors about."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx

from llm_mtplx.demo import MODEL_DIR

Weights = dict[str, mx.array]

NORMS = (
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
    "q_norm.weight",
    "k_norm.weight",
    "mtp.norm.weight",
    "pre_fc_norm_embedding.weight",
    "pre_fc_norm_hidden.weight",
)


def copy_demo(target: Path) -> Path:
    shutil.copytree(MODEL_DIR, target)
    return target


def demo_weights() -> Weights:
    weights: Weights = mx.load(str(MODEL_DIR / "model.safetensors"))
    return weights


def head_of(weights: Weights) -> Weights:
    return {name: value for name, value in weights.items() if name.startswith("mtp.")}


def trunk_of(weights: Weights) -> Weights:
    return {name: value for name, value in weights.items() if not name.startswith("mtp.")}


def absolute_norms(head: Weights) -> Weights:
    """Gains as 1 + w, the way mlx-lm stores them."""
    return {name: v + 1.0 if name.endswith(NORMS) else v for name, v in head.items()}


def save(path: Path, weights: Weights) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(path), weights)


def edit_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
