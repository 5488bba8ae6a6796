"""The background writer: one thread, a queue bounded in bytes, everything that fails counted."""

import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from . import locks
from .admission import Admission
from .blobs import Blobs, Failpoint
from .entries import Entry, encode_entry, entry_verifies
from .format import Buffer, Header, SectionInfo, encode_head
from .index.manifest import Manifest
from .index.rows import BlockRow, CheckpointRow
from .keys import FileKind, unpack_ids
from .reader import Wanted, file_verifies
from .reasons import DropReason, StoreError, drop_reason
from .records import Section, StoreLimits
from .root import StoreRoot
from .trouble import Trouble
from .upkeep.reconcile import clear_dead_writers


@dataclass(frozen=True)
class NewFile:
    """A file to be written unless it is stored already."""

    wanted: Wanted
    sections: Sequence[Section]

    @property
    def nbytes(self) -> int:
        return sum(section.nbytes for section in self.sections)

    @property
    def most_on_disk(self) -> int:
        """At most so many bytes, header included."""
        return self.nbytes + 1024 + 128 * len(self.sections) + 2 * len(self.wanted.ids)


@dataclass
class Job:
    """Files of one save, in order, and the entry that goes with its checkpoint."""

    files: deque[NewFile]
    entry: Entry | None = None
    touched: bytes | None = None  # a checkpoint that was used
    line: tuple[bytes, ...] = ()  # every block before its end, stored already or not


