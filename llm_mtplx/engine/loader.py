"""One loader a model and user: a process that loads a model holds a lock while it has it.

As many processes may hold one model as copies of its weights fit in memory; each takes one of so
many lock files. Small models always fit, and no file is touched for them. The locks are the
kernel's: they end with the process, however it ends, and no forked child keeps them.
"""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..catalog import fit, machine
from ..errors import EngineError
from ..settings import cache_dir

SMALL_BYTES = fit.GIB  # nobody waits for a model up to this size
COPIES = 8  # more are not counted
POLL_S = 0.2
WAIT_S = 600.0

logger = logging.getLogger(__name__)

_held: dict[Path, int] = {}  # by model folder: the handle of its lock
_guard = threading.Lock()


@dataclass(frozen=True)
class Holder:
    """The process that has a model loaded, as far as its lock file tells."""

    pid: int | None
    since: float | None  # seconds since the epoch

    def __str__(self) -> str:
        if self.pid is None or self.since is None:
            return "another process"
        minutes = (time.time() - self.since) / 60
        so_long = f" (for {minutes:.0f} minutes)" if minutes >= 1 else ""
        return f"process {self.pid}{so_long}"


def copies_that_fit(needs: fit.Needs, memory_bytes: int) -> int | None:
    """How many processes may hold a model at once: at least 1, None for any number."""
    if needs.weights <= SMALL_BYTES:
        return None
    return min(max(fit.copies(memory_bytes, needs), 1), COPIES)


def hold(
    folder: Path,
    needs: fit.Needs,
    notice: Callable[[str], None],
    cancelled: Callable[[], bool],
    memory_bytes: int | None = None,
) -> bool:
    """Return once this process may load a model; it may until `release`.

    True where a lock was taken. ``notice`` gets one line if that takes waiting. Raises EngineError
    after WAIT_S, where ``cancelled`` says so, and at once where waiting could be for ever: beside
    another model that this process holds, or for the process that started this one.
    """
    if memory_bytes is None:
        memory_bytes = machine.memory_bytes()
    copies = copies_that_fit(needs, memory_bytes)
    folder = folder.resolve()
    with _guard:
        if copies is None or folder in _held:
            return False
    try:
        if _take(folder, copies):
            return True
    except OSError as error:
        logger.warning("loading without a lock: %s", error)
        return False
    holder = _holder(folder)
    _check_may_wait(folder, holder)
    notice(
        f"{folder.name} is loaded by {holder}, and a second copy does not fit in memory. "
        "Waiting for it to finish."
    )
    deadline = time.monotonic() + WAIT_S
    while not _take(folder, copies):
        if cancelled():
            raise EngineError("The answer was stopped before it began.")
        if time.monotonic() >= deadline:
            raise EngineError(_refusal(folder, holder))
        time.sleep(POLL_S)
    return True


def release(folder: Path) -> None:
    """Let others load a model: this process has it no more. Harmless where it never had."""
    with _guard:
        handle = _held.pop(folder.resolve(), None)
        if handle is not None:
            os.close(handle)


def _take(folder: Path, copies: int) -> bool:
    with _guard:
        for number in range(copies):
            handle = _open(folder, number, create=True)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(handle)
                if isinstance(error, BlockingIOError):
                    continue
                raise
            _held[folder] = handle
            record = json.dumps({"pid": os.getpid(), "since": time.time()}).encode()
            with contextlib.suppress(OSError):  # the lock counts, not what it says
                os.truncate(handle, 0)
                os.pwrite(handle, record, 0)
            return True
    return False


def _holder(folder: Path) -> Holder:
    try:
        handle = _open(folder, 0, create=False)
        try:
            record = json.loads(os.pread(handle, 4096, 0))
        finally:
            os.close(handle)
        return Holder(int(record["pid"]), float(record["since"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Holder(None, None)  # it has only just taken the lock


def _check_may_wait(folder: Path, holder: Holder) -> None:
    # Two processes that each hold what the other wants, or one that waits for its child.
    if _held or holder.pid == os.getppid():
        raise EngineError(_refusal(folder, holder))


def _refusal(folder: Path, holder: Holder) -> str:
    return (
        f"{folder.name} is loaded by {holder}, and a second copy does not fit in memory. "
        "Stop that process, or try again when it has finished."
    )


def _open(folder: Path, number: int, create: bool) -> int:
    """Raises OSError."""
    place = cache_dir() / "loaders"
    if create and not place.is_dir():
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.chmod(0o700)
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:32]
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    handle = os.open(place / f"{name}.{number}.lock", flags, 0o600)
    if create:
        os.fchmod(handle, 0o600)
    return handle


def _after_fork_in_child() -> None:
    global _guard
    _guard = threading.Lock()
    for handle in _held.values():
        os.close(handle)
    _held.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
