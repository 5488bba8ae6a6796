"""What a model folder holds, told from its small files and safetensors headers."""

import json
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import ModelFolderError
from .architecture import ROTATED, check_architecture, text_config
from .contract import Contract, read_contract
from .rotation import check_rotation
from .safetensors import TensorInfo, read_header

VISION_PREFIXES = ("vision_tower", "model.visual")
HEAD_PREFIXES = ("mtp.", "language_model.mtp.", "model.mtp.", "model.language_model.mtp.")
HEAD_FILES = (
    "mtp.safetensors",
    "mtp/weights.safetensors",
    "model-mtp.safetensors",
    "model-mtp-head.safetensors",
)


@dataclass(frozen=True)
class HeadTensors:
    """An MTP head on disk: its name inside the head -> (file, name in that file, info)."""

    tensors: dict[str, tuple[Path, str, TensorInfo]]
    embedded: bool  # among the trunk's own weights


@dataclass(frozen=True)
class ModelFolder:
    path: Path
    config: dict[str, Any]
    trunk_headers: dict[Path, dict[str, TensorInfo]]  # model*.safetensors but the head's own
    head: HeadTensors | None
    generation: dict[str, Any]  # generation_config.json
    contract: Contract

    @property
    def text_config(self) -> dict[str, Any]:
        return text_config(self.config)

    @property
    def declares_head(self) -> bool:
        keys = ("mtp_num_hidden_layers", "num_nextn_predict_layers", "num_mtp_modules")
        return any(cfg.get(k) for cfg in (self.text_config, self.config) for k in keys)


def inspect(path: Path) -> ModelFolder:
    """Read a folder's config and file headers.

    Raises ModelFolderError where the folder cannot be run, with what to do about it.
    """
    if not path.is_dir():
        raise ModelFolderError(
            f"The model folder {path} does not exist. Check the path, or remove the model "
            "with 'llm mtplx remove'."
        )
    config = _read_json(path / "config.json")
    if config is None:
        raise ModelFolderError(f"{path} has no config.json: it is not a model folder.")
    check_architecture(path, config)
    runtime = _read_json(path / "mtplx_runtime.json") or {}
    contract = read_contract(path, runtime, config)
    headers = _read_trunk_headers(path)
    head = _find_head(path, config, runtime, headers)
    if head is not None and not head.embedded:
        own = {file for file, _, _ in head.tensors.values()}
        headers = {file: header for file, header in headers.items() if file not in own}
    _check_rotation(path, config, headers)
    generation = _read_json(path / "generation_config.json") or {}
    return ModelFolder(path, config, headers, head, generation, contract)


def named_heads(path: Path, config: dict[str, Any], runtime: dict[str, Any]) -> list[str]:
    """The head files that config.json and mtplx_runtime.json name, relative to the folder.

    Raises ModelFolderError for one that is outside of it, or of another format.
    """
    extra = config.get("mlx_lm_extra_tensors")
    told = [extra.get("mtp_file")] if isinstance(extra, dict) else []
    told += [runtime.get("mtp_file"), runtime.get("mtp_sidecar_file")]
    named = [PurePosixPath(name) for name in told if isinstance(name, str)]
    for name in named:
        if ".." in name.parts or name.is_absolute():
            raise ModelFolderError(f"{path} names an MTP head file outside the folder: {name}.")
        if name.suffix != ".safetensors":
            raise ModelFolderError(f"{path}: the MTP head file {name} is not a safetensors file.")
    return [str(name) for name in named]


def is_trunk(name: str) -> bool:
    """Whether a tensor of the trunk's files belongs to the trunk: not to its head or its eyes."""
    return _strip_prefix(name) is None and not name.startswith(VISION_PREFIXES)


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ModelFolderError(f"{path} cannot be read: {error}.") from None
    if not isinstance(content, dict):
        raise ModelFolderError(f"{path} cannot be read: it does not contain a JSON object.")
    return content


def _check_rotation(
    path: Path, config: dict[str, Any], headers: dict[Path, dict[str, TensorInfo]]
) -> None:
    named = config.get("hadamard_config")
    metadata = _read_json(path / Path(named).name) if isinstance(named, str) else None
    trunk = {n: i for header in headers.values() for n, i in header.items() if is_trunk(n)}
    check_rotation(path, config, metadata, trunk)


def _read_trunk_headers(path: Path) -> dict[Path, dict[str, TensorInfo]]:
    """Headers of every ``model*.safetensors``; all shards an index names must be there."""
    index = _read_json(path / "model.safetensors.index.json")
    files = sorted(path.glob("model*.safetensors"))
    if index is not None:
        weight_map = index.get("weight_map")
        if not isinstance(weight_map, dict):
            raise ModelFolderError(f"{path / 'model.safetensors.index.json'} has no weight_map.")
        wanted = sorted({str(name) for name in weight_map.values()})
        missing = [name for name in wanted if not (path / name).is_file()]
        if missing:
            raise ModelFolderError(
                f"{path} is incomplete: {len(missing)} of {len(wanted)} weight files are "
                f"missing (first: {missing[0]}). Download the model again."
            )
    if not files:
        raise ModelFolderError(
            f"{path} has no model*.safetensors: the weights are missing. Download the model again."
        )
    return {file: read_header(file) for file in files}


def _find_head(
    path: Path,
    config: dict[str, Any],
    runtime: dict[str, Any],
    trunk: dict[Path, dict[str, TensorInfo]],
) -> HeadTensors | None:
    """The first place that holds a head: a named sidecar, a known sidecar, the trunk's shards."""
    for file in _sidecar_candidates(path, config, runtime):
        if file.is_file():
            tensors = {}
            for name, info in read_header(file).items():
                tensors[_strip_prefix(name) or name] = (file, name, info)
            return HeadTensors(tensors, embedded=False)
    if config.get("model_type") == ROTATED:
        return None  # which basis a head among rotated weights is in, nothing tells
    embedded = {}
    for file, header in trunk.items():
        for name, info in header.items():
            inner = _strip_prefix(name)
            if inner is not None:
                embedded[inner] = (file, name, info)
    return HeadTensors(embedded, embedded=True) if embedded else None


def _sidecar_candidates(path: Path, config: dict[str, Any], runtime: dict[str, Any]) -> list[Path]:
    named = named_heads(path, config, runtime)
    for name in named:
        if not (path / name).is_file():
            raise ModelFolderError(
                f"{path} names the MTP head file {name}, which is missing. Download the "
                "model again."
            )
    return [path / name for name in (*named, *HEAD_FILES)]


def _strip_prefix(name: str) -> str | None:
    for prefix in HEAD_PREFIXES:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return None
