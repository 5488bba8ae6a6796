"""The MTP head's weights, wherever the folder keeps them."""

from pathlib import Path
from typing import cast

import mlx.core as mx
from mlx.utils import tree_flatten

from ..catalog.folder import HeadTensors, ModelFolder
from ..errors import ModelFolderError
from .experts import Weights, stack_experts
from .mtp_head import MTPHead
from .quantization import quantize_as_stored
from .trunk import Trunk

DELTA_MARKERS = ("delta", "delta_plus_one", "mlx_delta")


def load_head(folder: ModelFolder, found: HeadTensors, trunk: Trunk) -> MTPHead:
    """The head with every parameter from disk. Each layer is quantized or not as it is stored.

    Raises ModelFolderError where the head does not fit the model.
    """
    declared = folder.text_config.get("mtp_num_hidden_layers", 1)
    if declared not in (0, 1):
        raise ModelFolderError(
            f"{folder.path} has an MTP head of {declared} layers; only one layer is supported."
        )
    head = MTPHead(trunk.args)
    head.eval()
    weights = stack_experts(
        folder.path,
        _read(found),
        trunk.args.hidden_size,
        trunk.args.moe_intermediate_size,
    )
    quantize_as_stored(folder.path, head, weights)
    _check_names_and_shapes(folder.path, head, weights)
    if norms_are_deltas(folder, weights):
        weights = {k: v + 1.0 if _is_norm(k) else v for k, v in weights.items()}
    _check_not_empty(folder.path, weights)
    head.load_weights(list(weights.items()), strict=True)
    mx.eval(head.parameters())
    return head


def norms_are_deltas(folder: ModelFolder, weights: Weights) -> bool:
    """Whether the head stores its RMSNorm gains as w with the gain 1 + w, decided for all at once.

    A marker in the config decides; else a head that shares its files with a raw Hugging Face
    trunk is raw as well; else the means of its gains tell: trained gains lie near 1.8 (attention
    q and k) and above 0.8 (the others) when they are absolute, one less when they are deltas.
    """
    marker = _norm_marker(folder)
    if marker is not None:
        return marker in DELTA_MARKERS
    if _shares_raw_trunk(folder):
        return True

    means = {n: float(v.astype(mx.float32).mean()) for n, v in weights.items() if _is_norm(n)}
    attention = [m for n, m in means.items() if n.endswith(("q_norm.weight", "k_norm.weight"))]
    # The final norm's mean tells nothing: it is above 2 in either form.
    others = [m for n, m in means.items() if "layernorm" in n or "pre_fc_norm" in n]
    return max(attention) < 1.25 and min(others) < 0.5


def _norm_marker(folder: ModelFolder) -> str | None:
    quantization = folder.config.get("mtplx_mtp_quantization")
    candidates = [
        folder.config.get("mtplx_mtp_norm_encoding"),
        folder.config.get("mtp_norm_encoding"),
        quantization.get("norm_encoding") if isinstance(quantization, dict) else None,
    ]
    return next((c for c in candidates if isinstance(c, str)), None)


def _shares_raw_trunk(folder: ModelFolder) -> bool:
    """Hugging Face stores the conv1d weight as [C, 1, K], mlx-lm as [C, K, 1]."""
    assert folder.head is not None
    return folder.head.embedded and any(
        name.endswith("conv1d.weight") and info.shape[-1] != 1
        for header in folder.trunk_headers.values()
        for name, info in header.items()
    )


def _is_norm(name: str) -> bool:
    return name.endswith("norm.weight") or "pre_fc_norm" in name


def _check_names_and_shapes(path: Path, head: MTPHead, weights: Weights) -> None:
    wanted = {name: value.shape for name, value in tree_flatten(head.parameters())}
    missing = sorted(wanted.keys() - weights.keys())
    unknown = sorted(weights.keys() - wanted.keys())
    if missing or unknown:
        parts = []
        if missing:
            parts.append(f"{len(missing)} of {len(wanted)} are missing (first: {missing[0]})")
        if unknown:
            parts.append(f"{len(unknown)} are not part of a head (first: {unknown[0]})")
        raise ModelFolderError(
            f"{path}: the MTP head's tensors do not fit the model: {', '.join(parts)}."
        )
    for name, shape in wanted.items():
        if weights[name].shape != shape:
            raise ModelFolderError(
                f"{path}: the MTP head's {name} has shape {list(weights[name].shape)}; "
                f"the model needs {list(shape)}."
            )


def _check_not_empty(path: Path, weights: Weights) -> None:
    filled = {name: value.any() for name, value in weights.items() if value.ndim > 1}
    mx.eval(filled)
    empty = [name for name, value in filled.items() if not value.item()]
    if empty:
        raise ModelFolderError(
            f"{path}: the MTP head's {empty[0]} is all zeros, so the head cannot work. "
            "Download the model again."
        )


def _read(found: HeadTensors) -> Weights:
    files: dict[Path, Weights] = {
        file: cast(Weights, mx.load(str(file)))
        for file in {file for file, _, _ in found.tensors.values()}
    }
    return {name: files[file][stored] for name, (file, stored, _) in found.tensors.items()}
