"""Ways to keep a state on disk: this package's, mlx-lm's one file, and the mtplx package's."""

import os
import sys
from pathlib import Path
from typing import Any, Protocol

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, KVCache, load_prompt_cache, save_prompt_cache

from llm_mtplx.architectures.state import State
from llm_mtplx.coldstore import ColdStore
from llm_mtplx.coldstore.keys import Chain
from llm_mtplx.sessions.persist import read_line, save_line
from llm_mtplx.sessions.session import Checkpoint

from . import shape27b

FINGERPRINT = "27b"
IDENTITY: dict[str, Any] = {"model_path": "27b", "mtp_enabled": True}  # for the mtplx package
WAIT_S = 600.0


class Store(Protocol):
    def save(self, state: State) -> None:
        """Returns once everything is on disk."""

    def load(self, ids: list[int]) -> list[mx.array]:
        """All arrays of the state after ``ids``, evaluated."""


class Ours:
    def __init__(self, folder: Path) -> None:
        self.store = ColdStore(folder)

    def save(self, state: State) -> None:
        save_line(self.store, Chain(FINGERPRINT, state.ids), state, Checkpoint.of(state), "a")
        assert self.store.flush(WAIT_S)

    def load(self, ids: list[int]) -> list[mx.array]:
        found = self.store.lookup(FINGERPRINT, ids)
        assert found.position == len(ids), found.reason
        line, reason = read_line(self.store, found, ids, shape27b.empty())
        assert line is not None, reason
        return line[0].arrays()


class MlxLm:
    """``save_prompt_cache``: the whole state in one safetensors file, written anew every turn."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder

    def save(self, state: State) -> None:
        path = self.folder / f"{state.position}.safetensors"
        save_prompt_cache(str(path), plain_caches(state))
        with path.open("rb") as file:
            os.fsync(file.fileno())

    def load(self, ids: list[int]) -> list[mx.array]:
        arrays = []
        for cache in load_prompt_cache(str(self.folder / f"{len(ids)}.safetensors")):
            attends = isinstance(cache, KVCache)
            arrays += [cache.keys, cache.values] if attends else cache.cache
        mx.eval(arrays)
        return arrays


class Mtplx:
    """The cold tier of the ``mtplx`` package, which keeps a recurrent boundary with a turn."""

    def __init__(self, folder: Path, package: Path) -> None:
        if str(package) not in sys.path:
            sys.path.append(str(package))
        from mtplx.cache_bank.cold_tier import SessionBankColdTier

        self.tier = SessionBankColdTier(base_dir=folder, mode="on", max_bytes=2**36)

    def save(self, state: State) -> None:
        assert self.tier.put_entry(self._entry(state))
        assert self.tier.flush(timeout_s=WAIT_S)

    def _entry(self, state: State) -> Any:
        from mtplx.cache_state import snapshot_cache, snapshot_untrimmable_cache
        from mtplx.session_bank import SessionBankEntry, token_prefix_hash

        *trunk, head, _ = plain_caches(state)
        boundary = (state.position - 64, snapshot_untrimmable_cache(trunk), state.hidden)
        return SessionBankEntry(
            token_ids=tuple(state.ids),
            token_hash=token_prefix_hash(state.ids),
            **IDENTITY,
            hidden_variant=None,
            cache_snapshot=snapshot_cache(trunk),
            logits=mx.zeros((1, 248_320), mx.bfloat16),
            hidden=state.hidden,
            mtp_history_snapshot=snapshot_cache([head]),
            nbytes=shape27b.nbytes(state),
            session_id="a",
            snapshot_epoch=state.position,
            mtp_snapshot_epoch=state.position,
            has_recurrent=True,
            gdn_boundaries=[boundary],
        )

    def load(self, ids: list[int]) -> list[mx.array]:
        record = self.tier.lookup(ids, **IDENTITY)
        assert record is not None and len(record.token_ids) == len(ids), (
            self.tier.last_miss_reason()
        )
        arrays: list[mx.array] = []
        for snapshot in (record.cache_snapshot, record.mtp_history_snapshot):
            arrays += [array for state in snapshot.states for array in _arrays(state)]
        mx.eval(arrays, record.hidden)
        return [*arrays, record.hidden]


def plain_caches(state: State) -> list[Any]:
    """mlx-lm's own cache objects over the rows of a state: layers, head, hidden row."""
    caches: list[Any] = []
    for cache in [*state.cache, state.head_cache]:
        if isinstance(cache, KVCache):
            plain = KVCache()
            plain.keys, plain.values = (mx.contiguous(x) for x in cache.keys_and_values())
            plain.offset = cache.offset
        else:
            plain = ArraysCache(size=2)
            plain.cache = list(cache.cache)
        caches.append(plain)
    caches.append(ArraysCache(size=1))
    caches[-1].cache = [state.hidden]
    mx.eval([c.keys for c in caches if isinstance(c, KVCache)])
    return caches


def _arrays(tree: Any) -> list[mx.array]:
    if isinstance(tree, mx.array):
        return [tree]
    return [x for part in tree for x in _arrays(part)] if isinstance(tree, list | tuple) else []


def open_store(name: str, folder: Path, package: Path | None) -> Store:
    if name == "mtplx":
        assert package is not None, "say where the package is: --mtplx"
        return Mtplx(folder, package)
    return Ours(folder) if name == "ours" else MlxLm(folder)
