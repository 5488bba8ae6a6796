"""A queue that serves its clients in turn."""

import threading
from collections import OrderedDict, deque
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

    def get(self, wait: bool = True) -> T | None:
        """The next item; waits for one, or returns None."""
        with self._changed:
            while not self._lines:
                if not wait:
                    return None
                self._changed.wait()
            client, line = self._lines.popitem(last=False)
            item = line.popleft()
            if line:
                self._lines[client] = line
            return item

    def waiting(self) -> list[T]:
        with self._changed:
            return [item for line in self._lines.values() for item in line]
