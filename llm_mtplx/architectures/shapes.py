"""Shapes and dtypes of what a model keeps of a line, learned from the model itself.

One row is forwarded and never evaluated: MLX infers shapes and dtypes without computing anything.
"""

from dataclasses import dataclass

import mlx.core as mx

from .mlx_lm_compat import ArraysCache, KVCache
from .mtp_head import MTPHead
from .trunk import Trunk


@dataclass(frozen=True)
class Shape:
    """Of keys or values: [1, ``dims[1]`` heads, rows, ``dims[3]``]; else of a whole array."""

    dims: tuple[int, ...]
    dtype: mx.Dtype


@dataclass(frozen=True)
class Shapes:
    attention: dict[int, tuple[Shape, Shape]]  # keys and values, by index of the layer
    head: tuple[Shape, Shape] | None
    recurrent: tuple[tuple[Shape, ...], ...]  # by recurrent layer
    hidden: Shape


def shapes_of(trunk: Trunk, head: MTPHead | None) -> Shapes:
    """On the engine's thread. Found once for each trunk and head."""
    for known, shapes in trunk.shapes:
        if known is head:
            return shapes
    shapes = _forwarded(trunk, head)
    trunk.shapes.append((head, shapes))
    return shapes


def _forwarded(trunk: Trunk, head: MTPHead | None) -> Shapes:
    cache = trunk.make_cache()
    token = mx.array([[0]])
    hidden = trunk.forward(token, cache)
    head_cache = None
    if head is not None:
        head_cache = head.make_cache()
        head(hidden, trunk.embed(token), head_cache)
    attention = {i: _of(each) for i, each in enumerate(cache) if isinstance(each, KVCache)}
    recurrent = tuple(
        tuple(Shape(tuple(array.shape), array.dtype) for array in each.cache)
        for each in cache
        if isinstance(each, ArraysCache)
    )
    return Shapes(
        attention,
        None if head_cache is None else _of(head_cache),
        recurrent,
        Shape(tuple(hidden.shape), hidden.dtype),
    )


def _of(cache: KVCache) -> tuple[Shape, Shape]:
    keys, values = cache.keys, cache.values
    return Shape(tuple(keys.shape), keys.dtype), Shape(tuple(values.shape), values.dtype)
