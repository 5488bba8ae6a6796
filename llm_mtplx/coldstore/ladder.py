"""Positions inside a long line at which the whole state is kept, so that an edit in the middle of
it does not mean reading all of it again."""

from collections.abc import Iterable

from .keys import BLOCK

LONG = 4096  # tokens; a shorter line is read again quickly
RUNGS = 4
NEAREST = 1024  # tokens between the end and the last rung, at least


def rungs(length: int) -> list[int]:
    """At most RUNGS block-aligned positions, ascending; each is twice as far from the end as the
    one after it, and the farthest lies in the first half."""
    if length <= LONG:
        return []
    step = NEAREST
    while step << RUNGS < length:
        step <<= 1
    positions = {(length - (step << rung)) // BLOCK * BLOCK for rung in range(RUNGS)}
    return sorted(position for position in positions if position > 0)


def kept(positions: Iterable[int], length: int) -> set[int]:
    """Which of ``positions`` serve a line of ``length`` tokens best: for each rung the deepest
    that is not beyond it."""
    have = sorted(positions)
    below = ([p for p in have if p <= rung] for rung in rungs(length))
    return {reachable[-1] for reachable in below if reachable}
