"""What is written into the index, a row at a time. Each raises sqlite3.Error."""

import sqlite3

from .entries import Entry
from .index.rows import BlockRow, CheckpointRow
from .keys import BLOCK
from .reasons import StoreError

# The blocks that a checkpoint needs, as far as they are stored; a damaged index may hold a circle.
_LINE = (
    "SELECT count(*) FROM (WITH RECURSIVE line (parent) AS ("
    " SELECT parent FROM blocks WHERE key = ? UNION ALL"
    " SELECT blocks.parent FROM blocks JOIN line ON blocks.key = line.parent"
    ") SELECT 1 FROM line LIMIT ?)"
)
_FOUND_BLOCK = (
    "INSERT INTO blocks (key, parent, start, size) VALUES (?, ?, ?, ?) ON CONFLICT (key)"
    " DO UPDATE SET parent = excluded.parent, start = excluded.start, size = excluded.size"
)
_FOUND_CHECKPOINT = (
    "INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?) ON CONFLICT (key)"
    " DO UPDATE SET parent = excluded.parent, position = excluded.position, size = excluded.size"
)


def insert_found(sql: sqlite3.Connection, row: BlockRow | CheckpointRow) -> None:
    """A row that a file on disk tells; what no file tells stays as it is."""
    if isinstance(row, BlockRow):
        sql.execute(_FOUND_BLOCK, (row.key, row.parent, row.start, row.size))
    else:
        values = (row.key, row.parent, row.position, row.size, row.used)
        sql.execute(_FOUND_CHECKPOINT, values)


def insert_block(sql: sqlite3.Connection, row: BlockRow) -> None:
    values = (row.key, row.parent, row.start, row.size)
    columns = "key, parent, start, size"
    sql.execute(f"INSERT OR REPLACE INTO blocks ({columns}) VALUES (?, ?, ?, ?)", values)


def insert_checkpoint(sql: sqlite3.Connection, row: CheckpointRow) -> None:
    values = (row.key, row.parent, row.position, row.size, row.used)
    sql.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?, ?)", values)


def check_line(sql: sqlite3.Connection, row: CheckpointRow) -> None:
    """Refuse a checkpoint whose blocks are not all there: somebody removed some since the caller
    asked what was missing. Nobody can remove one after this transaction."""
    wanted = row.position // BLOCK
    (stored,) = sql.execute(_LINE, (row.parent, wanted)).fetchone()
    if stored != wanted:
        raise StoreError("line_gone", f"only {stored} of {wanted} blocks before it are stored")


def insert_entry(sql: sqlite3.Connection, entry: Entry) -> None:
    sql.execute(
        "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?, ?)",
        (
            entry.conversation,
            bytes.fromhex(entry.checkpoint),
            entry.fingerprint,
            entry.position,
            entry.role,
            entry.created,
        ),
    )
