"""Everything decoding relies on inside mlx-lm, in one place.

mlx-lm's Qwen 3.5 modules are used as they are; only the order in which they run is ours (see
``trunk.py``). A test holds our walk and mlx-lm's own forward to the same bits.
"""

import mlx.core as mx
from mlx_lm.models.base import create_attention_mask
from mlx_lm.models.cache import ArraysCache, KVCache
from mlx_lm.models.gated_delta import _gated_delta_step_ops as gated_delta_step
from mlx_lm.models.gated_delta import compute_g, gated_delta_update, normalize_qk
from mlx_lm.models.qwen3_5 import DecoderLayer, GatedDeltaNet, TextModelArgs

__all__ = [
    "ArraysCache",
    "DecoderLayer",
    "GatedDeltaNet",
    "GrowingKVCache",
    "KVCache",
    "TextModelArgs",
    "compute_g",
    "create_attention_mask",
    "gated_delta_step",
    "gated_delta_update",
    "normalize_qk",
    "recurrence_is_a_kernel",
]


class GrowingKVCache(KVCache):
    """mlx-lm's cache with geometric growth: every growth copies all rows so far."""

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        self.step = max(KVCache.step, self.offset // 2 // KVCache.step * KVCache.step)
        return super().update_and_fetch(keys, values)


def recurrence_is_a_kernel(head_k_dim: int) -> bool:
    """Whether ``gated_delta_update`` runs fused over all rows (else it loops over rows)."""
    return mx.default_device() == mx.gpu and mx.metal.is_available() and head_k_dim % 32 == 0
