"""Removing conversations: the files first, then the rows, then every trace of them in SQLite.

It is done in short transactions, so that others can save meanwhile. In each it is looked at once
more whether something needs what goes: a file that a living writer has announced stays, and so
does a block that something new follows: they are part of a save that comes after the removal.
"""

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial as bind

from .. import locks
from ..blobs import Blobs
from ..entries import Entry
from ..index.graph import ForgetPlan, Graph, total_size
from ..index.manifest import Manifest
from ..index.rows import BadRow, BlockRow, CheckpointRow, announcement_row
from ..index.set_aside import remove_set_aside
from ..keys import FileKind, Kind
from ..line import Lines
from ..reasons import StoreError
from ..records import Forgotten
from ..root import StoreRoot
from .census import Census
from .evictions import Cuts
from .removal import HOLD_S, Removed, Remover
from .tidy import is_young

_NAMED = "SELECT DISTINCT conversation FROM entries WHERE checkpoint = ?"
_FOLLOWED = (
    "SELECT EXISTS (SELECT 1 FROM blocks WHERE parent = ?)"
    " OR EXISTS (SELECT 1 FROM checkpoints WHERE parent = ?)"
)
_TABLE: dict[FileKind, str] = {"block": "blocks", "checkpoint": "checkpoints"}

Step = Callable[[sqlite3.Connection], None]


