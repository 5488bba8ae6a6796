"""What a model needs in bytes, told from its config and its files' headers."""

import math
from collections.abc import Mapping
from typing import Any

from . import known, places
from .architecture import ROTATED
from .fit import GIB, Needs
from .folder import ModelFolder, is_trunk
from .safetensors import TensorInfo

ITEM_BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2}


def of_folder(folder: ModelFolder) -> Needs:
    headers = folder.trunk_headers.values()
    tensors = [info for header in headers for name, info in header.items() if is_trunk(name)]
    if folder.head is not None:
        tensors += [info for _, _, info in folder.head.tensors.values()]
    weights = sum(map(_bytes, tensors)) + _copied(folder)
    pack = known.of_names(places.names_of(folder.path))
    return of_config(folder.text_config, weights, pack[1] if pack else None)


def of_config(
    text_config: Mapping[str, Any], weights: int, pack: known.Download | None = None
) -> Needs:
    """``text_config`` as in config.json; of a pack in the catalog the peak is known."""

    def number(name: str, otherwise: int) -> int:
        value = text_config.get(name)
        return value if isinstance(value, int) else otherwise

    layers = number("num_hidden_layers", 0)
    attention = _attention_layers(text_config, layers)
    heads = number("num_attention_heads", 1)
    head_dim = number("head_dim", number("hidden_size", 0) // max(heads, 1))
    item = 4 if (text_config.get("dtype") or text_config.get("torch_dtype")) == "float32" else 2
    row = 2 * number("num_key_value_heads", heads) * head_dim * item
    key_heads, value_heads = number("linear_num_key_heads", 0), number("linear_num_value_heads", 0)
    key_dim, value_dim = number("linear_key_head_dim", 0), number("linear_value_head_dim", 0)
    channels = 2 * key_heads * key_dim + value_heads * value_dim
    convolution = (number("linear_conv_kernel_dim", 1) - 1) * channels * item
    return Needs(
        weights=weights,
        kv_per_token=row * (attention + number("mtp_num_hidden_layers", 0)),
        state=(layers - attention) * (value_heads * key_dim * value_dim * 4 + convolution),
        max_context=number("max_position_embeddings", 262_144),
        peak=int(pack.peak_gib * GIB) if pack else None,
    )


def _copied(folder: ModelFolder) -> int:
    """The most that a copy of lm_head for drafts takes."""
    form, text = folder.contract.draft_lm_head, folder.text_config
    sides = text.get("vocab_size"), text.get("hidden_size")
    known_sides = [side for side in sides if isinstance(side, int)]
    if form is None or folder.head is None or len(known_sides) < 2:
        return 0
    if folder.config.get("model_type") == ROTATED:
        return 0  # such a lm_head is not packed anew
    return form.nbytes(math.prod(known_sides))


def _attention_layers(text_config: Mapping[str, Any], layers: int) -> int:
    types = text_config.get("layer_types")
    if isinstance(types, list):
        return types.count("full_attention")
    interval = text_config.get("full_attention_interval", 4)
    return layers // interval if isinstance(interval, int) and interval > 0 else layers


def _bytes(tensor: TensorInfo) -> int:
    return math.prod(tensor.shape) * ITEM_BYTES.get(tensor.dtype, 1)
