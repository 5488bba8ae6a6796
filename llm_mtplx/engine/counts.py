"""How a turn's drafts fared."""

from dataclasses import dataclass, field

from ..speculative.decoder import Round
from ..speculative.depth import ENOUGH_DRAFTS, USELESS_DRAFTS


@dataclass
class Counts:
    depth: int
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

    def below(self, share: float) -> bool:
        """Whether enough first drafts were examined, and fewer than ``share`` of them right."""
        if not self.depth or self.drafted[0] < ENOUGH_DRAFTS:
            return False
        return self.accepted[0] < share * self.drafted[0]

    def add(self, done: Round) -> None:
        self.rounds += 1
        # A draft is examined only if those before it were accepted.
        for position in range(min(done.drafted, done.accepted + 1)):
            self.drafted[position] += 1
        for position in range(done.accepted):
            self.accepted[position] += 1
        self.wrong_in_a_row = 0 if done.accepted else self.wrong_in_a_row + done.drafted
