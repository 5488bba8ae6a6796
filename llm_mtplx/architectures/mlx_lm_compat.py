"""Everything we rely on inside mlx-lm, in one place.

mlx-lm's modules are used as they are; only the order in which they run is ours (see ``trunk.py``),
and which weights they are given (``load_trunk.py``). Tests hold our walk and mlx-lm's own
forward to the same bits, and say what else is expected of it.
"""

import copy
from typing import Any, TypeAlias

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import prism_hadamard_qwen35, qwen3_5, qwen3_next
from mlx_lm.models.base import scaled_dot_product_attention
from mlx_lm.models.cache import ArraysCache, KVCache
from mlx_lm.models.gated_delta import _gated_delta_step_ops as gated_delta_step
from mlx_lm.models.gated_delta import compute_g, gated_delta_update, normalize_qk
from mlx_lm.models.qwen3_5 import DecoderLayer, GatedDeltaNet, TextModelArgs
from mlx_lm.models.qwen3_next import ModelArgs as NextArgs
from mlx_lm.models.qwen3_next import Qwen3NextDecoderLayer, Qwen3NextGatedDeltaNet
from mlx_lm.utils import load_config

__all__ = [
    "ArraysCache",
    "GatedDeltaNet",
    "GrowingKVCache",
    "KVCache",
    "NextArgs",
    "TextModelArgs",
    "TrunkArgs",
    "build_model",
    "compute_g",
    "copy_with_room",
    "full_attention_layer",
    "gated_delta_step",
    "gated_delta_update",
    "load_config",
    "log_decay",
    "normalize_qk",
    "project",
    "project_attention",
    "recurrence_is_a_kernel",
    "sanitize",
    "scaled_dot_product_attention",
    "spare_rows",
]

TrunkArgs: TypeAlias = TextModelArgs | NextArgs


