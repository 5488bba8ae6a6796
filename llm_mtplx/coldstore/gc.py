"""Garbage collection: a plan that is a report, and its execution. Needs no model and no MLX."""

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from . import locks
from .blobs import Blobs
from .budget import Room, default_max_bytes, disk_free, machine_memory
from .census import Census, Seen
from .cuts import Cut, Cuts
from .graph import Graph, total_size
from .ledger import read_note, stored_bytes, written_last_hour
from .manifest import BlockRow, Manifest
from .reasons import StoreError
from .reconcile import clear_dead_writers, rebuild
from .records import StoreLimits
from .removal import Pause, Removed, Remover
from .report import conversations
from .root import StoreRoot
from .siblings import Sibling, remove_sibling, siblings

log = logging.getLogger(__name__)

UNNAMED = "unnamed"  # the note of what lies on the disk without a row
SHARE = 0.5  # of the time in which others may use the manifest while a plan is executed


@dataclass(frozen=True)
class GcPlan:
    """What there is and what would go. Nothing of it has been touched."""

    path: str
    conversations: int
    entries: int
    seen: Seen  # the directory, walked
    pending_writes: int  # announced by processes that live
    dead_writers: tuple[str, ...]
    unreachable: tuple[BlockRow, ...]  # blocks no checkpoint needs
    superseded: tuple[Cut, ...]  # states that have had two successors
    evicted: tuple[Cut, ...]  # by age, or over the cap
    siblings: tuple[Sibling, ...]
    room: Room
    written_last_hour: int
    write_budget: int

    def goes(self) -> dict[str, tuple[int, int]]:
        """Things and bytes that would be removed, by kind."""
        strays = Counter(stray.kind for stray in self.seen.strays)
        sizes: Counter[str] = Counter()
        for stray in self.seen.strays:
            sizes[stray.kind] += stray.nbytes
        unused = [sibling for sibling in self.siblings if sibling.unused]
        return {
            "orphan_files": (strays["orphan"], sizes["orphan"]),
            "temporary_files": (strays["temporary"], sizes["temporary"]),
            "set_aside_manifests": (strays["set_aside"], sizes["set_aside"]),
            "rows_without_file": (len(self.seen.gone), 0),
            "dead_writers": (len(self.dead_writers), 0),
            "unreachable_blocks": (len(self.unreachable), total_size(self.unreachable)),
            "superseded_states": (len(self.superseded), _total(self.superseded)),
            "evicted_states": (len(self.evicted), _total(self.evicted)),
            "other_versions": (len(unused), sum(sibling.nbytes for sibling in unused)),
        }

    @property
    def nbytes(self) -> int:
        """Bytes that would be free."""
        return sum(nbytes for _, nbytes in self.goes().values())

    def told(self) -> dict[str, Any]:
        """The plan as JSON has it."""
        return {
            "dir": self.path,
            "conversations": self.conversations,
            "entries": self.entries,
            "files": self.seen.files,
            "file_bytes": self.seen.nbytes,
            "disk_bytes": self.seen.disk_bytes,
            "other_versions_bytes": sum(sibling.nbytes for sibling in self.siblings),
            "pending_writes": self.pending_writes,
            "young_files": self.seen.young,
            "unknown_files": self.seen.unknown,
            "garbage": {
                kind: {"count": count, "bytes": nbytes}
                for kind, (count, nbytes) in self.goes().items()
            },
            "garbage_bytes": self.nbytes,
            "limits": {
                "max_bytes": self.room.configured,
                "effective_max_bytes": self.room.cap,
                "disk_state": self.room.state,
                "disk_free_bytes": self.room.free,
                "disk_floor_bytes": self.room.floor,
                "written_last_hour_bytes": self.written_last_hour,
                "write_budget_per_hour": self.write_budget,
            },
        }


