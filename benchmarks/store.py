"""The store on SSD: opening it, packing and unpacking, and what a conversation writes.

    uv run python -m benchmarks.store --out benchmarks/results/store.json

Arrays have the 27B model's shape: 16 attention layers and a head's of 4 heads by 256 in bfloat16,
48 recurrent states of 3.2 MB; their values are normally distributed. A conversation of 10 turns
of 800 tokens is kept in three ways: in this store; with mlx-lm's ``save_prompt_cache`` after every
turn; and, where ``--peer`` names the folder into which ``pip install --no-deps --target`` has put
``mtplx``, in its cold tier, with one boundary a turn. Bytes are those of the files found on disk:
a file that is new or was written anew after a turn counts whole.
"""

import argparse
import importlib.metadata
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import ArraysCache, KVCache, save_prompt_cache

from llm_mtplx.coldstore import (
    BLOCK,
    BlockRows,
    CheckpointState,
    ColdStore,
    Save,
    Section,
    StoreLimits,
)
from llm_mtplx.coldstore.codec import pack, unpack
from llm_mtplx.coldstore.format import Header, SectionInfo
from llm_mtplx.coldstore.index.manifest import BlockRow, CheckpointRow
from llm_mtplx.coldstore.keys import Chain

from .decode import machine
from .removal import eviction, garbage

LAYERS, HEADS, WIDTH, RECURRENT = 16, 4, 256, 48
STATES = {"conv": ("bfloat16", (1, 3, 10240)), "state": ("float32", (1, 48, 128, 128))}
FINGERPRINT = "27b"
TURNS, TURN = 10, 800
LINE_TOKENS, CONVERSATIONS = 100_000, 100
EVERYTHING = -10.0  # seconds of idleness that all has
UNLIMITED = StoreLimits(free_floor_bytes=0, write_budget_bytes=1 << 60, max_bytes=1 << 60)
DTYPES = {"bfloat16": mx.bfloat16, "float32": mx.float32}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--dir", type=Path, help="where to write; several GB are needed")
    parser.add_argument("--peer", type=Path, help="folder that holds the mtplx package")
    parser.add_argument("--parts", nargs="+", help="the others stay as --out has them")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--contenders", nargs="+", help="llm-mtplx, save_prompt_cache, mtplx")
    args = parser.parse_args()
    base = Path(tempfile.mkdtemp(dir=args.dir))
    parts: dict[str, Callable[[], Any]] = {
        "opening": lambda: opening(base / "opening"),
        "codec": codec,
        "conversation": lambda: conversations(base, args.turns, args.peer, args.contenders),
        "eviction": lambda: eviction(base / "eviction"),
        "garbage": lambda: garbage(base / "garbage"),
    }
    report: dict[str, Any] = {"machine": machine()}
    if args.parts and args.out and args.out.exists():
        report = json.loads(args.out.read_text())
        assert report["machine"] == machine(), "results of one machine stand in one file"
    try:
        for part in args.parts or parts:
            report[part] = parts[part]()
            print(part, json.dumps(report[part], indent=1), flush=True)
    finally:
        shutil.rmtree(base)
    if args.out:
        args.out.write_text(json.dumps(report, indent=1) + "\n")


def opening(cache_dir: Path) -> dict[str, Any]:
    """From making the store to the answer of its first lookup, with much in it."""
    store = ColdStore(cache_dir, UNLIMITED)
    store._root.create()
    for number in range(CONVERSATIONS):
        chain = Chain(FINGERPRINT, tokens(LINE_TOKENS, number))
        whole = LINE_TOKENS // BLOCK
        rows: list[BlockRow | CheckpointRow] = [
            BlockRow(chain.key(i + 1), chain.key(i), i * BLOCK, 1) for i in range(whole)
        ]
        end = chain.checkpoint(LINE_TOKENS)
        rows.append(CheckpointRow(end, chain.key(whole), LINE_TOKENS, 1, 0))
        store._manifest.add_found(rows, [])
    store._manifest.rebuilt()
    store.close(60)
    known, unknown = tokens(LINE_TOKENS, 3), tokens(LINE_TOKENS, 10**6)
    asked = {"known": known, "half_known": [*known[:50_000], *unknown[:50_000]], "unknown": unknown}
    took: dict[str, list[float]] = {name: [] for name in asked}
    for _ in range(7):
        for name, ids in asked.items():
            began = time.perf_counter()
            store = ColdStore(cache_dir, UNLIMITED)
            found = store.lookup(FINGERPRINT, ids)
            took[name].append(time.perf_counter() - began)
            assert found.position == (LINE_TOKENS if name == "known" else 0)
            store.close(60)
    return {
        "conversations": CONVERSATIONS,
        "tokens_each": LINE_TOKENS,
        "open_and_lookup_ms": {
            name: round(1000 * statistics.median(values), 2) for name, values in took.items()
        },
    }


