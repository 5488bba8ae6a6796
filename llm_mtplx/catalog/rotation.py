"""Packs whose weights are stored in a Hadamard-rotated basis (Ternary Bonsai 2).

A rotation left out gives fluent nonsense, not an error. So a pack is run only where its manifest,
its tensors and its rotation metadata say the same, all of it told from headers.
"""

from pathlib import Path
from typing import Any

from ..errors import ModelFolderError
from .architecture import ROTATED
from .safetensors import TensorInfo

NAMESPACES = {1: "mlx-lm-text", 2: "mlx-vlm-qwen3_5"}
BLOCKS = (0, 512, 1024, 2048, 4096, 8192)  # 0: the module is not rotated
GROUP = 128
PACKED = {"bits": 2, "group_size": GROUP, "mode": "affine"}
METADATA = {
    "prism.hadamard.version": 1,
    "prism.hadamard.transform": "normalized-sylvester-walsh-hadamard",
    "prism.hadamard.axis": "input-last-dimension",
}

Headers = dict[str, TensorInfo]


def check_rotation(
    path: Path, config: dict[str, Any], metadata: dict[str, Any] | None, headers: Headers
) -> None:
    """``metadata``: what ``hadamard_config`` names, or None where there is no such file."""
    if config.get("model_type") != ROTATED:
        if "hadamard_config" in config or any(name.endswith(".signs") for name in headers):
            raise ModelFolderError(
                f"{path} has Hadamard-rotated weights but is not of type {ROTATED!r}; "
                f"run as {config.get('model_type')!r} it would produce nonsense."
            )
        return
    problem = _config_problem(config) or _metadata_problem(config, metadata)
    if problem is None:
        problem = _tensor_problem(config, headers)
    if problem is not None:
        raise ModelFolderError(f"{path} cannot be run as a rotated model: {problem}.")


def _config_problem(config: dict[str, Any]) -> str | None:
    schema = config.get("schema_version")
    if schema not in NAMESPACES:
        return f"schema_version is {schema!r}; supported are 1 and 2"
    for name, value in {"tensor_namespace": NAMESPACES[schema], "quantization": PACKED}.items():
        if config.get(name) != value:
            return f"{name} is {config.get(name)!r}; schema {schema} has {value!r}"
    for name, value in {"base_model_type": "qwen3_5", "gdn_activation_layout": "grouped"}.items():
        if config.get(name, value) != value:
            return f"{name} is {config[name]!r}; only {value!r} is supported"
    modules = config.get("modules")
    if not isinstance(modules, list) or not modules:
        return "it does not list its rotated modules"
    for module in modules:
        if not isinstance(module, dict) or not isinstance(module.get("path"), str):
            return "its list of rotated modules cannot be read"
        if module.get("block") not in BLOCKS:
            return f"{module['path']} has a block of {module.get('block')!r}"
    return None


def _metadata_problem(config: dict[str, Any], metadata: dict[str, Any] | None) -> str | None:
    if metadata is None:
        named = config.get("hadamard_config")
        return f"{named}, which describes its rotation, is missing" if named else None
    for name, value in METADATA.items():
        if metadata.get(name, value) != value:
            return f"{name} is {metadata[name]!r}; only {value!r} is supported"
    return None


def _tensor_problem(config: dict[str, Any], headers: Headers) -> str | None:
    """Modules in the manifest are exactly those that are packed, and exactly those with a block
    have signs."""
    tensors = {_inner(name): info for name, info in headers.items()}
    modules = {module["path"]: module["block"] for module in config["modules"]}
    packed = {name.removesuffix(".scales") for name in tensors if name.endswith(".scales")}
    for path in sorted(packed ^ modules.keys()):
        listed = path in modules
        return f"{path} is {'listed but not packed' if listed else 'packed but not listed'}"
    signs = {n.removesuffix(".signs"): i for n, i in tensors.items() if n.endswith(".signs")}
    for path in sorted(signs.keys() ^ {path for path, block in modules.items() if block}):
        return f"{path} has {'signs but no block' if path in signs else 'no signs'}"
    for path, info in signs.items():
        scales = tensors[f"{path}.scales"]
        width = scales.shape[-1] * GROUP
        if info.dtype != "F32" or info.shape != (width,):
            return f"the signs of {path} are {info.dtype} {list(info.shape)}, not F32 [{width}]"
    for name, info in tensors.items():
        if name.endswith("conv1d.weight") and info.shape[-1] != 1:
            return f"{name} has shape {list(info.shape)}, not that of a converted model"
    return None


def _inner(name: str) -> str:
    """A tensor's name inside the language model, as the manifest has it."""
    return name.removeprefix("language_model.")
