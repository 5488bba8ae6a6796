"""A state is superseded by what goes on from it, never by what merely bears the same name."""

from pathlib import Path

import pytest

from llm_mtplx.coldstore import BLOCK

from .aging import HOUR, Clock
from .lines import opened, restore, tokens, write
from .test_gc import apply, plan


def saved(cache_dir: Path, clock: Clock, lines: list[list[int]]) -> list[int]:
    """Save ``lines`` under one name, an hour apart; returns how far each can be restored after
    upkeep has removed what it thinks is superseded."""
    with opened(cache_dir) as store:
        for line in lines:
            clock.now += HOUR
            write(store, line, "user-1")
    clock.now += HOUR
    apply(cache_dir, plan(cache_dir))
    with opened(cache_dir) as store:
        return [restore(store, line)[0].position for line in lines]


@pytest.mark.parametrize("length", [40, BLOCK, BLOCK + 40, 3 * BLOCK + 40])
def test_chats_of_one_name_are_all_kept(length: int, tmp_path: Path, clock: Clock) -> None:
    lines = [tokens(length, seed=seed) for seed in range(5)]
    assert saved(tmp_path, clock, lines) == [length] * 5


@pytest.mark.parametrize("common", [0, 10, BLOCK - 1, BLOCK, BLOCK + 10, 2 * BLOCK + 200])
def test_forks_of_one_conversation_are_all_kept(common: int, tmp_path: Path, clock: Clock) -> None:
    """Wherever they part, inside a block too."""
    beginning = tokens(common, seed=9)
    lines = [beginning + tokens(150 + 100 * fork, seed=fork) for fork in range(4)]
    assert saved(tmp_path, clock, lines) == [len(line) for line in lines]


@pytest.mark.parametrize("length", [30, BLOCK, BLOCK + 30, 2 * BLOCK - 70])
def test_turns_of_one_line_are_superseded_by_the_second_that_goes_on(
    length: int, tmp_path: Path, clock: Clock
) -> None:
    line = tokens(length + 4 * 100)
    turns = [line[: length + turn * 100] for turn in range(5)]
    assert saved(tmp_path, clock, turns) == [0, 0, 0, length + 300, length + 400]


def test_each_fork_keeps_its_own_last_two(tmp_path: Path, clock: Clock) -> None:
    forks = [tokens(600, seed=seed) for seed in (1, 2)]
    lines = [fork[:end] for end in (300, 400, 500, 600) for fork in forks]
    assert saved(tmp_path, clock, lines) == [0] * 4 + [500, 500, 600, 600]
