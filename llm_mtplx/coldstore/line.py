"""The exact ids of a stored line, from the headers of its files, and which line begins another."""

import os

from .blobs import Blobs
from .format import Header
from .index.graph import Graph
from .index.rows import CheckpointRow
from .keys import BLOCK, FileKind, checkpoint_key, pack_ids, root_key
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
        except (OSError, BadFile):
            return False
        return checkpoint_key(checkpoint.parent, pack_ids(ids[:tail])) == checkpoint.key

    def _chain(self, checkpoint: CheckpointRow) -> list[bytes]:
        if checkpoint.key not in self._chains:
            rows = self._graph.chain_of(checkpoint)
            root = rows[-1].parent if rows else checkpoint.parent
            self._chains[checkpoint.key] = [root, *(row.key for row in reversed(rows))]
        return self._chains[checkpoint.key]


def _read_header(blobs: Blobs, kind: FileKind, key: bytes) -> Header:
    handle = blobs.open(kind, key)
    try:
        header = read_head(handle).header
    finally:
        os.close(handle)
    if (header.kind, header.key) != (kind, key.hex()):
        raise BadFile("it belongs under another name")
    return header
