"""Bringing manifest and files together again. Nothing here removes a block or a checkpoint."""

import errno
import os
import threading
from dataclasses import dataclass

from .. import locks
from ..blobs import Blobs
from ..entries import Entry, read_entry
from ..index.manifest import Manifest
from ..index.rows import BlockRow, CheckpointRow
from ..reader import read_head
from ..reasons import BadFile, StoreError
from ..root import NotAFile, StoreRoot, bytes_taken

_BATCH = 256  # rows a transaction


@dataclass
class Rebuilt:
    blocks: int = 0
    checkpoints: int = 0
    entries: int = 0
    refused: int = 0  # files that say nothing usable; they stay where they are


def rebuild(blobs: Blobs, manifest: Manifest, stop: threading.Event) -> Rebuilt:
    """Fill a manifest made anew from the headers and entries on disk, then mark it whole.

    Reads headers only: bodies are checked when they are used. May be stopped, and begun again
    by anybody. Raises StoreError, also where something could not be seen: what is there is added,
    and the manifest stays one that is not whole, lest what was not seen counts as garbage.
    """
    found = Rebuilt()
    rows: list[BlockRow | CheckpointRow] = []
    entries: list[Entry] = []
    unseen: list[str] = []
    for kind, key in blobs.names(unseen):
        if stop.is_set():
            return found
        try:
            handle = blobs.open(kind, key)
            try:
                if kind == "entry":
                    entries.append(read_entry(handle, key))
                else:
                    rows.append(_row_of(handle, key))
            finally:
                os.close(handle)
        except (BadFile, FileNotFoundError, NotAFile):
            found.refused += 1
        except OSError as error:
            found.refused += 1
            if error.errno != errno.EIO:  # a disk's error lasts
                unseen.append(str(error))
        if len(rows) + len(entries) >= _BATCH:
            _add(manifest, rows, entries, found)
    _add(manifest, rows, entries, found)
    if unseen:
        raise StoreError(
            "store_unavailable", f"{len(unseen)} directories cannot be read: {unseen[0]}"
        )
    manifest.heal()  # what contradicts itself in the files, too, is left to gc
    manifest.rebuilt()
    return found


def clear_dead_writers(root: StoreRoot, blobs: Blobs, manifest: Manifest) -> int:
    """Remove what killed writers left: announcements, temporary files, locks.

    Returns how many there were. Raises StoreError or OSError.
    """
    announced = manifest.announced()
    names = {writer for _, writer in announced} | set(locks.writers(root))
    dead = {writer for writer in names if locks.is_dead(root, writer)}
    for writer in dead:
        keys = [key for key, name in announced if name == writer]
        for key in keys:
            blobs.unlink_temp(key, writer)
        manifest.withdraw(keys, writer)
        locks.remove(root, writer)
    return len(dead)


def _row_of(handle: int, key: bytes) -> BlockRow | CheckpointRow:
    header = read_head(handle).header
    if header.key != key.hex():
        raise BadFile("its name does not match its content")
    status = os.fstat(handle)
    parent = bytes.fromhex(header.parent)
    if header.kind == "block":
        return BlockRow(key, parent, header.start, bytes_taken(status))
    return CheckpointRow(key, parent, header.end, bytes_taken(status), int(status.st_mtime))


def _add(
    manifest: Manifest,
    rows: list[BlockRow | CheckpointRow],
    entries: list[Entry],
    found: Rebuilt,
) -> None:
    manifest.add_found(rows, entries)
    found.blocks += sum(isinstance(row, BlockRow) for row in rows)
    found.checkpoints += sum(isinstance(row, CheckpointRow) for row in rows)
    found.entries += len(entries)
    rows.clear()
    entries.clear()
