"""Waiting for what another thread or process does, never without an end."""

import time
from collections.abc import Callable

LONG_S = 120.0  # reached only where something hangs


def until(done: Callable[[], object]) -> None:
    """Ask again and again until ``done`` says yes."""
    deadline = time.monotonic() + LONG_S
    while not done():
        assert time.monotonic() < deadline, f"not within {LONG_S:.0f} s"
        time.sleep(0.001)
