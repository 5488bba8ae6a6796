"""Keeping SQLite out of forks.

SQLite keeps track of a process's file locks in memory, which a forked child would inherit while
the locks themselves are not: it would go on without them. So connections are closed for the
moment of a fork, and both sides open their own when they next need one.
"""

import os
import threading
from typing import Protocol
from weakref import WeakSet

from ..reasons import StoreError

WAIT_S = 1.0  # for a transaction under way on another thread


class Pausable(Protocol):
    def pause(self, timeout: float) -> bool:
        """Close the connection and keep others from opening one; False where it is in use."""

    def resume(self) -> None: ...


_guard = threading.RLock()
_watched: "WeakSet[Pausable]" = WeakSet()
_paused: list[Pausable] = []
_in_use: list[Pausable] = []  # in the child: kept for ever, so that nothing closes them
_child_of_a_busy_parent = False


def watch(manifest: Pausable) -> None:
    with _guard:
        _watched.add(manifest)


def check() -> None:
    """Raise StoreError in a child whose parent was in a transaction when it forked."""
    if _child_of_a_busy_parent:
        raise StoreError("store_unavailable", "the process was forked while the store was in use")


def _before() -> None:
    _guard.acquire()
    for manifest in list(_watched):
        (_paused if manifest.pause(WAIT_S) else _in_use).append(manifest)


def _after_in_parent() -> None:
    _resume()
    _in_use.clear()
    _guard.release()


def _after_in_child() -> None:
    global _child_of_a_busy_parent
    _child_of_a_busy_parent = _child_of_a_busy_parent or bool(_in_use)
    _resume()
    _guard.release()


def _resume() -> None:
    for manifest in _paused:
        manifest.resume()
    _paused.clear()


os.register_at_fork(
    before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
