"""Fixtures of the store's tests."""

import threading

import pytest

from .aging import Clock

LEFT_S = 30.0


@pytest.fixture(autouse=True)
def no_work_left() -> None:
    """What a test before left at work in the background would see this one's patches."""
    for thread in threading.enumerate():
        if thread.name in ("mtplx-upkeep", "mtplx-rebuild"):
            thread.join(LEFT_S)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("time.time", clock)
    return clock
