"""The index of what may be restored: SQLite, a row a file, the row being the commit point."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Literal, TypeVar

from ..entries import Entry
from ..keys import FileKind, Kind
from ..reasons import StoreError
from ..root import StoreRoot
from ..statements import check_line, insert_block, insert_checkpoint, insert_entry, insert_found
from . import forks
from .connection import Connection, begin, connect, set_aside, store_error
from .heal import PENDING, drop_unsound, find_unsound
from .rows import (
    BadRow,
    BlockRow,
    CheckpointRow,
    Row,
    announcement_row,
    block_row,
    checkpoint_row,
    entry_row,
    key_of,
    position_row,
)
from .schema import UnreadableManifest

T = TypeVar("T")

_BATCH = 128  # keys a query
_TABLE: dict[FileKind, str] = {"block": "blocks", "checkpoint": "checkpoints"}
_REBUILT = "INSERT OR REPLACE INTO facts VALUES ('rebuild', 'done')"
_COLUMNS: dict[FileKind, str] = {
    "block": "key, parent, start, size",
    "checkpoint": "key, parent, position, size, used",
}


class Manifest:
    """Queries and commits over one connection, which threads take turns to use.

    Every method raises StoreError, about ``busy_s`` after somebody else was found in the way.
    """

    def __init__(self, root: StoreRoot, busy_s: float) -> None:
        self.rebuild_pending = False
        self.corrupt = False  # a row was met that holds what none can
        self._doubted: list[tuple[str, Row]] = []  # what removes rows that contradict their line
        self._root = root
        self._busy_s = busy_s
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._within: int | None = None  # the thread that is in a `transaction`
        forks.watch(self)

    def blocks_named(self, keys: Sequence[bytes]) -> dict[bytes, BlockRow]:
        """The rows of those of ``keys`` that are stored."""
        return {row.key: row for row in self._named("block", keys, block_row)}

    def checkpoints_named(self, keys: Sequence[bytes]) -> dict[bytes, CheckpointRow]:
        return {row.key: row for row in self._named("checkpoint", keys, checkpoint_row)}

    def _named(
        self, kind: FileKind, keys: Sequence[bytes], parse: Callable[[Row], T]
    ) -> Iterator[T]:
        with self._use() as sql:
            found: list[Row] = []
            for some in _batches(keys):
                query = f"SELECT {_COLUMNS[kind]} FROM {_TABLE[kind]} WHERE key IN ({_marks(some)})"
                found += sql.execute(query, some)
        return self._sound(found, parse)

    def positions_after(self, parents: Sequence[bytes]) -> dict[bytes, list[int]]:
        """By block key, the positions of the checkpoints of any line that follow it directly."""
        with self._use() as sql:
            rows: list[Row] = []
            for some in _batches(parents):
                query = (
                    "SELECT DISTINCT parent, position FROM checkpoints"
                    f" WHERE parent IN ({_marks(some)})"
                )
                rows += sql.execute(query, some)
        found: dict[bytes, list[int]] = {}
        for parent, position in self._sound(rows, position_row):
            found.setdefault(parent, []).append(position)
        return found

    def doubt_block(self, key: bytes) -> None:
        """Have `heal` drop a row that contradicts the line it belongs to."""
        self.corrupt = True
        self._doubted.append(("DELETE FROM blocks WHERE key = ?", (key,)))

    def doubt_position(self, parent: bytes, position: int) -> None:
        """The same, of the checkpoints after ``parent`` that cannot be at ``position``."""
        self.corrupt = True
        query = "DELETE FROM checkpoints WHERE parent = ? AND position = ?"
        self._doubted.append((query, (parent, position)))

    def heal(self) -> int:
        """Drop the rows that hold what none can; how many. A rebuild finds their files again."""
        doubted, self._doubted = self._doubted, []
        with self._use() as sql:
            if not doubted and not find_unsound(sql):
                return 0
        with self._change() as sql:
            dropped = 0
            for query, values in doubted:
                dropped += sql.execute(query, values).rowcount
            if dropped:
                sql.execute(PENDING)
            dropped += drop_unsound(sql)
            self.rebuild_pending = not is_whole(sql)
        return dropped

    def _sound(self, rows: Iterable[Row], parse: Callable[[Row], T]) -> Iterator[T]:
        for row in rows:
            try:
                yield parse(row)
            except BadRow:
                self.corrupt = True

    def announce(self, kind: Kind | Literal["packing"], keys: Iterable[bytes], writer: str) -> None:
        """Say that files with these keys are about to be written, or written anew by packing."""
        rows = [(key, writer, kind, int(time.time())) for key in keys]
        with self._change() as sql:
            sql.executemany("INSERT OR REPLACE INTO writing VALUES (?, ?, ?, ?)", rows)

    def commit_block(self, row: BlockRow, writer: str) -> None:
        with self._change() as sql:
            insert_block(sql, row)
            sql.execute("DELETE FROM writing WHERE key = ? AND writer = ?", (row.key, writer))

    def commit_checkpoint(self, row: CheckpointRow, writer: str) -> None:
        with self._change() as sql:
            insert_checkpoint(sql, row)
            check_line(sql, row)
            sql.execute("DELETE FROM writing WHERE key = ? AND writer = ?", (row.key, writer))

    def commit_entry(self, row: CheckpointRow | None, entry: Entry, writer: str) -> None:
        """Commit an entry, and the checkpoint it names where that is new; else it is used."""
        key = bytes.fromhex(entry.checkpoint)
        with self._change() as sql:
            if row is not None:
                insert_checkpoint(sql, row)
                check_line(sql, row)
            else:
                # With `parent` its index is written too: SQLite finds out where that is damaged.
                used = "UPDATE checkpoints SET used = ?, parent = parent WHERE key = ?"
                if not sql.execute(used, (entry.created, key)).rowcount:
                    raise StoreError("line_gone", "the checkpoint was removed meanwhile")
            insert_entry(sql, entry)
            sql.execute(
                "DELETE FROM writing WHERE key IN (?, ?) AND writer = ?", (key, entry.key, writer)
            )

    def withdraw(self, keys: Iterable[bytes], writer: str) -> None:
        """Take announcements back after a write that failed."""
        with self._change() as sql:
            sql.executemany(
                "DELETE FROM writing WHERE key = ? AND writer = ?", [(k, writer) for k in keys]
            )

    def drop(self, kind: FileKind, key: bytes) -> None:
        """Remove the row of a file that is bad or gone."""
        with self._change() as sql:
            sql.execute(f"DELETE FROM {_TABLE[kind]} WHERE key = ?", (key,))

    def touch(self, checkpoint: bytes, used: int) -> None:
        with self._change() as sql:
            sql.execute("UPDATE checkpoints SET used = ? WHERE key = ?", (used, checkpoint))

    def add_found(self, rows: Sequence[BlockRow | CheckpointRow], entries: Sequence[Entry]) -> None:
        """Rows of files found on disk. Of those that are there already stays what no file says."""
        with self._change() as sql:
            for row in rows:
                insert_found(sql, row)
            for entry in entries:
                insert_entry(sql, entry)

    def resize(self, files: Iterable[tuple[FileKind, bytes, int, int]]) -> None:
        """Say how large files are, where their rows still say the former of two sizes."""
        with self._change() as sql:
            for kind, key, said, size in files:
                query = f"UPDATE {_TABLE[kind]} SET size = ? WHERE key = ? AND size = ?"
                sql.execute(query, (size, key, said))

    def rebuilt(self) -> None:
        with self._change() as sql:
            sql.execute(_REBUILT)
        self.rebuild_pending = False

    def blocks(self) -> list[BlockRow]:
        with self._use() as sql:
            rows = sql.execute("SELECT key, parent, start, size FROM blocks")
            return list(self._sound(rows, block_row))

    def checkpoints(self) -> list[CheckpointRow]:
        with self._use() as sql:
            query = "SELECT key, parent, position, size, used FROM checkpoints"
            return list(self._sound(sql.execute(query), checkpoint_row))

    def entries(self, conversation: str | None = None) -> list[Entry]:
        """Every entry, or one conversation's, the newest first."""
        query = "SELECT conversation, fingerprint, checkpoint, position, role, created FROM entries"
        order = " ORDER BY created DESC, position DESC"
        with self._use() as sql:
            if conversation is None:
                rows = sql.execute(query + order)
            else:
                rows = sql.execute(query + " WHERE conversation = ?" + order, (conversation,))
            return list(self._sound(rows, entry_row))

    def announced(self, packing: bool = True) -> list[tuple[bytes, str]]:
        """Key and writer of every announced write, those of ``packing`` included or not."""
        with self._use() as sql:
            rows = sql.execute("SELECT key, writer, kind, started FROM writing")
            found = list(self._sound(rows, announcement_row))
        return [(key, writer) for key, writer, kind in found if packing or kind != "packing"]

    def remove(
        self, blocks: Iterable[bytes], checkpoints: Iterable[bytes], entries: Iterable[Entry]
    ) -> None:
        with self._change() as sql:
            for table, keys in (("blocks", blocks), ("checkpoints", checkpoints)):
                sql.executemany(f"DELETE FROM {table} WHERE key = ?", [(key,) for key in keys])
            sql.executemany(
                "DELETE FROM entries WHERE conversation = ? AND checkpoint = ?",
                [(e.conversation, bytes.fromhex(e.checkpoint)) for e in entries],
            )

    def using(self) -> AbstractContextManager[sqlite3.Connection]:
        """The connection, to read from."""
        return self._use()

    def changing(self) -> AbstractContextManager[sqlite3.Connection]:
        """A transaction; while it lasts nobody else announces or commits anything."""
        return self._change()

    def unpacked(self) -> set[bytes]:
        """Keys of the blocks that compaction has not looked at."""
        with self._use() as sql:
            rows = sql.execute("SELECT key FROM blocks WHERE packed = 0")
            return set(self._sound((key for (key,) in rows), key_of))

    def pack_block(self, key: bytes, writer: str, put: Callable[[], int | None]) -> bool:
        """Let ``put`` replace a block's file, unless its row is gone; it gives the new size.

        Nobody else can remove the block meanwhile. False where nothing was replaced.
        """
        with self._change() as sql:
            known = sql.execute("SELECT 1 FROM blocks WHERE key = ?", (key,)).fetchone()
            size = put() if known else None
            if size is not None:
                sql.execute("UPDATE blocks SET size = ?, packed = 1 WHERE key = ?", (size, key))
            sql.execute("DELETE FROM writing WHERE key = ? AND writer = ?", (key, writer))
        return size is not None

    def truncate_wal(self) -> bool:
        """Empty the write-ahead log, so that nothing deleted lives on in it; False where busy."""
        with self._use() as sql:
            busy, _, _ = sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not busy

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What this thread does with the manifest meanwhile happens at once or not at all, and
        no other process writes to it."""
        with self._change():
            self._within = threading.get_ident()
            try:
                yield
            finally:
                self._within = None

    def close(self) -> None:
        """Close the connection; the next call would open another."""
        with self._lock:
            self._release()

    def pause(self, timeout: float) -> bool:
        """Before a fork: close the connection and let nobody open one."""
        if not self._lock.acquire(timeout=timeout):
            return False
        self._release()
        return True

    def resume(self) -> None:
        """After a fork, on both sides."""
        self._lock.release()

    @contextmanager
    def _use(self) -> Iterator[sqlite3.Connection]:
        if self._within == threading.get_ident() and self._connection is not None:
            yield self._connection.sql
            return
        if not self._lock.acquire(timeout=self._busy_s):
            raise StoreError("store_busy", "another thread uses the manifest")
        try:
            connection = self._connect()
            if connection.fresh:
                self._note_rebuild(connection)
            yield connection.sql
        except (sqlite3.Error, UnreadableManifest, UnicodeDecodeError) as error:
            held = self._connection
            if held is not None and held.is_unreadable(error):
                self._release()
                set_aside(self._root, self._busy_s, held.file)
            raise store_error(error) from None
        except OSError as error:
            raise StoreError("store_unavailable", str(error)) from None
        finally:
            self._lock.release()

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        with self._use() as sql:
            if sql.in_transaction:  # the caller's own
                yield sql
                return
            begin(sql, self._busy_s)
            try:
                yield sql
                sql.execute("COMMIT")
            except BaseException:
                if sql.in_transaction:
                    sql.execute("ROLLBACK")
                raise

    def _connect(self) -> Connection:
        forks.check()
        if self._connection is not None and not self._connection.is_current():
            self._release()
        if self._connection is None:
            self._connection = connect(self._root, self._busy_s)
        return self._connection

    def _note_rebuild(self, connection: Connection) -> None:
        pending = not is_whole(connection.sql)
        if pending and not self._root.listdir("blobs") and not self._root.listdir("entries"):
            connection.sql.execute(_REBUILT)
            pending = False
        self.rebuild_pending = pending
        connection.fresh = False

    def _release(self) -> None:
        if self._connection is not None:
            self._connection.sql.close()
            self._connection = None


def is_whole(sql: sqlite3.Connection) -> bool:
    """Whether the manifest has seen every file: one made anew has not until it is rebuilt."""
    query = "SELECT value FROM facts WHERE name = 'rebuild'"
    return bool(sql.execute(query).fetchone() == ("done",))


def _batches(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for at in range(0, len(keys), _BATCH):
        yield keys[at : at + _BATCH]


def _marks(keys: Sequence[bytes]) -> str:
    return ",".join("?" * len(keys))
