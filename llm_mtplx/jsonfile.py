"""Small JSON files of our own: written whole or not at all, read within bounds."""

import contextlib
import errno
import fcntl
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MOST_BYTES = 16 << 20
WAIT_S = 10.0  # for another process that changes a file


def write(path: Path, content: dict[str, Any]) -> None:
    """Replace ``path`` in one step; readable by its owner alone. Raises OSError.

    The bytes are on the disk before the name is: after a power cut there is the old file or the
    new one. What is there already may be a link, to a synced folder, say; its target is replaced.
    """
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    _sync_folder(path.parent)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """While the file is read, changed and written by this thread alone. Raises OSError.

    The lock is a file beside it, which stays: removing it would let two in.
    """
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(path.with_name(f".{path.name}.lock"), flags, 0o600)
    try:
        _lock(handle)
        yield
    finally:
        os.close(handle)


def _lock(handle: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise TimeoutError(errno.ETIMEDOUT, "another process is changing it") from None
            time.sleep(0.01)
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP):
                return  # a file system without locks: as good as it gets
            raise


def read(path: Path) -> dict[str, Any]:
    """The object in ``path``. Raises OSError, and ValueError where it does not hold one.

    Only a regular file is read: a FIFO would wait for ever.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if status.st_size > MOST_BYTES:
            raise ValueError(f"it has {status.st_size:,} bytes, more than {MOST_BYTES:,}")
        data = file.read(MOST_BYTES + 1)
    try:
        content = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError("it does not contain a JSON object")
    return content


def read_or_empty(path: Path) -> dict[str, Any]:
    """The object in ``path``; empty where there is none that can be read."""
    with contextlib.suppress(OSError, ValueError):
        return read(path)
    return {}


def _sync_folder(path: Path) -> None:
    """So that the new name outlives a power cut, where the file system can do that."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
