"""How likely the trunk held each emitted token to be.

Log softmax, in float32, of the logits as the trunk computes them: before penalties, masks,
temperature and filters. They come from the rows that chose the token, so that depth changes
nothing.
"""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np


@dataclass(frozen=True)
class Likelihood:
    logprob: float
    top: list[tuple[int, float]]  # the likeliest tokens, best first


class Logprobs:
    """One answer's, with the ``top`` likeliest tokens at each place."""

    def __init__(self, top: int) -> None:
        self._top = top
        self.emitted: list[Likelihood | None] = []  # None where a token was not the trunk's choice

    def add(self, tokens: list[int], logits: mx.array | None) -> None:
        """``logits`` [T >= tokens, V]: row n is what token n was chosen from; None where the
        tokens were given."""
        if logits is None:
            self.emitted += [None] * len(tokens)
            return
        rows = logits[: len(tokens)].astype(mx.float32)
        rows = rows - mx.logsumexp(rows, axis=-1, keepdims=True)
        own = mx.take_along_axis(rows, mx.array([tokens]).T, axis=-1)
        n = min(self._top, rows.shape[-1])
        ids = mx.argpartition(-rows, kth=max(n - 1, 0), axis=-1)[:, :n]
        values = mx.take_along_axis(rows, ids, axis=-1)
        mx.eval(own, ids, values)
        for (logprob,), *found in zip(*map(np.array, (own, ids, values)), strict=True):
            pairs = zip(*(part.tolist() for part in found), strict=True)
            top = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))
            self.emitted.append(Likelihood(float(logprob), top))