class Writer:
    """Writes jobs in order on a thread of its own, started by `start`, or else by the first one.

    Since Python 3.12 no thread starts once the interpreter is ending, which is before the exit
    handlers run. A save at the end of a process therefore needs a thread that runs already.

    `start`, `submit`, `flush`, `close` and the counters may be used from any thread. Everything
    else runs on the writer's thread. A file is announced before it is written, and its row, which
    comes last, makes it restorable.
    """

    def __init__(
        self,
        root: StoreRoot,
        blobs: Blobs,
        manifest: Manifest,
        limits: StoreLimits,
        failpoint: Failpoint,
        trouble: Trouble,
    ) -> None:
        self.drops: Counter[DropReason] = Counter()
        self.written_files = 0
        self.written_bytes = 0
        self.pending_bytes = 0
        self.refused: set[bytes] = set()  # bad files that could not be dropped
        self._root = root
        self._blobs = blobs
        self._manifest = manifest
        self._backlog_bytes = limits.backlog_bytes
        self._admission = Admission(root, blobs, manifest, limits)
        self._failpoint = failpoint
        self._trouble = trouble
        self._uuid = uuid.uuid4().hex
        self._lock_handle: int | None = None
        self._jobs: deque[Job] = deque()
        self._keys: Counter[bytes] = Counter()  # of files queued or being written
        self._unfinished = 0  # jobs
        self._closed = False
        self._gave_up = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def name(self) -> str:
        """Under which it announces what it writes."""
        return self._uuid

    def start(self) -> None:
        """Start the thread if it does not run yet."""
        with self._changed:
            self._start()

    def submit(self, job: Job) -> DropReason | None:
        """Queue a job, or say why not. Never waits."""
        nbytes = sum(file.nbytes for file in job.files)
        with self._changed:
            if self._closed:
                return self._refuse(job, "closed", StoreError("closed", "the process is exiting"))
            # A single save larger than the whole queue must still get through.
            if nbytes and self.pending_bytes and self.pending_bytes + nbytes > self._backlog_bytes:
                detail = f"{self.pending_bytes:,} bytes are already waiting to be written"
                return self._refuse(job, "backlog_full", StoreError("backlog_full", detail))
            error = self._start()
            if error is not None:
                return self._refuse(job, "closed", error)
            self._jobs.append(job)
            self._keys.update(file.wanted.key for file in job.files)
            self._unfinished += 1
            self.pending_bytes += nbytes
            self._changed.notify_all()
        return None

    def not_kept(self, reason: DropReason, detail: str) -> None:
        """Count what was given up before it became a job."""
        with self._changed:
            self.drops[reason] += 1
        self._trouble.not_saved(reason, StoreError(reason, detail))

    def wait_for_room(self, nbytes: int, timeout: float) -> bool:
        """Wait until a job of ``nbytes`` would be let in; False after ``timeout`` seconds."""

        def has_room() -> bool:
            return not self.pending_bytes or self.pending_bytes + nbytes <= self._backlog_bytes

        with self._changed:
            return self._changed.wait_for(lambda: self._closed or has_room(), timeout)

    def queued(self, keys: Iterable[bytes]) -> set[bytes]:
        """Those of ``keys`` that wait or are being written."""
        with self._changed:
            return {key for key in keys if self._keys[key]}

    def flush(self, timeout: float) -> bool:
        """Wait until all that was submitted is written or dropped; False after ``timeout`` s."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._unfinished, timeout)

    def close(self, timeout: float) -> bool:
        """Take no more jobs, wait ``timeout`` s, then give up what has not been begun."""
        deadline = time.monotonic() + timeout
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            done = self._changed.wait_for(lambda: not self._unfinished, timeout)
            self._gave_up = not done
            while self._jobs:
                self._discard(self._jobs.popleft(), "closed", _out_of_time())
        if self._thread is not None:
            self._thread.join(max(0.0, deadline - time.monotonic()) if done else 0.0)
            return done and not self._thread.is_alive()
        return done

    def _run(self) -> None:
        cleared = False
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._closed)
                if not self._jobs:
                    break
                job = self._jobs.popleft()
            try:
                self._write(job)
            except Exception as error:  # whatever it is, the answer must not suffer
                with self._changed:
                    self._discard(job, drop_reason(error), error)
            else:
                with self._changed:
                    self._finish()
            del job  # with the buffers it holds
            if not cleared and not self._jobs and self._lock_handle is not None:
                cleared = True
                self._clear_dead_writers()
        self._let_go()

    def _write(self, job: Job) -> None:
        if job.touched is not None:
            self._manifest.touch(job.touched, int(time.time()))
            return
        if self._lock_handle is None:
            self._root.create()
            self._lock_handle = locks.hold(self._root, self._uuid)
        saving = job.entry.conversation if job.entry is not None else None
        self._admission.admit(sum(file.most_on_disk for file in job.files), saving, job.line)
        announced: set[bytes] = set()
        before = self.written_bytes
        try:
            self._announce(job, announced)
            while job.files:
                file = job.files[0]
                if file.wanted.kind == "block":
                    self._write_block(file, announced)
                else:
                    self._write_checkpoint(file, job.entry, announced)
                with self._changed:
                    self._release(job.files.popleft())
                    self._changed.notify_all()
                if self._gave_up and job.files:
                    raise _out_of_time()
        except BaseException:
            self._withdraw(announced)
            raise
        finally:
            self._count(self.written_bytes - before)

    def _count(self, nbytes: int) -> None:
        try:
            self._admission.wrote(nbytes)
        except StoreError as error:
            self._trouble.note(error)

    def _announce(self, job: Job, announced: set[bytes]) -> None:
        """Announce what is not stored yet, and add its keys to ``announced``.

        At one moment: nobody can remove meanwhile what has been found to be there.
        """
        kinds: tuple[FileKind, ...] = ("block", "checkpoint")
        with self._manifest.transaction():
            for kind in kinds:
                wanted = [file.wanted for file in job.files if file.wanted.kind == kind]
                keys = {each.key for each in wanted}
                missing = keys - self._stored(kind, wanted)
                missing |= self.refused.intersection(keys)
                if missing:
                    announced |= missing
                    self._manifest.announce(kind, missing, self._uuid)
            if job.entry is not None:
                announced.add(job.entry.key)
                self._manifest.announce("entry", [job.entry.key], self._uuid)
        self._failpoint("announced")

    def _stored(self, kind: FileKind, wanted: Sequence[Wanted]) -> set[bytes]:
        """Keys of those whose rows say what they must; the others are written anew."""
        keys = [each.key for each in wanted]
        said: dict[bytes, tuple[bytes, int]]
        if kind == "block":
            blocks = self._manifest.blocks_named(keys)
            said = {key: (row.parent, row.start) for key, row in blocks.items()}
            return {each.key for each in wanted if said.get(each.key) == (each.parent, each.start)}
        checkpoints = self._manifest.checkpoints_named(keys)
        said = {key: (row.parent, row.position) for key, row in checkpoints.items()}
        return {each.key for each in wanted if said.get(each.key) == (each.parent, each.end)}

    def _write_block(self, file: NewFile, announced: set[bytes]) -> None:
        wanted = file.wanted
        if wanted.key in announced:
            size = self._install(file)
            row = BlockRow(wanted.key, wanted.parent, wanted.start, size)
            self._manifest.commit_block(row, self._uuid)
            self._committed(wanted.key, announced)

    def _write_checkpoint(self, file: NewFile, entry: Entry | None, announced: set[bytes]) -> None:
        wanted = file.wanted
        is_new = wanted.key in announced
        size = self._install(file) if is_new else 0
        if entry is not None:
            self._install_entry(entry)
        row = None
        if is_new:
            row = CheckpointRow(wanted.key, wanted.parent, wanted.end, size, int(time.time()))
        if entry is not None:
            self._manifest.commit_entry(row, entry, self._uuid)
            announced.discard(entry.key)
        elif row is not None:
            self._manifest.commit_checkpoint(row, self._uuid)
        self._committed(wanted.key, announced)

    def _install(self, file: NewFile) -> int:
        """Write one file; its size. A file that is there and verifies is kept."""
        wanted = file.wanted
        header = Header(
            kind=wanted.kind,
            key=wanted.key.hex(),
            parent=wanted.parent.hex(),
            start=wanted.start,
            end=wanted.end,
            ids=unpack_ids(wanted.ids),
            sections=[
                SectionInfo(name=s.name, dtype=s.dtype, shape=list(s.shape)) for s in file.sections
            ],
        )
        body: list[Buffer] = [buffer for section in file.sections for buffer in section.buffers]
        head = encode_head(header, body)
        size = len(head) + header.stored_bytes
        installed = self._blobs.install(
            wanted.kind,
            wanted.key,
            [head, *body],
            self._uuid,
            lambda handle: file_verifies(handle, wanted),
        )
        if installed:
            self.written_files += 1
            self.written_bytes += size
        return size

    def _install_entry(self, entry: Entry) -> None:
        content = encode_entry(entry)
        key = entry.key
        installed = self._blobs.install(
            "entry", key, [content], self._uuid, lambda handle: entry_verifies(handle, key)
        )
        if installed:
            self.written_files += 1
            self.written_bytes += len(content)
        self._failpoint("entry_installed")

    def _committed(self, key: bytes, announced: set[bytes]) -> None:
        announced.discard(key)
        self.refused.discard(key)
        self._failpoint("committed")

    def _withdraw(self, announced: set[bytes]) -> None:
        try:
            self._manifest.withdraw(announced, self._uuid)
        except StoreError as error:
            # They die with this process.
            self._trouble.note(error)

    def _clear_dead_writers(self) -> None:
        try:
            clear_dead_writers(self._root, self._blobs, self._manifest)
        except Exception as error:  # a thread that ends here would leave later saves unwritten
            self._trouble.warn("files left by killed processes could not be removed", error)

    def _let_go(self) -> None:
        """Give the writer's lock back; what it announced is written or withdrawn."""
        if self._lock_handle is not None:
            try:
                locks.release(self._root, self._uuid, self._lock_handle)
            except OSError as error:
                self._trouble.note(error)

    # The following run with `_changed` held.

    def _start(self) -> Exception | None:
        """Why the thread does not run."""
        if self._thread is None and not self._closed:
            # A daemon: a process that has waited its time at exit must be able to leave.
            thread = threading.Thread(target=self._run, name="mtplx-save", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the interpreter is ending, or there are too many
                return error
            self._thread = thread
        return None

    def _refuse(self, job: Job, reason: DropReason, error: Exception) -> DropReason:
        if job.touched is None:
            self.drops[reason] += 1
            self._trouble.not_saved(reason, error)
        else:
            self._trouble.note(error)
        return reason

    def _discard(self, job: Job, reason: DropReason, error: Exception) -> None:
        self._refuse(job, reason, error)
        for file in job.files:
            self._release(file)
        job.files.clear()
        self._finish()

    def _release(self, file: NewFile) -> None:
        self.pending_bytes -= file.nbytes
        self._keys[file.wanted.key] -= 1
        if not self._keys[file.wanted.key]:
            del self._keys[file.wanted.key]

    def _finish(self) -> None:
        self._unfinished -= 1
        self._changed.notify_all()


def _out_of_time() -> StoreError:
    return StoreError("closed", "the time limit for saving at exit was reached")
