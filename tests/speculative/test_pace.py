"""What rounds cost is learned from their times; no time is taken here."""

from dataclasses import replace

import pytest

from llm_mtplx.engine.counts import Counts
from llm_mtplx.speculative.adaptive import AdaptiveDepth
from llm_mtplx.speculative.decoder import Round
from llm_mtplx.speculative.depth import BREAK_EVEN, guessed_costs
from llm_mtplx.speculative.pace import DUE, DUE_AGAIN, ENOUGH, PLAIN, SAMPLES, Pace

GUESS = {depth: 1 + 0.75 * depth for depth in range(5)}


def timed(pace: Pace, seconds: dict[int, float], rounds: int = SAMPLES) -> None:
    for _ in range(rounds):
        for depth, spent in seconds.items():
            pace.add(depth, spent)


def test_guesses_stand_until_plain_rounds_were_timed() -> None:
    pace = Pace(GUESS)
    timed(pace, {1: 0.3, 2: 0.4})
    assert pace.costs == GUESS
    timed(pace, {0: 0.2}, ENOUGH - 1)
    assert pace.costs == GUESS
    timed(pace, {0: 0.2}, 1)
    assert pace.costs[1] == pytest.approx(1.5)
    assert pace.costs[2] == pytest.approx(2.0)


def test_depths_that_were_not_tried_are_guessed_from_those_that_were() -> None:
    pace = Pace(GUESS)
    timed(pace, {0: 0.2, 1: 0.26})
    assert [pace.costs[d] for d in range(5)] == pytest.approx([1, 1.3, 1.6, 1.9, 2.2])


def test_a_slow_round_now_and_then_changes_nothing_and_a_change_does() -> None:
    pace = Pace(GUESS)
    timed(pace, {0: 0.2, 1: 0.3})
    timed(pace, {0: 9.0, 1: 9.9}, 2)
    assert pace.costs[1] == pytest.approx(1.5)
    timed(pace, {1: 0.5})
    assert pace.costs[1] == pytest.approx(2.5)


def test_a_round_never_costs_less_than_a_plain_one() -> None:
    pace = Pace(GUESS)
    timed(pace, {0: 0.2, 1: 0.1})
    assert pace.costs[1] == 1


def run(counts: Counts, seconds: dict[int, float], share: float, rounds: int) -> list[int]:
    """The depths of so many rounds, of whose drafts that share is right."""
    depths = []
    for _ in range(rounds):
        depth = counts.next_depth
        right = round(share * depth)
        counts.add(Round([7] * (right + 1), depth, right), seconds[depth])
        depths.append(depth)
    return depths


def answer(pace: Pace) -> Counts:
    return Counts(4, adaptive=AdaptiveDepth(pace.costs), pace=pace)


def test_plain_rounds_are_timed_once_after_a_while_and_again_much_later() -> None:
    """So that a short answer loses nothing by it."""
    pace = Pace(GUESS)
    counts = answer(pace)
    cheap = {depth: 0.2 + 0.02 * depth for depth in range(5)}
    depths = run(counts, cheap, 1.0, DUE + PLAIN + DUE_AGAIN + PLAIN + 20)
    assert 0 not in depths[:DUE]
    assert depths[DUE : DUE + PLAIN] == [0] * PLAIN
    assert depths.count(0) == 2 * PLAIN
    assert depths[-1] == 4
    assert pace.costs[4] == pytest.approx(1.4)
    # The next answer of this process knows it.
    assert 0 not in run(answer(pace), cheap, 1.0, 100)


def test_where_drafts_turn_out_dear_they_end() -> None:
    pace = Pace(GUESS)
    dear = {depth: 0.2 + 0.3 * depth for depth in range(5)}
    depths = run(answer(pace), dear, 1.0, 200)
    assert not any(depths[DUE + 1 :])
    assert not any(run(answer(pace), dear, 1.0, 50))


def test_the_last_plain_round_before_a_draft_is_known() -> None:
    pace = Pace(GUESS)
    counts = answer(pace)
    cheap = {depth: 0.2 + 0.02 * depth for depth in range(5)}
    for _ in range(DUE + PLAIN + 3):
        depth, last = counts.next_depth, counts.plain_once
        run(counts, cheap, 1.0, 1)
        assert last == (depth == 0 and counts.next_depth > 0)


def test_what_is_guessed() -> None:
    costs = guessed_costs("cpu", depth=1)
    assert costs[0] == 1 and costs[1] == 1 + BREAK_EVEN["cpu"] and max(costs) == 4
    assert max(guessed_costs("metal", 3, most=2)) == 2
    # Drafting that only loses is not tried at all.
    pace = Pace(guessed_costs("cpu", depth=0))
    assert not any(run(answer(pace), dict.fromkeys(pace.costs, 0.2), 1.0, 100))
    assert replace(answer(pace), pace=None).next_depth == 0
