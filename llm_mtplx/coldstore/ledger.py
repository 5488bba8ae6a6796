"""What the manifest remembers beyond rows: bytes written by the minute, and notes of upkeep."""

import json
import time
from typing import Any

from .manifest import Manifest

UNNAMED = "unnamed"  # the note of the bytes that the last walk found beside the rows
_HOUR = 60  # minutes


def stored_now(manifest: Manifest) -> int:
    """Bytes that count against the cap: of rows, and of what the last walk found beside them.

    Raises StoreError.
    """
    query = "SELECT (SELECT total(size) FROM blocks) + (SELECT total(size) FROM checkpoints)"
    with manifest.using() as sql:
        (rows,) = sql.execute(query).fetchone()  # a float
    return int(rows) + int(read_note(manifest, UNNAMED).get("bytes", 0))


def written_last_hour(manifest: Manifest) -> int:
    """Bytes all processes wrote in the last hour. Raises StoreError.

    What a clock that was set back since says of the time to come does not count.
    """
    minute = _minute()
    query = "SELECT total(bytes) FROM written WHERE minute > ? AND minute <= ?"
    with manifest.using() as sql:
        (total,) = sql.execute(query, (minute - _HOUR, minute)).fetchone()
        return int(total)


def note_written(manifest: Manifest, nbytes: int) -> None:
    """Raises StoreError."""
    minute = _minute()
    with manifest.changing() as sql:
        sql.execute(
            "DELETE FROM written WHERE minute NOT BETWEEN ? AND ?", (minute - _HOUR, minute)
        )
        sql.execute(
            "INSERT INTO written VALUES (?, ?)"
            " ON CONFLICT (minute) DO UPDATE SET bytes = bytes + excluded.bytes",
            (minute, nbytes),
        )


def read_note(manifest: Manifest, name: str) -> dict[str, Any]:
    """A note that was left; empty where there is none. Raises StoreError."""
    with manifest.using() as sql:
        row = sql.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    try:
        note = json.loads(row[0]) if row else {}
    except ValueError:
        return {}
    return note if isinstance(note, dict) else {}


def leave_note(manifest: Manifest, name: str, note: dict[str, Any]) -> None:
    """Raises StoreError."""
    with manifest.changing() as sql:
        sql.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, json.dumps(note)))


def _minute() -> int:
    return int(time.time() // 60)
