"""Adaptive depth follows the drafts of one answer, and is told by counts of tokens alone."""

from itertools import pairwise

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_mtplx.architectures.state import MAX_WAITING
from llm_mtplx.speculative import adaptive
from llm_mtplx.speculative.adaptive import REST, AdaptiveDepth
from llm_mtplx.speculative.step import Steps

from .states import assert_equal
from .test_rounds import (  # noqa: F401
    PROMPT,
    ScriptedDecoder,
    Tiny,
    fresh,
    never,
    oracle,
    settled_arrays,
)

CHEAP = {depth: 1 + 0.3 * depth for depth in range(5)}
costs = st.dictionaries(st.integers(1, 4), st.floats(0.5, 8), min_size=1).map(
    lambda measured: {0: 1.0, **measured}
)
shares = st.lists(st.floats(0, 1), min_size=1, max_size=80)


def right_drafts(asked: int, share: float) -> int:
    """A share of the drafts, from the first on."""
    return round(asked * share)


def follow(policy: AdaptiveDepth, accepted: int) -> int:
    """One round in which so many drafts are right; returns its depth."""
    depth = policy.depth
    right = min(accepted, depth)
    policy.add(1 + right, depth, right)
    return depth


@given(costs, shares)
def test_only_measured_depths_and_a_step_up_at_a_time(costs: dict, shares: list[float]) -> None:
    policy = AdaptiveDepth(costs)
    steps = sorted(costs)
    last = 0
    for share in shares:
        depth = follow(policy, right_drafts(policy.depth, share))
        assert steps.index(depth) <= steps.index(last) + 1
        last = depth


@given(st.floats(0, 2), shares)
def test_where_drafts_cannot_pay_there_are_none(surplus: float, shares: list[float]) -> None:
    policy = AdaptiveDepth({depth: 1 + depth * (1 + surplus) for depth in range(5)})
    for _ in shares:
        assert policy.depth == 0
        policy.add(1, 0, 0)


@given(shares)
def test_a_text_that_drafts_well_takes_all_steps(shares: list[float]) -> None:
    """Soon, whatever came before it."""
    policy = AdaptiveDepth(CHEAP)
    for share in shares:
        follow(policy, right_drafts(policy.depth, share))
    rounds = [follow(policy, 4) for _ in range(REST + 200)]
    assert rounds[-100:] == [4] * 100


def test_a_new_answer_needs_no_more_rounds_than_steps() -> None:
    policy = AdaptiveDepth(CHEAP)
    assert [follow(policy, 4) for _ in range(6)] == [1, 2, 3, 4, 4, 4]


@given(st.floats(0.25, 1), st.integers(1, 4))
def test_a_head_that_is_always_wrong_is_tried_seldom(cost: float, most: int) -> None:
    policy = AdaptiveDepth({depth: 1 + depth * cost for depth in range(most + 1)})
    depths = [follow(policy, 0) for _ in range(2000)]
    assert sum(map(bool, depths)) <= 0.03 * len(depths)
    assert max(depths) <= 2


def test_it_is_tried_again_when_the_head_has_caught_up() -> None:
    assert REST == MAX_WAITING
    policy = AdaptiveDepth(CHEAP)
    depths = [follow(policy, 0) for _ in range(REST + 40)]
    first = depths.index(0)
    assert depths[first : first + REST + 1] == [0] * REST + [1]


def test_only_examined_positions_count() -> None:
    """A draft after a wrong one says nothing: neither against its position nor for it."""
    more, less = AdaptiveDepth(CHEAP), AdaptiveDepth(CHEAP)
    for policy, drafted in ((more, 4), (less, 2)):
        for _ in range(30):
            policy.add(2, drafted, 1)
        policy.add(2, 1, 1)
    for accepted in (1, 2, 3, 4, 4, 0, 1, 4, 4):
        assert follow(more, accepted) == follow(less, accepted)


def test_second_drafts_that_are_always_wrong_leave_the_first() -> None:
    policy = AdaptiveDepth(CHEAP)
    depths = [follow(policy, 1) for _ in range(300)]
    assert 0 not in depths
    assert depths.count(1) > 250


@settings(max_examples=30)
@given(costs, shares)
def test_the_last_plain_round_is_known(costs: dict, shares: list[float]) -> None:
    policy = AdaptiveDepth(costs)
    for share in [*shares, *[0.0] * REST]:
        depth, told = policy.depth, policy.plain_once
        follow(policy, right_drafts(depth, share))
        assert told == (depth == 0 and policy.depth > 0)


class Stretches(ScriptedDecoder):
    """First drafts are wrong for some tokens, then right for some, in turn."""

    def _draft(self, primary: int, depth: int, copied=()) -> Steps[list[mx.array]]:
        self.wrong_at = 0 if self.state.position // 12 % 2 else None
        return (yield from super()._draft(primary, depth, copied))


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a short answer goes down and up again."""
    monkeypatch.setattr(adaptive, "HALF_LIFE", 4)
    monkeypatch.setattr(adaptive, "REST", 6)


def decode(tiny: Tiny, oracle: list[int], length: int, check) -> tuple[list[int], list[int]]:  # noqa: F811
    decoder = Stretches(tiny, oracle, None)
    policy = AdaptiveDepth({0: 1.0, 1: 1.5, 2: 1.9, 3: 2.3})
    list(decoder.prefill(PROMPT))
    ids, depths = [decoder.first()], []
    while len(ids) < length:
        room = 1 if policy.plain_once else length - len(ids)
        done = decoder.round(policy.depth, room, never)
        policy.add(len(done.tokens), done.drafted, done.accepted)
        ids += done.tokens
        depths.append(done.drafted)
        check(decoder)
    return ids, depths


def test_ids_and_state_are_those_of_plain_decoding(
    tiny: Tiny,
    oracle: list[int],  # noqa: F811
    fresh,  # noqa: F811
    forgetful,
) -> None:
    def check(decoder: Stretches) -> None:
        state = decoder.state
        assert state.head_position == state.position - 1
        assert_equal(settled_arrays(state, tiny), fresh(state.position))

    ids, depths = decode(tiny, oracle, 36, check)
    assert PROMPT + ids == oracle[: len(PROMPT) + 36]
    assert {0, 1, 2, 3} <= set(depths)
    rises = [now for last, now in pairwise(depths) if last == 0 < now]
    assert rises == [1] * len(rises) != []


def test_nothing_is_begun_ahead_of_a_draft(tiny: Tiny, oracle: list[int], forgetful) -> None:  # noqa: F811
    ahead: list[bool] = []
    _, depths = decode(tiny, oracle, 36, lambda decoder: ahead.append(decoder._ahead is not None))
    for before, now, begun in zip(depths, depths[1:], ahead, strict=False):
        assert begun == (before == now == 0)
