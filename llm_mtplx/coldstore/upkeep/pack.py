"""Packing the blocks of idle conversations: a third less on disk, a little slower to read.

One file is replaced at a time, and what is not replaced stays as it was: this may be stopped, or
killed, between any two steps. Blocks stay one file each. A larger file of several blocks would
need a second index from block to place in it, and the prefix that two conversations share would
tie their files together.
"""

import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from .. import locks
from ..blobs import Blobs, Failpoint
from ..codec import pack
from ..format import Buffer, Header, encode_head
from ..index.graph import Graph
from ..index.ledger import note_written, written_last_hour
from ..index.manifest import Manifest
from ..index.rows import BlockRow
from ..reader import OpenFile, read_head
from ..reasons import BadFile, StoreError
from ..records import StoreLimits
from ..root import StoreRoot, bytes_taken
from .reconcile import clear_dead_writers


@dataclass
class Compacted:
    """What a compaction did."""

    files: int = 0  # replaced by smaller ones
    nbytes: int = 0  # written
    freed: int = 0  # bytes fewer on disk
    kept: int = 0  # files that packing would not make worth a slower read
    finished: bool = False  # nothing is left to pack


def idle_blocks(graph: Graph, idle_before: float) -> list[BlockRow]:
    """The blocks that only conversations unused since ``idle_before`` need, the longest unused
    first. What no checkpoint needs is left to gc."""
    last_use = graph.last_use()
    used = {row.key: row.used for row in graph.checkpoints.values()}
    for entry in graph.entries:
        key = bytes.fromhex(entry.checkpoint)
        if key in used:
            used[key] = max(used[key], last_use[entry.conversation])
    seen = graph.chains(key for key, when in used.items() if when > idle_before)
    found: list[BlockRow] = []
    for key in sorted(used.keys(), key=lambda key: used[key]):
        if used[key] <= idle_before:
            chain = [row for row in graph.chain_of(graph.checkpoints[key]) if row.key not in seen]
            found += reversed(chain)
            seen.update(row.key for row in chain)
    return found


class Compaction:
    """Packs one block after the other. One use, one thread."""

    def __init__(
        self,
        root: StoreRoot,
        blobs: Blobs,
        manifest: Manifest,
        limits: StoreLimits,
        failpoint: Failpoint,
    ) -> None:
        self._root = root
        self._blobs = blobs
        self._manifest = manifest
        self._budget = limits.write_budget_bytes // 2  # conversations come first
        self._failpoint = failpoint
        self._writer = uuid.uuid4().hex
        self._told = Compacted()

    def run(self, idle_before: float, go_on: Callable[[], bool]) -> Compacted:
        """Pack what has been unused since ``idle_before`` while ``go_on``, asked before each file,
        says so and the hour's bytes are not half used. Raises StoreError or OSError."""
        unpacked = self._manifest.unpacked()
        graph = Graph.read(self._manifest)
        rows = [row for row in idle_blocks(graph, idle_before) if row.key in unpacked]
        if rows:
            lock = locks.hold(self._root, self._writer)
            try:
                clear_dead_writers(self._root, self._blobs, self._manifest)
                for row in rows:
                    if written_last_hour(self._manifest) + row.size > self._budget or not go_on():
                        return self._told
                    self._pack(row.key)
            finally:
                locks.release(self._root, self._writer, lock)
        self._told.finished = True
        return self._told

    def _pack(self, key: bytes) -> None:
        try:
            handle = self._blobs.open("block", key)
        except OSError:
            return  # gone, or not ours to read: who needs it will find out
        status = os.fstat(handle)
        try:
            header, body = _read(handle, key)
        except BadFile:
            # Dropped as a reader would drop it; the next turn of its line writes it anew.
            self._manifest.drop("block", key)
            self._blobs.unlink("block", key, status.st_ino)
            return
        except OSError:
            return
        finally:
            os.close(handle)
        packed = pack(header, body) if header.codec == "raw" else None
        if packed is None:
            # Packed already, or not worth it: it stays as it is.
            self._manifest.pack_block(key, self._writer, lambda: bytes_taken(status))
            self._told.kept += header.codec == "raw"
        else:
            self._replace(key, status, *packed)

    def _replace(
        self, key: bytes, status: os.stat_result, header: Header, body: list[Buffer]
    ) -> None:
        content = [encode_head(header, body), *body]
        size = sum(memoryview(part).nbytes for part in content)
        self._manifest.announce("packing", [key], self._writer)
        self._failpoint("announced")
        try:
            with self._blobs.replacement("block", key, content, self._writer, status.st_ino) as put:
                done = self._manifest.pack_block(key, self._writer, lambda: size if put() else None)
        except BaseException:
            self._withdraw(key)
            raise
        self._failpoint("committed")
        note_written(self._manifest, size)
        if done:
            self._told.files += 1
            self._told.nbytes += size
            self._told.freed += bytes_taken(status) - size

    def _withdraw(self, key: bytes) -> None:
        try:
            self._manifest.withdraw([key], self._writer)
        except StoreError:
            return  # it dies with this writer


def _read(handle: int, key: bytes) -> tuple[Header, memoryview]:
    """A block's header and body, checked. The body of a packed one is left unread."""
    head = read_head(handle)
    if (head.header.kind, head.header.key) != ("block", key.hex()):
        raise BadFile("its name does not match its content")
    body = memoryview(bytearray(head.header.body_bytes if head.header.codec == "raw" else 0))
    if body.nbytes:
        OpenFile(handle, head, 0).read_into([body])
    return head.header, body
