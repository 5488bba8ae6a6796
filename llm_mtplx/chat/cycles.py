"""Whether an answer has begun to repeat itself: one short run of tokens, again and again."""

from collections.abc import Sequence
from dataclasses import dataclass

LONGEST = 128  # tokens of the repeated run
REPEATS = 5
TOKENS = 128  # repeated in all: fewer are a ruler or a table
EVERY = 32  # tokens between two looks


@dataclass(frozen=True)
class Cycle:
    length: int  # tokens of the repeated run
    repeats: int

    def __str__(self) -> str:
        run = "one token" if self.length == 1 else f"the same {self.length} tokens"
        return f"{run} {self.repeats:,} times in a row"


class Cycles:
    """Follows an answer token by token."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._next_look = TOKENS
        self.seen: Cycle | None = None  # the first one that a look found, as it was then

    def add(self, tokens: Sequence[int]) -> None:
        self._tokens += tokens
        if self.seen is None and len(self._tokens) >= self._next_look:
            self._next_look = len(self._tokens) + EVERY
            self.seen = self.now

    @property
    def now(self) -> Cycle | None:
        """The cycle that the answer is in, the shortest of several; None where it is in none."""
        tokens, end = self._tokens, len(self._tokens)
        for length in range(1, min(LONGEST, end // REPEATS) + 1):
            repeated = max(TOKENS, REPEATS * length)
            if repeated > end or tokens[-1] != tokens[-1 - length]:
                continue
            if tokens[end - repeated + length :] == tokens[end - repeated : end - length]:
                start = end - repeated
                while start > 0 and tokens[start - 1] == tokens[start - 1 + length]:
                    start -= 1
                return Cycle(length, (end - start) // length)
        return None
