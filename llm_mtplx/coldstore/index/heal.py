"""Dropping the rows of the index that hold what none can.

What was dropped of the files' rows is read again from the files: the index counts as one that has
not seen all of them until it is rebuilt.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from ..keys import BLOCK
from .rows import (
    BadRow,
    BlockRow,
    Row,
    announcement_row,
    block_row,
    checkpoint_row,
    entry_row,
    fact_row,
    whole,
    written_row,
)

PENDING = "INSERT OR REPLACE INTO facts VALUES ('rebuild', 'pending')"


@dataclass(frozen=True)
class _Table:
    name: str
    columns: str  # all of them
    check: Callable[[Row], object]  # raises BadRow
    of_files: bool  # what is dropped can be read from files again


def _block(row: Row) -> BlockRow:
    whole(row[4], 0, 1)
    return block_row(row[:4])


_TABLES = (
    _Table("blocks", "key, parent, start, size, packed", _block, True),
    _Table("checkpoints", "key, parent, position, size, used", checkpoint_row, True),
    _Table(
        "entries",
        "conversation, fingerprint, checkpoint, position, role, created",
        entry_row,
        True,
    ),
    _Table("writing", "key, writer, kind, started", announcement_row, False),
    _Table("written", "minute, bytes", written_row, False),
    _Table("facts", "name, value", fact_row, False),
)


def find_unsound(sql: sqlite3.Connection) -> dict[str, list[Row]]:
    """The tables with rows that cannot be, and of each the rows that can. Raises sqlite3.Error."""
    rows: dict[str, list[Row]] = {}
    sound: dict[str, list[Row]] = {}
    for table in _TABLES:
        rows[table.name] = sql.execute(f"SELECT {table.columns} FROM {table.name}").fetchall()
        sound[table.name] = [row for row in rows[table.name] if _passes(table, row)]
    starts = {row[0]: row[2] for row in sound["blocks"]}
    for name in ("blocks", "checkpoints"):
        sound[name] = [row for row in sound[name] if _follows(row, starts)]
    return {name: kept for name, kept in sound.items() if len(kept) != len(rows[name])}


def drop_unsound(sql: sqlite3.Connection) -> int:
    """Drop them, in the caller's transaction; how many they were. Raises sqlite3.Error."""
    dropped = 0
    for name, kept in find_unsound(sql).items():
        table = next(table for table in _TABLES if table.name == name)
        (before,) = sql.execute(f"SELECT count(*) FROM {name}").fetchone()
        # Anew, since what is in a damaged key may not find its row.
        sql.execute(f"DELETE FROM {name}")
        marks = ", ".join("?" * len(table.columns.split(",")))
        sql.executemany(f"INSERT INTO {name} ({table.columns}) VALUES ({marks})", kept)
        if table.of_files:
            sql.execute(PENDING)
        dropped += before - len(kept)
    return dropped


def _passes(table: _Table, row: Row) -> bool:
    try:
        table.check(row)
    except BadRow:
        return False
    return True


def _follows(row: Row, starts: dict[bytes, int]) -> bool:
    """Whether what follows a block that is there begins where that ends: then no line of rows is
    a circle."""
    start = starts.get(row[1])
    return start is None or row[2] // BLOCK * BLOCK == start + BLOCK
