"""How deep the next round drafts, by how this answer's drafts have fared.

Of the depths whose cost is known or guessed, the one that is expected to give the most tokens for
its cost.
"""

from collections.abc import Mapping, Sequence

from .depth import shared_costs

# What is expected of a first draft before any was examined. More than most texts hold, so that
# drafting is tried: a try costs less than text that drafts well would lose without.
FIRST_RIGHT = 0.9
WEIGHT = 3.0  # examined drafts that this expectation counts for
HALF_LIFE = 128  # tokens; what was seen longer ago counts less than half, and is tried again
# Plain tokens before drafting is tried again once it did not pay. The head must then read what it
# missed, which costs most where drafting pays least. After as many it has done so anyway.
REST = 512


class AdaptiveDepth:
    """One answer's choice, round for round."""

    def __init__(self, costs: Mapping[int, float]) -> None:
        """``costs``: a round at each depth, in plain rounds. They may change, the depths not."""
        self._costs = costs
        # By position in the draft, counting only those that were examined.
        self._examined = [0.0] * max(costs)
        self._accepted = [0.0] * max(costs)
        self._rest = 0  # tokens still to come without drafts
        self.depth = self._after(drafted=0)  # of the next round

    @property
    def plain_once(self) -> bool:
        """Whether the next round is plain and the one after it drafts."""
        return self.depth == 0 and self._rest <= 1 and self._best(1) > 0

    def depth_in(self, company: int) -> int:
        """The best depth now beside so many conversations less one, that do alike."""
        costs = shared_costs(self._costs, company)
        return min(_best(costs, _expected(self._examined, self._accepted)), self.depth)

    def worth(self, company: int = 1) -> float:
        """Tokens that the round which comes next is expected to bring for its cost, in plain
        rounds."""
        depth = self.depth if company == 1 else self.depth_in(company)
        costs = self._costs if company == 1 else shared_costs(self._costs, company)
        return _worth(costs, _expected(self._examined, self._accepted), depth)

    def add(self, tokens: int, drafted: int, accepted: int) -> None:
        """A round emitted ``tokens``; a draft was examined if those before it were accepted."""
        self._examined, self._accepted = self._faded(tokens)
        for position in range(min(drafted, accepted + 1)):
            self._examined[position] += 1
        for position in range(accepted):
            self._accepted[position] += 1
        self._rest = max(self._rest - tokens, 0)
        self.depth = self._after(drafted)

    def _after(self, drafted: int) -> int:
        """A rise goes one step at a time, since a wrong one costs more than the steps do; a fall
        goes at once."""
        if self._rest:
            return 0
        best = self._best(0)
        if drafted and best == 0:
            self._rest = REST
        step = min((depth for depth in self._costs if depth > drafted), default=best)
        return min(best, step)

    def _best(self, tokens: int) -> int:
        """The best depth after so many more plain tokens."""
        return _best(self._costs, _expected(*self._faded(tokens)))

    def _faded(self, tokens: int) -> tuple[list[float], list[float]]:
        left = 0.5 ** (tokens / HALF_LIFE)
        return [left * n for n in self._examined], [left * n for n in self._accepted]


def _expected(examined: Sequence[float], accepted: Sequence[float]) -> list[float]:
    """The share of right drafts at each position, of those that are examined there.

    A position of which little is known does as well as the one before it.
    """
    shares: list[float] = []
    for seen, right in zip(examined, accepted, strict=True):
        before = min([*shares[-1:], FIRST_RIGHT])
        shares.append((right + WEIGHT * before) / (seen + WEIGHT))
    return shares


def _best(costs: Mapping[int, float], shares: Sequence[float]) -> int:
    """The depth with the most tokens expected for its cost; the lowest of equals."""

    return max(sorted(costs), key=lambda depth: _worth(costs, shares, depth))


def _worth(costs: Mapping[int, float], shares: Sequence[float], depth: int) -> float:
    """Tokens expected of a round at a depth for its cost."""
    tokens = reached = 1.0
    for share in shares[:depth]:
        reached *= share
        tokens += reached
    return tokens / costs[depth]
