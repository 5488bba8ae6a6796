"""A copy of lm_head in fewer bits, to read drafts from: of all a draft reads, lm_head is the most.

No token changes: a draft stays only where it is the trunk's own choice.
"""

import mlx.core as mx
import mlx.nn as nn

from ..catalog.contract import Packing
from .trunk import Trunk

ROWS = 8192  # packed at once; all of a large vocabulary unpacked would be gigabytes


def draft_lm_head(trunk: Trunk, form: Packing) -> nn.Module | None:
    """None where the trunk's own is as small, or cannot be packed so."""
    source = trunk.lm_head
    kinds = (nn.Linear, nn.Embedding, nn.QuantizedLinear, nn.QuantizedEmbedding)
    if type(source) not in kinds or getattr(source, "bits", 16) <= form.bits:
        return None
    vocabulary, size = trunk.args.vocab_size, trunk.args.hidden_size
    if size % form.group_size:
        return None
    parts = []
    for start in range(0, vocabulary, ROWS):
        plain = _rows(source, start, start + ROWS)
        part = mx.quantize(plain, group_size=form.group_size, bits=form.bits)
        if (plain.any() & ~part[1].any()).item():
            return None  # where memory ran out, zeros come back and no error
        parts.append(part)
    copy = nn.QuantizedLinear(size, vocabulary, False, form.group_size, form.bits)
    copy.weight, copy.scales, copy.biases = (
        mx.concatenate(list(each)) for each in zip(*parts, strict=True)
    )
    mx.eval(copy.parameters())
    return copy


def _rows(source: nn.Module, start: int, end: int) -> mx.array:
    if not hasattr(source, "bits"):
        return source.weight[start:end]
    biases = source.get("biases")
    return mx.dequantize(
        source.weight[start:end],
        source.scales[start:end],
        None if biases is None else biases[start:end],
        group_size=source.group_size,
        bits=source.bits,
        mode=source.mode,
    )
