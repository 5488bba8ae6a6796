"""A tiny pack with Hadamard-rotated ternary weights, and the same model unrotated.

The ternary weights are random; the unrotated ones follow from them by the matrix itself: a layer
that computes W H (s x) is one with the weights (W H) s.
"""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.models.qwen3_5 import Model, ModelArgs

from llm_mtplx.architectures.mtp_head import MTPHead
from llm_mtplx.architectures.trunk import Trunk

from .folders import Weights, save
from .forms import save_folder

WIDTH, GROUP, VOCAB = 512, 128, 2048

TEXT: dict[str, Any] = {
    "model_type": "qwen3_5_text",
    "hidden_size": WIDTH,
    "intermediate_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": WIDTH // 8,
    "vocab_size": VOCAB,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": WIDTH // 4,
    "linear_value_head_dim": WIDTH // 4,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 2,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "max_position_embeddings": 4096,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25},
}
PLAIN = ("in_proj_a", "in_proj_b", "conv1d")
METADATA = {
    "prism.hadamard.version": 1,
    "prism.hadamard.transform": "normalized-sylvester-walsh-hadamard",
    "prism.hadamard.axis": "input-last-dimension",
}


def hadamard(size: int) -> np.ndarray:
    """Sylvester's matrix, normalized."""
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / np.sqrt(size)


class RotatedModel:
    """Both forms of one random model. Paths are inside the language model."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        mx.random.seed(seed)
        model = Model(ModelArgs("qwen3_5", json.loads(json.dumps(TEXT))))
        self.modules: list[dict[str, Any]] = []
        self.packed: Weights = {}
        self.plain: Weights = {}
        for name, value in tree_flatten(model.language_model.parameters()):
            path, leaf = name.rsplit(".", 1)
            if leaf == "weight" and value.ndim == 2 and not path.endswith(PLAIN):
                # One module is packed but not rotated.
                block = 0 if path == "model.layers.0.mlp.up_proj" else WIDTH
                self._add(path, value.shape, block)
            else:
                self.packed[name] = self.plain[name] = value.astype(mx.float32)
        head = MTPHead(Trunk(model).args)
        self.head = {
            f"mtp.{name}": value.astype(mx.float16)
            for name, value in tree_flatten(head.parameters())
        }

    def _add(self, path: str, shape: tuple[int, ...], block: int) -> None:
        rows, width = shape
        trits = self.rng.integers(-1, 2, shape)
        scales = self.rng.uniform(0.5, 1.5, (rows, width // GROUP)) * 2 / np.sqrt(width)
        scales = scales.astype(np.float16)
        words = (trits + 1).reshape(rows, -1, 16).astype(np.uint32)
        packed = (words << (2 * np.arange(16, dtype=np.uint32))).sum(-1, dtype=np.uint32)
        weight = trits * np.repeat(scales, GROUP, axis=1).astype(np.float64)
        embedding = path.endswith("embed_tokens")
        self.packed[f"{path}.weight"] = mx.array(packed)
        self.packed[f"{path}.scales"] = mx.array(scales)
        self.packed[f"{path}.biases"] = mx.array(-scales)
        if block:
            signs = self.rng.choice([-1.0, 1.0], width)
            self.packed[f"{path}.signs"] = mx.array(signs.astype(np.float32))
            blocks = weight.reshape(rows, -1, block) @ hadamard(block)
            weight = blocks.reshape(rows, width) * signs
        self.plain[f"{path}.weight"] = mx.array(
            weight.astype(np.float16 if embedding else np.float32)
        ).astype(mx.float32)
        self.modules.append(
            {"path": path, "block": block, "embedding": embedding, "dtype": "float16"}
        )

    def config(self, schema: int) -> dict[str, Any]:
        return {
            "model_type": "prism_hadamard_qwen35",
            "base_model_type": "qwen3_5",
            "schema_version": schema,
            "tensor_namespace": {1: "mlx-lm-text", 2: "mlx-vlm-qwen3_5"}[schema],
            "gdn_activation_layout": "grouped",
            "hadamard_config": "hadamard.json",
            "quantization": {"bits": 2, "group_size": GROUP, "mode": "affine"},
            "modules": self.modules,
            "text_config": TEXT,
        }

    def save(self, folder: Path, schema: int = 2) -> Path:
        prefix = "language_model." if schema == 2 else ""
        weights = {prefix + name: value for name, value in self.packed.items()}
        if schema == 2:
            weights["vision_tower.blocks.0.weight"] = mx.zeros((4, 4))
        save_folder(folder, self.config(schema), weights)
        (folder / "hadamard.json").write_text(json.dumps(METADATA))
        save(folder / "mtp.safetensors", self.head)
        return folder

    def save_unrotated(self, folder: Path) -> Path:
        weights = {f"language_model.{name}": value for name, value in self.plain.items()}
        config = {"model_type": "qwen3_5", "text_config": TEXT, "mtp_norm_encoding": "absolute"}
        return save_folder(folder, config, {**weights, **self.head})
