"""Opening the manifest's database: made where it is missing, set aside where it is unreadable.

Nothing in this process may open the database's files but SQLite: closing such a handle would
drop the locks SQLite holds on them.
"""

import fcntl
import logging
import os
import secrets
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..locks import open_lock
from ..reasons import StoreError
from ..root import FILE_MODE, StoreRoot
from .schema import UnreadableManifest, check_schema, migrate, use_journal

log = logging.getLogger(__name__)

NAME = "manifest.sqlite"
LOCK = "manifest.lock"
SIDE_FILES = ("-wal", "-shm", "-journal")
SET_ASIDE = f"{NAME}.set-aside-"
# The last three because our statements are fixed: they fail only where the tables are not ours.
_UNREADABLE = (
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
)
_READ_ONLY = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)
_DISK_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)  # no room for the side files, say

_POLL_S = 0.001

FileIdentity = tuple[int, int]  # device, inode


class Connection:
    """One SQLite connection and the file it was opened on. Used by one thread at a time."""

    def __init__(
        self, sql: sqlite3.Connection, path: Path, file: FileIdentity | None, writable: bool
    ) -> None:
        self.sql = sql
        self.file = file
        self.writable = writable
        self.fresh = True  # nobody has used it yet
        self._path = path

    def is_unreadable(self, error: Exception) -> bool:
        """Whether an error of this connection says that the database file is no good."""
        return is_unreadable(error) or (self.writable and _claims_a_later_format(error))

    def is_current(self) -> bool:
        """False where the manifest was removed or replaced since, or may be written again."""
        if self.file is None or file_identity(self._path) != self.file:
            return False
        return self.writable or not os.access(self._path, os.W_OK)


def connect(root: StoreRoot, busy_s: float) -> Connection:
    """Open the manifest of a store that exists, within about ``busy_s``. Raises StoreError."""
    deadline = time.monotonic() + busy_s
    while True:
        try:
            return _connect(root, busy_s)
        except StoreError as error:
            # Turning WAL on fails at once where another process does the same.
            if error.reason != "store_busy" or time.monotonic() >= deadline:
                raise
            time.sleep(min(0.005, busy_s))


def begin(sql: sqlite3.Connection, busy_s: float) -> None:
    """Begin to write once nobody else does. Raises sqlite3.Error, after ``busy_s`` if busy.

    SQLite itself would look less and less often, and miss the moments between the many short
    transactions in which much is removed.
    """
    deadline = time.monotonic() + busy_s
    sql.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                sql.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() >= deadline:
                    raise
            time.sleep(_POLL_S)
    finally:
        sql.execute(f"PRAGMA busy_timeout = {int(busy_s * 1000)}")


def set_aside(root: StoreRoot, busy_s: float, file: FileIdentity | None) -> None:
    """Rename the manifest, unless it is no longer the ``file`` that was found unreadable."""
    path = root.path / NAME
    with _locked(root, busy_s):
        if file is None or file_identity(path) != file:
            return
        _set_aside(path)


def _set_aside(path: Path) -> None:
    tag = secrets.token_hex(4)
    for suffix in ("", *SIDE_FILES):
        _rename(path.with_name(NAME + suffix), f"{SET_ASIDE}{tag}{suffix}")


def _connect(root: StoreRoot, busy_s: float) -> Connection:
    path = root.path / NAME
    try:
        root.close_to_others(*(NAME + suffix for suffix in ("", *SIDE_FILES)))
        _clear_the_place(root, busy_s)
        if not path.exists():
            _create(root, busy_s)
        file = file_identity(path)
        try:
            return _open(path, file, busy_s)
        except UnreadableManifest:
            set_aside(root, busy_s, file)
            _create(root, busy_s)
            file = file_identity(path)
            return _open(path, file, busy_s)
    except (sqlite3.Error, UnreadableManifest) as error:
        raise store_error(error) from None
    except OSError as error:
        raise StoreError("store_unavailable", str(error)) from None


def _clear_the_place(root: StoreRoot, busy_s: float) -> None:
    """Set the manifest aside where it, or a side file, is no regular file: SQLite would follow a
    link and wait for a FIFO. Raises StoreError and OSError."""
    path = root.path / NAME
    for suffix in ("", *SIDE_FILES):
        other = path.with_name(NAME + suffix)
        if not _is_another(other):
            continue
        log.warning("%s is not a regular file; it was set aside and the index is rebuilt", other)
        was_link = other.is_symlink()
        with _locked(root, busy_s):
            if _is_another(other):
                _set_aside(path)
        if was_link:
            raise StoreError("store_unavailable", f"{other} was a symbolic link; it is set aside")


