"""Speed of the cold store on states of the 27B shape; prints one line a measurement.

Run as ``python -m tests.coldstore.bench [--dir DIR] [--tokens N]``. Cold means that the page
cache was dropped for the files read. Not a test: nothing here passes or fails.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from llm_mtplx.coldstore import (
    BLOCK,
    BlockRows,
    CheckpointState,
    ColdStore,
    Header,
    Save,
    Section,
)
from llm_mtplx.coldstore.keys import Chain
from llm_mtplx.coldstore.manifest import BlockRow, CheckpointRow

LAYERS, HEADS, WIDTH = 16, 4, 256
RECURRENT = 48
FINGERPRINT = "27b"


def section(name: str, dtype: str, shape: tuple[int, ...], item: int) -> Section:
    nbytes = item
    for size in shape:
        nbytes *= size
    return Section(name, dtype, shape, [os.urandom(nbytes)])


def kv(rows: int) -> list[Section]:
    """Keys and values of every attention layer and the head: 69,632 bytes a token."""
    names = [f"{layer}.{part}" for layer in [*range(LAYERS), "head"] for part in "kv"]
    return [section(name, "bfloat16", (HEADS, rows, WIDTH), 2) for name in names]


def recurrent() -> list[Section]:
    """153.9 MB, whatever the length."""
    sections = []
    for layer in range(RECURRENT):
        sections.append(section(f"{layer}.conv", "bfloat16", (3, 10240), 2))
        sections.append(section(f"{layer}.state", "float32", (48, 128, 128), 4))
    return sections


def tokens(count: int, seed: int) -> list[int]:
    return [(i * 7919 + seed * 104729) % 248_320 for i in range(count)]


def save_of(ids: list[int], starts: list[int], block: list[Section], conversation: str) -> Save:
    tail = len(ids) % BLOCK
    state = CheckpointState(len(ids), [*(kv(tail) if tail else []), *recurrent()])
    return Save(Chain(FINGERPRINT, ids), [BlockRows(s, block) for s in starts], state, conversation)


@contextmanager
def timed(label: str, nbytes: int = 0) -> Iterator[None]:
    start = time.perf_counter()
    yield
    took = time.perf_counter() - start
    rate = f"  {nbytes / took / 1e9:6.2f} GB/s" if nbytes else ""
    print(f"{label:58s}{1000 * took:10.2f} ms{rate}")


def drop_cache(paths: list[Path]) -> None:
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def plain_read(path: Path, buffer: bytearray) -> None:
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def plain_write(path: Path, size: int, data: bytes) -> None:
    with path.open("wb", buffering=0) as file:
        for at in range(0, size, len(data)):
            file.write(memoryview(data)[: min(len(data), size - at)])
        os.fsync(file.fileno())


def heads_of(arrays: dict[str, bytearray], rows: int) -> Callable[[Header], list[memoryview]]:
    """Places rows in preallocated arrays [HEADS, rows, WIDTH], as a KV cache lies in memory."""
    views = {name: memoryview(array) for name, array in arrays.items()}
    row = WIDTH * 2

    def place(header: Header) -> list[memoryview]:
        buffers = []
        for section in header.sections:
            view = views[section.name]
            if section.name.endswith((".k", ".v")):
                for head in range(HEADS):
                    first = (head * rows + header.start) * row
                    buffers.append(view[first : first + (header.end - header.start) * row])
            else:
                buffers.append(view)
        return buffers

    return place


def saving_and_reading(cache_dir: Path, count: int) -> None:
    block = kv(BLOCK)
    ids = tokens(count, 1)
    store = ColdStore(cache_dir)
    starts = store.missing(Chain(FINGERPRINT, ids))
    first = save_of(ids, starts, block, "one")
    nbytes = sum(s.nbytes for s in block) * len(starts)
    nbytes += sum(s.nbytes for s in first.checkpoint.sections) if first.checkpoint else 0
    cache_dir.mkdir()
    plain = cache_dir / "plain"
    with timed(f"plain write + fsync of {nbytes / 1e6:.0f} MB, one file", nbytes):
        plain_write(plain, nbytes, os.urandom(16 << 20))
    with timed(f"save of {count} tokens, handing over"):
        store.save(first)
    with timed(f"save of {count} tokens, until it is all on disk", nbytes):
        store.flush(600)
    arrays = {
        f"{layer}.{part}": bytearray(HEADS * count * WIDTH * 2)
        for layer in [*range(LAYERS), "head"]
        for part in "kv"
    }
    arrays |= {s.name: bytearray(s.nbytes) for s in recurrent()}
    place = heads_of(arrays, count)
    files = [p for p in store.path.glob("blobs/*/*") if p.is_file()]
    for warmth in ("cold", "warm", "warm"):
        if warmth == "cold":
            drop_cache([plain, *files])
        with timed(f"plain read into a reused 1 MiB buffer, {warmth}", nbytes):
            plain_read(plain, bytearray(1 << 20))
        if warmth == "cold":
            drop_cache([plain, *files])
        with timed(f"lookup and checked read into place, {warmth}", nbytes):
            found = store.lookup(FINGERPRINT, ids)
            restored = store.read(found, place)
        assert restored.position == count, restored
    store.flush(600)
    plain.unlink()
    before = store.report()
    with timed(f"the exact ids of {count} tokens, from the headers"):
        assert store.ids(FINGERPRINT, Chain(FINGERPRINT, ids).pointer(len(ids))) == ids
    longer = [*ids, *tokens(300, 2)]
    turn = save_of(longer, store.missing(Chain(FINGERPRINT, longer)), block, "one")
    with timed("a turn of +300 tokens, until it is all on disk"):
        store.save(turn)
        store.flush(600)
    after = store.report()
    written = after.written_bytes - before.written_bytes
    state = sum(s.nbytes for s in recurrent())
    print(
        f"  {after.written_files - before.written_files} files, {written:,} bytes:"
        f" {written - state:,} beyond the state, {300 * 69632:,} of new rows"
    )
    assert store.close(600)


def looking_up(cache_dir: Path, conversations: int = 100, length: int = 100_000) -> None:
    store = ColdStore(cache_dir)
    store._root.create()
    for number in range(conversations):
        chain = Chain(FINGERPRINT, tokens(length, number))
        rows: list[BlockRow | CheckpointRow] = [
            BlockRow(chain.key(i + 1), chain.key(i), i * BLOCK, 1) for i in range(length // BLOCK)
        ]
        parent = chain.key(length // BLOCK)
        rows.append(CheckpointRow(chain.checkpoint(length), parent, length, 1, 0))
        store._manifest.add_found(rows, [])
    store.close(60)
    size = sum(p.stat().st_size for p in store.path.glob("manifest.sqlite*"))
    print(f"manifest of {conversations} conversations of {length} tokens: {size / 1e6:.1f} MB")
    unknown, known = tokens(length, 10**6), tokens(length, 3)
    parted = [*known[: length // 2], *unknown[: length // 2]]
    for _ in range(2):
        store = ColdStore(cache_dir)
        with timed("  first lookup after opening, nothing known"):
            assert store.lookup(FINGERPRINT, unknown).reason == "not_found"
        with timed("  lookup, nothing known"):
            store.lookup(FINGERPRINT, unknown)
        with timed("  lookup, half known and no checkpoint there"):
            assert store.lookup(FINGERPRINT, parted).reason == "no_checkpoint"
        with timed("  lookup, all known"):
            assert store.lookup(FINGERPRINT, known).position == length
        with timed("  conversations, for status"):
            store.report()
        with timed("  which blocks are missing, all known"):
            assert store.missing(Chain(FINGERPRINT, known)) == []
        store.close(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=None)
    parser.add_argument("--tokens", type=int, nargs="*", default=[1552, 10000])
    arguments = parser.parse_args()
    base = Path(tempfile.mkdtemp(dir=arguments.dir))
    try:
        looking_up(base / "lookup")
        for count in arguments.tokens:
            print(f"\n{count} tokens")
            saving_and_reading(base / str(count), count)
            shutil.rmtree(base / str(count))
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
