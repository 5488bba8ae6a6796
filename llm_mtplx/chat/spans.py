"""Which tokens a shown text is made of.

A place is a number of characters of text and calls, shown or not. A token of which a part is not
shown, because a stop string, a call or the template's newlines begin inside it, is not listed.
"""

from collections import deque
from typing import NamedTuple

from .pieces import Placed


class _Span(NamedTuple):
    token: int
    start: int
    end: int


class Spans:
    def __init__(self) -> None:
        self._waiting: deque[_Span] = deque()  # not yet wholly passed
        self._passed = 0
        self._shown = 0
        self._hidden_to = 0  # where what was not shown last ends

    def add(self, token: int, start: int, end: int, characters: int) -> None:
        """``token``: its place in the answer. It has ``characters``, its text is from ``start`` to
        ``end``."""
        while self._waiting and self._waiting[-1].end > end:
            self._waiting.pop()  # what looked like text was a tag
        if 0 < characters == end - start:
            self._waiting.append(_Span(token, start, end))

    def show(self, characters: int) -> tuple[Placed, ...]:
        """The tokens that end within the next ``characters``, which are shown."""
        self._passed += characters
        self._shown += characters
        return tuple(
            Placed(span.token, self._shown - (self._passed - span.start))
            for span in self._ended()
            if span.start >= self._hidden_to
        )

    def hide(self, characters: int) -> None:
        """The next ``characters`` are not shown."""
        self._passed += characters
        self._hidden_to = self._passed
        self._ended()

    def _ended(self) -> list[_Span]:
        ended = []
        while self._waiting and self._waiting[0].end <= self._passed:
            ended.append(self._waiting.popleft())
        return ended
