"""The manifest's tables, made by named migrations, that may be run again."""

import sqlite3
import time
from functools import cache

from ..reasons import StoreError

APPLICATION_ID = 0x4D54504C  # tells our database from another's

MIGRATIONS: dict[str, tuple[str, ...]] = {
    "0001-first": (
        "CREATE TABLE IF NOT EXISTS blocks (key BLOB PRIMARY KEY, parent BLOB NOT NULL,"
        " start INTEGER NOT NULL, size INTEGER NOT NULL) WITHOUT ROWID",
        "CREATE TABLE IF NOT EXISTS checkpoints (key BLOB PRIMARY KEY, parent BLOB NOT NULL,"
        " position INTEGER NOT NULL, size INTEGER NOT NULL, used INTEGER NOT NULL) WITHOUT ROWID",
        "CREATE INDEX IF NOT EXISTS checkpoints_of ON checkpoints (parent, position)",
        "CREATE TABLE IF NOT EXISTS entries (conversation TEXT NOT NULL, checkpoint BLOB NOT NULL,"
        " fingerprint TEXT NOT NULL, position INTEGER NOT NULL, role TEXT NOT NULL,"
        " created INTEGER NOT NULL, PRIMARY KEY (conversation, checkpoint)) WITHOUT ROWID",
        "CREATE INDEX IF NOT EXISTS entries_of ON entries (checkpoint)",
        # Announced writes: a file with this key may appear at any moment.
        "CREATE TABLE IF NOT EXISTS writing (key BLOB NOT NULL, writer TEXT NOT NULL,"
        " kind TEXT NOT NULL, started INTEGER NOT NULL, PRIMARY KEY (key, writer)) WITHOUT ROWID",
        "CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)"
        " WITHOUT ROWID",
        # A manifest made anew has not seen the files that may be there already.
        "INSERT OR IGNORE INTO facts VALUES ('rebuild', 'pending')",
    ),
    "0003-limits": (
        # What follows a block, which must be gone before it.
        "CREATE INDEX IF NOT EXISTS blocks_of ON blocks (parent)",
        # Bytes written by every process, by minute since the epoch.
        "CREATE TABLE IF NOT EXISTS written (minute INTEGER PRIMARY KEY, bytes INTEGER NOT NULL)",
    ),
    # Whether compaction is done with a block.
    "0004-packed": ("ALTER TABLE blocks ADD COLUMN packed INTEGER NOT NULL DEFAULT 0",),
}


class UnreadableManifest(Exception):
    """The database is damaged, another's, or of a later version of this program."""


def check_schema(connection: sqlite3.Connection) -> bool:
    """Whether every migration has been applied. Raises UnreadableManifest, sqlite3.Error."""
    connection.execute("BEGIN")  # one view of it, however fast another process makes it
    try:
        (owner,) = connection.execute("PRAGMA application_id").fetchone()
        declared = _schema_of(connection)
        if owner != APPLICATION_ID:
            if owner or declared:
                raise UnreadableManifest("another program's database")
            return False
        # Before any of it is read: a view may never end, nor a trigger.
        if not declared <= _ever_ours():
            raise UnreadableManifest("its tables are not those that were made")
        if not any(name == "migrations" for _, name, _, _ in declared):
            return False
        applied = {name for (name,) in connection.execute("SELECT name FROM migrations")}
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")
    if unknown := applied - MIGRATIONS.keys():
        raise UnreadableManifest(f"made by a later version: {', '.join(map(str, unknown))}")
    if applied != MIGRATIONS.keys():
        return False
    if declared != _our_schema():
        raise UnreadableManifest("its tables are not those that were made")
    return True


def _schema_of(connection: sqlite3.Connection) -> set[tuple[object, ...]]:
    """What is declared, triggers and views included, without what SQLite keeps for itself."""
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite!_%'"
    return set(connection.execute(query + " ESCAPE '!'").fetchall())


@cache
def _our_schema() -> set[tuple[object, ...]]:
    return _schema_after(len(MIGRATIONS))


@cache
def _ever_ours() -> set[tuple[object, ...]]:
    """Whatever was declared after some of the migrations."""
    return set().union(*(_schema_after(count) for count in range(len(MIGRATIONS) + 1)))


def _schema_after(count: int) -> set[tuple[object, ...]]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        migrate(connection, count)
        return _schema_of(connection)
    finally:
        connection.close()


def migrate(connection: sqlite3.Connection, count: int = len(MIGRATIONS)) -> None:
    """Apply what is missing of the first ``count``, in order, in one transaction. Raises
    sqlite3.Error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, applied INTEGER)"
        )
        done = {name for (name,) in connection.execute("SELECT name FROM migrations")}
        for name, statements in list(MIGRATIONS.items())[:count]:
            if name not in done:
                for statement in statements:
                    _apply(connection, statement)
                connection.execute("INSERT INTO migrations VALUES (?, ?)", (name, int(time.time())))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _apply(connection: sqlite3.Connection, statement: str) -> None:
    try:
        connection.execute(statement)
    except sqlite3.OperationalError as error:
        # SQLite knows no IF NOT EXISTS for columns.
        if "duplicate column name" not in str(error):
            raise


def use_journal(connection: sqlite3.Connection) -> str:
    """Turn WAL on, else the rollback journal; the mode in force. Raises StoreError."""
    for mode in ("wal", "delete"):
        try:
            (got,) = connection.execute(f"PRAGMA journal_mode = {mode}").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_READONLY):
                raise
            continue
        if got in ("wal", "delete", "persist", "truncate"):
            return str(got)
    raise StoreError("store_unavailable", "the file system does not support an SQLite journal")
