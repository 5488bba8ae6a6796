"""The exact ids of a stored line, from the headers of its files."""

import os

from .blobs import Blobs
from .format import Header
from .keys import FileKind, root_key
from .reader import read_head
from .reasons import BadFile, MissReason
from .root import NotAFile


def read_ids(blobs: Blobs, fingerprint: str, checkpoint: bytes) -> list[int] | MissReason:
    """Ids of positions 0 to the checkpoint's, or why they cannot be told.

    Every header proves its ids by its key, so the bodies need not be read.
    """
    parts: list[list[int]] = []
    kind: FileKind = "checkpoint"
    key = checkpoint
    while True:
        try:
            header = _read_header(blobs, kind, key)
        except FileNotFoundError:
            return "not_found" if kind == "checkpoint" else "file_gone"
        except (BadFile, NotAFile):
            return "corrupt_checkpoint" if kind == "checkpoint" else "corrupt_block"
        except OSError:
            return "store_unavailable"
        parts.append(header.ids)
        key, kind = bytes.fromhex(header.parent), "block"
        if header.start == 0:
            break
    if key != root_key(fingerprint):
        return "not_found"
    return [token for part in reversed(parts) for token in part]


def _read_header(blobs: Blobs, kind: FileKind, key: bytes) -> Header:
    handle = blobs.open(kind, key)
    try:
        header = read_head(handle).header
    finally:
        os.close(handle)
    if (header.kind, header.key) != (kind, key.hex()):
        raise BadFile("it belongs under another name")
    return header
