"""What a round at each depth costs, learned from the rounds of this process.

Tokens do not depend on depth, so depth may follow the clock. Costs are in rounds of plain
decoding. Until enough rounds were timed they are guesses, and those of a depth that was never
tried stay guesses that scale with what is known of the others.
"""

import statistics
from collections import deque
from collections.abc import Mapping

from .depth import row_cost

SAMPLES = 9  # latest rounds of a depth whose median counts
ENOUGH = 2  # before that many, a depth's cost is a guess
# Rounds with drafts after which plain rounds are timed (again), and how many of them: the first
# one after a draft is not counted.
DUE = 16
DUE_AGAIN = 512
PLAIN = 3


class Pace:
    """One loaded model's, shared by its answers."""

    def __init__(self, guessed: Mapping[int, float], guessed_row: float | None = None) -> None:
        """``guessed``: a cost for depth 0, which is 1, and for each depth that may be taken.
        ``guessed_row``: of one row more in a verify; where not given, what follows from them."""
        self.costs = dict(guessed)  # changes as rounds are timed
        self._guessed = dict(guessed)
        self._spent: dict[int, deque[float]] = {d: deque(maxlen=SAMPLES) for d in guessed}
        self._guessed_row = guessed_row
        self._rows: deque[float] = deque(maxlen=SAMPLES)  # what a row more cost in long verifies
        self._left = DUE  # rounds with drafts until plain ones are due

    @property
    def plain_is_due(self) -> bool:
        return self._left <= 0

    def add(self, depth: int, seconds: float) -> None:
        """A round of that depth, after another of the same, took so long."""
        if depth not in self._spent:
            return
        self._spent[depth].append(seconds)
        if len(self._spent[0]) < ENOUGH:
            return
        if not depth:
            self._left = DUE_AGAIN
        plain = statistics.median(self._spent[0])
        known = {
            d: max(statistics.median(spent) / plain, 1.0)
            for d, spent in self._spent.items()
            if d and len(spent) >= ENOUGH
        }
        for d in self.costs:
            self.costs[d] = known.get(d) or self._scaled(d, known)

    def add_verify(self, rows: int, seconds: float) -> None:
        """A verify of so many rows, without drafts of the head, took so long."""
        if rows > 1 and len(self._spent[0]) >= ENOUGH:
            plain = statistics.median(self._spent[0])
            self._rows.append(max(seconds / plain - 1, 0.0) / (rows - 1))

    def verify_cost(self, rows: int) -> float:
        """What a verify of so many rows costs."""
        if len(self._rows) >= ENOUGH:
            row = statistics.median(self._rows)
        elif self._guessed_row is not None:
            row = self._guessed_row
        else:
            row = row_cost(self.costs)
        return 1 + row * (rows - 1)

    def count(self, depth: int) -> None:
        """A round of that depth was done, timed or not."""
        self._left -= bool(depth)

    def _scaled(self, depth: int, known: Mapping[int, float]) -> float:
        guess = self._guessed[depth]
        if not depth or not known:
            return guess
        near = min(known, key=lambda d: abs(d - depth))
        return 1 + (known[near] - 1) * (guess - 1) / (self._guessed[near] - 1)
