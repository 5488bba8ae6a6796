"""An answer that repeats one short run of tokens is seen, and no other."""

import random

import pytest

from llm_mtplx.chat.cycles import LONGEST, REPEATS, TOKENS, Cycle, Cycles


def after(tokens: list[int]) -> Cycles:
    cycles = Cycles()
    for token in tokens:
        cycles.add([token])
    return cycles


def words(length: int, seed: int = 0) -> list[int]:
    """Different tokens: no shorter run repeats in them."""
    return random.Random(seed).sample(range(100, 2000), length)


@pytest.mark.parametrize("length", [1, 2, 3, 7, 47, LONGEST])
@pytest.mark.parametrize("before", [[], words(50, 1)])
def test_a_run_that_repeats(length: int, before: list[int]) -> None:
    repeats = max(REPEATS, -(-TOKENS // length))
    cycles = after(before + words(length) * repeats)
    assert cycles.now == Cycle(length, repeats)
    # It is seen while it lasts, not only at the end.
    assert after(before + words(length) * (3 * repeats)).seen is not None


@pytest.mark.parametrize(
    "tokens",
    [
        [],
        [5] * (TOKENS - 1),
        words(47) * (REPEATS - 1),
        words(LONGEST + 1) * 20,
        words(1500),
        # A table: its frame repeats, what is in it does not.
        [t for row in range(200) for t in (1, 2, 100 + row, 2, 1)],
    ],
)
def test_no_cycle(tokens: list[int]) -> None:
    cycles = after(tokens)
    assert cycles.now is None and cycles.seen is None


def test_one_that_has_ended_is_over_but_was_seen() -> None:
    cycles = after([5] * 400 + words(9))
    assert cycles.now is None
    assert cycles.seen is not None and cycles.seen.length == 1


def test_whole_rounds_are_as_good_as_single_tokens() -> None:
    tokens = words(20, 2) + words(6) * 60
    for size in (1, 2, 4, 5):
        cycles = Cycles()
        for at in range(0, len(tokens), size):
            cycles.add(tokens[at : at + size])
        assert cycles.now == Cycle(6, 60) and cycles.seen is not None
