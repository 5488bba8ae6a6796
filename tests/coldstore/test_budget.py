"""The cap on the store's size, by machine, disk and what is stored."""

import pytest

from llm_mtplx.coldstore.upkeep.limits import GIB, Room, default_max_bytes


@pytest.mark.parametrize(
    ("memory", "free", "want"),
    [
        (8, 500, 16),
        (16, 500, 16),
        (24, 500, 24),
        (32, 500, 24),
        (64, 149, 32),
        (64, 150, 100),
        (128, 20, 100),
    ],
)
def test_by_machine(memory: int, free: int, want: int) -> None:
    assert default_max_bytes(memory * GIB, free * GIB) == want * GIB


def room(configured: float, stored: float, free: float, largest: float) -> Room:
    sizes = [round(size * GIB) for size in (configured, stored, free, 10, largest)]
    return Room(*sizes)


@pytest.mark.parametrize(
    ("given", "cap", "state"),
    [
        (room(100, 0, 25, 4), 8, "ok"),  # two of the largest, more than a quarter
        (room(100, 0, 400, 4), 100, "ok"),  # what is configured
        (room(100, 0, 200, 4), 50, "ok"),  # a quarter of the disk
        (room(100, 0, 28, 9.6), 18, "low"),  # what may be filled
        (room(100, 30, 90, 4), 30, "ok"),  # a quarter, what is stored included
        (room(100, 5, 9.9, 1), 3.725, "full"),
    ],
)
def test_the_cap_in_force(given: Room, cap: float, state: str) -> None:
    assert given.cap / GIB == pytest.approx(cap)
    assert given.state == state


def test_what_must_go() -> None:
    assert room(100, 30, 90, 4).over() == 0
    assert room(100, 30, 90, 4).over(GIB) == GIB
    assert room(20, 30, 90, 4).over() == 10 * GIB


def test_a_disk_that_others_have_filled_costs_nothing_that_is_kept() -> None:
    assert room(100, 50, 5, 4).over() == 0
    assert room(40, 50, 5, 4).over() == 10 * GIB
