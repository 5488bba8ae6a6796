"""The store's directory: its marker, its modes, and opening what lies below without links."""

import contextlib
import errno
import json
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

from .backup import TAG, exclude
from .reasons import StoreError

DIRECTORY = "sessions-v1"
MARKER = "STORE"
FORMAT = 1
AREAS = ("blobs", "entries", "writers")
DIR_MODE, FILE_MODE = 0o700, 0o600
_OTHERS = 0o077
_OPEN_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class StoreRoot:
    """``<cache dir>/sessions-v1``, resolved once. Keeps no handle open; any thread may use it.

    Everything below is opened relative to its directory and through no symbolic link.
    """

    def __init__(self, cache_dir: Path) -> None:
        self.cache_dir = cache_dir
        self.path = Path(os.path.realpath(cache_dir / DIRECTORY))

    @classmethod
    def at(cls, path: Path) -> "StoreRoot":
        """The store in this very directory, whatever its name."""
        root = cls(path.parent)
        root.path = Path(os.path.realpath(path))
        return root

    def check(self) -> None:
        """Raise StoreError unless the directory is a store of this format."""
        try:
            marker = open_file(None, self.path / MARKER)
        except FileNotFoundError:
            self._check_free()
            raise StoreError("store_absent") from None
        except NotAFile as error:
            raise StoreError("not_a_store", str(error)) from None
        except OSError as error:
            raise StoreError("store_unavailable", str(error)) from None
        with open(marker, "rb") as file:
            version = marker_version(file.read(4096))
        if version is None:
            raise StoreError("not_a_store", f"{self.path / MARKER} is not a marker")
        if version != FORMAT:
            raise StoreError("other_version", f"the store's format is {version}, not {FORMAT}")

    def create(self) -> None:
        """Make the store where there is none. Raises StoreError or OSError."""
        try:
            self.check()
            self.narrow()
            return
        except StoreError as error:
            if error.reason != "store_absent":
                raise
        _make_parents(self.path.parent)
        _make_dir(self.path, None)
        root = os.open(self.path, _OPEN_DIR)
        try:
            for area in AREAS:
                _make_dir(area, root)
            exclude(root)
            self._write_marker(root)
        finally:
            os.close(root)

    def narrow(self, places: Iterable[tuple[tuple[str, ...], str]] = ()) -> None:
        """Take everybody else's rights to the store away, where a backup was restored with other
        modes, say: those of its directories, and of the files in it and in ``places``.

        As well as it can be done. The database's files are not opened for it: see `connection.py`.
        """
        self.close_to_others()
        for area in AREAS:
            self._narrow_dir(area)
        try:
            names = os.listdir(self.path)
        except OSError:
            names = []
        for name in names:
            _narrow(self.path / name)
        self.narrow_places(places)

    def narrow_places(self, places: Iterable[tuple[tuple[str, ...], str]]) -> None:
        """The same of ``places`` alone."""
        for place, name in places:
            with contextlib.suppress(OSError):
                folder = self.open_dir(*place)
                try:
                    _narrow_file(name, folder)
                finally:
                    os.close(folder)

    def _narrow_dir(self, *parts: str) -> None:
        with contextlib.suppress(OSError):
            handle = self.open_dir(*parts)
            try:
                if is_wide(os.fstat(handle)):
                    os.fchmod(handle, DIR_MODE)
            finally:
                os.close(handle)

    def close_to_others(self, *names: str) -> None:
        """The same of the directory itself, below which nobody else gets then, and of ``names``."""
        _narrow(self.path)
        for name in names:
            _narrow(self.path / name)

    def open_dir(self, *parts: str, create: bool = False) -> int:
        """A directory handle, to be closed by the caller. Raises OSError."""
        handle = os.open(self.path, _OPEN_DIR)
        for part in parts:
            try:
                if create:
                    _clear_for_dir(handle, part)
                    _make_dir(part, handle)
                deeper = os.open(part, _OPEN_DIR, dir_fd=handle)
            finally:
                os.close(handle)
            handle = deeper
            if create and os.fstat(handle).st_mode & _OTHERS:
                os.fchmod(handle, DIR_MODE)
        return handle

    def open_file(self, name: str, flags: int = os.O_RDONLY) -> int:
        """As the function of this name, of a file in the store's own directory."""
        folder = self.open_dir()
        try:
            return open_file(folder, name, flags)
        finally:
            os.close(folder)

    def listdir(self, *parts: str) -> list[str]:
        """Names in a directory below the root; none where there is none.

        Raises OSError where they cannot be told. A link, which is not followed, may lead to what
        belongs here.
        """
        try:
            handle = self.open_dir(*parts)
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            if self._is_link(*parts):
                raise
            return []
        try:
            return os.listdir(handle)
        finally:
            os.close(handle)

    def _is_link(self, *parts: str) -> bool:
        return any(
            self.path.joinpath(*parts[: count + 1]).is_symlink() for count in range(len(parts))
        )

    def _check_free(self) -> None:
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError("store_unavailable", str(error)) from None
        # Another process may be half-way through `create`, or have come to its end meanwhile.
        if MARKER in names:
            return
        ours = (*AREAS, TAG)
        if not all(name in ours or name.startswith(f".{MARKER}-") for name in names):
            raise StoreError("not_a_store", f"{self.path} has no {MARKER} file and is not empty")

    def _write_marker(self, root: int) -> None:
        temp = f".{MARKER}-{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        handle = os.open(temp, flags, FILE_MODE, dir_fd=root)
        try:
            os.fchmod(handle, FILE_MODE)
            os.write(handle, json.dumps({"store": "llm-mtplx", "format": FORMAT}).encode())
            os.fsync(handle)
        finally:
            os.close(handle)
        os.rename(temp, MARKER, src_dir_fd=root, dst_dir_fd=root)