class GrowingKVCache(KVCache):
    """mlx-lm's cache with geometric growth: every growth copies all rows so far.

    ``max_rows``: as many as a context has. Room beyond them is never taken, so that a context that
    the memory plan says fits does.
    """

    keys: mx.array | None
    values: mx.array | None

    def __init__(self, max_rows: int | None = None) -> None:
        super().__init__()
        self.max_rows = max_rows

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """``keys``, ``values`` [1, heads, T, size]: T rows more."""
        rows = self.offset + keys.shape[2]
        if self.keys is None or self.values is None:
            capacity = self._capacity(keys.shape[2])
            self.keys = mx.zeros((*keys.shape[:2], capacity, keys.shape[3]), keys.dtype)
            self.values = mx.zeros((*values.shape[:2], capacity, values.shape[3]), values.dtype)
        elif rows > self.keys.shape[2]:
            capacity = self._capacity(keys.shape[2])
            self.keys = _with_capacity(self.keys, self.offset, capacity)
            self.values = _with_capacity(self.values, self.offset, capacity)
        return super().update_and_fetch(keys, values)

    def _capacity(self, more: int) -> int:
        """Rows to have after a growth for ``more`` of them."""
        step = max(KVCache.step, self.offset // 2 // KVCache.step * KVCache.step)
        capacity = self.offset + -(-more // step) * step
        if self.max_rows is not None:
            capacity = max(min(capacity, self.max_rows), self.offset + more)
        return capacity

    def reserve(self) -> None:
        """Grow now if one of the next rows would have to."""
        if self.keys is None or self.values is None:
            return
        room = spare_rows(self.offset, self.max_rows)
        if self.keys.shape[2] - self.offset < min(KVCache.step, room):
            # One after the other: at no time are there two copies of both.
            self.keys = copy_with_room(self.keys, self.offset, room)
            self.values = copy_with_room(self.values, self.offset, room)
            mx.clear_cache()  # the old ones fit nowhere any more


def spare_rows(rows: int, max_rows: int | None = None) -> int:
    """Room to leave after so many rows, of at most ``max_rows``: the next turn's rows shall copy
    nothing."""
    spare = max(1024, rows // 8)
    return spare if max_rows is None else max(min(spare, max_rows - rows), 0)


def copy_with_room(array: mx.array, rows: int, room: int) -> mx.array:
    """A copy of the first ``rows`` of [1, heads, rows, size], with room for more."""
    copied = _with_capacity(array, rows, rows + room)
    mx.eval(copied)
    return copied


def _with_capacity(array: mx.array, rows: int, capacity: int) -> mx.array:
    room = mx.zeros((*array.shape[:2], capacity - rows, array.shape[3]), array.dtype)
    return mx.concatenate([array[..., :rows, :], room], axis=2)


def log_decay(A_log: mx.array, a: mx.array, dt_bias: mx.array) -> mx.array:
    """The logarithm of mlx-lm's ``compute_g``, exact where that underflows: [1, T, Hv]."""
    return -mx.exp(A_log.astype(mx.float32)) * nn.softplus(a + dt_bias)


def recurrence_is_a_kernel(head_k_dim: int) -> bool:
    """Whether ``gated_delta_update`` runs fused over all rows (else it loops over rows)."""
    return mx.default_device() == mx.gpu and mx.metal.is_available() and head_k_dim % 32 == 0


def full_attention_layer(args: TrunkArgs) -> nn.Module:
    """A decoder layer as the trunk's full-attention ones are, experts included."""
    kind = Qwen3NextDecoderLayer if isinstance(args, NextArgs) else DecoderLayer
    # This index makes mlx-lm build a full-attention layer.
    return kind(args, layer_idx=args.full_attention_interval - 1)


def project(layer: nn.Module, x: mx.array) -> tuple[mx.array, mx.array, mx.array, mx.array]:
    """The recurrent layer's input projections: qkv [1, T, C], z [1, T, Hv, Dv], b, a [1, T, Hv]."""
    rows = x.shape[1]
    if isinstance(layer, Qwen3NextGatedDeltaNet):
        q, k, v, z, b, a = layer.fix_query_key_value_ordering(
            layer.in_proj_qkvz(x), layer.in_proj_ba(x)
        )
        qkv = mx.concatenate([part.reshape(1, rows, -1) for part in (q, k, v)], axis=-1)
        return qkv, z, b, a
    z = layer.in_proj_z(x).reshape(1, rows, layer.num_v_heads, layer.head_v_dim)
    return layer.in_proj_qkv(x), z, layer.in_proj_b(x), layer.in_proj_a(x)


def project_attention(
    layer: nn.Module, x: mx.array
) -> tuple[mx.array, mx.array, mx.array, mx.array]:
    """The attention layer's input projections: queries [1, T, heads, D], keys and values [1, T, KV
    heads, D], and the gate of its output [1, T, heads * D]."""
    rows = x.shape[1]
    both = layer.q_proj(x).reshape(1, rows, layer.num_attention_heads, -1)
    queries, gate = mx.split(both, 2, axis=-1)
    keys, values = layer.k_proj(x), layer.v_proj(x)
    keys = keys.reshape(1, rows, layer.num_key_value_heads, -1)
    values = values.reshape(1, rows, layer.num_key_value_heads, -1)
    return layer.q_norm(queries), layer.k_norm(keys), values, gate.reshape(1, rows, -1)


def build_model(config: dict[str, Any]) -> nn.Module:
    """The model of a config, its weights not loaded. ``config`` stays as it is."""
    modules = {"qwen3_next": qwen3_next, "prism_hadamard_qwen35": prism_hadamard_qwen35}
    # A mixture of experts is the dense model with another MLP; mlx-lm's module of its own for it
    # differs in how it reads experts, which is ours to do.
    family = modules.get(config["model_type"], qwen3_5)
    # mlx-lm renames keys of nested dicts in place.
    return family.Model(family.ModelArgs.from_dict(copy.deepcopy(config)))


def sanitize(model: nn.Module, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Names and values as ``model`` has them: raw checkpoints get conv1d turned and 1 added to
    their norms, converted ones (known by their conv1d) are left as they are."""
    if isinstance(model, qwen3_next.Model):
        # Its own sanitize knows a raw checkpoint by numbered experts alone.
        return qwen3_5.TextModel.sanitize(model, weights)
    return model.sanitize(weights)
