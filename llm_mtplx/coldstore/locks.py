"""A writing process holds a lock named by its uuid; one that can be taken belongs to the dead."""

import fcntl
import os
import re

from .root import FILE_MODE, StoreRoot

_NAME = re.compile(r"[0-9a-f]{32}\.lock")
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def hold(root: StoreRoot, writer: str) -> int:
    """Take the lock of this writer; the handle keeps it until closed. Raises OSError."""
    folder = root.open_dir("writers", create=True)
    try:
        handle = os.open(f"{writer}.lock", _FLAGS, FILE_MODE, dir_fd=folder)
        os.fchmod(handle, FILE_MODE)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return handle
    finally:
        os.close(folder)


def is_dead(root: StoreRoot, writer: str) -> bool:
    """Whether nobody holds this writer's lock. A writer whose lock file is gone is dead."""
    try:
        folder = root.open_dir("writers")
    except OSError:
        return True
    try:
        handle = os.open(f"{writer}.lock", _FLAGS & ~os.O_CREAT, dir_fd=folder)
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
    """Remove the lock file of a writer that is dead or done. Raises OSError."""
    folder = root.open_dir("writers")
    try:
        os.unlink(f"{writer}.lock", dir_fd=folder)
    except FileNotFoundError:
        return
    finally:
        os.close(folder)


def writers(root: StoreRoot) -> list[str]:
    """Every writer with a lock file, dead or alive."""
    return [n.removesuffix(".lock") for n in root.listdir("writers") if _NAME.fullmatch(n)]
