"""What removing much of a store costs, and what it costs others. Run by ``benchmarks.store``.

Files are sparse, of the 110 kB that a small model's blocks have; their rows are as real ones.
"""

import json
import os
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from llm_mtplx.coldstore import (
    BLOCK,
    BlockRows,
    CheckpointState,
    ColdStore,
    Collector,
    Entry,
    Header,
    Save,
    Section,
    StoreLimits,
    store_root,
)
from llm_mtplx.coldstore.entries import encode_entry
from llm_mtplx.coldstore.index.manifest import BlockRow, CheckpointRow
from llm_mtplx.coldstore.keys import KEY_BYTES, Chain
from llm_mtplx.coldstore.root import StoreRoot

FINGERPRINT = "small"
FILE_BYTES = 110_000
ORPHANS = 400_000  # 44 GB
CONVERSATIONS, BLOCKS = 500, 363  # 20 GB, with one state each
LONG_AGO = 1_000_000_000
TURNS_BEFORE = 600
LIMITS = StoreLimits(free_floor_bytes=0, write_budget_bytes=1 << 60, max_bytes=1 << 60)


def garbage(cache_dir: Path) -> dict[str, Any]:
    """A report on files that no row names, and their removal."""
    store = ColdStore(cache_dir, LIMITS)
    a_turn(store, 0)
    assert store.close(60)
    root = StoreRoot(cache_dir)
    for _ in range(ORPHANS):
        sparse(root, secrets.token_hex(KEY_BYTES), ".kv")
    collector = Collector(root, StoreLimits(max_bytes=1 << 60, grace_s=0.0))
    holds = watched(collector)
    began = time.perf_counter()
    plan = collector.plan_gc()
    planned = time.perf_counter()
    done = collector.apply(plan)
    removed = time.perf_counter()
    collector.close()
    assert done.files == plan.goes()["orphan_files"][0] == ORPHANS
    return {
        "files": ORPHANS,
        "apparent_bytes": plan.nbytes,
        "report_s": round(planned - began, 2),
        "removal_s": round(removed - planned, 2),
        "longest_hold_ms": round(1000 * max(holds), 1),
    }


def eviction(cache_dir: Path) -> dict[str, Any]:
    """What restores and saves of this process take while another one evicts everything else."""
    fill(cache_dir)
    store = ColdStore(cache_dir, LIMITS)
    numbers = iter(range(10**9))
    before = [a_turn(store, next(numbers)) for _ in range(TURNS_BEFORE)]
    command = [sys.executable, "-m", "benchmarks.removal", str(cache_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as evicting:
        assert evicting.stdout is not None
        evicting.stdout.readline()  # it begins
        during = []
        while evicting.poll() is None:
            during.append(a_turn(store, next(numbers)))
        told: dict[str, Any] = json.loads(evicting.stdout.read())
    assert store.report().drops == {}
    assert store.close(60)
    assert told["files"] == CONVERSATIONS * (BLOCKS + 2)
    return {**told, "turns": len(during), "restore_ms": delays(before, during, 0)} | {
        "save_ms": delays(before, during, 1)
    }


def evict(cache_dir: Path) -> None:
    """All that was not used lately, in a process of its own."""
    collector = Collector(store_root(cache_dir), LIMITS)
    holds = watched(collector)
    print("begins", flush=True)
    began = time.perf_counter()
    plan = collector.plan_gc(max_bytes=0)
    done = collector.apply(plan)
    told = {
        "files": done.files,
        "apparent_bytes": done.nbytes,
        "seconds": round(time.perf_counter() - began, 2),
        "longest_hold_ms": round(1000 * max(holds), 1),
    }
    collector.close()
    print(json.dumps(told))


def a_turn(store: ColdStore, number: int) -> tuple[float, float]:
    """Seconds that a save took until it was on disk, and its restore, in the other order."""
    ids = [(i * 7919 + number * 104_729) % 248_320 for i in range(BLOCK + 40)]
    rows = Section("rows", "bfloat16", (BLOCK, 210), [bytes(BLOCK * 420)])
    tail = Section("state", "bfloat16", (40, 210), [bytes(40 * 420)])
    began = time.perf_counter()
    missing = store.missing(Chain(FINGERPRINT, ids))
    state = CheckpointState(len(ids), [tail])
    blocks = [BlockRows(start, [rows]) for start in missing]
    assert store.save(Save(Chain(FINGERPRINT, ids), blocks, state, f"new {number}")) is None
    assert store.flush(60)
    saved = time.perf_counter()
    restored = store.read(store.lookup(FINGERPRINT, ids), place)
    done = time.perf_counter()
    assert restored.position == len(ids), restored
    return done - saved, saved - began


def place(header: Header) -> list[bytearray]:
    return [bytearray(section.nbytes) for section in header.sections]


def delays(before: list[tuple[float, float]], during: list[tuple[float, float]], at: int) -> Any:
    """Milliseconds: without eviction, with it, and the most by which it came later."""
    without, with_it = ([1000 * turn[at] for turn in turns] for turns in (before, during))
    median = statistics.median(without)
    return {
        "without": {"median": round(median, 1), "worst": round(max(without), 1)},
        "with": {"median": round(statistics.median(with_it), 1), "worst": round(max(with_it), 1)},
        "worst_delay": round(max(with_it) - median, 1),
    }


def fill(cache_dir: Path) -> None:
    store = ColdStore(cache_dir, LIMITS)
    root = store._root
    root.create()
    for number in range(CONVERSATIONS):
        keys = [secrets.token_bytes(KEY_BYTES) for _ in range(BLOCKS + 2)]
        rows: list[BlockRow | CheckpointRow] = [
            BlockRow(keys[at + 1], keys[at], at * BLOCK, FILE_BYTES) for at in range(BLOCKS)
        ]
        tip = secrets.token_bytes(KEY_BYTES)
        rows.append(CheckpointRow(tip, keys[BLOCKS], BLOCKS * BLOCK + 1, FILE_BYTES, LONG_AGO))
        entry = Entry(
            conversation=f"old {number}",
            fingerprint=FINGERPRINT,
            checkpoint=tip.hex(),
            position=BLOCKS * BLOCK + 1,
            role="tip",
            created=LONG_AGO,
        )
        store._manifest.add_found(rows, [entry])
        for key in keys[1 : BLOCKS + 1]:
            sparse(root, key.hex(), ".kv")
        sparse(root, tip.hex(), ".st")
        path = root.path / "entries" / entry.key.hex()[:2] / f"{entry.key.hex()}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(encode_entry(entry))
    store._manifest.rebuilt()
    assert store.close(60)


def sparse(root: StoreRoot, key: str, suffix: str) -> None:
    folder = root.path / "blobs" / key[:2]
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        handle = os.open(folder / f"{key}{suffix}", flags, 0o600)
    except FileNotFoundError:
        folder.mkdir()
        handle = os.open(folder / f"{key}{suffix}", flags, 0o600)
    os.truncate(handle, FILE_BYTES)
    os.close(handle)


def watched(collector: Collector) -> list[float]:
    """For how long nobody else can write to the manifest, time after time."""
    holds: list[float] = []
    changing: Callable[[], Any] = collector._manifest.changing

    @contextmanager
    def timed() -> Iterator[Any]:
        with changing() as sql:
            began = time.perf_counter()
            yield sql
        holds.append(time.perf_counter() - began)

    collector._manifest.changing = timed  # type: ignore[method-assign, assignment]
    return holds


if __name__ == "__main__":
    evict(Path(sys.argv[1]))