def codec() -> dict[str, Any]:
    """One core, in memory, against copying the same bytes."""
    rng = np.random.default_rng(1)
    shape = (HEADS, BLOCK, WIDTH)
    names = [f"{part} {layer}" for layer in [*range(LAYERS), "head"] for part in ("keys", "values")]
    infos = [SectionInfo(name=name, dtype="bfloat16", shape=list(shape)) for name in names]
    ids = tokens(BLOCK, 1)
    chain = Chain(FINGERPRINT, ids)
    header = Header(
        kind="block",
        key=chain.key(1).hex(),
        parent=chain.key(0).hex(),
        start=0,
        end=BLOCK,
        ids=ids,
        sections=infos,
    )
    values = rng.standard_normal(header.body_bytes // 2, np.float32)
    body = memoryview((values.view(np.uint32) >> 16).astype(np.uint16)).cast("B")
    packed = pack(header, body)
    assert packed is not None
    stored = memoryview(b"".join(packed[1]))
    target = memoryview(bytearray(body.nbytes))

    def unpack_all() -> None:
        at = start = 0
        for section in packed[0].sections:
            part = stored[at : at + section.stored_bytes]
            rows = target[start : start + section.nbytes]
            each = len(rows) // HEADS
            unpack(section, part, [rows[h * each : (h + 1) * each] for h in range(HEADS)])
            at += section.stored_bytes
            start += section.nbytes

    def copy() -> None:
        target[:] = body

    rates = {
        name: round(body.nbytes / seconds(action) / 1e9, 2)
        for name, action in (
            ("copy", copy),
            ("pack", lambda: pack(header, body)),
            ("unpack", unpack_all),
        )
    }
    unpack_all()
    assert target == body
    return {
        "block_bytes": body.nbytes,
        "packed_share": round(stored.nbytes / body.nbytes, 3),
        "gb_per_s": rates,
    }


def seconds(action: Callable[[], object], repeats: int = 15) -> float:
    took = []
    for _ in range(repeats):
        began = time.perf_counter()
        action()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def conversations(
    base: Path, turns: int, peer: Path | None, chosen: list[str] | None
) -> dict[str, Any]:
    contenders: dict[str, Callable[[Path, int], dict[str, Any]]] = {
        "llm-mtplx": ours,
        "save_prompt_cache": prompt_cache,
    }
    report: dict[str, Any] = {"turns": turns, "tokens": turns * TURN}
    if peer is not None:
        sys.path.insert(0, str(peer))
        contenders["mtplx"] = peer_tier
        (found,) = importlib.metadata.distributions(name="mtplx", path=[str(peer)])
        report["mtplx_version"] = found.version
    for name in chosen or contenders:
        run = contenders[name]
        report[name] = run(base / name, turns)
        shutil.rmtree(base / name)
    return report


class Disk:
    """What was written below a directory, told from its files after every turn."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: dict[Path, tuple[int, int, int]] = {}
        self.written = 0

    def look(self) -> None:
        now = {}
        for path in self._files():
            status = path.stat()
            now[path] = (status.st_ino, status.st_mtime_ns, status.st_size)
            if now[path] != self._seen.get(path) and "sqlite" not in path.name:
                self.written += status.st_size
        self._seen = now

    def told(self) -> dict[str, int]:
        sizes = [path.stat().st_size for path in self._files()]
        return {"written_bytes": self.written, "kept_bytes": sum(sizes), "files": len(sizes)}

    def _files(self) -> Iterator[Path]:
        return (path for path in self._path.rglob("*") if path.is_file())


def ours(cache_dir: Path, turns: int) -> dict[str, Any]:
    disk, took = Disk(cache_dir), []
    limits = StoreLimits(
        free_floor_bytes=0, write_budget_bytes=1 << 60, max_bytes=1 << 60, grace_s=0.0
    )
    store = ColdStore(cache_dir, UNLIMITED)
    ids = tokens(turns * TURN, 1)
    for turn in range(1, turns + 1):
        line = ids[: turn * TURN]
        states = [section(f"recurrent {i}", array) for i, array in enumerate(recurrent())]
        tail = len(line) % BLOCK
        blocks = [BlockRows(s, kv(BLOCK)) for s in store.missing(Chain(FINGERPRINT, line))]
        state = CheckpointState(len(line), [*(kv(tail) if tail else []), *states])
        began = time.perf_counter()
        assert store.save(Save(Chain(FINGERPRINT, line), blocks, state, "talk")) is None
        assert store.flush(600)
        took.append(time.perf_counter() - began)
        disk.look()
    assert store.report().drops == {}
    assert store.close(60)
    report: dict[str, Any] = {"turn_s": round(statistics.median(took), 2), **disk.told()}
    store = ColdStore(cache_dir, limits)
    store.tend()  # superseded states go: after ten minutes, if it were not told 0
    store._background.join(600)
    report["kept_after_upkeep"] = kept(disk)
    began = time.perf_counter()
    assert store.compact(EVERYTHING).finished
    report["compaction_s"] = round(time.perf_counter() - began, 2)
    disk.look()
    report["kept_when_idle"] = kept(disk)
    report["written_by_compaction_bytes"] = disk.written - report["written_bytes"]
    assert store.lookup(FINGERPRINT, ids).position == len(ids)
    assert store.close(60)
    return report


def kept(disk: Disk) -> dict[str, int]:
    told = disk.told()
    return {name: told[name] for name in ("kept_bytes", "files")}


def prompt_cache(cache_dir: Path, turns: int) -> dict[str, Any]:
    disk, took = Disk(cache_dir), []
    cache_dir.mkdir()
    caches = mlx_caches()
    for _ in range(turns):
        a_turn(caches)
        began = time.perf_counter()
        save_prompt_cache(str(cache_dir / "cache.safetensors"), caches)
        took.append(time.perf_counter() - began)
        disk.look()
    return {"turn_s": round(statistics.median(took), 2), **disk.told()}


def peer_tier(cache_dir: Path, turns: int) -> dict[str, Any]:
    from mtplx.cache_bank.cold_tier import SessionBankColdTier
    from mtplx.cache_state import CacheSnapshot

    def snapshot(caches: list[Any]) -> Any:
        # The rows in use, without the room behind them.
        states = tuple(
            (cache.keys[..., : cache.offset, :], cache.values[..., : cache.offset, :])
            if isinstance(cache, KVCache)
            else list(cache.cache)
            for cache in caches
        )
        return CacheSnapshot(states, tuple(None for _ in caches))

    disk, took = Disk(cache_dir), []
    tier = SessionBankColdTier(base_dir=cache_dir, mode="on", max_bytes=1 << 40)
    caches, ids = mlx_caches(), tokens(turns * TURN, 1)
    hidden = mx.random.normal((1, 1, 5120)).astype(mx.bfloat16)
    for turn in range(1, turns + 1):
        boundaries = [ArraysCache(2) for _ in range(RECURRENT)]  # within the prompt: no turn's end
        a_turn(boundaries)
        a_turn(caches)
        shot = snapshot(caches[:-1])
        entry = SimpleNamespace(
            token_ids=tuple(ids[: turn * TURN]),
            session_id="talk",
            model_path=FINGERPRINT,
            mtp_enabled=True,
            cache_snapshot=shot,
            logits=mx.zeros((1, 1, 248_320), mx.bfloat16),
            hidden=hidden,
            mtp_history_snapshot=snapshot(caches[-1:]),
            gdn_boundaries=[(turn * TURN - 64, snapshot(boundaries), hidden)],
            has_recurrent=True,
            snapshot_epoch=turn * TURN,
            mtp_snapshot_epoch=turn * TURN,
            nbytes=sum(cache.nbytes for cache in caches),
        )
        began = time.perf_counter()
        assert tier.put_entry(entry), tier.stats()["last_write_skip"]
        assert tier.flush(timeout_s=600)
        took.append(time.perf_counter() - began)
        assert tier.is_published(entry)
        disk.look()
    tier.close()
    return {"turn_s": round(statistics.median(took), 2), **disk.told()}


def tokens(count: int, seed: int) -> list[int]:
    return [(i * 7919 + seed * 104_729) % 248_320 for i in range(count)]


def mlx_caches() -> list[Any]:
    """Recurrent layers' caches, attention layers', and the head's last."""
    return [*(ArraysCache(2) for _ in range(RECURRENT)), *(KVCache() for _ in range(LAYERS + 1))]


def a_turn(caches: list[Any]) -> None:
    for cache in caches:
        if isinstance(cache, KVCache):
            cache.update_and_fetch(*(normal((1, HEADS, TURN, WIDTH)) for _ in range(2)))
            mx.eval(cache.keys, cache.values)
        else:
            cache.cache = [normal(shape, dtype) for dtype, shape in STATES.values()]
            mx.eval(cache.cache)


def kv(rows: int) -> list[Section]:
    return [
        section(f"{part} {layer}", normal((HEADS, rows, WIDTH)))
        for layer in [*range(LAYERS), "head"]
        for part in ("keys", "values")
    ]


def recurrent() -> Iterator[mx.array]:
    for _ in range(RECURRENT):
        for dtype, shape in STATES.values():
            yield normal(shape, dtype)


def normal(shape: tuple[int, ...], dtype: str = "bfloat16") -> mx.array:
    return mx.random.normal(shape).astype(DTYPES[dtype])


def section(name: str, array: mx.array) -> Section:
    raw = np.array(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array)
    dtype = "bfloat16" if array.dtype == mx.bfloat16 else "float32"
    return Section(name, dtype, tuple(array.shape), [memoryview(raw).cast("B")])


if __name__ == "__main__":
    main()