def _is_another(path: Path) -> bool:
    """Whether something else than a regular file is there."""
    try:
        return not stat.S_ISREG(os.stat(path, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def is_unreadable(error: Exception) -> bool:
    """Whether an error says that the database file itself is no good."""
    # A damaged schema's name may stand, undecodable, in the text of an error.
    if isinstance(error, (UnreadableManifest, UnicodeDecodeError)):
        return True
    if isinstance(error, sqlite3.DatabaseError):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in _UNREADABLE
    return False


def _claims_a_later_format(error: Exception) -> bool:
    """Whether that is why a file which can be written cannot: SQLite takes a damaged version number
    for a later format, and opens it read-only."""
    return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY


def store_error(error: Exception) -> StoreError:
    """A database error as one of the store's reasons."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError("store_busy", str(error))
    if code == sqlite3.SQLITE_READONLY:
        return StoreError("store_read_only", str(error))
    if code == sqlite3.SQLITE_FULL:
        return StoreError("disk_full", str(error))
    return StoreError("store_unavailable", str(error))


def _open(path: Path, file: FileIdentity | None, busy_s: float) -> Connection:
    """Raises UnreadableManifest, sqlite3.Error or OSError."""
    try:
        return Connection(_open_writable(path, busy_s), path, file, writable=True)
    except sqlite3.OperationalError as error:
        if _claims_a_later_format(error) and os.access(path, os.W_OK):
            raise UnreadableManifest(str(error)) from None
        if error.sqlite_errorcode & 0xFF not in (*_READ_ONLY, *_DISK_FULL):
            raise
    # Without write access, and on a full disk, WAL needs its side files; as a last resort the file
    # is read as if nobody wrote to it. Rows are only hints: every file they name is checked.
    try:
        sql = _open_read_only(path, busy_s, "mode=ro")
    except sqlite3.OperationalError:
        sql = _open_read_only(path, busy_s, "mode=ro&immutable=1")
    return Connection(sql, path, file, writable=False)


def _open_writable(path: Path, busy_s: float) -> sqlite3.Connection:
    sql = _sqlite(f"{path.as_uri()}?mode=rw", busy_s)
    try:
        complete = check_schema(sql)
        if not os.access(path, os.W_OK):
            raise _read_only_error(path)
        if not complete:
            use_journal(sql)
            migrate(sql)
            if not check_schema(sql):
                raise UnreadableManifest("its migrations are inconsistent")
        sql.execute("PRAGMA synchronous = NORMAL")
        sql.execute("PRAGMA secure_delete = ON")
        return sql
    except BaseException as error:
        sql.close()
        if isinstance(error, Exception) and is_unreadable(error):
            raise UnreadableManifest(str(error)) from None
        raise


def _open_read_only(path: Path, busy_s: float, mode: str) -> sqlite3.Connection:
    sql = _sqlite(f"{path.as_uri()}?{mode}", busy_s)
    try:
        if not check_schema(sql):
            raise _read_only_error(path)
        return sql
    except BaseException:
        sql.close()
        raise


def _sqlite(uri: str, busy_s: float) -> sqlite3.Connection:
    # The manifest sees to it that threads take turns.
    sql = sqlite3.connect(
        uri, uri=True, timeout=busy_s, isolation_level=None, check_same_thread=False
    )
    sql.text_factory = _text
    return sql


class _NotText(bytes):
    """Text that cannot be decoded. Of no type that a row may hold, so that it passes neither for
    text nor for a key of as many bytes."""


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _NotText(data)


def _create(root: StoreRoot, busy_s: float) -> None:
    """Make an empty private file for SQLite to fill; its side files inherit the mode."""
    path = root.path / NAME
    with _locked(root, busy_s):
        if path.exists():
            return
        for suffix in SIDE_FILES:
            # A lost manifest's journal must not be replayed into its successor.
            _rename(path.with_name(NAME + suffix), f"{SET_ASIDE}{secrets.token_hex(4)}{suffix}")
        temp = path.with_name(f".{NAME}-{secrets.token_hex(4)}")
        handle = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        os.fchmod(handle, FILE_MODE)
        os.close(handle)
        os.rename(temp, path)


@contextmanager
def _locked(root: StoreRoot, busy_s: float) -> Iterator[None]:
    folder = root.open_dir()
    try:
        handle = open_lock(folder, LOCK)
    finally:
        os.close(folder)
    try:
        deadline = time.monotonic() + busy_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise StoreError("store_busy", f"{root.path / LOCK} is held") from None
                time.sleep(min(0.005, busy_s))
        yield
    finally:
        os.close(handle)


def _read_only_error(path: Path) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(f"{path} cannot be written")
    error.sqlite_errorcode = sqlite3.SQLITE_READONLY
    return error


def _rename(path: Path, name: str) -> None:
    try:
        path.rename(path.with_name(name))
    except FileNotFoundError:
        return


def file_identity(path: Path) -> FileIdentity | None:
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return status.st_dev, status.st_ino
