"""Which architectures and weight formats can be run, told from config.json alone."""

from pathlib import Path
from typing import Any

from ..errors import ModelFolderError

NEXT = "qwen3_next"
ROTATED = "prism_hadamard_qwen35"
SUPPORTED_TYPES = (
    "qwen3_5",
    "qwen3_5_text",
    "qwen3_5_moe",
    "qwen3_5_moe_text",
    NEXT,
    ROTATED,
)
WIDTHS = (2, 3, 4, 5, 6, 8)  # bits a weight


def text_config(config: dict[str, Any]) -> dict[str, Any]:
    nested = config.get("text_config")
    return nested if isinstance(nested, dict) else config


def check_architecture(path: Path, config: dict[str, Any]) -> None:
    """Raises ModelFolderError, with what is supported, where the config asks for more."""
    model_type = config.get("model_type")
    if model_type not in SUPPORTED_TYPES:
        raise ModelFolderError(
            f"{path} is a model of type {model_type!r}, which is not supported. "
            f"Supported types: {', '.join(SUPPORTED_TYPES)}."
        )
    if not isinstance(config.get("text_config", {}), dict):
        raise ModelFolderError(f"{path / 'config.json'}: text_config is not an object.")
    if config.get("model_file"):
        raise ModelFolderError(
            f"{path} needs a custom module ({config['model_file']}); code shipped with a "
            "model is never run."
        )
    _check_layers(path, text_config(config))
    _check_quantization(path, config)


def _check_layers(path: Path, text: dict[str, Any]) -> None:
    """Layers stand in one order: every n-th is full attention, and all have the same MLP."""
    kinds = text.get("layer_types")
    every = text.get("full_attention_interval", 4)
    if not isinstance(every, int) or every < 1:
        raise ModelFolderError(f"{path / 'config.json'}: full_attention_interval is {every!r}.")
    if isinstance(kinds, list):
        wanted = [
            "linear_attention" if (n + 1) % every else "full_attention" for n in range(len(kinds))
        ]
        if kinds != wanted:
            raise ModelFolderError(
                f"{path}: layer_types must be one full_attention after every {every - 1} "
                "linear_attention; no other order is supported."
            )
    if text.get("num_experts") and (
        text.get("mlp_only_layers") or text.get("decoder_sparse_step", 1) != 1
    ):
        raise ModelFolderError(
            f"{path} has experts in only some layers; all layers or none must have them."
        )


def _check_quantization(path: Path, config: dict[str, Any]) -> None:
    quantization = config.get("quantization")
    foreign = config.get("quantization_config") or text_config(config).get("quantization_config")
    if quantization is None and isinstance(foreign, dict) and "quant_method" in foreign:
        raise ModelFolderError(
            f"{path} is quantized with {foreign['quant_method']!r}, which is not "
            "supported. Use the original weights, or a conversion made by mlx-lm."
        )
    if not isinstance(quantization, dict):
        return
    for name, spec in [("", quantization), *quantization.items()]:
        bits = spec.get("bits") if isinstance(spec, dict) else None
        if bits is not None and bits not in WIDTHS:
            where = f" in {name}" if name else ""
            raise ModelFolderError(
                f"{path} is quantized to {bits} bits{where}, which is not supported. "
                f"Supported: {', '.join(map(str, WIDTHS))}."
            )
