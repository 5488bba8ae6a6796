"""The cold store: saved lines of tokens on SSD, found again by their ids."""

import logging
import math
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence, Set
from dataclasses import asdict, replace
from pathlib import Path

from .blobs import Blobs, Failpoint
from .entries import Entry
from .index.graph import Graph
from .index.lookup import find, stored_keys, wanted_block, wanted_checkpoint
from .index.manifest import Manifest
from .keys import BLOCK, Chain, parse_key
from .line import BadPart, drop, read_ids
from .reasons import DropReason, MissReason, StoreError, miss_reason
from .records import Counters, Forgotten, Found, Miss, Place, Report, Restored, Save, StoreLimits
from .restore import Failure, files_of, read_files
from .root import StoreRoot
from .trouble import Trouble
from .upkeep.background import Background
from .upkeep.forget import Forgetting
from .upkeep.pack import Compacted, Compaction
from .upkeep.reconcile import clear_dead_writers, rebuild
from .upkeep.report import holdings
from .writer import Job, NewFile, Writer

log = logging.getLogger(__name__)


class ColdStore:
    """One store in one process.

    Every method may be called from any thread, except that `close` must come last. None raises
    for what goes wrong on disk: lookups and reads say why they found less, saves are counted
    as dropped. Writing and rebuilding happen on threads of the store's own. After a fork the
    child's first call makes it anew, with nothing queued.
    """

    def __init__(
        self,
        cache_dir: Path,
        limits: StoreLimits | None = None,
        failpoint: Failpoint = lambda name: None,
    ) -> None:
        """Open the store below ``cache_dir``. Touches no file; the first save creates it."""
        self._root = StoreRoot(cache_dir)
        self._limits = limits or StoreLimits()
        self._failpoint = failpoint
        self._blobs = Blobs(self._root, failpoint)
        self._start()

    @property
    def path(self) -> Path:
        return self._root.path

    def lookup(
        self,
        fingerprint: str,
        ids: Sequence[int],
        *,
        needs_checkpoint: bool = True,
        deeper_than: int = 0,
    ) -> Found:
        """The deepest position of ``ids`` that can be restored, if beyond ``deeper_than``.

        With ``needs_checkpoint`` it is one at which a whole state is stored, else any end of a
        block as well. Reads no file of the line.
        """
        return self._find(Chain(fingerprint, ids), needs_checkpoint, deeper_than)

    def read(self, found: Found, place: Place, *, note_use: bool = True) -> Restored:
        """Read what a lookup found into the buffers that ``place`` gives for each file.

        ``place`` is called on this thread with headers that have been checked, the checkpoint's
        first. Where a file turns out bad it is dropped and the next position before it is
        tried: only rows before the position in the result, and the state of the checkpoint
        placed last, are good. Without ``note_use`` nothing is written, not even the time.
        """
        self._mine()
        done: set[bytes] = set()
        gone: set[bytes] = set()
        unusable: set[bytes] = set()
        misses: list[Miss] = []
        nbytes = 0
        while found.position:
            files = [file for file in files_of(found) if file.key not in done]
            read, failure = read_files(self._blobs, files, place, self._limits.readers, done)
            nbytes += read
            if failure is None:
                if found.checkpoint is not None and note_use:
                    self._writer.submit(Job(deque(), touched=found.checkpoint))
                break
            key = failure.wanted.key
            if failure.reason != "file_gone" or key in gone:
                self._refuse(failure)
                misses.append(Miss(failure.reason, failure.wanted.end, failure.detail))
                unusable.add(key)
            gone.add(key)
            found = self._find(found.chain, found.needs_checkpoint, found.deeper_than, unusable)
        reason = misses[0].reason if misses else found.reason
        return Restored(found.position, nbytes, reason, tuple(misses))

    def missing(self, chain: Chain) -> list[int]:
        """Starts of the whole blocks of a line that are neither stored nor queued.

        Only these are worth handing to `save`. All of them where the manifest is busy, none
        where the store cannot be written.
        """
        self._mine()
        keys = {chain.key(i + 1): i * BLOCK for i in range(chain.whole_blocks)}
        try:
            self._root.check()
            stored = stored_keys(self._manifest, chain, chain.whole_blocks)
            self._heal()
            self._background.rebuild(self._manifest)
        except StoreError as error:
            if error.reason not in ("store_absent", "store_busy"):
                return []
            stored = set()
        stored -= self._writer.refused
        stored |= self._writer.queued(keys)
        return [start for key, start in keys.items() if key not in stored]

    def save(self, save: Save) -> DropReason | None:
        """Queue what is new of a line for the background writer; why not, where dropped.

        Raises ValueError where the save contradicts itself.
        """
        save.check()
        self._mine()
        chain = save.chain
        files = deque(
            NewFile(wanted_block(chain, rows.start // BLOCK), rows.sections) for rows in save.blocks
        )
        entry = None
        if save.checkpoint is not None:
            wanted = wanted_checkpoint(chain, save.checkpoint.position)
            files.append(NewFile(wanted, save.checkpoint.sections))
            if save.conversation is not None:
                entry = Entry(
                    conversation=save.conversation,
                    fingerprint=chain.fingerprint,
                    checkpoint=wanted.key.hex(),
                    position=wanted.end,
                    role=save.role,
                    created=int(time.time()),
                )
        # What it builds on must not be removed to make room for it.
        end = max((file.wanted.end for file in files), default=0)
        return self._writer.submit(Job(files, entry, line=chain.keys_before(end)))

    def wait_for_room(self, nbytes: int, timeout: float) -> bool:
        """Wait until a save of ``nbytes`` would not be dropped for those before it."""
        self._mine()
        return self._writer.wait_for_room(nbytes, timeout)

    def start(self) -> None:
        """Be ready to save. To be called at the beginning of what ends in a save: a process that
        is ending by then can start no thread any more."""
        self._mine()
        self._writer.start()

    def tend(self) -> None:
        """Remove, in the background and now and then, what nobody needs and what is over the
        limits. For processes that may write."""
        self._mine()
        while self._unread:
            self._drop(self._unread.popitem()[1])
        self._background.tend()

    def tips(self, conversation: str) -> list[Entry]:
        """The checkpoints a conversation can be restored at, the newest first."""
        self._mine()
        try:
            self._root.check()
            return self._manifest.entries(conversation)
        except StoreError:
            return []

    def ids(self, fingerprint: str, checkpoint: str) -> list[int] | MissReason:
        """The exact ids of the line that ends at a checkpoint (hex), read from its files.

        A file that turns out bad is dropped by the next `tend`: a lookup before that can still
        say what is wrong with it.
        """
        self._mine()
        key = parse_key(checkpoint)
        if key is None:
            return "not_found"
        read = read_ids(self._blobs, fingerprint, key)
        if isinstance(read, list):
            return read
        log.info("%s: the ids of %s could not be read", read.reason, checkpoint)
        self._unread[read.key] = read
        return read.reason

    def compact(self, idle_s: float | None = None, seconds: float = math.inf) -> Compacted:
        """Pack the blocks of what has been unused for ``idle_s`` seconds, for about ``seconds``.

        The upkeep in the background does the same, a little at a time.
        """
        self._mine()
        deadline = time.monotonic() + seconds
        before = time.time() - (self._limits.idle_s if idle_s is None else idle_s)
        manifest = Manifest(self._root, self._limits.write_busy_s)
        packing = Compaction(self._root, self._blobs, manifest, self._limits, self._failpoint)
        try:
            self._root.check()
            return packing.run(before, lambda: time.monotonic() < deadline)
        except StoreError as error:
            if error.reason == "store_absent":
                return Compacted(finished=True)
            log.info("compaction did not finish: %s", error)
        except OSError as error:
            log.info("compaction did not finish: %s", error)
        finally:
            manifest.close()
        return Compacted()

    def forget(
        self,
        conversation: str | None = None,
        *,
        everything: bool = False,
        older_than: float | None = None,
    ) -> Forgotten:
        """Remove one conversation, all of them, or those unused for ``older_than`` seconds.

        Files, rows and their traces in the manifest go; what others need stays and is counted.
        """
        if (conversation is not None) + everything + (older_than is not None) != 1:
            raise ValueError("specify one of conversation, everything or older_than")
        self._mine()
        self._writer.flush(self._limits.write_busy_s)
        manifest = Manifest(self._root, self._limits.write_busy_s)
        try:
            self._root.check()
            manifest.heal()
            clear_dead_writers(self._root, self._blobs, manifest)
            forgetting = Forgetting(
                self._root, self._blobs, manifest, self._limits.grace_s, self._writer.name
            )
            if everything:
                return forgetting.everything()
            if manifest.rebuild_pending:
                # Half an index does not know what is shared.
                rebuild(self._blobs, manifest, threading.Event())
            before = time.time() - (older_than or 0)

            def choose(graph: Graph) -> frozenset[str]:
                if conversation is not None:
                    return frozenset((conversation,))
                return frozenset(n for n, used in graph.last_use().items() if used < before)

            return forgetting.conversations(choose)
        except (StoreError, OSError) as error:
            log.info("forget did not finish: %s", error)
            return Forgotten(reason=miss_reason(error))
        finally:
            manifest.close()

    def report(self) -> Report:
        """What the store holds, and what this process wrote and missed."""
        self._mine()
        manifest = Manifest(self._root, self._limits.busy_s)  # lookups must not wait for it
        try:
            self._root.check()
            report = holdings(self._root, manifest, self._limits)
        except (StoreError, OSError) as error:
            report = Report(path=str(self.path), reason=miss_reason(error), detail=str(error))
        finally:
            manifest.close()
        return replace(report, **asdict(self.counters()))

    def counters(self) -> Counters:
        """What this process wrote, did not write, and could not read. Touches no file."""
        self._mine()
        writer = self._writer
        return Counters(
            pending_bytes=writer.pending_bytes,
            written_files=writer.written_files,
            written_bytes=writer.written_bytes,
            drops={str(reason): count for reason, count in tuple(writer.drops.items())},
            misses={str(reason): count for reason, count in tuple(self._misses.items())},
            last_error=self._trouble.last_error,
        )

    def not_kept(self, reason: DropReason, detail: str) -> None:
        """Count what a caller gave up to save, and say so as for a save that failed."""
        self._mine()
        self._writer.not_kept(reason, detail)

    def flush(self, timeout: float) -> bool:
        """Wait until every save so far is written or dropped; False after ``timeout`` seconds."""
        self._mine()
        return self._writer.flush(timeout)

    def reconciled(self, timeout: float) -> bool:
        """Wait for a rebuild that is under way; False after ``timeout`` seconds."""
        self._mine()
        self._background.rebuild(self._manifest, at_once=True)
        return self._background.rebuilt(timeout)

    def close(self, timeout: float) -> bool:
        """Write what is queued for at most ``timeout`` seconds, then give up the rest.

        True where everything was written. Files never lie half-written under their names.
        """
        self._mine()
        self._stop.set()
        deadline = time.monotonic() + timeout
        done = self._writer.close(timeout)
        self._background.join(max(deadline - time.monotonic(), 0.0))
        if done:
            self._writer_manifest.close()
            self._manifest.close()
        return done

    def _start(self) -> None:
        self._pid = os.getpid()
        self._trouble = Trouble()
        self._manifest = Manifest(self._root, self._limits.busy_s)
        self._writer_manifest = Manifest(self._root, self._limits.write_busy_s)
        self._writer = Writer(
            self._root,
            self._blobs,
            self._writer_manifest,
            self._limits,
            self._failpoint,
            self._trouble,
        )
        self._misses: Counter[MissReason] = Counter()
        self._unread: dict[bytes, BadPart] = {}
        self._stop = threading.Event()
        self._background = Background(
            self._root, self._blobs, self._limits, self._stop, self._trouble
        )

    def _mine(self) -> None:
        """In a forked child: leave the parent's threads and locks behind."""
        if os.getpid() != self._pid:
            self._start()

    def _find(
        self,
        chain: Chain,
        needs_checkpoint: bool,
        deeper_than: int,
        unusable: Set[bytes] = frozenset(),
    ) -> Found:
        self._mine()
        try:
            self._root.check()
            refused = self._writer.refused | unusable
            pending = self._manifest.rebuild_pending
            found = find(self._manifest, chain, needs_checkpoint, refused, deeper_than)
            corrupt = self._heal()
            pending |= self._manifest.rebuild_pending
            self._background.rebuild(self._manifest)
            if found.reason is not None and corrupt:
                self._misses["corrupt_index"] += 1
                return found.because("corrupt_index")
            if found.reason == "not_found" and pending:
                found = found.because("rebuilding")
            return found
        except StoreError as error:
            return Found.nothing(chain, miss_reason(error), needs_checkpoint, deeper_than)

    def _heal(self) -> bool:
        """Whether damaged rows were met since this was last asked; they are dropped."""
        if not self._manifest.corrupt:
            return False
        self._manifest.corrupt = False
        try:
            dropped = self._manifest.heal()
            log.info("dropped %d rows of the index that were damaged", dropped)
        except StoreError as error:
            log.info("damaged rows of the index could not be removed: %s", error)
        return True

    def _refuse(self, failure: Failure) -> None:
        """Count a file that failed, and drop it if it is bad for good."""
        wanted = failure.wanted
        self._misses[failure.reason] += 1
        log.info("%s of %d to %d: %s", failure.reason, wanted.start, wanted.end, failure.detail)
        if failure.reason == "layout_refused" and failure.inode is None:
            return  # there was no place for it; it may be what it says
        self._drop(BadPart(wanted.kind, wanted.key, failure.reason, failure.inode))

    def _drop(self, bad: BadPart) -> None:
        if not drop(self._manifest, self._blobs, bad):
            # It can still be named: this process passes it over until it has been written anew.
            self._writer.refused.add(bad.key)
