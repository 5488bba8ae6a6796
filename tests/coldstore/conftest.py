"""Fixtures of the store's tests."""

import pytest

from .aging import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("time.time", clock)
    return clock
