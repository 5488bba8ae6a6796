"""Garbage collection: a plan that is a report, and its execution. Needs no model and no MLX."""

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import locks
from ..blobs import Blobs
from ..index.graph import Graph
from ..index.ledger import UNNAMED, leave_note, written_last_hour
from ..index.manifest import Manifest
from ..index.rows import BlockRow
from ..line import Lines
from ..reasons import StoreError
from ..records import StoreLimits
from ..root import StoreRoot
from .census import Census, Seen
from .evictions import Cut, Cuts
from .limits import Room, room_now
from .reconcile import clear_dead_writers, rebuild
from .removal import Pause, Removed, Remover
from .siblings import Sibling, remove_unused, siblings
from .sizes import correct_sizes
from .tidy import Garbage, find_garbage, largest_conversation, total

SHARE = 0.5  # of the time in which others may use the manifest while a plan is executed


@dataclass(frozen=True)
class GcPlan:
    """What there is and what would go. Nothing of it has been touched."""

    path: str
    conversations: int
    entries: int
    unnamed_states: int  # that belong to no conversation
    seen: Seen  # the directory, walked
    pending_writes: int  # announced by processes that live
    dead_writers: tuple[str, ...]
    garbage: Garbage  # rows, with their files
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
            "entries_without_state": (len(self.garbage.dangling), 0),
            "unreachable_blocks": _sum(self.garbage.unreachable),
            "superseded_states": _sum(self.garbage.superseded),
            "evicted_states": _sum(self.evicted),
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
            "unnamed_states": self.unnamed_states,
            "files": self.seen.files,
            "file_bytes": self.seen.nbytes,
            "disk_bytes": self.seen.disk_bytes,
            "other_versions_bytes": sum(sibling.nbytes for sibling in self.siblings),
            "pending_writes": self.pending_writes,
            "young_files": self.seen.young,
            "unknown_files": self.seen.unknown,
            "missing_entry_files": len(self.seen.unfiled),
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
        graph = self._graph()
        now = time.time()
        seen = Census(self._root, self._manifest, self._limits.grace_s).everywhere()
        beside = siblings(self._root)
        cuts = Cuts(graph, now, self._limits.grace_s, Lines(self._blobs, graph).begins)
        garbage = find_garbage(cuts, self._blobs, now, self._limits.grace_s)
        evicted = [] if older_than is None else cuts.unused_since(now - older_than)
        stored = seen.taken_bytes + sum(sibling.nbytes for sibling in beside)
        room = room_now(self._root, self._limits, stored, largest_conversation(graph))
        going = garbage.nbytes + total(evicted) + sum(stray.nbytes for stray in seen.strays)
        going += sum(sibling.nbytes for sibling in beside if sibling.unused)
        over = room.over() if max_bytes is None else max(room.over(), stored - max_bytes)
        evicted += cuts.to_free(over - going)
        announced = self._manifest.announced()
        try:
            writers = {*locks.writers(self._root), *(writer for _, writer in announced)}
        except OSError as error:
            raise StoreError("store_unavailable", str(error)) from None
        dead = {writer for writer in writers if locks.is_dead(self._root, writer)}
        return GcPlan(
            path=str(self._root.path),
            conversations=len({entry.conversation for entry in graph.entries}),
            entries=len(graph.entries),
            unnamed_states=len(graph.unnamed()),
            seen=seen,
            pending_writes=sum(writer not in dead for _, writer in announced),
            dead_writers=tuple(sorted(dead)),
            garbage=garbage,
            evicted=tuple(evicted),
            siblings=tuple(beside),
            room=room,
            written_last_hour=written_last_hour(self._manifest),
            write_budget=self._limits.write_budget_bytes,
        )

    def _graph(self) -> Graph:
        self._manifest.heal()
        graph = Graph.read(self._manifest)
        if self._manifest.rebuild_pending:
            # Half an index does not know what is garbage.
            rebuild(self._blobs, self._manifest, threading.Event())
            graph = Graph.read(self._manifest)
        if correct_sizes(self._blobs, self._manifest, graph):
            graph = Graph.read(self._manifest)
        return graph

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
        self._root.narrow(plan.seen.wide)
        cleared = remover.strays(plan.seen.strays)
        done = remover.all_of(
            lambda: cleared,
            lambda: remover.gone(plan.seen.gone),
            lambda: remover.unfiled(() if plan.room.state == "full" else plan.seen.unfiled),
            lambda: plan.garbage.remove(remover),
            lambda: remover.cuts(plan.evicted),
        )
        beside = Removed() if done.stopped else remove_unused(plan.siblings)
        done.add(beside)
        if done.files:
            left = plan.seen.unnamed_bytes - cleared.nbytes
            left += sum(sibling.nbytes for sibling in plan.siblings) - beside.nbytes
            leave_note(self._manifest, UNNAMED, {"bytes": left})
            self._manifest.truncate_wal()
        return done

    def close(self) -> None:
        self._manifest.close()


def _sum(things: Sequence[Cut] | Sequence[BlockRow]) -> tuple[int, int]:
    return len(things), sum(
        thing.nbytes if isinstance(thing, Cut) else thing.size for thing in things
    )


def _share_the_time(held: float) -> bool:
    time.sleep(held * (1 - SHARE) / SHARE)
    return True
