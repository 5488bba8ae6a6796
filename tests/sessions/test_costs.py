"""What going on with a session costs in bytes: copied, allocated, written. No clock is read."""

import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from llm_mtplx.architectures.mlx_lm_compat import ArraysCache, GrowingKVCache, spare_rows
from llm_mtplx.architectures.state import State
from llm_mtplx.coldstore import BLOCK, ColdStore, keys
from llm_mtplx.coldstore.keys import Chain
from llm_mtplx.sessions.bank import Bank
from llm_mtplx.sessions.persist import read_line, save_line
from llm_mtplx.sessions.session import Checkpoint, Session

from ..dictated import LIMITS
from .talk import Clock

HEADS, WIDTH = 4, 256
TOKEN_BYTES = 2 * 2 * HEADS * WIDTH * 2  # keys and values of one layer and the head, bfloat16
STATE_SHAPE = (1, 16, 64, 128)
TURN = 300
TIMEOUT_S = 60.0


def rows(count: int) -> mx.array:
    return mx.random.normal((1, HEADS, count, WIDTH)).astype(mx.bfloat16)


def empty() -> State:
    return State([ArraysCache(size=2), GrowingKVCache()], GrowingKVCache())


def forwarded(state: State, count: int) -> State:
    """As after a forward of ``count`` more tokens."""
    attention = state.cache[1]
    for cache, new in ((attention, count), (state.head_cache, count - (not state.ids))):
        cache.update_and_fetch(rows(new), rows(new))
    state.cache[0].cache = [mx.random.normal((1, 3, 64)), mx.random.normal(STATE_SHAPE)]
    state.hidden = mx.random.normal((1, 1, 64))
    state.ids = [i * 7919 % 1000 for i in range(state.position + count)]
    mx.eval(state.arrays())
    return state


def without_spare_rows(state: State) -> State:
    for cache in (state.cache[1], state.head_cache):
        cache.keys, cache.values = (mx.contiguous(x) + 0 for x in cache.keys_and_values())
    mx.eval(state.arrays())
    return state


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ColdStore]:
    opened = ColdStore(tmp_path)
    yield opened
    opened.close(TIMEOUT_S)


def saved(store: ColdStore, state: State) -> None:
    save_line(store, Chain("f", state.ids), state, Checkpoint.of(state), "c")
    assert store.flush(TIMEOUT_S)


def restored(store: ColdStore, ids: list[int]) -> State:
    line, reason = read_line(store, store.lookup("f", ids), ids, empty())
    assert line is not None, reason
    return line[0]


def from_ram(state: State, store: ColdStore) -> State:
    bank = Bank(LIMITS, Clock())
    bank.give_back(Session("m", "c", state, [Checkpoint.of(state)]))
    taken = bank.take("m", [*state.ids, 5], "c", set(), empty).session.state
    assert taken is state
    return taken


def copied(state: State, store: ColdStore) -> State:
    bank = Bank(LIMITS, Clock())
    session = Session("m", "c", forwarded(state, 20), [Checkpoint.of(state)])
    session.checkpoints[0] = Checkpoint(600, session.checkpoints[0].recurrent, state.hidden)
    bank.give_back(session)
    taken = bank.take("m", [*state.ids[:600], 5], "d", set(), empty).session.state
    assert taken is not state
    return taken


def from_ssd(state: State, store: ColdStore) -> State:
    saved(store, state)
    return restored(store, state.ids)


def addresses(state: State) -> list[int]:
    caches = (state.cache[1], state.head_cache)
    arrays = [array for cache in caches for array in (cache.keys, cache.values)]
    return [np.array(array.view(mx.uint16), copy=False).ctypes.data for array in arrays]


