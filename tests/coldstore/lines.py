"""Lines of tokens with made-up rows and states that depend on every id before them."""

import hashlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from llm_mtplx.coldstore import (
    BLOCK,
    BlockRows,
    CheckpointState,
    ColdStore,
    Header,
    Restored,
    Save,
    Section,
    SectionInfo,
    StoreLimits,
)
from llm_mtplx.coldstore.keys import Chain

FINGERPRINT = "model-a"
ROW = 16  # bytes, half of them keys and half values
LOW_BYTES = int.from_bytes(b"\xff\x03" * (ROW // 2))  # all bits, and two of the high byte's
EXPONENT = int.from_bytes(b"\x00\x3c" * (ROW // 2))
WAIT = 30.0  # seconds; never reached unless something hangs


@contextmanager
def opened(cache_dir: Path, **options: object) -> Iterator[ColdStore]:
    store = ColdStore(cache_dir, StoreLimits(**options))  # type: ignore[arg-type]
    try:
        yield store
    finally:
        store.close(WAIT)


def tokens(count: int, seed: int = 0) -> list[int]:
    return [(i * 7919 + seed * 104729) % 248_320 for i in range(count)]


def rows_of(ids: Sequence[int]) -> list[bytes]:
    """One row a position, each made of all ids up to it; bfloat16 of like size, as rows are."""
    return list(_rows(tuple(ids)))


@lru_cache(256)
def _rows(ids: tuple[int, ...]) -> list[bytes]:
    rows, row = [], b""
    for token in ids:
        row = hashlib.blake2b(row + token.to_bytes(4, "little"), digest_size=ROW).digest()
        rows.append((int.from_bytes(row) & LOW_BYTES | EXPONENT).to_bytes(ROW))
    return rows


def state_of(ids: Sequence[int]) -> bytes:
    return hashlib.blake2b(rows_of(ids)[-1], digest_size=60).digest()


def kv_sections(rows: Sequence[bytes]) -> list[Section]:
    """Keys in two buffers, values in one."""
    half = ROW // 2
    k = b"".join(row[:half] for row in rows)
    v = b"".join(row[half:] for row in rows)
    cut = len(k) // 3
    shape = (len(rows), half // 2)
    return [
        Section("k", "bfloat16", shape, [k[:cut], memoryview(k)[cut:]]),
        Section("v", "bfloat16", shape, [bytearray(v)]),
    ]


def save_of(
    ids: Sequence[int],
    conversation: str | None = "talk",
    blocks: Sequence[int] | None = None,
    checkpoint: bool = True,
    fingerprint: str = FINGERPRINT,
) -> Save:
    """The whole of a line; ``blocks`` are the starts of those to save, all by default."""
    rows = rows_of(ids)
    whole = len(ids) - len(ids) % BLOCK
    starts = range(0, whole, BLOCK) if blocks is None else blocks
    state = Section("state", "float32", (3, 5), [state_of(ids)])
    return Save(
        Chain(fingerprint, ids),
        [BlockRows(at, kv_sections(rows[at : at + BLOCK])) for at in starts],
        CheckpointState(len(ids), [*kv_sections(rows[whole:]), state]) if checkpoint else None,
        conversation,
    )


def write(store: ColdStore, ids: Sequence[int], conversation: str | None = "talk") -> None:
    """Save what is missing of a line, as a turn does, and wait for it."""
    missing = store.missing(Chain(FINGERPRINT, ids))
    assert store.save(save_of(ids, conversation, missing)) is None
    assert store.flush(WAIT)


@dataclass
class Memory:
    """What a caller has preallocated: rows by position and the state placed last."""

    k: bytearray
    v: bytearray
    state: bytearray
    headers: list[Header]

    @classmethod
    def of(cls, count: int) -> "Memory":
        half = ROW // 2
        return cls(bytearray(count * half), bytearray(count * half), bytearray(), [])

    def place(self, header: Header) -> list[memoryview]:
        self.headers.append(header)
        half = ROW // 2
        rows = slice(header.start * half, header.end * half)
        views = [memoryview(self.k)[rows], memoryview(self.v)[rows]]
        if header.kind == "checkpoint":
            self.state = bytearray(60)
            views.append(memoryview(self.state))
            assert header.sections[2] == SectionInfo(name="state", dtype="float32", shape=[3, 5])
        return views


def restore(
    store: ColdStore, ids: Sequence[int], needs_checkpoint: bool = True
) -> tuple[Restored, Memory]:
    """Restore what is stored of a line; whatever comes back must be the line's own."""
    memory = Memory.of(len(ids))
    found = store.lookup(FINGERPRINT, ids, needs_checkpoint=needs_checkpoint)
    restored = store.read(found, memory.place)
    rows, half = rows_of(ids[: restored.position]), ROW // 2
    assert memory.k[: len(rows) * half] == b"".join(row[:half] for row in rows)
    assert memory.v[: len(rows) * half] == b"".join(row[half:] for row in rows)
    if restored.position and needs_checkpoint:
        assert memory.state == state_of(ids[: restored.position])
    return restored, memory


def files(cache_dir: Path, pattern: str = "[!.]*") -> list[Path]:
    """The store's blobs and entries that match."""
    root = cache_dir / "sessions-v1"
    return sorted(p for a in ("blobs", "entries") for p in root.glob(f"{a}/*/{pattern}"))


def flip_last(path: Path) -> None:
    """Change the last bit of a file."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def in_child(action: Callable[[], None]) -> int:
    """Run in a forked child; its exit status, negative for a signal. Cheaper than a new one."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def killer(at: int) -> Callable[[str], None]:
    """A failpoint that kills its process at the ``at``-th step."""
    steps = 0

    def failpoint(name: str) -> None:
        nonlocal steps
        if steps == at:
            os.kill(os.getpid(), signal.SIGKILL)
        steps += 1

    return failpoint