class Collector:
    """Plans and executes, over a manifest of its own. Belongs to one thread."""

    def __init__(self, root: StoreRoot, limits: StoreLimits) -> None:
        self._root = root
        self._limits = limits
        self._blobs = Blobs(root, lambda name: None)
        self._manifest = Manifest(root, limits.write_busy_s)

    def plan_gc(self, older_than: float | None = None, max_bytes: int | None = None) -> GcPlan:
        """What would go now: garbage, then what was unused for ``older_than`` seconds, then the
        least recently used above ``max_bytes`` or the cap in force. Raises StoreError."""
        self._root.check()
        graph = Graph.read(self._manifest)
        if self._manifest.rebuild_pending:
            # Half an index does not know what is garbage.
            rebuild(self._blobs, self._manifest, threading.Event())
            graph = Graph.read(self._manifest)
        now = time.time()
        seen = Census(self._root, self._manifest, self._limits.grace_s).everywhere()
        beside = siblings(self._root)
        cuts = Cuts(graph, now, self._limits.grace_s)
        unreachable = cuts.unreachable(lambda row: is_young(self._blobs, row, now, self._limits))
        superseded = cuts.superseded()
        evicted = [] if older_than is None else cuts.unused_since(now - older_than)
        others = sum(sibling.nbytes for sibling in beside)
        largest = max((each.nbytes for each in conversations(graph)), default=0)
        room = room_now(self._root, self._limits, seen.nbytes + others, largest)
        limit = room.cap if max_bytes is None else min(max_bytes, room.cap)
        going = total_size(unreachable) + _total(superseded) + _total(evicted)
        going += sum(stray.nbytes for stray in seen.strays)
        going += sum(sibling.nbytes for sibling in beside if sibling.unused)
        evicted += cuts.to_free(room.stored - going - limit)
        writers = set(locks.writers(self._root))
        announced = self._manifest.announced()
        writers.update(writer for _, writer in announced)
        dead = {writer for writer in writers if locks.is_dead(self._root, writer)}
        return GcPlan(
            path=str(self._root.path),
            conversations=len({entry.conversation for entry in graph.entries}),
            entries=len(graph.entries),
            seen=seen,
            pending_writes=sum(writer not in dead for _, writer in announced),
            dead_writers=tuple(sorted(dead)),
            unreachable=tuple(unreachable),
            superseded=tuple(superseded),
            evicted=tuple(evicted),
            siblings=tuple(beside),
            room=room,
            written_last_hour=written_last_hour(self._manifest),
            write_budget=self._limits.write_budget_bytes,
        )

    def apply(self, plan: GcPlan, pause: Pause | None = None) -> Removed:
        """Remove what the plan says and still holds. Raises StoreError."""
        self._root.check()
        if plan.path != str(self._root.path):
            raise ValueError(f"a plan for {plan.path}")
        remover = Remover(self._root, self._blobs, self._manifest, pause or _share_the_time)
        try:
            clear_dead_writers(self._root, self._blobs, self._manifest)
        except OSError as error:
            raise StoreError("store_unavailable", str(error)) from None
        done = remover.gone(plan.seen.gone)
        done.add(remover.strays(plan.seen.strays))
        done.add(remover.blocks(plan.unreachable))
        done.add(remover.cuts([*plan.superseded, *plan.evicted]))
        for sibling in plan.siblings:
            if sibling.unused and not done.stopped:
                done.add(_remove(sibling))
        self._manifest.truncate_wal()
        return done

    def close(self) -> None:
        self._manifest.close()


def room_now(root: StoreRoot, limits: StoreLimits, stored: int, largest: int) -> Room:
    """Raises StoreError."""
    free = disk_free(root)
    configured = limits.max_bytes
    if configured is None:
        configured = default_max_bytes(machine_memory(), free + stored)
    return Room(configured, stored, free, limits.free_floor_bytes, largest)


def stored_now(manifest: Manifest) -> int:
    """Bytes that count against the cap, without a walk: of rows, and of what the last walk found
    beside them. Raises StoreError."""
    return stored_bytes(manifest) + int(read_note(manifest, UNNAMED).get("bytes", 0))


def is_young(blobs: Blobs, row: BlockRow, now: float, limits: StoreLimits) -> bool:
    """Whether a block was written so lately that its checkpoint may be about to come."""
    try:
        handle = blobs.open("block", row.key)
    except OSError:
        return False
    try:
        return 0 <= now - os.fstat(handle).st_mtime < limits.grace_s
    finally:
        os.close(handle)


def _total(cuts: Iterable[Cut]) -> int:
    return sum(cut.nbytes for cut in cuts)


def _remove(sibling: Sibling) -> Removed:
    try:
        remove_sibling(sibling)
    except OSError as error:
        return Removed(failed=1, error=str(error))
    return Removed(files=sibling.files, nbytes=sibling.nbytes)


def _share_the_time(held: float) -> bool:
    time.sleep(held * (1 - SHARE) / SHARE)
    return True
