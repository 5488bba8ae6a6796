"""Keeping to the limits without walking the directory: garbage goes, then what is over the cap."""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass

from ..blobs import Blobs
from ..index.graph import Graph, total_size
from ..index.ledger import UNNAMED, leave_note, read_note, stored_now
from ..index.manifest import Manifest, is_whole
from ..index.rows import BlockRow
from ..line import Lines
from ..reasons import StoreError
from ..records import StoreLimits
from ..root import NotAFile, StoreRoot
from .census import Census
from .evictions import Cut, Cuts
from .limits import Room, room_now
from .removal import Pause, Removed, Remover
from .report import conversations
from .siblings import siblings
from .sizes import correct_sizes

LOG_BYTES = 4 << 20  # by as much the index's own files grow and shrink between two looks


@dataclass(frozen=True)
class Garbage:
    """Rows, with their files, that nobody needs."""

    dangling: tuple[Cut, ...]  # entries whose checkpoint is gone
    unreachable: tuple[BlockRow, ...]  # blocks no checkpoint needs
    superseded: tuple[Cut, ...]  # states that have had two successors

    @property
    def nbytes(self) -> int:
        return total_size(self.unreachable) + total(self.superseded)

    def remove(self, remover: Remover) -> Removed:
        """Raises StoreError."""
        return remover.all_of(
            lambda: remover.cuts(self.dangling),
            lambda: remover.blocks(self.unreachable),
            lambda: remover.cuts(self.superseded),
        )


class Tidier:
    """Belongs to one thread, with the manifest it is given."""

    def __init__(
        self, root: StoreRoot, blobs: Blobs, manifest: Manifest, limits: StoreLimits, pause: Pause
    ) -> None:
        self._root = root
        self._blobs = blobs
        self._manifest = manifest
        self._limits = limits
        self._remover = Remover(root, blobs, manifest, pause)
        self._believed = 0  # bytes beside the rows, as they were counted

    def tidy(
        self, more: int = 0, saving: str | None = None, held: Iterable[bytes] = ()
    ) -> tuple[Room, Removed]:
        """Remove garbage, then what must go before ``more`` bytes fit, as far as it can.

        ``saving`` is the conversation they are for, ``held`` the blocks they build on. Returns the
        room there is then. While the manifest is being rebuilt nothing goes. Raises StoreError.
        """
        self._manifest.heal()
        with self._manifest.using() as sql:
            whole = is_whole(sql)
        if not whole:  # half an index knows neither what is garbage nor what was used
            room = room_now(self._root, self._limits, stored_now(self._manifest), more)
            return room, Removed()
        now = time.time()
        graph = Graph.read(self._manifest)
        room = room_now(self._root, self._limits, stored_now(self._manifest), more)
        if room.over(more):
            self._count_unnamed()
            if correct_sizes(self._blobs, self._manifest, graph):
                graph = Graph.read(self._manifest)
        largest = max(largest_conversation(graph), more)
        cuts = Cuts(graph, now, self._limits.grace_s, Lines(self._blobs, graph).begins, held)
        garbage = find_garbage(cuts, self._blobs, now, self._limits.grace_s)
        done = garbage.remove(self._remover)
        room = room_now(self._root, self._limits, stored_now(self._manifest), largest)
        if over := room.over(more):
            done.add(self._remover.cuts(cuts.to_free(over, saving)))
            room = room_now(self._root, self._limits, stored_now(self._manifest), largest)
        return room, done

    def _count_unnamed(self) -> None:
        """Before anything goes for it: whether as much lies beside the rows as the last walk's
        note says, which may be damaged. Counted once for each such note. Raises StoreError."""
        said = read_note(self._manifest, UNNAMED).get("bytes", 0)
        if said <= self._believed + LOG_BYTES:
            return
        try:
            beside = sum(sibling.nbytes for sibling in siblings(self._root))
            seen = Census(self._root, self._manifest, self._limits.grace_s).everywhere()
        except (StoreError, OSError):
            return  # what cannot be seen may be there
        self._believed = seen.unnamed_bytes + beside
        if said > self._believed + LOG_BYTES:
            leave_note(self._manifest, UNNAMED, {"bytes": self._believed})


def find_garbage(cuts: Cuts, blobs: Blobs, now: float, grace_s: float) -> Garbage:
    dangling = cuts.dangling()
    unreachable = cuts.unreachable(lambda row: is_young(blobs, row, now, grace_s))
    return Garbage(tuple(dangling), tuple(unreachable), tuple(cuts.superseded()))


def largest_conversation(graph: Graph) -> int:
    return max((each.nbytes for each in conversations(graph)), default=0)


def total(cuts: Iterable[Cut]) -> int:
    return sum(cut.nbytes for cut in cuts)


def is_young(blobs: Blobs, row: BlockRow, now: float, grace_s: float) -> bool:
    """Whether a block was written so lately that its checkpoint may be about to come."""
    try:
        handle = blobs.open("block", row.key)
    except (FileNotFoundError, NotAFile):
        return False
    except OSError:
        return True  # what cannot be seen is not known to be old
    try:
        return 0 <= now - os.fstat(handle).st_mtime < grace_s
    finally:
        os.close(handle)
