"""A state of the shape of a 27B model, full of random bits: what a store has to keep.

64 layers, every fourth with attention (4 key/value heads of 256, bfloat16), the others recurrent
(48 x 128 x 128 float32 and 3 x 10,240 bfloat16); one more attention layer is the MTP head's.
"""

import math

import mlx.core as mx
import numpy as np

from llm_mtplx.architectures.mlx_lm_compat import ArraysCache, GrowingKVCache, KVCache
from llm_mtplx.architectures.state import State

LAYERS, EVERY = 64, 4
HEADS, WIDTH, HIDDEN = 4, 256, 5120
MATRIX, CONV = (1, 48, 128, 128), (1, 3, 10_240)
TOKEN_BYTES = (LAYERS // EVERY + 1) * 2 * HEADS * WIDTH * 2  # attention rows and the head's


def empty() -> State:
    cache = [GrowingKVCache() if _attends(i) else ArraysCache(size=2) for i in range(LAYERS)]
    return State(cache, GrowingKVCache())


def build(tokens: int, cache_type: type[KVCache] = GrowingKVCache) -> State:
    """The state after ``tokens`` tokens, with no row to spare. The same bits every time."""
    random = np.random.default_rng(tokens)
    cache = [_filled(cache_type, random, tokens) if _attends(i) else None for i in range(LAYERS)]
    state = State(cache, _filled(cache_type, random, tokens - 1), token_ids(tokens))
    move_on(state, random)
    return state


def extend(state: State, rows: int) -> None:
    """Add the rows of that many more tokens, as a turn does."""
    random = np.random.default_rng(state.position)
    for cache in [*attention(state), state.head_cache]:
        cache.update_and_fetch(_rows(random, rows), _rows(random, rows))
        mx.eval(cache.keys, cache.values)
    state.ids = token_ids(state.position + rows)
    move_on(state, random)


def move_on(state: State, random: np.random.Generator) -> None:
    """New recurrent arrays and a new hidden row: these are never written in place."""
    for index in range(LAYERS):
        if not _attends(index):
            state.cache[index] = ArraysCache(size=2)
            matrix = mx.array(random.standard_normal(MATRIX, np.float32))
            state.cache[index].cache = [_bfloat16(random, CONV), matrix]
    state.hidden = _bfloat16(random, (1, 1, HIDDEN))
    mx.eval(state.arrays())


def one_row(seed: int = 0) -> mx.array:
    row = _rows(np.random.default_rng(seed), 1)
    mx.eval(row)
    return row


def write_one_row(state: State, row: mx.array) -> None:
    """What a decode step writes: one row into every attention layer, and into the head's."""
    for cache in [*attention(state), state.head_cache]:
        cache.update_and_fetch(row, row)
    state.ids.append(0)
    mx.eval(state.arrays())


def attention(state: State) -> list[KVCache]:
    return [cache for cache in state.cache if isinstance(cache, KVCache)]


def token_ids(count: int, seed: int = 1) -> list[int]:
    return [(i * 7919 + seed * 104_729) % 248_320 for i in range(count)]


def nbytes(state: State) -> int:
    return sum(int(array.nbytes) for array in state.arrays())


def _attends(index: int) -> bool:
    return index % EVERY == EVERY - 1


def _filled(cache_type: type[KVCache], random: np.random.Generator, rows: int) -> KVCache:
    cache = cache_type()
    cache.keys, cache.values, cache.offset = _rows(random, rows), _rows(random, rows), rows
    mx.eval(cache.keys, cache.values)
    return cache


def _rows(random: np.random.Generator, rows: int) -> mx.array:
    return _bfloat16(random, (1, HEADS, rows, WIDTH))


def _bfloat16(random: np.random.Generator, shape: tuple[int, ...]) -> mx.array:
    # Exponents of ordinary numbers: neither infinite nor not a number.
    bits = random.integers(0, 2**63, -(-math.prod(shape) // 4), np.uint64).view(np.uint16)
    bits &= np.uint16(0x3FFF)
    return mx.array(bits[: math.prod(shape)].reshape(shape)).view(mx.bfloat16)