@pytest.mark.parametrize("position", [600, 3 * BLOCK])
@pytest.mark.parametrize("way", [from_ram, copied, from_ssd])
def test_the_first_write_copies_nothing(
    store: ColdStore, way: Callable[[State, ColdStore], State], position: int
) -> None:
    state = way(without_spare_rows(forwarded(empty(), position)), store)
    before = addresses(state)
    for cache in (state.cache[1], state.head_cache):
        cache.update_and_fetch(rows(1), rows(1))
    mx.eval(state.arrays())
    assert addresses(state) == before


def test_a_resting_session_grows_by_one_step_at_most() -> None:
    position = 3 * BLOCK
    state = without_spare_rows(forwarded(empty(), position))
    before = sum(array.nbytes for array in state.arrays())
    bank = Bank(LIMITS, Clock())
    bank.give_back(Session("m", "c", state, [Checkpoint.of(state)]))
    grown = sum(array.nbytes for array in state.arrays()) - before
    assert 0 < grown <= spare_rows(position) * TOKEN_BYTES
    bank.give_back(bank.take("m", [*state.ids, 5], "c", set(), empty).session)
    assert sum(array.nbytes for array in state.arrays()) - before == grown


def test_a_turn_writes_its_rows_one_block_and_one_state(store: ColdStore) -> None:
    """At 32 lengths spread over a block: 300 tokens a turn, 44 further in it every time."""
    state = forwarded(empty(), 2 * BLOCK)
    saved(store, state)
    ends = set()
    for _ in range(32):
        forwarded(state, TURN)
        before = store.report()
        saved(store, state)
        after = store.report()
        allowed = (TURN + BLOCK) * TOKEN_BYTES + Checkpoint.of(state).nbytes
        assert after.written_bytes - before.written_bytes <= 1.02 * allowed
        assert after.written_files - before.written_files <= 10
        ends.add(state.position % BLOCK)
    assert len(ends) == 32


def allocated(job: Callable[[], object]) -> int:
    """Peak bytes that MLX, numpy and Python have taken meanwhile."""
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    tracemalloc.start()
    try:
        job()
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return taken + max(0, mx.get_peak_memory() - before)


def test_handing_a_turn_over_takes_memory_for_its_rows_alone(store: ColdStore) -> None:
    taken = {}
    for blocks in (4, 40):
        state = forwarded(empty(), blocks * BLOCK)
        state.ids = [blocks, *state.ids[1:]]
        saved(store, state)
        first = state.ids[0]
        forwarded(state, TURN)
        state.ids[0] = first
        checkpoint = Checkpoint.of(state)
        taken[blocks] = allocated(
            lambda s=state, c=checkpoint: save_line(store, Chain("f", s.ids), s, c, "c")
        )
        assert BLOCK * TOKEN_BYTES // 2 <= taken[blocks] <= (TURN + 2 * BLOCK) * TOKEN_BYTES
        assert store.flush(TIMEOUT_S)
    # Ten times the session: its ids and keys, none of its rows.
    assert taken[40] - taken[4] < BLOCK * TOKEN_BYTES / 2


def test_restoring_takes_the_states_own_memory(store: ColdStore) -> None:
    state = forwarded(empty(), 40 * BLOCK)
    saved(store, state)
    nbytes = state.position * TOKEN_BYTES + Checkpoint.of(state).nbytes
    ids = state.ids
    assert allocated(lambda: restored(store, ids)) <= 1.15 * nbytes


def test_a_line_is_hashed_once_however_many_blocks_are_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save takes a chain of keys and a range; hashing anew for each block costs the square."""
    hashed: list[int] = []
    original = keys.block_key

    def counted(parent: bytes, ids: bytes) -> bytes:
        hashed.append(1)
        return original(parent, ids)

    monkeypatch.setattr(keys, "block_key", counted)
    store = ColdStore(tmp_path)
    blocks = 12
    state = forwarded(empty(), blocks * BLOCK + 5)
    save_line(store, Chain("f", state.ids), state, Checkpoint.of(state), "c")
    assert len(hashed) == blocks
    assert store.flush(TIMEOUT_S)
    store.close(TIMEOUT_S)
