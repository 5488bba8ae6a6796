"""Which modules are stored quantized, and how: told by their own tensors.

Configs name bits and group size a module, and sometimes wrongly. The packed shapes cannot be wrong:
a row of n weights in b bits is n * b / 32 words, with one scale a group.
"""

from pathlib import Path

import mlx.core as mx
import mlx.nn as nn

from ..catalog.architecture import WIDTHS
from ..errors import ModelFolderError

Weights = dict[str, mx.array]
Form = dict[str, int | str]

# Scales of eight bits: (bits, group size) -> mode.
FLOAT_MODES = {(4, 16): "nvfp4", (4, 32): "mxfp4", (8, 32): "mxfp8"}


def quantize_as_stored(path: Path, module: nn.Module, weights: Weights) -> None:
    """Turn each layer of ``module`` whose weight is packed into a quantized one of that form.

    Raises ModelFolderError for a form that is not known.
    """

    def form(name: str, layer: nn.Module) -> Form | bool:
        packed, scales = weights.get(f"{name}.weight"), weights.get(f"{name}.scales")
        if packed is None or scales is None or packed.dtype != mx.uint32:
            return False
        if not hasattr(layer, "to_quantized"):
            return False
        found = stored_form(layer.weight.shape[-1], packed, scales)
        if found is None:
            raise ModelFolderError(
                f"{path}: {name} is packed as {list(packed.shape)} with scales "
                f"{list(scales.shape)} for {layer.weight.shape[-1]} inputs, which is not "
                "a known quantization."
            )
        return found

    nn.quantize(module, class_predicate=form)


def stored_form(inputs: int, packed: mx.array, scales: mx.array) -> Form | None:
    """Bits, group size and mode of a packed weight over ``inputs`` columns."""
    bits, odd = divmod(packed.shape[-1] * 32, inputs)
    group, rest = divmod(inputs, scales.shape[-1])
    if odd or rest or bits not in WIDTHS:
        return None
    mode = "affine" if scales.dtype != mx.uint8 else FLOAT_MODES.get((bits, group))
    return {"bits": bits, "group_size": group, "mode": mode} if mode else None
