"""How deep a turn drafts, and how its drafts fared."""

from dataclasses import dataclass, field

from ..speculative.adaptive import AdaptiveDepth
from ..speculative.decoder import Round
from ..speculative.depth import ENOUGH_DRAFTS, USELESS_DRAFTS


@dataclass
class Counts:
    depth: int  # tokens drafted a round, at most
    break_even: float = 0.0  # share of right first drafts below which there are no more
    adaptive: AdaptiveDepth | None = None
    rounds: int = 0
    drafted: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    wrong_in_a_row: int = 0

    def __post_init__(self) -> None:
        self.drafted = [0] * self.depth
        self.accepted = [0] * self.depth

    @property
    def useless(self) -> bool:
        return self.wrong_in_a_row >= USELESS_DRAFTS

    @property
    def losing(self) -> bool:
        """Whether enough first drafts were examined, and fewer than break even of them right."""
        if not self.depth or self.drafted[0] < ENOUGH_DRAFTS:
            return False
        return self.accepted[0] < self.break_even * self.drafted[0]

    @property
    def next_depth(self) -> int:
        if self.useless or self.losing:
            return 0
        return self.depth if self.adaptive is None else self.adaptive.depth

    @property
    def plain_once(self) -> bool:
        """Whether the next round is plain and the one after it drafts."""
        return self.adaptive is not None and not self.useless and self.adaptive.plain_once

    def add(self, done: Round) -> None:
        self.rounds += 1
        if self.adaptive is not None:
            self.adaptive.add(len(done.tokens), done.drafted, done.accepted)
        # A draft is examined only if those before it were accepted.
        for position in range(min(done.drafted, done.accepted + 1)):
            self.drafted[position] += 1
        for position in range(done.accepted):
            self.accepted[position] += 1
        self.wrong_in_a_row = 0 if done.accepted else self.wrong_in_a_row + done.drafted
