"""What the manifest remembers beyond rows: bytes written by the minute, and notes of upkeep."""

import json
import time

from .manifest import Manifest
from .rows import MAX_FILE_BYTES, MAX_MINUTE_BYTES, BadRow, note_of

Note = dict[str, int | float]

UNNAMED = "unnamed"  # the note of the bytes that the last walk found beside the rows
_HOUR = 60  # minutes


def stored_now(manifest: Manifest) -> int:
    """Bytes that count against the cap: of rows, and of what the last walk found beside them.

    Raises StoreError.
    """
    bounded = "size BETWEEN 0 AND ?"
    query = (
        f"SELECT (SELECT total(size) FROM blocks WHERE {bounded})"
        f" + (SELECT total(size) FROM checkpoints WHERE {bounded})"
    )
    with manifest.using() as sql:
        (rows,) = sql.execute(query, (MAX_FILE_BYTES, MAX_FILE_BYTES)).fetchone()  # a float
    return int(rows) + int(read_note(manifest, UNNAMED).get("bytes", 0))


def written_last_hour(manifest: Manifest) -> int:
    """Bytes all processes wrote in the last hour. Raises StoreError.

    What a clock that was set back since says of the time to come does not count.
    """
    minute = _minute()
    query = (
        "SELECT total(bytes) FROM written WHERE minute > ? AND minute <= ?"
        " AND bytes BETWEEN 0 AND ?"
    )
    with manifest.using() as sql:
        values = (minute - _HOUR, minute, MAX_MINUTE_BYTES)
        (total,) = sql.execute(query, values).fetchone()
        return int(total)


def note_written(manifest: Manifest, nbytes: int) -> None:
    """Raises StoreError."""
    minute = _minute()
    with manifest.changing() as sql:
        sql.execute(
            "DELETE FROM written WHERE minute NOT BETWEEN ? AND ?", (minute - _HOUR, minute)
        )
        sql.execute(
            "INSERT INTO written VALUES (?, ?) ON CONFLICT (minute) DO UPDATE SET bytes ="
            " CASE WHEN bytes BETWEEN 0 AND ? THEN bytes ELSE 0 END + excluded.bytes",
            (minute, nbytes, MAX_MINUTE_BYTES),
        )


def read_note(manifest: Manifest, name: str) -> Note:
    """A note that was left; empty where there is none or it is damaged. Raises StoreError."""
    with manifest.using() as sql:
        row = sql.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    try:
        return note_of(row[0]) if row else {}
    except BadRow:
        return {}


def leave_note(manifest: Manifest, name: str, note: Note) -> None:
    """Raises StoreError."""
    with manifest.changing() as sql:
        sql.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, json.dumps(note)))


def _minute() -> int:
    return int(time.time() // 60)
