"""A writing process holds a lock named by its uuid; one that can be taken belongs to the dead."""

import fcntl
import os
import re

from .index.rows import is_writer
from .root import FILE_MODE, NotAFile, StoreRoot, displace, open_file

_NAME = re.compile(r"[0-9a-f]{32}\.lock")
_held: set[int] = set()


def open_lock(folder: int, name: str) -> int:
    """Open a lock's file, made where there is none; what is no file does not stay in its place.

    Raises OSError.
    """
    flags = os.O_RDWR | os.O_CREAT
    try:
        handle = open_file(folder, name, flags)
    except NotAFile:
        displace(folder, name)
        handle = open_file(folder, name, flags)
    if os.fstat(handle).st_mode & 0o777 != FILE_MODE:
        os.fchmod(handle, FILE_MODE)
    return handle


def hold(root: StoreRoot, writer: str) -> int:
    """Take the lock of this writer, to be given back by `release`. Raises OSError."""
    folder = root.open_dir("writers", create=True)
    try:
        # Its name is there only once it is held: nobody may take a new one for a dead one.
        name = f"{writer}.lock"
        handle = open_lock(folder, f".{name}")
        _held.add(handle)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(f".{name}", name, src_dir_fd=folder, dst_dir_fd=folder)
        return handle
    finally:
        os.close(folder)


def release(root: StoreRoot, writer: str, handle: int) -> None:
    """Give a lock back that `hold` took. Raises OSError where its file cannot be removed."""
    try:
        remove(root, writer)
    finally:
        _held.discard(handle)
        os.close(handle)


def is_dead(root: StoreRoot, writer: str) -> bool:
    """Whether nobody holds this writer's lock. A writer whose lock file is gone is dead."""
    if not is_writer(writer):
        return True
    try:
        folder = root.open_dir("writers")
    except OSError:
        return True
    try:
        handle = open_file(folder, f"{writer}.lock", os.O_RDWR)
    except NotAFile:
        return True  # nobody can hold it
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    finally:
        os.close(folder)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def remove(root: StoreRoot, writer: str) -> None:
    """Remove the lock file of a dead writer. Raises OSError."""
    if not is_writer(writer):
        return  # it would name another file
    folder = root.open_dir("writers")
    try:
        displace(folder, f"{writer}.lock")
        os.unlink(f"{writer}.lock", dir_fd=folder)
    except FileNotFoundError:
        return
    finally:
        os.close(folder)


def writers(root: StoreRoot) -> list[str]:
    """Every writer with a lock file, dead or alive."""
    return [n.removesuffix(".lock") for n in root.listdir("writers") if _NAME.fullmatch(n)]


def _close_inherited() -> None:
    # A lock is held as long as any process has its handle: the parent's must die with it.
    for handle in _held:
        os.close(handle)
    _held.clear()


os.register_at_fork(after_in_child=_close_inherited)
