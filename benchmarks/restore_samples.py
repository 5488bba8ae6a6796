"""One measurement of the restore benchmark each, made for a process of its own."""

import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx

from llm_mtplx.architectures.mlx_lm_compat import spare_rows
from llm_mtplx.coldstore import BLOCK, ColdStore
from llm_mtplx.coldstore.index.manifest import BlockRow, CheckpointRow
from llm_mtplx.coldstore.keys import Chain
from llm_mtplx.sessions.bank import Bank, BankLimits
from llm_mtplx.sessions.keeper import Keeper, Persistence
from llm_mtplx.sessions.session import Checkpoint, Session

from . import shape27b
from .stores import FINGERPRINT, WAIT_S, Ours, open_store

TURN = 300  # tokens
MB = 1e6


def save(name: str, folder: Path, package: Path | None, tokens: int, turn: bool) -> dict[str, Any]:
    """A conversation is saved for the first time, and again after a turn of 300 tokens."""
    state = shape27b.build(tokens - TURN if turn else tokens)
    store = open_store(name, folder, package)
    told: dict[str, Any] = {"first_save_s": _seconds(lambda: store.save(state))}
    if turn:
        state.reserve()
        shape27b.extend(state, TURN)
        before = _files(folder)
        active = mx.get_active_memory()
        mx.reset_peak_memory()
        seconds = _seconds(lambda: store.save(state))
        allocated = max(0, mx.get_peak_memory() - active) / MB
        told["turn"] = {"s": seconds, "mlx_allocated_mb": allocated}
        told["turn"] |= _written(before, _files(folder))
    return told


def load(name: str, folder: Path, package: Path | None, tokens: int) -> dict[str, Any]:
    """From opening the store to evaluated arrays; and how much memory that took."""
    ids = shape27b.token_ids(tokens)
    open_store(name, folder / "warm-up", package)  # imports
    held: list[mx.array] = []
    before = _peak_rss()
    seconds = _seconds(lambda: held.extend(open_store(name, folder, package).load(ids)))
    # Without spare rows, which take address space, not memory.
    fixed = sum(int(array.nbytes) for array in held if array.ndim != 4 or array.shape[1] == 48)
    state = fixed + tokens * shape27b.TOKEN_BYTES
    return {"s": seconds, "rss_ratio": (_peak_rss() - before) / state, "state_mb": state / MB}


def ram(folder: Path, tokens: int, turns: int = 5) -> dict[str, Any]:
    """A session rests in the bank without a row to spare, is taken out and written to.

    The store knows the same line, and nothing deeper.
    """
    state = shape27b.build(tokens)
    store = ColdStore(folder)
    _make_known(store, state.ids)
    bank = Bank(BankLimits(2**50, 2**50, 9, 0), time.monotonic)
    persistence = Persistence(store, lambda: FINGERPRINT, min_tokens=None)
    keeper = Keeper(bank, "m", lambda ids: None, None, persistence)
    session = Session("m", "a", state, [Checkpoint.of(state)])
    row = shape27b.one_row()
    before = mx.get_active_memory()
    resting = 1000 * _seconds(lambda: keeper.give_back(session, None, "on"))
    spent = []
    for _ in range(turns):
        prompt = [*state.ids, 5]
        started = time.perf_counter()
        taken = keeper.take(prompt, "a", set(), shape27b.empty, "on", persist=True)
        shape27b.write_one_row(taken.loan.session.state, row)
        spent.append(1000 * (time.perf_counter() - started))
        assert taken.loan.session is session and taken.loan.position == state.position - 1
        session.checkpoints.append(Checkpoint.of(state))
        keeper.give_back(session, None, "on")
    steps = [1000 * _seconds(lambda: shape27b.write_one_row(state, row)) for _ in range(20)]
    store.close(WAIT_S)
    return {
        "restore_and_write_ms": spent[0],
        "again_ms": statistics.median(spent[1:]),
        "step_ms": statistics.median(steps),
        "growing_at_rest_ms": resting,
        "grown_mb": (mx.get_active_memory() - before) / MB,
        "growth_step_mb": spare_rows(tokens) * shape27b.TOKEN_BYTES / MB,
    }


def turns(folder: Path, count: int = 32) -> dict[str, Any]:
    """Turns of 300 tokens, whose ends are spread over a block, against what they may write."""
    state = shape27b.build(4 * BLOCK)
    store = Ours(folder)
    store.save(state)
    shares, files = [], []
    for _ in range(count):
        state.reserve()
        shape27b.extend(state, TURN)
        before = _files(folder)
        store.save(state)
        told = _written(before, _files(folder))
        allowed = (TURN + BLOCK) * shape27b.TOKEN_BYTES + Checkpoint.of(state).nbytes
        shares.append(told["mb"] * MB / allowed)
        files.append(told["files"])
    return {"turns": count, "largest_share": max(shares), "most_files": max(files)}


def many_conversations(folder: Path, conversations: int = 100, tokens: int = 100_000) -> None:
    store = ColdStore(folder)
    for number in range(conversations):
        _make_known(store, shape27b.token_ids(tokens, number))
    store.close(WAIT_S)


def _make_known(store: ColdStore, ids: list[int]) -> None:
    """Rows of the manifest without their files, which a lookup does not read."""
    store._root.create()
    chain, blocks = Chain(FINGERPRINT, ids), len(ids) // BLOCK
    rows: list[BlockRow | CheckpointRow] = [
        BlockRow(chain.key(i + 1), chain.key(i), i * BLOCK, 1) for i in range(blocks)
    ]
    rows.append(CheckpointRow(chain.checkpoint(len(ids)), chain.key(blocks), len(ids), 1, 0))
    store._manifest.add_found(rows, [])


def lookup(folder: Path, tokens: int = 100_000) -> dict[str, Any]:
    """Prompts of which nothing is stored, and one that parts in the middle."""
    unknown, known = shape27b.token_ids(tokens, 10**6), shape27b.token_ids(tokens, 3)
    parted = [*known[: tokens // 2], *unknown[: tokens // 2]]
    store = ColdStore(folder)
    miss = lambda ids: 1000 * _seconds(lambda: store.lookup(FINGERPRINT, ids))  # noqa: E731
    told = {"first_ms": miss(unknown), "next_ms": miss(unknown), "half_known_ms": miss(parted)}
    assert store.lookup(FINGERPRINT, parted).reason == "no_checkpoint"
    assert store.lookup(FINGERPRINT, known).position == tokens
    store.close(WAIT_S)
    return told


def _seconds(job: Callable[[], Any]) -> float:
    started = time.perf_counter()
    job()
    return time.perf_counter() - started


def _peak_rss() -> int:
    told = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return told if sys.platform == "darwin" else told * 1024


def _files(folder: Path) -> dict[tuple[str, int], int]:
    files = [(p, p.stat()) for p in folder.rglob("*") if p.is_file()]
    return {(str(path), told.st_ino): told.st_size for path, told in files}


def _written(before: dict[tuple[str, int], int], after: dict[tuple[str, int], int]) -> dict:
    """New files, and what old ones grew by: no store here writes over its data in place."""
    grown = {file: size - before.get(file, 0) for file, size in after.items()}
    return {"mb": sum(grown.values()) / MB, "files": len(after.keys() - before.keys())}
