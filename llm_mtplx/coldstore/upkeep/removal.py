"""Removing what was found to be of no use, safely beside processes that read and write.

What was true when something was judged is looked at once more in the transaction in which it goes:
while that lasts nobody else can announce or commit a file. A transaction lasts about HOLD_S, and
others get a chance between two.
"""

import os
import sqlite3
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from ..blobs import AREA, Blobs, file_name, shard
from ..entries import Entry, encode_entry, entry_verifies, read_entry
from ..index.manifest import Manifest, is_whole
from ..index.rows import BlockRow
from ..keys import FileKind, Kind
from ..reasons import BadFile, StoreError
from ..root import NotAFile, StoreRoot, displace
from .census import Stray
from .evictions import Cut

T = TypeVar("T")

HOLD_S = 0.002

# A pause after a transaction that took so many seconds; False where the work is to stop.
Pause = Callable[[float], bool]

_ANNOUNCED = "EXISTS (SELECT 1 FROM writing WHERE key = ?)"
_HAS_ENTRY = "EXISTS (SELECT 1 FROM entries WHERE conversation = ? AND checkpoint = ?)"
_TABLES: dict[Kind, str] = {"block": "blocks", "checkpoint": "checkpoints"}


@dataclass
class Removed:
    files: int = 0
    nbytes: int = 0
    rows: int = 0  # whose files were gone
    rewritten: int = 0  # entries whose files were gone
    kept: int = 0  # in use after all
    failed: int = 0  # the system refused
    stopped: bool = False  # by ``pause``
    error: str = ""

    def add(self, other: "Removed") -> None:
        self.files += other.files
        self.nbytes += other.nbytes
        self.rows += other.rows
        self.rewritten += other.rewritten
        self.kept += other.kept
        self.failed += other.failed
        self.stopped |= other.stopped
        self.error = self.error or other.error


