"""Work on the store in the background: reconcile, garbage, the cap, packing. Never waited for."""

import fcntl
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..blobs import Blobs
from ..index.ledger import UNNAMED, Note, leave_note, read_note
from ..index.manifest import Manifest
from ..locks import open_lock
from ..reasons import StoreError
from ..records import StoreLimits
from ..root import StoreRoot
from .census import AREA_NAMES, SHARDS, Census
from .limits import disk_free
from .pack import Compaction
from .reconcile import rebuild
from .removal import Removed, Remover
from .siblings import remove_unused, siblings
from .tidy import Tidier

log = logging.getLogger(__name__)

LOCK = "upkeep.lock"
PROGRESS = "upkeep"  # the note of how far a walk has come, for whoever goes on with it
NOTED = 32  # places between two notes
_PLACES = [(area, shard) for area in AREA_NAMES for shard in SHARDS]


class Upkeep:
    """One round of work, on the thread that calls `run`, until done or ``stop`` is set.

    A round compares a part of the directories with the manifest, in both directions, and goes on
    where the last one, of any process, was interrupted. One process works at a time.
    """

    def __init__(self, root: StoreRoot, limits: StoreLimits, stop: threading.Event) -> None:
        self._root = root
        self._limits = limits
        self._stop = stop
        self._blobs = Blobs(root, lambda name: None)
        self._manifest = Manifest(root, limits.write_busy_s)
        self._remover = Remover(root, self._blobs, self._manifest, self._pause)

    def run(self) -> None:
        try:
            self._root.check()
            with _alone(self._root) as alone:
                if alone:
                    self._work()
        except StoreError as error:
            if error.reason != "store_absent":
                log.info("no upkeep of the store now: %s", error)
        except OSError as error:
            log.info("no upkeep of the store now: %s", error)
        finally:
            self._manifest.close()

    def _work(self) -> None:
        note = read_note(self._manifest, PROGRESS)
        if dropped := self._manifest.heal():
            log.info("dropped %d rows of the index that were damaged", dropped)
            rebuild(self._blobs, self._manifest, self._stop)
        if self._manifest.rebuild_pending:
            return  # half an index does not know what is garbage
        if _is_due(note.get("tidied"), self._limits.tidy_every_s):
            tidier = Tidier(self._root, self._blobs, self._manifest, self._limits, self._pause)
            _, done = tidier.tidy()
            note["tidied"] = time.time()
            leave_note(self._manifest, PROGRESS, note)
            if done.files or done.failed:
                log.info("evicted state to stay within the store's limits: %s", _words(done))
        if _is_due(note.get("walked"), self._limits.reconcile_every_s):
            self._walk(note)
        if not self._stop.is_set() and _is_due(note.get("packed"), self._limits.reconcile_every_s):
            self._pack(note)

    def _pack(self, note: Note) -> None:
        short = disk_free(self._root) < 2 * self._limits.free_floor_bytes
        idle_s = self._limits.short_idle_s if short else self._limits.idle_s
        began = time.monotonic()

        def go_on() -> bool:
            nonlocal began
            rested = self._pause(time.monotonic() - began)
            began = time.monotonic()
            return rested

        packing = Compaction(
            self._root, self._blobs, self._manifest, self._limits, lambda name: None
        )
        told = packing.run(time.time() - idle_s, go_on)
        if told.finished:
            note["packed"] = time.time()
            leave_note(self._manifest, PROGRESS, note)
        if told.files or told.kept:
            log.info("packed idle conversations: %s", told)

    def _walk(self, note: Note) -> None:
        began = time.monotonic()
        census = Census(self._root, self._manifest, self._limits.grace_s)
        at = note.get("at")
        at = at if isinstance(at, int) and 0 <= at < len(_PLACES) else 0
        beside = note.get("beside")
        beside = beside if at and isinstance(beside, int) else 0
        done = Removed()
        self._root.narrow()
        while at < len(_PLACES) and not self._stop.is_set():
            started = time.monotonic()
            seen = census.shard(*_PLACES[at])
            self._root.narrow_places(seen.wide)
            worked = time.monotonic() - started  # removal rests for itself
            removed = self._remover.gone(seen.gone)
            removed.add(self._remover.strays(seen.strays))
            if disk_free(self._root) > self._limits.free_floor_bytes:
                removed.add(self._remover.unfiled(seen.unfiled))
            done.add(removed)
            if removed.stopped:
                break
            beside += seen.unnamed_bytes - removed.nbytes
            at += 1
            if at % NOTED == 0:  # a process may end at any moment
                leave_note(self._manifest, PROGRESS, {**note, "at": at, "beside": beside})
            if seen.files and not self._pause(worked):
                break
        finished = at == len(_PLACES)
        if finished:
            top = census.top()
            removed = self._remover.strays(top.strays)
            beside += top.unnamed_bytes - removed.nbytes + self._other_versions(done)
            done.add(removed)
            leave_note(self._manifest, UNNAMED, {"bytes": beside})
            note["walked"] = time.time()
        note |= {"at": 0 if finished else at, "beside": beside}
        leave_note(self._manifest, PROGRESS, note)
        log.info(
            "reconciled %s of the store in %.1f s: %s, %d rows without a file removed, "
            "%d entries' files written again",
            "all" if finished else f"{at} of {len(_PLACES)} parts",
            time.monotonic() - began,
            _words(done),
            done.rows,
            done.rewritten,
        )

    def _other_versions(self, done: Removed) -> int:
        """Bytes of those that stay."""
        found = siblings(self._root)
        removed = remove_unused(found)
        done.add(removed)
        return sum(sibling.nbytes for sibling in found) - removed.nbytes

    def _pause(self, worked: float) -> bool:
        """Rest so long that only a small share of the time is worked."""
        return not self._stop.wait(worked * (1 / self._limits.duty - 1))


@contextmanager
def _alone(root: StoreRoot) -> Iterator[bool]:
    """Whether no other process works at the same time. Raises OSError."""
    folder = root.open_dir()
    try:
        handle = open_lock(folder, LOCK)
    finally:
        os.close(folder)
    alone = False
    try:
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        yield alone
    finally:
        if alone:  # a child that was forked meanwhile has the handle too
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _is_due(last: object, every_s: float) -> bool:
    """Also where the clock was set back since."""
    return not isinstance(last, (int, float)) or not 0 <= time.time() - last < every_s


def _words(done: Removed) -> str:
    return f"{done.files} files of {done.nbytes:,} bytes removed" + (
        f", {done.failed} could not be removed: {done.error}" if done.failed else ""
    )