class NotAFile(OSError):
    """Something else stands where a regular file belongs."""


def open_file(folder: int | None, name: str | Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file, never waiting for anybody. Raises NotAFile or another OSError.

    ``folder`` is a directory's handle. What is opened for a FIFO, a socket or a device, which may
    take its time or do something, is looked at before as well as after.
    """
    try:
        _refuse_other(name, os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(name, flags, FILE_MODE, dir_fd=folder)
    try:
        _refuse_other(name, os.fstat(handle))
    except BaseException:
        os.close(handle)
        raise
    return handle


def _clear_for_dir(folder: int, name: str) -> None:
    """Make a directory's place free where something else stands there. A link stays: it may be the
    owner's, and is not followed. Raises OSError."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISREG(mode):  # it may hold something
        aside = f"{name}.displaced-{secrets.token_hex(4)}"
        os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
    elif not stat.S_ISDIR(mode) and not stat.S_ISLNK(mode):
        displace(folder, name)


def bytes_taken(status: os.stat_result) -> int:
    """What a file costs: a file of holes may claim to be longer than the disk is."""
    return min(status.st_size, status.st_blocks * 512)


def is_wide(status: os.stat_result) -> bool:
    """Whether others than the owner have rights to a file or directory."""
    regular = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    return regular and bool(status.st_mode & _OTHERS)


def _narrow(path: Path) -> None:
    """Of a file in the root itself, without opening it: the path to it holds no link."""
    try:
        status = os.lstat(path)
        if is_wide(status) and _is_here_alone(status):
            os.chmod(path, stat.S_IMODE(status.st_mode) & DIR_MODE)
    except OSError:
        return  # another user's, or gone


def _narrow_file(name: str, folder: int) -> None:
    """Raises OSError."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(name, flags, dir_fd=folder)
    try:
        status = os.fstat(handle)
        if is_wide(status) and _is_here_alone(status):
            os.fchmod(handle, stat.S_IMODE(status.st_mode) & DIR_MODE)
    finally:
        os.close(handle)


def _is_here_alone(status: os.stat_result) -> bool:
    """A hard link's modes are those of the file elsewhere, too."""
    return stat.S_ISDIR(status.st_mode) or status.st_nlink == 1


def displace(folder: int | None, name: str | Path) -> bool:
    """Make a place free that holds something else than a regular file; False where it does not.

    A directory may hold what is not ours: with content it is renamed and left. Raises OSError.
    """
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            return False
        if not stat.S_ISDIR(status.st_mode):
            os.unlink(name, dir_fd=folder)
            return True
        try:
            os.rmdir(name, dir_fd=folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            aside = f"{name}.displaced-{secrets.token_hex(4)}"
            os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
    except FileNotFoundError:
        return False
    return True


def _refuse_other(name: str | Path, status: os.stat_result) -> None:
    mode = status.st_mode
    if stat.S_ISREG(mode):
        return
    if stat.S_ISLNK(mode):
        raise NotAFile(errno.ELOOP, "a symbolic link, which is not followed", str(name))
    if stat.S_ISDIR(mode):
        raise NotAFile(errno.EISDIR, "a directory, not a file", str(name))
    raise NotAFile(errno.ENXIO, "not a regular file", str(name))


def store_root(path: Path) -> StoreRoot:
    """The store that ``path`` is, by its marker, else the one in ``path`` as a cache directory."""
    return StoreRoot.at(path) if (path / MARKER).is_file() else StoreRoot(path)


def _make_parents(path: Path) -> None:
    """The directories above the store, private too where they are made for it."""
    missing = [path, *path.parents]
    while missing and missing[-1].exists():
        missing.pop()
    for each in reversed(missing):
        _make_dir(each, None)


def _make_dir(name: str | Path, parent: int | None) -> None:
    """Make a private directory whatever the umask; one that is there stays as it is."""
    try:
        os.mkdir(name, DIR_MODE, dir_fd=parent)
    except FileExistsError:
        return
    os.chmod(name, DIR_MODE, dir_fd=parent)


def marker_version(content: bytes) -> int | None:
    try:
        marker = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(marker, dict) or marker.get("store") != "llm-mtplx":
        return None
    version = marker.get("format")
    return version if type(version) is int else None
