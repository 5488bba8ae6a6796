"""What a row of the index may hold. Every value read from it passes here: type, length, bounds.

The index may be damaged, restored from a backup, or written by somebody else. A row that does not
pass is not used: see ``heal.py``.
"""

import json
import math
import re
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pydantic import ValidationError

from ..entries import MAX_TIME, Entry
from ..format import MAX_TOKENS
from ..keys import BLOCK, KEY_BYTES

MAX_FILE_BYTES = 1 << 44
MAX_NOTE = 4096  # characters
MAX_MINUTE_BYTES = 1 << 42  # that all processes can write in a minute
_WRITER = re.compile(r"[0-9a-f]{32}")

Row = tuple[Any, ...]
Announcement = Literal["block", "checkpoint", "entry", "packing"]


class BadRow(Exception):
    """A row holds what none can."""


@dataclass(frozen=True)
class BlockRow:
    key: bytes
    parent: bytes
    start: int
    size: int  # bytes on disk


@dataclass(frozen=True)
class CheckpointRow:
    key: bytes
    parent: bytes
    position: int
    size: int  # bytes on disk
    used: int  # seconds since the epoch


def is_writer(name: object) -> bool:
    """Whether this can be a writer's name, which becomes a part of file names."""
    return isinstance(name, str) and _WRITER.fullmatch(name) is not None


def key_of(value: object) -> bytes:
    if type(value) is not bytes or len(value) != KEY_BYTES:
        raise BadRow("a key is invalid")
    return value


def whole(value: object, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise BadRow(f"{value!r:.40} is not a number from {least} to {most}")
    return value


def block_row(row: Row) -> BlockRow:
    """From key, parent, start, size."""
    key, parent, start, size = row
    found = BlockRow(
        key_of(key), key_of(parent), whole(start, 0, MAX_TOKENS), whole(size, 0, MAX_FILE_BYTES)
    )
    if found.start % BLOCK:
        raise BadRow(f"no block starts at {found.start}")
    return found


def checkpoint_row(row: Row) -> CheckpointRow:
    """From key, parent, position, size, used."""
    key, parent, position, size, used = row
    return CheckpointRow(
        key_of(key),
        key_of(parent),
        whole(position, 1, MAX_TOKENS),
        whole(size, 0, MAX_FILE_BYTES),
        whole(used, 0, MAX_TIME),
    )


def position_row(row: Row) -> tuple[bytes, int]:
    """From a checkpoint's parent and position."""
    parent, position = row
    return key_of(parent), whole(position, 1, MAX_TOKENS)


def entry_row(row: Row) -> Entry:
    """From conversation, fingerprint, checkpoint, position, role, created."""
    conversation, fingerprint, key, position, role, created = row
    try:
        return Entry(
            conversation=conversation,
            fingerprint=fingerprint,
            checkpoint=key_of(key).hex(),
            position=position,
            role=role,
            created=created,
        )
    except ValidationError:
        raise BadRow("an entry is invalid") from None


def announcement_row(row: Row) -> tuple[bytes, str, Announcement]:
    """From key, writer, kind, started."""
    key, writer, kind, started = row
    whole(started, 0, MAX_TIME)
    if not is_writer(writer):
        raise BadRow("a writer's name is invalid")
    for each in get_args(Announcement):
        if kind == each:
            return key_of(key), writer, each
    raise BadRow("the kind of a pending write is unknown")


def written_row(row: Row) -> tuple[int, int]:
    """From minute, bytes."""
    minute, nbytes = row
    return whole(minute, 0, MAX_TIME), whole(nbytes, 0, MAX_MINUTE_BYTES)


def note_of(text: object) -> dict[str, int | float]:
    """A note: numbers by name."""
    if not isinstance(text, str) or len(text) > MAX_NOTE:
        raise BadRow("a note is invalid")
    try:
        note = json.loads(text)
    except (ValueError, RecursionError):
        raise BadRow("a note is not JSON") from None
    if not isinstance(note, dict) or not all(_is_number(value) for value in note.values()):
        raise BadRow("a note holds invalid values")
    return note


def fact_row(row: Row) -> str:
    """From name, value."""
    name, value = row
    if not isinstance(name, str) or len(name) > MAX_NOTE:
        raise BadRow("a fact's name is invalid")
    if name == "rebuild":
        if value not in ("pending", "done"):
            raise BadRow("the state of the index rebuild is unknown")
    else:
        note_of(value)
    return name


def _is_number(value: object) -> bool:
    if type(value) is int:
        return 0 <= value <= MAX_FILE_BYTES
    return type(value) is float and math.isfinite(value) and 0 <= value <= MAX_FILE_BYTES
