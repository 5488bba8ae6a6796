"""What callers hand to the store and get from it. Plain values; no thread owns them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from .entries import CheckpointRole
from .format import DTYPE_BYTES, Buffer, Header
from .keys import BLOCK, Chain
from .reasons import MissReason


@dataclass(frozen=True)
class StoreLimits:
    """What the store may use and how long it may take."""

    backlog_bytes: int = 4 << 30  # waiting to be written; a single larger save is let in alone
    busy_s: float = 0.05  # a manifest held by somebody else for longer is a miss
    write_busy_s: float = 5.0  # the same for the background writer
    readers: int = 4  # threads that read files
    max_bytes: int | None = None  # on disk; None is by the machine
    write_budget_bytes: int = 128 << 30  # in any hour, of all processes
    free_floor_bytes: int = 10 << 30  # free on the disk, below which nothing is written
    grace_s: float = 600.0  # what was in use so lately is not removed
    reconcile_every_s: float = 3600.0
    tidy_every_s: float = 600.0
    duty: float = 0.05  # share of a core that the work in the background takes
    idle_s: float = 86_400.0  # unused for so long, a conversation's blocks are packed
    short_idle_s: float = 3600.0  # the same where the disk is short


@dataclass(frozen=True)
class Section:
    """One named array, C order: its bytes are those of ``buffers`` one after another.

    The buffers must not change until the save is written.
    """

    name: str
    dtype: str  # a key of DTYPE_BYTES
    shape: tuple[int, ...]
    buffers: Sequence[Buffer]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True)
class BlockRows:
    """The rows of positions ``start`` to ``start + BLOCK``."""

    start: int
    sections: Sequence[Section]


@dataclass(frozen=True)
class CheckpointState:
    """Everything needed at ``position`` beyond the whole blocks before it."""

    position: int
    sections: Sequence[Section]


@dataclass(frozen=True)
class Save:
    """What is new of one line of ids.

    With a conversation, the checkpoint becomes one it can be restored at: its ``tip``, a
    ``prefix`` shared with others, or a rung of a ``ladder``.
    """

    fingerprint: str
    ids: Sequence[int]  # of the whole line, at least as far as what is saved
    blocks: Sequence[BlockRows] = ()
    checkpoint: CheckpointState | None = None
    conversation: str | None = None
    role: CheckpointRole = "tip"

    def check(self) -> None:
        """Raise ValueError where the caller contradicts itself."""
        for rows in self.blocks:
            if rows.start % BLOCK or not 0 <= rows.start <= len(self.ids) - BLOCK:
                raise ValueError(f"no whole block of {len(self.ids)} ids starts at {rows.start}")
            _check_sections(rows.sections)
        if self.checkpoint is not None:
            if not 0 < self.checkpoint.position <= len(self.ids):
                raise ValueError(f"no position {self.checkpoint.position} in {len(self.ids)} ids")
            _check_sections(self.checkpoint.sections)


@dataclass(frozen=True)
class Miss:
    """Why part of a line could not be restored."""

    reason: MissReason
    position: int  # where the file that failed ends
    detail: str = ""


@dataclass(frozen=True)
class Found:
    """The deepest position a lookup could find, 0 for none, and why it is not deeper."""

    chain: Chain
    position: int
    blocks: int  # whole blocks to read
    checkpoint: bytes | None  # key of the checkpoint to read
    nbytes: int  # on disk
    reason: MissReason | None  # None where the whole line was found
    needs_checkpoint: bool
    deeper_than: int

    @classmethod
    def nothing(
        cls, chain: Chain, reason: MissReason, needs_checkpoint: bool, deeper_than: int
    ) -> "Found":
        return cls(chain, 0, 0, None, 0, reason, needs_checkpoint, deeper_than)

    def because(self, reason: MissReason) -> "Found":
        return replace(self, reason=reason)


@dataclass(frozen=True)
class Restored:
    """The position whose rows and state now lie, checked, in the caller's memory; 0 for none."""

    position: int
    nbytes: int  # read, checked and put into the caller's memory
    reason: MissReason | None  # why not deeper
    misses: tuple[Miss, ...] = ()  # files that failed on the way


@dataclass(frozen=True)
class Conversation:
    name: str
    fingerprint: str
    checkpoint: str  # key of the newest tip, hex
    position: int  # tokens
    nbytes: int  # on disk, shared blocks included
    used: int  # seconds since the epoch


@dataclass(frozen=True)
class Report:
    """What the store holds and what this process did with it."""

    path: str
    reason: MissReason | None  # why it cannot be used, if so
    detail: str = ""  # what stands in the way
    conversations: tuple[Conversation, ...] = ()
    blocks: int = 0
    checkpoints: int = 0
    nbytes: int = 0  # of blocks and checkpoints
    other_bytes: int = 0  # files without a row, the index and other versions, as last walked
    max_bytes: int = 0  # configured, or by the machine
    cap_bytes: int = 0  # the cap in force
    free_bytes: int = 0  # on the disk
    disk_state: str = "ok"  # low: two large conversations may not fit; full: nothing is written
    largest_bytes: int = 0  # of a conversation
    written_last_hour: int = 0  # bytes, by every process
    announced: int = 0  # writes in flight, of every process
    set_aside: int = 0  # unreadable manifests that were replaced
    rebuilding: bool = False
    pending_bytes: int = 0
    written_files: int = 0
    written_bytes: int = 0
    drops: dict[str, int] = field(default_factory=dict)  # saves not written, by reason
    misses: dict[str, int] = field(default_factory=dict)  # files that failed, by reason
    last_error: str = ""


@dataclass(frozen=True)
class Forgotten:
    """What `forget` removed, and what it left because something else needs it."""

    conversations: int = 0
    blocks: int = 0
    checkpoints: int = 0
    nbytes: int = 0
    shared_blocks: int = 0  # of the forgotten conversations, kept for others
    shared_checkpoints: int = 0
    shared_nbytes: int = 0
    wal_truncated: bool = False  # False: another process is reading; traces stay until it ends
    reason: MissReason | None = None  # why nothing, or not everything, was removed


# Takes a file's header, gives writable buffers that hold its body in order, or None to refuse.
# LayoutRefused says that it is not what its key names: then it is dropped.
Place = Callable[[Header], Sequence[Buffer] | None]


def _check_sections(sections: Sequence[Section]) -> None:
    for section in sections:
        if section.dtype not in DTYPE_BYTES:
            raise ValueError(f"section {section.name!r} has the unknown dtype {section.dtype!r}")
        got = sum(memoryview(buffer).nbytes for buffer in section.buffers)
        if got != section.nbytes:
            raise ValueError(f"section {section.name!r} has {got:,} of {section.nbytes:,} bytes")
