"""Immutable files named by key: ``blobs/ab/<hex>.kv|.st`` and ``entries/ab/<hex>.json``."""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from .format import Buffer, flat
from .index.rows import is_writer
from .keys import Kind, parse_key
from .root import FILE_MODE, StoreRoot, bytes_taken, displace, open_file

AREA: dict[Kind, str] = {"block": "blobs", "checkpoint": "blobs", "entry": "entries"}
SUFFIX: dict[Kind, str] = {"block": ".kv", "checkpoint": ".st", "entry": ".json"}
IOV_MAX = min(1024, os.sysconf("SC_IOV_MAX"))
_LINK_REFUSED = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)

Failpoint = Callable[[str], None]


class Blobs:
    """Opens, installs and unlinks the store's files. Stateless; any thread may use it.

    A file is complete under its final name or is not there: it is written under a temporary
    name in the same directory, synced, then linked. Directories are not synced: a name lost
    with the power is a miss, which the next write heals.
    """

    def __init__(self, root: StoreRoot, failpoint: Failpoint) -> None:
        self._root = root
        self._failpoint = failpoint

    def open(self, kind: Kind, key: bytes) -> int:
        """A handle for reading, to be closed by the caller. Raises OSError."""
        folder = self._root.open_dir(AREA[kind], shard(key))
        try:
            return open_file(folder, file_name(kind, key))
        finally:
            os.close(folder)

    def size(self, kind: Kind, key: bytes) -> int | None:
        """Bytes that a file takes; None where it is not there or cannot be seen."""
        try:
            folder = self._root.open_dir(AREA[kind], shard(key))
        except OSError:
            return None
        try:
            status = os.stat(file_name(kind, key), dir_fd=folder, follow_symlinks=False)
            return bytes_taken(status) if stat.S_ISREG(status.st_mode) else None
        except OSError:
            return None
        finally:
            os.close(folder)

    def install(
        self,
        kind: Kind,
        key: bytes,
        content: Sequence[Buffer],
        writer: str,
        verify: Callable[[int], bool],
    ) -> bool:
        """Put ``content`` under its name, unless a file that verifies is there already.

        ``verify`` takes a handle on the existing file. Returns whether this call's bytes were
        installed. Raises OSError.
        """
        folder = self._root.open_dir(AREA[kind], shard(key), create=True)
        name, temp = file_name(kind, key), temp_name(key, writer)
        try:
            if _verifies(folder, name, verify):
                return False
            _write_file(folder, temp, content, self._failpoint)
            try:
                self._failpoint("temp_synced")
                return self._put(folder, temp, name, verify)
            finally:
                _unlink(folder, temp)
        finally:
            os.close(folder)

    @contextmanager
    def replacement(
        self, kind: Kind, key: bytes, content: Sequence[Buffer], writer: str, inode: int
    ) -> Iterator[Callable[[], bool]]:
        """Write ``content`` beside a file; a call puts it in that very file's place.

        The call returns False, and changes nothing, where the name no longer means ``inode``.
        Whoever has the file open goes on reading it. Raises OSError.
        """
        folder = self._root.open_dir(AREA[kind], shard(key))
        name, temp = file_name(kind, key), temp_name(key, writer)

        def put() -> bool:
            if _inode(folder, name) != inode:
                return False
            os.rename(temp, name, src_dir_fd=folder, dst_dir_fd=folder)
            self._failpoint("installed")
            return True

        try:
            _write_file(folder, temp, content, self._failpoint)
            self._failpoint("temp_synced")
            yield put
        finally:
            _unlink(folder, temp)
            os.close(folder)

    def unlink(self, kind: Kind, key: bytes, inode: int | None = None) -> None:
        """Remove a file if it is there; with ``inode``, only while the name means that very file.

        Raises OSError where it is there and stays.
        """
        try:
            folder = self._root.open_dir(AREA[kind], shard(key))
        except FileNotFoundError:
            return
        try:
            name = file_name(kind, key)
            if inode is None or _inode(folder, name) == inode:
                displace(folder, name)
                _unlink(folder, name)
        finally:
            os.close(folder)

    def unlink_temp(self, key: bytes, writer: str) -> None:
        """Remove what a dead writer left of a file it had not finished."""
        if not is_writer(writer):
            return  # it would name another file
        for area in ("blobs", "entries"):
            try:
                folder = self._root.open_dir(area, shard(key))
            except OSError:
                continue
            try:
                _unlink(folder, temp_name(key, writer))
            finally:
                os.close(folder)

    def names(self, unseen: list[str]) -> Iterator[tuple[Kind, bytes]]:
        """Every file with a well-formed name, in the directory it belongs to.

        What cannot be listed is added to ``unseen``: it is not known to be empty.
        """
        kinds = {(AREA[kind], suffix): kind for kind, suffix in SUFFIX.items()}
        for area in ("blobs", "entries"):
            for folder in self._listed(unseen, area):
                for name in self._listed(unseen, area, folder):
                    stem, dot, rest = name.partition(".")
                    kind, key = kinds.get((area, dot + rest)), parse_key(stem)
                    if kind is not None and key is not None and folder == shard(key):
                        yield kind, key

    def _listed(self, unseen: list[str], *place: str) -> list[str]:
        try:
            return self._root.listdir(*place)
        except OSError as error:
            unseen.append(str(error))
            return []

    def _put(self, folder: int, temp: str, name: str, verify: Callable[[int], bool]) -> bool:
        try:
            os.link(temp, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            if _verifies(folder, name, verify):
                return False
            displace(folder, name)
            os.rename(temp, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as error:
            if error.errno not in _LINK_REFUSED:
                raise
            if _verifies(folder, name, verify):
                return False
            displace(folder, name)
            os.rename(temp, name, src_dir_fd=folder, dst_dir_fd=folder)
        self._failpoint("installed")
        return True


def shard(key: bytes) -> str:
    return key[:1].hex()


def file_name(kind: Kind, key: bytes) -> str:
    return key.hex() + SUFFIX[kind]


def temp_name(key: bytes, writer: str) -> str:
    return f".{key.hex()}.{writer}.tmp"


def _write_file(folder: int, name: str, content: Sequence[Buffer], failpoint: Failpoint) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(name, flags, FILE_MODE, dir_fd=folder)
    try:
        os.fchmod(handle, FILE_MODE)
        failpoint("temp_opened")
        _write_all(handle, content)
        failpoint("temp_written")
        os.fsync(handle)
    except BaseException:
        _unlink(folder, name)
        raise
    finally:
        os.close(handle)


def _write_all(handle: int, content: Sequence[Buffer]) -> None:
    left = flat(content)
    at = 0
    while at < len(left):
        written = os.writev(handle, left[at : at + IOV_MAX])
        while written and written >= left[at].nbytes:
            written -= left[at].nbytes
            at += 1
        if written:
            left[at] = left[at][written:]


def _verifies(folder: int, name: str, verify: Callable[[int], bool]) -> bool:
    try:
        handle = open_file(folder, name)
    except OSError:
        return False
    try:
        return verify(handle)
    finally:
        os.close(handle)


def _inode(folder: int, name: str) -> int | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino
    except FileNotFoundError:
        return None


def _unlink(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return
