"""The ladder: where, and which rungs stay while a line grows."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from llm_mtplx.coldstore import BLOCK
from llm_mtplx.coldstore.ladder import LONG, RUNGS, kept, rungs


def test_short_lines_have_none() -> None:
    assert rungs(LONG) == []
    assert rungs(LONG + 1) == [2048, 3072]


def test_a_long_one() -> None:
    assert rungs(100_000) == [34304, 67072, 83456, 91648]


@given(st.integers(LONG + 1, 2_000_000))
def test_distances_double(length: int) -> None:
    positions = rungs(length)
    assert 1 <= len(positions) <= RUNGS
    assert all(position % BLOCK == 0 for position in positions)
    distances = [length - position for position in positions]
    for far, near in pairwise(distances):
        assert abs(far - 2 * near) < 2 * BLOCK
    assert positions[0] <= length / 2 + BLOCK


@given(st.lists(st.integers(5_000, 60_000), min_size=1, max_size=12))
def test_a_growing_line_keeps_few(turns: list[int]) -> None:
    """Of every growth only the new part gets rungs."""
    length, have = 0, set[int]()
    for turn in turns:
        before, length = length, length + turn
        have |= {rung for rung in rungs(length) if rung > before}
        have = kept(have, length)
        assert len(have) <= RUNGS
        assert have
