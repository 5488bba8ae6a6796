"""The exact ids of a stored line, from the headers of its files, and which line begins another."""

import logging
import os
from dataclasses import dataclass

from .blobs import Blobs
from .format import Header
from .index.graph import Graph
from .index.manifest import Manifest
from .index.rows import CheckpointRow
from .keys import BLOCK, FileKind, checkpoint_key, pack_ids, root_key
from .reader import FileRefused, read_head
from .reasons import BadFile, MissReason, StoreError
from .root import NotAFile

log = logging.getLogger(__name__)

BAD_FOR_GOOD = ("corrupt_block", "corrupt_checkpoint", "layout_refused", "file_gone")


@dataclass(frozen=True)
class BadPart:
    """The file in which reading a line's ids ended. ``inode`` names one that is bad for good."""

    kind: FileKind
    key: bytes
    reason: MissReason
    inode: int | None = None


def read_ids(blobs: Blobs, fingerprint: str, checkpoint: bytes) -> list[int] | BadPart:
    """Ids of positions 0 to the checkpoint's, or where and why they cannot be told.

    Every header proves its ids by its key, so the bodies need not be read.
    """
    parts: list[list[int]] = []
    kind: FileKind = "checkpoint"
    key = checkpoint
    while True:
        try:
            header = _read_header(blobs, kind, key)
        except FileNotFoundError:
            return BadPart(kind, key, "not_found" if kind == "checkpoint" else "file_gone")
        except FileRefused as error:
            return BadPart(kind, key, _corrupt(kind), error.inode)
        except NotAFile:
            return BadPart(kind, key, _corrupt(kind))
        except OSError:
            return BadPart(kind, key, "store_unavailable")
        parts.append(header.ids)
        key, kind = bytes.fromhex(header.parent), "block"
        if header.start == 0:
            break
    if key != root_key(fingerprint):
        return BadPart("checkpoint", checkpoint, "not_found")  # another model's
    return [token for part in reversed(parts) for token in part]


def drop(manifest: Manifest, blobs: Blobs, bad: BadPart) -> bool:
    """Remove a file that is bad for good and its row; False where the row stays."""
    if bad.reason not in BAD_FOR_GOOD:
        return True
    dropped = True
    try:
        manifest.drop(bad.kind, bad.key)
    except StoreError as error:
        dropped = False
        log.info("the index row of a damaged file could not be removed: %s", error)
    if bad.reason != "file_gone":
        try:
            blobs.unlink(bad.kind, bad.key, bad.inode)
        except OSError as error:
            log.info("a damaged file could not be removed: %s", error)  # the next write replaces it
    return dropped


class Lines:
    """Which stored lines begin which others. Belongs to one thread while ``graph`` holds."""

    def __init__(self, blobs: Blobs, graph: Graph) -> None:
        self._blobs = blobs
        self._graph = graph
        self._chains: dict[bytes, list[bytes]] = {}

    def begins(self, checkpoint: CheckpointRow, other: CheckpointRow) -> bool:
        """Whether the line that ends at ``checkpoint`` is the beginning of the one at ``other``.

        Whole blocks are compared by their keys. The ids after the last one are read from the header
        of the other line's file there; where that cannot be read, the answer is no.
        """
        if checkpoint.position >= other.position:
            return False
        chain = self._chain(other)
        whole, tail = divmod(checkpoint.position, BLOCK)
        # chain[n] is the key after n whole blocks, the root's first.
        if len(chain) != other.position // BLOCK + 1 or chain[whole] != checkpoint.parent:
            return False
        if not tail:
            return True
        try:
            if whole + 1 < len(chain):
                ids = _read_header(self._blobs, "block", chain[whole + 1]).ids
            else:
                ids = _read_header(self._blobs, "checkpoint", other.key).ids
        except (OSError, FileRefused):
            return False
        return checkpoint_key(checkpoint.parent, pack_ids(ids[:tail])) == checkpoint.key

    def _chain(self, checkpoint: CheckpointRow) -> list[bytes]:
        if checkpoint.key not in self._chains:
            rows = self._graph.chain_of(checkpoint)
            root = rows[-1].parent if rows else checkpoint.parent
            self._chains[checkpoint.key] = [root, *(row.key for row in reversed(rows))]
        return self._chains[checkpoint.key]


def _read_header(blobs: Blobs, kind: FileKind, key: bytes) -> Header:
    """Raises OSError, FileRefused."""
    handle = blobs.open(kind, key)
    try:
        header = read_head(handle).header
        if (header.kind, header.key) != (kind, key.hex()):
            raise BadFile("its name does not match its content")
        return header
    except BadFile as error:
        raise FileRefused(error, os.fstat(handle).st_ino) from error
    finally:
        os.close(handle)


def _corrupt(kind: FileKind) -> MissReason:
    return "corrupt_checkpoint" if kind == "checkpoint" else "corrupt_block"
