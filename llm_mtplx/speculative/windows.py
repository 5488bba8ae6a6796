"""Rounds that can be taken back row by row: a stop string may be found in any of them."""

from collections.abc import Iterator
from dataclasses import dataclass

import mlx.core as mx

from ..architectures.gated_delta import Tape

# Each pins one recurrent state, 154 MB on a 27B, and a stop string may stay undecided for long: as
# long as a tool call is being written.
MAX_WINDOWS = 4


@dataclass(frozen=True)
class Window:
    """What one round's forward left behind to come back to a position inside it."""

    start: int  # position before the forward
    hidden_before: mx.array  # [1, 1, H]
    hidden: mx.array  # [1, T, H]
    tape: Tape
    kept: int  # rows that were right


class Windows:
    """The oldest one reaches the earliest position, the newest ones what is likely asked for; rows
    between them are forwarded again where they are."""

    def __init__(self) -> None:
        self._windows: list[Window] = []

    def __len__(self) -> int:
        return len(self._windows)

    def __iter__(self) -> Iterator[Window]:
        return iter(self._windows)

    def add(self, window: Window) -> None:
        if self._windows:
            self._windows[-1].tape.forget_states()
        self._windows.append(window)
        if len(self._windows) > MAX_WINDOWS:
            del self._windows[1]

    def forget(self, position: int) -> None:
        """Nothing before ``position`` will be asked for."""
        self._windows = [w for w in self._windows if w.start + w.hidden.shape[1] > position]

    def at(self, position: int) -> Window:
        """The latest that begins at or before ``position``."""
        return next(window for window in reversed(self._windows) if window.start <= position)
