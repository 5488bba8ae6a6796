"""Which drafts stay, and the token that follows them.

Rejection sampling of Leviathan et al. 2023 and Chen et al. 2023: a draft d ~ q is accepted with
probability min(1, p(d) / q(d)); the first rejected one is replaced by a sample of
normalize(max(p - q, 0)). The emitted tokens then have exactly the law of sampling from p, for
any q. Nothing is drawn for the drafts after a rejection.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .distributions import Distribution, residual
from .draws import Draws


@dataclass(frozen=True)
class Verdict:
    accepted: int
    next_token: int  # the bonus if all drafts were accepted, else the correction


def accept_greedy(drafts: Sequence[int], best: Sequence[int]) -> Verdict:
    """``best`` [depth + 1]: the trunk's argmax after the primary and after each draft."""
    accepted = 0
    while accepted < len(drafts) and drafts[accepted] == best[accepted]:
        accepted += 1
    return Verdict(accepted, best[accepted])


def accept_sampled(
    drafts: Sequence[int],
    proposals: Sequence[Distribution],
    targets: Sequence[Distribution],
    draws: Draws,
) -> Verdict:
    """``proposals`` [depth]: what each draft was drawn from; ``targets`` [depth + 1]."""
    for position, (draft, q, p) in enumerate(zip(drafts, proposals, targets, strict=False)):
        if not draws.accepts(p.prob(draft), q.prob(draft)):
            return Verdict(position, draws.pick(residual(p, q)))
    return Verdict(len(drafts), draws.pick(targets[len(drafts)]))
