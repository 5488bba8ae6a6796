"""How deep a turn drafts, and how its drafts fared."""

from dataclasses import dataclass, field

from ..speculative.adaptive import AdaptiveDepth
from ..speculative.copying import Copying
from ..speculative.decoder import Round
from ..speculative.depth import ENOUGH_DRAFTS, USELESS_DRAFTS
from ..speculative.pace import PLAIN, Pace


@dataclass
class Counts:
    depth: int  # tokens drafted a round, at most
    break_even: float = 0.0  # share of right first drafts below which there are no more
    adaptive: AdaptiveDepth | None = None
    pace: Pace | None = None  # learns what rounds cost
    copying: Copying | None = None  # where drafts may be copied from the line
    copied: int = 0  # copied drafts that were examined
    copies_accepted: int = 0
    rounds: int = 0
    drafted: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    wrong_in_a_row: int = 0
    _plain_left: int = 0  # rounds to be timed without drafts
    _last: int | None = None  # how many tokens the round before drafted

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
        if self._plain_left:
            return 0
        return self.depth if self.adaptive is None else self.adaptive.depth

    def depth_in(self, company: int) -> int:
        """The same in a round of so many conversations: the more rows there are already, the
        dearer one more is."""
        depth = self.next_depth
        return depth if self.adaptive is None or not depth else self.adaptive.depth_in(company)

    def copies_in(self, company: int) -> range | None:
        """How many tokens are worth copying in a round of so many conversations."""
        if self.copying is None:
            return None
        otherwise = 1.0
        if self.adaptive is not None and self.depth_in(company):
            otherwise = self.adaptive.worth(company)
        return self.copying.lengths(otherwise, company)

    @property
    def plain_once(self) -> bool:
        """Whether the next round is plain and the one after it drafts."""
        if self.adaptive is None or self.useless:
            return False
        if self._plain_left:
            return self._plain_left == 1 and self.adaptive.depth > 0
        return self.adaptive.plain_once

    def add(self, done: Round, seconds: float | None = None) -> None:
        """``seconds``: how long it took."""
        self.rounds += 1
        if self.copying is not None:
            self.copying.add(len(done.tokens), done.copied, done.accepted)
        if done.copied:
            self._add_copied(done, seconds)
            return
        if self.pace is not None:
            self.pace.count(done.drafted)
            # The first round of a depth also does what the one before left over.
            if seconds is not None and done.drafted == self._last:
                self.pace.add(done.drafted, seconds)
        if self.adaptive is not None:
            self.adaptive.add(len(done.tokens), done.drafted, done.accepted)
            self._plain_left = max(self._plain_left - 1, 0)
            due = self.pace is not None and self.pace.plain_is_due
            if due and self.adaptive.depth and not self._plain_left:
                self._plain_left = PLAIN
        self._last = done.drafted
        # A draft is examined only if those before it were accepted.
        for position in range(min(done.drafted, done.accepted + 1)):
            self.drafted[position] += 1
        for position in range(done.accepted):
            self.accepted[position] += 1
        self.wrong_in_a_row = 0 if done.accepted else self.wrong_in_a_row + done.drafted

    def _add_copied(self, done: Round, seconds: float | None) -> None:
        """The head's drafts that went on from a copy tell nothing of those that begin a round."""
        self.copied += min(done.copied, done.accepted + 1)
        self.copies_accepted += min(done.copied, done.accepted)
        if self.pace is not None and seconds is not None and done.drafted == done.copied:
            self.pace.add_verify(done.drafted + 1, seconds)
        self._last = None
