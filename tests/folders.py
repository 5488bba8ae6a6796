"""Model folders for tests, made from the bundled model by moving its tensors about."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from llm_mtplx.demo import MODEL_DIR

from .tiny import TEXT_CONFIG, random_trunk_and_head

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


def save_random_model(folder: Path) -> Path:
    """A random model with the bundled tokenizer: what it writes makes no sense and has no end."""
    folder.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(MODEL_DIR / name, folder)
    config = {**TEXT_CONFIG, "vocab_size": 2048}
    trunk, head = random_trunk_and_head(vocab_size=2048)
    weights = dict(tree_flatten(trunk.model.parameters()))
    weights.update({f"mtp.{name}": value for name, value in tree_flatten(head.parameters())})
    save(folder / "model.safetensors", weights)
    marked = {"model_type": "qwen3_5", "text_config": config, "mtp_norm_encoding": "absolute"}
    (folder / "config.json").write_text(json.dumps(marked))
    (folder / "generation_config.json").write_text('{"do_sample": false}')
    return folder
