"""The emitted tokens have exactly the law of the trunk, whatever the head proposes."""

import itertools
from collections import defaultdict
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from llm_mtplx.speculative.acceptance import accept_greedy, accept_sampled
from llm_mtplx.speculative.distributions import Distribution, residual
from llm_mtplx.speculative.draws import Draws

Law = Callable[[tuple[int, ...]], Distribution]


class Branching(Draws):
    """Follows one path through all random decisions and knows its probability."""

    def __init__(self, path: list[int]) -> None:
        self.path = path  # which way to go at each decision
        self.widths: list[int] = []  # how many ways there were
        self.weight = 1.0

    def _choose(self, probabilities: list[float]) -> int:
        at = len(self.widths)
        self.widths.append(len(probabilities))
        choice = self.path[at] if at < len(self.path) else 0
        self.weight *= probabilities[choice]
        return choice

    def accepts(self, target: float, proposal: float) -> bool:
        accepted = min(1.0, target / proposal) if proposal > 0 else float(target > 0)
        return self._choose([accepted, 1 - accepted]) == 0

    def pick(self, distribution: Distribution) -> int:
        return int(distribution.ids[self._choose(distribution.probs.tolist())])

    def next_path(self) -> list[int] | None:
        path = (self.path + [0] * len(self.widths))[: len(self.widths)]
        for at in reversed(range(len(path))):
            if path[at] + 1 < self.widths[at]:
                return [*path[:at], path[at] + 1]
        return None


def random_law(seed: int, vocabulary: int, support: int) -> Law:
    """A distribution for every prefix; with ``support`` < V some tokens are impossible."""

    def law(prefix: tuple[int, ...]) -> Distribution:
        rng = np.random.default_rng([seed, len(prefix), *prefix])
        ids = np.sort(rng.choice(vocabulary, size=support, replace=False))
        return Distribution(ids, rng.dirichlet(np.ones(support)))

    return law


def round_law(
    target: Law, draft: Law, depth: int, prefix: tuple[int, ...]
) -> dict[tuple[int, ...], float]:
    """The law of what one round emits after ``prefix``, from every branch of the real code."""
    law: dict[tuple[int, ...], float] = defaultdict(float)
    path: list[int] | None = []
    while path is not None:
        draws = Branching(path)
        drafts: list[int] = []
        proposals = []
        for _ in range(depth):
            proposals.append(draft((*prefix, *drafts)))
            drafts.append(draws.pick(proposals[-1]))
        targets = [target((*prefix, *drafts[:n])) for n in range(depth + 1)]
        verdict = accept_sampled(drafts, proposals, targets, draws)
        law[(*drafts[: verdict.accepted], verdict.next_token)] += draws.weight
        path = draws.next_path()
    return law


def emitted_law(target: Law, draft: Law, depth: int, length: int) -> dict[tuple[int, ...], float]:
    """The law of the first ``length`` tokens over as many rounds as it takes."""

    @cache
    def after(prefix: tuple[int, ...]) -> dict[tuple[int, ...], float]:
        return round_law(target, draft, depth, prefix)

    law: dict[tuple[int, ...], float] = defaultdict(float)
    unfinished = {(): 1.0}
    while unfinished:
        grown: dict[tuple[int, ...], float] = defaultdict(float)
        for prefix, weight in unfinished.items():
            for tokens, probability in after(prefix).items():
                emitted = (*prefix, *tokens)
                if len(emitted) < length:
                    grown[emitted] += weight * probability
                else:
                    law[emitted[:length]] += weight * probability
        unfinished = grown
    return law


@pytest.mark.parametrize(("depth", "vocabulary"), [(1, 3), (2, 3), (3, 2), (4, 2)])
@pytest.mark.parametrize(("target_less", "draft_less"), [(0, 0), (1, 0), (0, 1)])
def test_joint_law_is_the_targets(
    depth: int, vocabulary: int, target_less: int, draft_less: int
) -> None:
    """``less``: so many tokens are impossible under the target or the draft."""
    length = depth + 2
    target = random_law(1, vocabulary, vocabulary - target_less)
    draft = random_law(2, vocabulary, vocabulary - draft_less)
    law = emitted_law(target, draft, depth, length)
    assert sum(law.values()) == pytest.approx(1.0, abs=1e-12)
    for tokens in itertools.product(range(vocabulary), repeat=length):
        want = np.prod([target(tokens[:n]).prob(tokens[n]) for n in range(length)])
        assert law[tokens] == pytest.approx(want, abs=1e-12), tokens


def test_the_enumeration_sees_a_wrong_rule() -> None:
    """Always accepting gives another law, so the test above can fail."""

    class Credulous(Branching):
        def accepts(self, target: float, proposal: float) -> bool:
            return True

    target, draft = random_law(1, 3, 3), random_law(2, 3, 3)
    law = [0.0] * 3
    path: list[int] | None = []
    while path is not None:
        draws = Credulous(path)
        drafts = [draws.pick(draft(()))]
        targets = [target(()), target((drafts[0],))]
        accept_sampled(drafts, [draft(())], targets, draws)
        law[drafts[0]] += draws.weight
        path = draws.next_path()
    assert max(abs(law[t] - target(()).prob(t)) for t in range(3)) > 0.01


def test_a_token_the_target_forbids_is_never_accepted() -> None:
    class Zero:
        def random(self) -> float:
            return 0.0

    draws = Draws(0)
    draws._rng = Zero()  # type: ignore[assignment]
    assert not draws.accepts(0.0, 0.5)
    assert draws.accepts(1e-300, 0.5)


def test_draws_follow_the_distribution() -> None:
    distribution = Distribution(np.array([2, 5, 9]), np.array([0.2, 0.5, 0.3]))
    draws = Draws(7)
    picked = [draws.pick(distribution) for _ in range(20_000)]
    for token, prob in zip(distribution.ids, distribution.probs, strict=True):
        # 5 standard deviations of a binomial share
        assert abs(picked.count(token) / 20_000 - prob) < 5 * (prob * (1 - prob) / 20_000) ** 0.5


def test_residual_of_equal_distributions_is_the_target() -> None:
    distribution = Distribution(np.array([1, 4]), np.array([0.25, 0.75]))
    assert residual(distribution, distribution) == distribution


@pytest.mark.parametrize(
    ("drafts", "best", "accepted", "next_token"),
    [
        ([], [7], 0, 7),
        ([1, 2, 3], [1, 2, 3, 4], 3, 4),
        ([1, 9, 3], [1, 2, 3, 4], 1, 2),
        ([9, 2, 3], [1, 2, 3, 4], 0, 1),
    ],
)
def test_greedy_acceptance(drafts, best, accepted, next_token) -> None:
    verdict = accept_greedy(drafts, best)
    assert (verdict.accepted, verdict.next_token) == (accepted, next_token)
