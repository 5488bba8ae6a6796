"""Decoder layers, the trunk's and the head's, on the rows of several conversations."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from .gated_delta import gated_delta_net
from .mlx_lm_compat import KVCache, project_attention, scaled_dot_product_attention
from .pieces import Piece, join, split


def decoder_layer(
    layer: nn.Module, hidden: mx.array, pieces: Sequence[Piece], caches: Sequence[Any]
) -> mx.array:
    """``hidden`` [1, sum of T_i, H] through one layer; ``caches``: the layer's, one a piece."""
    normed = layer.input_layernorm(hidden)
    if layer.is_linear:
        mixed = gated_delta_net(layer.linear_attn, normed, pieces, caches)
    else:
        mixed = attention(layer.self_attn, normed, pieces, caches)
    hidden = hidden + mixed
    return hidden + layer.mlp(layer.post_attention_layernorm(hidden))


def attention(
    layer: nn.Module, x: mx.array, pieces: Sequence[Piece], caches: Sequence[KVCache]
) -> mx.array:
    """Gated attention of ``x`` [1, sum of T_i, H]: each piece's rows on its own KV."""
    queries, keys, values, gate = project_attention(layer, x)
    outputs = []
    for piece, cache, q, k, v in zip(
        pieces,
        caches,
        split(queries, pieces),
        split(keys, pieces),
        split(values, pieces),
        strict=True,
    ):
        mask = cache.make_mask(piece.rows, return_array=False, window_size=None)
        q, k, v = (each.transpose(0, 2, 1, 3) for each in (q, k, v))
        q, k = layer.rope(q, offset=cache.offset), layer.rope(k, offset=cache.offset)
        k, v = cache.update_and_fetch(k, v)
        out = scaled_dot_product_attention(q, k, v, cache=cache, scale=layer.scale, mask=mask)
        outputs.append(out.transpose(0, 2, 1, 3).reshape(1, piece.rows, -1))
    return layer.o_proj(join(outputs) * mx.sigmoid(gate))
