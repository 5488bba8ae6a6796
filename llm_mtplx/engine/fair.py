"""A queue that serves its clients in turn."""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """One item of each client, then the next of each. Any thread may put and get."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[T]] = OrderedDict()  # next in turn first
        self._changed = threading.Condition(threading.Lock())

    def put(self, item: T, client: str = "") -> None:
        with self._changed:
            self._lines.setdefault(client, deque()).append(item)
            self._changed.notify()

    def get(self, wait: bool = True, fits: Callable[[T], bool] = lambda item: True) -> T | None:
        """The next item; waits for one, or returns None. None, too, where the next one does not
        fit yet: none is let past it."""
        with self._changed:
            while not self._lines:
                if not wait:
                    return None
                self._changed.wait()
            client, line = next(iter(self._lines.items()))
            if not fits(line[0]):
                return None
            del self._lines[client]
            item = line.popleft()
            if line:
                self._lines[client] = line
            return item

    def waiting(self) -> list[T]:
        with self._changed:
            return [item for line in self._lines.values() for item in line]
