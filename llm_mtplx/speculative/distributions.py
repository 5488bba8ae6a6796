"""From logits to the token that comes, on the device.

One function shapes target and draft alike, in the order of Hugging Face transformers:
temperature -> top-k -> top-p -> min-p. Penalties and masks come before it. What is left is not
made a distribution: the token is the argmax of scaled logits plus Gumbel noise (see ``noise.py``),
which is a sample of it, and without noise at temperature 0 the likeliest. A logit of minus infinity
is a token that a mask forbids. Where logits tie, lower ids come first.
"""

import math
from dataclasses import dataclass

import mlx.core as mx

from .noise import gumbel

# Below the first the likeliest token has all the probability that a float32 can tell; above the
# second no token has more than another. Between them nothing overflows.
COLDEST, HOTTEST = 1e-4, 1e6
LEAST_TOP_P = 1e-30  # more than nothing as a float32: the likeliest token always stays

_SIGN = 0x80000000

BLOCK = 128  # ids whose maximum is taken first when a large vocabulary is searched
# Likeliest tokens among which top-p is looked for where there is no top-k. Finding fewer of 248,320
# takes as long.
NUCLEUS = 8192


@dataclass(frozen=True)
class Sampling:
    """How a request wants its tokens drawn. ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 are off.

    Any numbers are taken, whoever gives them: a model's files, the command line or a client.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        warm = self.temperature >= COLDEST
        object.__setattr__(self, "temperature", min(self.temperature, HOTTEST) if warm else 0.0)
        object.__setattr__(self, "top_p", max(self.top_p, LEAST_TOP_P))
        object.__setattr__(self, "min_p", min(self.min_p, 1.0))

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


@dataclass(frozen=True)
class Shaped:
    """What may come after each of T rows."""

    scores: mx.array  # [T, n] float32: logarithms of probabilities up to a constant; -inf: never
    ids: mx.array | None  # [T, n] uint32; None where n is the vocabulary
    top: mx.array  # [T], the largest logit; NaN where any is
    sure: mx.array | None  # [T] bool: False where top-p keeps more than was looked at


@dataclass(frozen=True)
class Choice:
    """The token that comes after each of T rows, not computed yet."""

    tokens: mx.array  # [T] uint32
    top: mx.array  # as Shaped has them
    sure: mx.array | None

    @property
    def arrays(self) -> list[mx.array]:
        return [self.tokens, self.top] + ([] if self.sure is None else [self.sure])


def choose(logits: mx.array, sampling: Sampling, keys: mx.array, whole: bool = False) -> Choice:
    """``logits`` [T, V], penalized and masked; ``keys`` [T, 2]: of the places of the tokens.

    Where a row is not ``sure``, ask again with ``whole``: all tokens are then put in order.
    """
    if sampling.greedy:
        best = mx.argmax(logits, axis=-1)
        return Choice(best, logits.max(axis=-1), None)
    shaped = shape(logits, sampling, whole)
    ids = shaped.ids
    noise = gumbel(keys, mx.arange(logits.shape[-1], dtype=mx.uint32) if ids is None else ids)
    best = mx.argmax(shaped.scores + noise, axis=-1)
    if ids is not None:
        best = mx.take_along_axis(ids, best[:, None], axis=-1)[:, 0]
    return Choice(best, shaped.top, shaped.sure)


def shape(logits: mx.array, sampling: Sampling, whole: bool = False) -> Shaped:
    """What temperature, top-k, top-p and min-p make of ``logits`` [T, V]."""
    logits = logits.astype(mx.float32)  # exact, and faster to search on a CPU than bfloat16
    vocabulary = logits.shape[-1]
    few = 0 < sampling.top_k < vocabulary
    ids = sure = None
    if few:
        values, ids, top = _largest(logits, sampling.top_k)
    elif sampling.top_p < 1:
        values, ids, top = _largest(logits, vocabulary if whole else min(NUCLEUS, vocabulary))
    else:
        values, top = logits, logits.max(axis=-1)
    scores = values / sampling.temperature
    if sampling.top_p < 1:
        partly = not few and values.shape[-1] < vocabulary
        total = logits / sampling.temperature if partly else scores
        probs = mx.exp(scores - mx.logsumexp(total, axis=-1, keepdims=True))
        reached = mx.cumsum(probs, axis=-1)
        if partly:
            sure = (reached[:, -1] >= sampling.top_p) | (values[:, -1] == -mx.inf)
        scores = mx.where(reached - probs < sampling.top_p, scores, -mx.inf)
    if sampling.min_p > 0:
        least = scores.max(axis=-1, keepdims=True) + math.log(sampling.min_p)
        scores = mx.where(scores < least, -mx.inf, scores)
    return Shaped(scores, ids, top, sure)


def _largest(logits: mx.array, n: int) -> tuple[mx.array, mx.array, mx.array]:
    """Of each row of ``logits`` [T, V] the ``n`` largest, in order: values [T, n] and ids [T, n];
    and the largest of all [T], NaN where any is.

    A large vocabulary is searched in two levels: the n largest lie in the n blocks whose maxima
    are the largest, lower blocks first where maxima tie.
    """
    rows, vocabulary = logits.shape
    if vocabulary <= 2 * n * BLOCK:
        values, ids = _in_order(logits, mx.arange(vocabulary, dtype=mx.uint32), n)
        return values, ids, logits.max(axis=-1)
    if vocabulary % BLOCK:
        padding = BLOCK - vocabulary % BLOCK
        logits = mx.pad(logits, [(0, 0), (0, padding)], constant_values=-mx.inf)
    blocks = logits.reshape(rows, -1, BLOCK)
    maxima = blocks.max(axis=-1)
    chosen = _ids(_top(_keys(maxima, mx.arange(maxima.shape[1], dtype=mx.uint32)), n))
    inside = mx.take_along_axis(blocks, chosen[..., None], axis=1)
    ids = chosen[..., None] * BLOCK + mx.arange(BLOCK, dtype=mx.uint32)
    values, ids = _in_order(inside.reshape(rows, -1), ids.reshape(rows, -1), n)
    return values, ids, maxima.max(axis=-1)


def _in_order(logits: mx.array, ids: mx.array, n: int) -> tuple[mx.array, mx.array]:
    """The ``n`` largest of ``logits`` [T, m], and their ids: largest first, lower ids first."""
    keys = mx.sort(_top(_keys(logits, ids), n), axis=-1)[:, ::-1]
    upper = (keys >> 32).astype(mx.uint32)
    mask = ((upper >> 31) - 1) | _SIGN
    return (upper ^ mask).view(mx.float32), _ids(keys)


def _keys(values: mx.array, ids: mx.array) -> mx.array:
    """One uint64 for each of ``values`` [T, m] and its id: of two values the key of the larger is
    larger, of equal ones that of the lower id. No two are equal, so that no backend's way of
    sorting shows."""
    bits = (values + 0.0).view(mx.uint32)  # with one zero only
    ordered = bits ^ ((0 - (bits >> 31)) | _SIGN)
    return (ordered.astype(mx.uint64) << 32) | (~ids).astype(mx.uint64)


def _top(keys: mx.array, n: int) -> mx.array:
    """The ``n`` largest of ``keys`` [T, m], in no order."""
    first = keys.shape[-1] - n
    return mx.partition(keys, first, axis=-1)[:, first:] if first > 0 else keys


def _ids(keys: mx.array) -> mx.array:
    return ~(keys & 0xFFFFFFFF).astype(mx.uint32)