class Remover:
    """Removes things one by one. Each method raises StoreError, can be stopped by ``pause``, and
    may be called again with what it was called with."""

    def __init__(self, root: StoreRoot, blobs: Blobs, manifest: Manifest, pause: Pause) -> None:
        self._root = root
        self._blobs = blobs
        self._manifest = manifest
        self._pause = pause

    def all_of(self, *steps: Callable[[], Removed]) -> Removed:
        """One after the other, until one is stopped."""
        total = Removed()
        for step in steps:
            if not total.stopped:
                total.add(step())
        return total

    def strays(self, strays: Iterable[Stray]) -> Removed:
        """Files without a row, unless they have one now or somebody has announced them."""
        return self._each(strays, self._stray)

    def gone(self, rows: Iterable[tuple[FileKind, bytes]]) -> Removed:
        """Rows whose files are not there."""

        def step(sql: sqlite3.Connection, row: tuple[FileKind, bytes], done: Removed) -> None:
            kind, key = row
            if not self._is_there(kind, key):
                done.rows += sql.execute(
                    f"DELETE FROM {_TABLES[kind]} WHERE key = ? AND NOT {_ANNOUNCED}", (key, key)
                ).rowcount

        return self._each(rows, step)

    def unfiled(self, entries: Iterable[Entry]) -> Removed:
        """Write entries whose files are gone anew, unless their rows are gone too."""
        return self._each(entries, self._rewrite)

    def blocks(self, rows: Iterable[BlockRow]) -> Removed:
        """Blocks, those that follow others first, unless something follows them now."""
        return self._each(rows, self._block)

    def cuts(self, cuts: Iterable[Cut]) -> Removed:
        """Checkpoints and their entries and blocks, unless they were used since."""
        total = Removed()
        for cut in cuts:
            done = self._each([cut], self._cut)
            if not done.kept and not done.stopped:
                done.add(self.blocks(cut.blocks))
            total.add(done)
            if total.stopped:
                break
        return total

    def _each(
        self, things: Iterable[T], step: Callable[[sqlite3.Connection, T, Removed], None]
    ) -> Removed:
        done = Removed()
        waiting = deque(things)
        while waiting:
            with self._manifest.changing() as sql:
                if not is_whole(sql):  # it was replaced since things were judged
                    raise StoreError(
                        "rebuilding", "the index is incomplete, so nothing can be removed"
                    )
                began, took = time.monotonic(), 0.0
                while waiting and took <= HOLD_S:
                    step(sql, waiting.popleft(), done)
                    took = time.monotonic() - began
            if not self._pause(took):
                done.stopped = True
                break
        return done

    def _stray(self, sql: sqlite3.Connection, stray: Stray, done: Removed) -> None:
        if stray.file is not None and self._is_wanted(sql, *stray.file):
            done.kept += 1
        else:
            self._unlink(stray.place, stray.name, stray.nbytes, done)

    def _cut(self, sql: sqlite3.Connection, cut: Cut, done: Removed) -> None:
        row = cut.checkpoint
        keys = [entry.key for entry in cut.entries] + ([row.key] if row is not None else [])
        if any(sql.execute(f"SELECT {_ANNOUNCED}", (key,)).fetchone()[0] for key in keys):
            done.kept += 1
            return
        if row is not None:
            used = sql.execute("SELECT used FROM checkpoints WHERE key = ?", (row.key,)).fetchone()
            if used is not None and used[0] != row.used:
                done.kept += 1
                return
        for entry in cut.entries:
            key = bytes.fromhex(entry.checkpoint)
            gone = "DELETE FROM entries WHERE conversation = ? AND checkpoint = ? AND created = ?"
            if sql.execute(gone, (entry.conversation, key, entry.created)).rowcount:
                self._unlink(_place("entry", entry.key), file_name("entry", entry.key), 0, done)
        if row is None:
            return
        unnamed = "NOT EXISTS (SELECT 1 FROM entries WHERE checkpoint = ?)"
        query = f"DELETE FROM checkpoints WHERE key = ? AND {unnamed}"
        if sql.execute(query, (row.key, row.key)).rowcount:
            place = _place("checkpoint", row.key)
            self._unlink(place, file_name("checkpoint", row.key), row.size, done)

    def _block(self, sql: sqlite3.Connection, row: BlockRow, done: Removed) -> None:
        needed = (
            "EXISTS (SELECT 1 FROM blocks WHERE parent = ?)"
            " OR EXISTS (SELECT 1 FROM checkpoints WHERE parent = ?)"
        )
        query = f"DELETE FROM blocks WHERE key = ? AND NOT ({needed} OR {_ANNOUNCED})"
        if sql.execute(query, (row.key,) * 4).rowcount:
            self._unlink(_place("block", row.key), file_name("block", row.key), row.size, done)
        else:
            done.kept += 1

    def _rewrite(self, sql: sqlite3.Connection, entry: Entry, done: Removed) -> None:
        if not sql.execute(f"SELECT {_HAS_ENTRY}", _names(entry)).fetchone()[0]:
            return  # forgotten meanwhile
        key, writer = entry.key, uuid.uuid4().hex
        try:
            done.rewritten += self._blobs.install(
                "entry", key, [encode_entry(entry)], writer, lambda h: entry_verifies(h, key)
            )
        except OSError as error:
            done.failed += 1
            done.error = str(error)

    def _is_wanted(self, sql: sqlite3.Connection, kind: Kind, key: bytes) -> bool:
        has_row = f"EXISTS (SELECT 1 FROM {_TABLES[kind]} WHERE key = ?)" if kind in _TABLES else ""
        values = (key, key) if has_row else (key, *self._names_in(key))
        (wanted,) = sql.execute(
            f"SELECT {_ANNOUNCED} OR {has_row or _HAS_ENTRY}", values
        ).fetchone()
        return bool(wanted)

    def _names_in(self, key: bytes) -> tuple[str, bytes]:
        """What an entry's file says; of one that cannot be read, what no row has."""
        try:
            handle = self._blobs.open("entry", key)
            try:
                entry = read_entry(handle, key)
            finally:
                os.close(handle)
        except (FileNotFoundError, NotAFile, BadFile):
            return "", b""
        except OSError as error:
            raise StoreError("store_unavailable", str(error)) from None
        return _names(entry)

    def _is_there(self, kind: Kind, key: bytes) -> bool:
        try:
            os.close(self._blobs.open(kind, key))
        except (FileNotFoundError, NotADirectoryError, NotAFile):
            return False
        except OSError:
            return True
        return True

    def _unlink(self, place: tuple[str, ...], name: str, nbytes: int, done: Removed) -> None:
        try:
            folder = self._root.open_dir(*place)
            try:
                if not displace(folder, name):
                    os.unlink(name, dir_fd=folder)
            finally:
                os.close(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            done.failed += 1
            done.error = str(error)
        else:
            done.files += 1
            done.nbytes += nbytes


def _names(entry: Entry) -> tuple[str, bytes]:
    return entry.conversation, bytes.fromhex(entry.checkpoint)


def _place(kind: Kind, key: bytes) -> tuple[str, str]:
    return AREA[kind], shard(key)