@dataclass
class Forgetting:
    """One removal, over a manifest of its own. ``own`` is this process's writer, which is idle."""

    root: StoreRoot
    blobs: Blobs
    manifest: Manifest
    grace_s: float
    own: str

    def conversations(self, choose: Callable[[Graph], frozenset[str]]) -> Forgotten:
        """Remove what only the conversations that ``choose`` names need. Raises StoreError and
        OSError.

        Killed half-way it can be repeated: a conversation's entries go last.
        """
        graph = Graph.read(self.manifest)
        plan = graph.plan_forget(choose(graph))
        return self._forgotten(plan, partial=True)

    def everything(self) -> Forgotten:
        """Remove every file and row, what nothing reaches included. Raises StoreError, OSError."""
        graph = Graph.read(self.manifest)
        plan = ForgetPlan(
            conversations=frozenset(entry.conversation for entry in graph.entries),
            entries=tuple(graph.entries),
            checkpoints=tuple(graph.checkpoints.values()),
            blocks=tuple(graph.blocks.values()),
            shared_checkpoints=(),
            shared_blocks=(),
        )
        return self._forgotten(plan, partial=False)

    def _forgotten(self, plan: ForgetPlan, partial: bool) -> Forgotten:
        self._done = Forgotten()
        self._slices(self._steps(plan, partial))
        if partial:
            self._unreachable()
        else:
            self._unnamed_files()
        self._strays()
        remove_set_aside(self.root)
        return replace(
            self._done,
            conversations=len({entry.conversation for entry in plan.entries}),
            shared_blocks=len(plan.shared_blocks),
            shared_checkpoints=len(plan.shared_checkpoints),
            shared_nbytes=total_size(plan.shared_blocks) + total_size(plan.shared_checkpoints),
            wal_truncated=self.manifest.truncate_wal(),
        )

    def _steps(self, plan: ForgetPlan, partial: bool) -> Iterator[Step]:
        only = plan.conversations if partial else None
        for checkpoint in plan.checkpoints:
            yield bind(self._checkpoint, checkpoint, only)
        for block in sorted(plan.blocks, key=lambda row: row.start, reverse=True):
            yield bind(self._block, block)
        for entry in plan.entries:
            yield bind(self._entry, entry)

    def _slices(self, steps: Iterable[Step]) -> None:
        waiting = iter(steps)
        step = next(waiting, None)
        while step is not None:
            with self.manifest.changing() as sql:
                began, took = time.monotonic(), 0.0
                while step is not None and took <= HOLD_S:
                    step(sql)
                    step = next(waiting, None)
                    took = time.monotonic() - began
            time.sleep(took)  # others' turn

    def _checkpoint(
        self, row: CheckpointRow, only: frozenset[str] | None, sql: sqlite3.Connection
    ) -> None:
        names = {name for (name,) in sql.execute(_NAMED, (row.key,))}
        if not self._is_announced(sql, row.key) and (only is None or names <= only):
            self._remove(sql, "checkpoint", row.key)
            self._done = replace(
                self._done,
                checkpoints=self._done.checkpoints + 1,
                nbytes=self._done.nbytes + row.size,
            )

    def _block(self, row: BlockRow, sql: sqlite3.Connection) -> None:
        (followed,) = sql.execute(_FOLLOWED, (row.key, row.key)).fetchone()
        if not followed and not self._is_announced(sql, row.key):
            self._remove(sql, "block", row.key)
            self._done = replace(
                self._done, blocks=self._done.blocks + 1, nbytes=self._done.nbytes + row.size
            )

    def _entry(self, entry: Entry, sql: sqlite3.Connection) -> None:
        if not self._is_announced(sql, entry.key):
            self.blobs.unlink("entry", entry.key)
        sql.execute(
            "DELETE FROM entries WHERE conversation = ? AND checkpoint = ?",
            (entry.conversation, bytes.fromhex(entry.checkpoint)),
        )

    def _remove(self, sql: sqlite3.Connection, kind: FileKind, key: bytes) -> None:
        self.blobs.unlink(kind, key)
        sql.execute(f"DELETE FROM {_TABLE[kind]} WHERE key = ?", (key,))

    def _is_announced(self, sql: sqlite3.Connection, key: bytes) -> bool:
        """Whether a living writer is about to write this file. (Packing looks for the row before
        it puts a file in place, so it brings nothing back.)"""
        query = "SELECT key, writer, kind, started FROM writing WHERE key = ?"
        for row in sql.execute(query, (key,)).fetchall():
            try:
                _, writer, kind = announcement_row(row)
            except BadRow:
                continue
            if kind != "packing" and not locks.is_dead(self.root, writer):
                return True
        return False

    def _unreachable(self) -> None:
        """Blocks of turns that were killed: no checkpoint needs them, and none will. While others
        write, those of the last minutes may be theirs."""
        graph = Graph.read(self.manifest)
        others = [w for w in locks.writers(self.root) if w != self.own]
        living = any(not locks.is_dead(self.root, writer) for writer in others)
        grace_s = self.grace_s if living else 0.0
        now = time.time()
        rows = Cuts(graph, now, grace_s, Lines(self.blobs, graph).begins).unreachable(
            lambda row: is_young(self.blobs, row, now, grace_s)
        )
        rows.sort(key=lambda row: row.start, reverse=True)
        self._slices(bind(self._block, row) for row in rows)

    def _unnamed_files(self) -> None:
        """Every file that is not announced, whether its row was there or not."""
        unseen: list[str] = []
        self._slices(bind(self._file, kind, key) for kind, key in self.blobs.names(unseen))
        if unseen:
            raise StoreError("store_unavailable", unseen[0])
        self.manifest.rebuilt()  # there is nothing left that it has not seen

    def _file(self, kind: Kind, key: bytes, sql: sqlite3.Connection) -> None:
        if kind == "entry":
            has_row = False  # its name says nothing of its row; a new one is announced
        else:
            query = f"SELECT EXISTS (SELECT 1 FROM {_TABLE[kind]} WHERE key = ?)"
            (has_row,) = sql.execute(query, (key,)).fetchone()
        if not has_row and not self._is_announced(sql, key):
            self.blobs.unlink(kind, key)

    def _strays(self) -> None:
        """Files without a row, unless somebody is about to write them, and those of interrupted
        writes. Raises StoreError."""
        seen = Census(self.root, self.manifest, 0.0).everywhere()
        remover = Remover(self.root, self.blobs, self.manifest, _let_others)
        done = Removed() if not seen.strays else remover.strays(seen.strays)
        if done.failed:
            raise StoreError("store_unavailable", done.error)


def _let_others(held: float) -> bool:
    time.sleep(held)
    return True
