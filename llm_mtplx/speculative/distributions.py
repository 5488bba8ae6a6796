"""From logits to the distribution a token is drawn from.

One function shapes target and draft alike, in the order of Hugging Face transformers:
temperature -> top-k -> top-p -> min-p. Penalties and masks come before it, on the device. All of it
is float64 on the host; only the rows' candidates leave the device. A logit of minus infinity is a
token that a mask forbids.
"""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import numpy.typing as npt

BLOCK = 128  # ids whose maximum is taken first when a large vocabulary is searched
SPARE = 44  # candidates beyond the top k: in bfloat16 the k-th value is rarely alone

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sampling:
    """How a request wants its tokens drawn. ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 are off."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


@dataclass(frozen=True)
class Distribution:
    """Token ids in ascending order and their probabilities, which sum to 1."""

    ids: Ids  # [m]
    probs: Floats  # [m]

    def prob(self, token: int) -> float:
        at = int(np.searchsorted(self.ids, token))
        if at < len(self.ids) and self.ids[at] == token:
            return float(self.probs[at])
        return 0.0


def shape(ids: Ids, logits: Floats, sampling: Sampling) -> Distribution:
    """The distribution over candidates ``ids`` [m], ascending, with ``logits`` [m].

    The candidates must hold every id that reaches the k-th largest logit (all ids where top-k is
    off).
    """
    allowed = logits != -np.inf
    ids, logits = ids[allowed], logits[allowed]
    scaled = logits / sampling.temperature
    # Best first; at ties the lower id first.
    order = np.argsort(-scaled, kind="stable")
    if sampling.top_k > 0:
        order = order[: sampling.top_k]
    probs = _softmax(scaled[order])
    if sampling.top_p < 1:
        before = np.cumsum(probs) - probs
        kept = before < sampling.top_p
        kept[0] = True
        order, probs = order[kept], _normalize(probs[kept])
    if sampling.min_p > 0:
        kept = probs >= sampling.min_p * probs[0]
        order, probs = order[kept], _normalize(probs[kept])
    ascending = np.argsort(order)
    return Distribution(ids[order[ascending]], probs[ascending])


class Candidates:
    """The ids a distribution can hold for each of some logits rows, found on the device.

    Evaluate ``arrays`` together with whatever else the caller waits for, then take
    ``distributions()``.
    """

    def __init__(self, logits: mx.array, sampling: Sampling) -> None:
        """``logits`` [T, V], lazy or not; nothing is computed yet."""
        self._logits = logits
        self._sampling = sampling
        if 0 < sampling.top_k < logits.shape[-1] - SPARE:
            self.arrays = list(_top(logits, sampling.top_k))
        else:
            self.arrays = [logits.astype(mx.float32)]

    def distributions(self) -> list[Distribution]:
        host = [np.array(array) for array in self.arrays]
        if len(host) == 1:
            everything = np.arange(host[0].shape[-1])
            return [shape(everything, row.astype(np.float64), self._sampling) for row in host[0]]
        return [self._from_top(row, *arrays) for row, arrays in enumerate(zip(*host, strict=True))]

    def _from_top(
        self,
        row: int,
        ids: npt.NDArray[np.uint32],
        values: npt.NDArray[np.float32],
        last: np.float32,
        crowded: np.bool_,
    ) -> Distribution:
        if crowded:
            # All that reach the k-th value: which of them stay is for shape() to say.
            logits = np.array(self._logits[row].astype(mx.float32))
            reaching = np.flatnonzero(logits >= last)
            return shape(reaching, logits[reaching].astype(np.float64), self._sampling)
        ascending = np.argsort(ids)
        return shape(
            ids[ascending].astype(np.int64), values[ascending].astype(np.float64), self._sampling
        )


def _top(logits: mx.array, k: int) -> tuple[mx.array, mx.array, mx.array, mx.array]:
    """Of each row of ``logits`` [T, V]: ids [T, n] and values [T, n] of the n = k
    largest, the k-th largest value [T], and whether more than n ids reach that [T], so that
    chance chose among them.

    A large vocabulary is searched in two levels: the n largest lie in the n blocks with the
    largest maxima.
    """
    logits = logits.astype(mx.float32)  # exact, and faster to search on a CPU than bfloat16
    rows, vocabulary = logits.shape
    n = k + SPARE
    if vocabulary <= 2 * n * BLOCK:
        ids = mx.argpartition(-logits, kth=n - 1, axis=-1)[:, :n]
        values = mx.take_along_axis(logits, ids, axis=-1)
        last = mx.sort(values, axis=-1)[:, n - k, None]
        crowded = (logits >= last).sum(axis=-1) > n
        return ids, values, last[:, 0], crowded & _allowed(last)
    if vocabulary % BLOCK:
        padding = BLOCK - vocabulary % BLOCK
        logits = mx.pad(logits, [(0, 0), (0, padding)], constant_values=-mx.inf)
    blocks = logits.reshape(rows, -1, BLOCK)
    maxima = blocks.max(axis=-1)
    chosen = mx.argpartition(-maxima, kth=n - 1, axis=-1)[:, :n]  # [T, n]
    inside = mx.take_along_axis(blocks, chosen[..., None], axis=1).reshape(rows, -1)
    best = mx.argpartition(-inside, kth=n - 1, axis=-1)[:, :n]
    values = mx.take_along_axis(inside, best, axis=-1)
    ids = mx.take_along_axis(chosen, best // BLOCK, axis=-1) * BLOCK + best % BLOCK
    last = mx.sort(values, axis=-1)[:, n - k, None]
    crowded = ((inside >= last).sum(axis=-1) > n) | ((maxima >= last).sum(axis=-1) > n)
    return ids, values, last[:, 0], crowded & _allowed(last)


def _allowed(last: mx.array) -> mx.array:
    """Whether a row has k tokens that no mask forbids; ``last`` [T, 1]: its k-th value."""
    return last[:, 0] > -mx.inf


def residual(target: Distribution, draft: Distribution) -> Distribution:
    """normalize(max(target - draft, 0)), or the target where that is numerically empty."""
    at = np.searchsorted(draft.ids, target.ids)
    at = np.minimum(at, len(draft.ids) - 1)
    shared = np.where(draft.ids[at] == target.ids, draft.probs[at], 0.0)
    left = np.maximum(target.probs - shared, 0.0)
    if left.sum() <= 0:
        return target
    return Distribution(target.ids, _normalize(left))


def _softmax(logits: Floats) -> Floats:
    weights = np.exp(logits - logits.max())
    return _normalize(weights)


def _normalize(weights: Floats) -> Floats:
    normalized: Floats = weights / weights.sum()
    return normalized
