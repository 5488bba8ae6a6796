"""The trunk's weights, in whatever form the folder has them, in mlx-lm's model."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from ..catalog.architecture import ROTATED
from ..catalog.folder import ModelFolder, is_trunk
from ..errors import ModelFolderError
from .experts import Weights, stack_experts
from .mlx_lm_compat import build_model, load_config, sanitize
from .quantization import quantize_as_stored
from .trunk import Trunk

# Attention norms of trained Qwen models have gains around 1.8; one added twice shows.
SHIFTED_TWICE = 2.4


def load_trunk(folder: ModelFolder) -> tuple[Trunk, dict[str, Any]]:
    """The trunk with every parameter from disk, and the config as mlx-lm reads it.

    Raises ModelFolderError where weights and config do not fit.
    """
    config = _completed(load_config(folder.path))
    try:
        model = build_model(config)
        weights = stack_experts(
            folder.path,
            _read(folder),
            folder.text_config.get("hidden_size", 0),
            folder.text_config.get("moe_intermediate_size", 0),
        )
        weights = sanitize(model, weights)
        if config["model_type"] == ROTATED:
            weights = _halve(weights)
        else:
            quantize_as_stored(folder.path, model, weights)
        model.eval()
        model.load_weights(list(weights.items()), strict=True)
        mx.eval(model.parameters())
    except ModelFolderError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or repr(error)
        raise ModelFolderError(f"{folder.path} cannot be loaded: {reason[:300]}") from error
    trunk = Trunk(model)
    _check_norms(folder, trunk)
    return trunk, config


def _completed(config: dict[str, Any]) -> dict[str, Any]:
    """Rope settings where mlx-lm looks for them: flat, in this family."""
    if config["model_type"] == "qwen3_next" and isinstance(config.get("rope_parameters"), dict):
        return {**config["rope_parameters"], **config}
    return config


def _read(folder: ModelFolder) -> Weights:
    """Lazily: what is left out is never read."""
    weights: Weights = {}
    for file in folder.trunk_headers:
        stored: Weights = mx.load(str(file))  # type: ignore[assignment]
        weights.update({name: value for name, value in stored.items() if is_trunk(name)})
    return weights


def _halve(weights: Weights) -> Weights:
    """A rotated pack's plain tensors in float16, as its embedding and its scales are; they are
    stored in float32, which would carry all activations with it."""
    kept = (".signs", ".A_log")
    return {
        name: value.astype(mx.float16)
        if value.dtype == mx.float32 and not name.endswith(kept)
        else value
        for name, value in weights.items()
    }


def _check_norms(folder: ModelFolder, trunk: Trunk) -> None:
    gain = trunk.attention_gain
    if gain > SHIFTED_TWICE:
        raise ModelFolderError(
            f"{folder.path}: the attention norms have a mean gain of {gain:.2f}; trained "
            "models have about 1.8. 1 was added twice, so this conversion is broken: "
            "use another one."
        )


def is_quantized(module: nn.Module) -> bool:
    return any("scales" in part for part in module.modules())
