"""Drafts copied from the line itself: what followed the last time its latest tokens stood there.

Editing a text or a program repeats long stretches of what was just read. A stretch is found by its
latest tokens in an index over the line's n-grams; as many of the tokens after it are proposed as
are expected to pay. A copied draft is verified as the head's are, so it changes no token.
"""

from collections.abc import Callable, Sequence

import numpy as np

GRAM = 8  # tokens that must be the same before anything is copied
MOST = 16  # tokens that are copied at once
START = 4  # after a wrong one; twice as many after each round that was right to its end
# What is expected of a copied token before any was examined, and how many examined ones that
# expectation counts for.
RIGHT = 0.9
WEIGHT = 3.0
HALF_LIFE = 128  # tokens; what was seen longer ago counts less than half, and is tried again
REST = 16  # tokens without a copy after a first copied token was wrong; doubled each time

_FACTOR = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1
_OLDEST = pow(_FACTOR, GRAM - 1, 2**64)
_BULK = 256  # tokens from which numpy hashes them faster


class CopyIndex:
    """Where each n-gram of a line stood last. About 130 bytes a token.

    Hashes are polynomials in the ids modulo 2**64, rolled on token by token. What a hash finds is
    compared, so that neither a collision nor a line that was cut can do harm.
    """

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}  # the position after the latest gram of a hash
        self._known = 0  # ids that are in the index
        self._hash = 0  # of the last gram among them

    def extend(self, ids: Sequence[int]) -> None:
        """``ids``: the line so far, which may have been cut since."""
        if len(ids) < self._known:
            self._known = max(len(ids), 0)
            self._hash = _hash(ids[-GRAM:])
        start, end = self._known, len(ids)
        if end - start >= _BULK:
            self._extend_at_once(ids, start)
        else:
            value = self._hash
            for at in range(start, end):
                gone = ids[at - GRAM] if at >= GRAM else 0
                value = ((value - gone * _OLDEST) * _FACTOR + ids[at]) & _MASK
                if at + 1 >= GRAM:
                    self._ends[value] = at + 1
            self._hash = value
        self._known = end

    def _extend_at_once(self, ids: Sequence[int], start: int) -> None:
        first = max(start - GRAM + 1, 0)
        line = np.array(ids[first:], dtype=np.uint64)
        count = len(line) - GRAM + 1
        values = np.zeros(count, np.uint64)
        for at in range(GRAM):
            values = values * np.uint64(_FACTOR) + line[at : at + count]
        self._ends.update(zip(values.tolist(), range(first + GRAM, len(ids) + 1), strict=True))
        self._hash = int(values[-1])

    def after(self, ids: Sequence[int], token: int, most: int) -> Sequence[int]:
        """What followed the last time that the line ``ids``, which `extend` was given, and then
        ``token`` ended so; at most so many tokens."""
        gram = [*ids[-GRAM + 1 :], token]
        end = self._ends.get(_hash(gram)) if len(gram) == GRAM else None
        if end is None or end > len(ids) or ids[end - GRAM : end] != gram:
            return []
        return ids[end : end + most]


def _hash(ids: Sequence[int]) -> int:
    value = 0
    for token in ids:
        value = (value * _FACTOR + token) & _MASK
    return value


class Copying:
    """One answer's choice how much to copy, by what rounds cost and how its copies have fared."""

    def __init__(self, cost: Callable[[int], float]) -> None:
        """``cost``: of a verify of so many rows, in plain rounds."""
        self._cost = cost
        self._examined = self._right = 0.0
        self._limit = START
        self._rest = 0  # tokens still to come without a copy
        self._misses = 0  # in a row

    def lengths(self, otherwise: float, company: int = 1) -> range | None:
        """How many tokens are worth copying: from so few that they still bring more than
        ``otherwise``, which is what else the round would bring in tokens for its cost, to those
        that bring most. None: there is no such length.
        """
        if self._rest:
            return None
        right = (self._right + WEIGHT * RIGHT) / (self._examined + WEIGHT)
        plain = self._cost(company)
        tokens, reached, worth = 1.0, 1.0, []
        for length in range(1, self._limit + 1):
            reached *= right
            tokens += reached
            worth.append(tokens * plain / self._cost(company + length))
        best = max(worth)
        if best <= otherwise:
            return None
        least = next(at for at, value in enumerate(worth, 1) if value > otherwise)
        return range(least, worth.index(best) + 2)

    def add(self, tokens: int, copied: int, accepted: int) -> None:
        """A round emitted ``tokens``; of ``copied`` ones so many were right, up to the first that
        was not."""
        left = 0.5 ** (tokens / HALF_LIFE)
        self._examined, self._right = left * self._examined, left * self._right
        self._rest = max(self._rest - tokens, 0)
        if not copied:
            return
        self._examined += min(copied, accepted + 1)
        self._right += min(copied, accepted)
        whole = accepted >= copied
        self._limit = min(2 * self._limit, MOST) if whole else START
        if accepted:
            self._misses = 0
        else:
            self._rest = REST << min(self._misses, 6)
            self._misses += 1
