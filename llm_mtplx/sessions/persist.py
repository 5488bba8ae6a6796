"""States to and from the cold store: which arrays lie in which file.

Block [s, e) holds the attention rows s .. e-1 of every full-attention layer and the head's rows
s-1 .. e-2. A checkpoint at p holds the recurrent arrays, the hidden row p-1, and the rows from the
last block's end to p. Every array is [heads, rows, size] or as mlx-lm has it; all survive bit for
bit.

Runs on the engine's thread. What goes to the store's writer is a copy of the new rows only, owned
by nobody else, and the recurrent arrays, which nobody writes again; what comes from it is read
straight into the arrays of a new state.
"""

from collections.abc import Iterator, Sequence

import mlx.core as mx
import numpy as np

from ..architectures.mlx_lm_compat import ArraysCache, KVCache
from ..architectures.state import State
from ..coldstore import (
    BLOCK,
    BlockRows,
    Chain,
    CheckpointRole,
    CheckpointState,
    ColdStore,
    Found,
    Header,
    LayoutRefused,
    MissReason,
    Save,
    Section,
    SectionInfo,
)
from .layout import DTYPES, is_laid_out
from .session import Checkpoint
from .uninitialized import hollow

KINDS = {name: kind for kind, name in DTYPES.items()}
STREAM_S = 1.0  # of waiting for the disk at a turn's end, at most


def save_line(
    store: ColdStore,
    chain: Chain,
    state: State,
    checkpoint: Checkpoint,
    conversation: str | None,
    role: CheckpointRole = "tip",
) -> None:
    """Queue what the store lacks of the line up to ``checkpoint``. ``chain`` and ``state`` may
    reach beyond it.

    More than the queue holds streams through it. Where the disk is too slow for that the rest is
    left to the next turn, so that the next prompt need not wait.
    """
    position = checkpoint.position
    patience = STREAM_S
    for queued in save_blocks(store, chain, state, position, STREAM_S / 10):
        patience -= 0 if queued else STREAM_S / 10
        if patience <= 0:
            store.not_kept("backlog_full", "the disk is slow; the next turn writes the rest")
            return
    sections = [
        *_rows(state, position // BLOCK * BLOCK, position),
        *(
            _whole_section(f"recurrent {layer}.{slot}", array)
            for layer, arrays in enumerate(checkpoint.recurrent)
            for slot, array in enumerate(arrays)
        ),
        _whole_section("hidden", checkpoint.hidden),
    ]
    store.wait_for_room(sum(section.nbytes for section in sections), patience)
    store.save(Save(chain, [], CheckpointState(position, sections), conversation, role))


def save_blocks(
    store: ColdStore, chain: Chain, state: State, position: int, wait_s: float = 0.0
) -> Iterator[bool]:
    """Queue the whole blocks before ``position`` that the store lacks, one at each step.

    A step gives False where there is nothing to do yet: the state has not come to the end of the
    next block, or there was no room for it for ``wait_s`` seconds.
    """
    for start in store.missing(chain):
        end = start + BLOCK
        if end > position:
            return
        while state.position < end:
            yield False
        rows = BlockRows(start, _block_sections(state, start))
        nbytes = sum(section.nbytes for section in rows.sections)
        while not store.wait_for_room(nbytes, wait_s):
            yield False
        store.save(Save(chain, [rows]))
        yield True


def _block_sections(state: State, start: int) -> list[Section]:
    return _rows(state, start, start + BLOCK)


def _rows(state: State, start: int, end: int) -> list[Section]:
    caches = [(f" {index}", cache, start, end) for index, cache in _attention(state)]
    if state.head_cache is not None:
        caches.append((" head", state.head_cache, max(start - 1, 0), end - 1))
    return [
        _row_section(name + which, array, first, last)
        for which, cache, first, last in caches
        if first < last
        for name, array in (("keys", cache.keys), ("values", cache.values))
    ]


def _attention(state: State) -> list[tuple[int, KVCache]]:
    return [(i, cache) for i, cache in enumerate(state.cache) if isinstance(cache, KVCache)]


def _row_section(name: str, array: mx.array, first: int, last: int) -> Section:
    """A copy of some rows, never a view: the session goes on writing into the array."""
    rows = _host(array)[0, :, first:last]
    return Section(name, DTYPES[array.dtype], rows.shape, [rows.tobytes()])


def _whole_section(name: str, array: mx.array) -> Section:
    """An array that is never written again, so that it can be shared."""
    whole = mx.contiguous(array)
    mx.eval(whole)
    return Section(name, DTYPES[whole.dtype], tuple(whole.shape), [_host(whole).data.cast("B")])


def _is_whole(name: str) -> bool:
    return name == "hidden" or name.startswith("recurrent ")


def _host(array: mx.array) -> np.ndarray:
    """The array's own memory. bfloat16, which numpy lacks, as uint16."""
    # Looking at other bits of the same memory copies nothing.
    return np.array(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array, copy=False)


class Reader:
    """Reads a found line into a new state."""

    def __init__(self, empty: State, position: int) -> None:
        self._state = empty
        self._capacity = position + empty.spare_rows(position)
        self._arrays: dict[str, mx.array] = {}
        self._hosts: dict[str, np.ndarray] = {}

    def place(self, header: Header) -> list[memoryview] | None:
        """Where the sections of a file go; None where there is no place for them. Raises
        LayoutRefused where they are not what this model keeps."""
        shapes = self._state.shapes
        if shapes is not None and not is_laid_out(header, shapes()):
            raise LayoutRefused
        try:
            self._make_room(header)
            return [view for s in header.sections for view in self._buffers(s, header)]
        except (KeyError, ValueError, IndexError):
            return None

    def _make_room(self, header: Header) -> None:
        """Arrays for all sections that are the first of their name."""
        new = {
            s.name: (self._shape(s), KINDS[s.dtype])
            for s in header.sections
            if s.name not in self._hosts
        }
        arrays = hollow(new)
        self._arrays.update(arrays)
        self._hosts.update((name, _host(array)) for name, array in arrays.items())

    def _shape(self, section: SectionInfo) -> tuple[int, ...]:
        if _is_whole(section.name):
            return tuple(section.shape)
        heads, _, size = section.shape
        return (1, heads, self._capacity, size)

    def _buffers(self, section: SectionInfo, header: Header) -> list[memoryview]:
        host = self._hosts[section.name]
        if host.shape != self._shape(section) or self._kind(section) != section.dtype:
            raise ValueError("two files differ in shape")
        if _is_whole(section.name):
            return [host.data.cast("B")]
        heads, rows, _ = section.shape
        last = header.end - 1 if section.name.endswith(" head") else header.end
        first = last - rows
        if first < 0 or last > self._capacity:
            raise ValueError("rows outside the state")
        return [host[0, h, first:last].data.cast("B") for h in range(heads)]

    def _kind(self, section: SectionInfo) -> str:
        return DTYPES[self._arrays[section.name].dtype]

    def state(self, ids: list[int]) -> tuple[State, Checkpoint]:
        """The state after a read that ended at ``len(ids)``. Raises KeyError if parts lack."""
        state, position = self._state, len(ids)
        layer = 0
        for index, cache in enumerate(state.cache):
            if isinstance(cache, KVCache):
                self._fill(cache, f"keys {index}", f"values {index}", position)
            elif isinstance(cache, ArraysCache):
                cache.cache = [self._arrays[f"recurrent {layer}.{slot}"] for slot in range(2)]
                layer += 1
        if state.head_cache is not None and position > 1:
            self._fill(state.head_cache, "keys head", "values head", position - 1)
        state.ids = ids
        state.hidden = self._arrays["hidden"]
        mx.eval(state.arrays())
        return state, Checkpoint.of(state)

    def _fill(self, cache: KVCache, keys: str, values: str, rows: int) -> None:
        cache.keys, cache.values, cache.offset = self._arrays[keys], self._arrays[values], rows


def read_line(
    store: ColdStore, found: Found, ids: Sequence[int], empty: State, note_use: bool = True
) -> tuple[tuple[State, Checkpoint] | None, MissReason | None]:
    """The state at the deepest position of ``found`` whose files are all good, and why it is not
    deeper."""
    reader = Reader(empty, found.position)
    restored = store.read(found, reader.place, note_use=note_use)
    if restored.position == 0:
        return None, restored.reason
    return reader.state(list(ids[: restored.position])), restored.reason


def worth_keeping(state: State, position: int, minimum: int | None) -> bool:
    """Whether reading a line of ``position`` tokens back beats reading its text again: the
    recurrent part of ``state`` weighs as much as many tokens' rows. ``minimum`` tokens where the
    user has set it."""
    if minimum is None:
        caches = [cache for _, cache in _attention(state)]
        if state.head_cache is not None and state.head_cache.keys is not None:
            caches.append(state.head_cache)
        per_token = sum((c.keys.nbytes + c.values.nbytes) // c.keys.shape[2] for c in caches)
        recurrent = [array for c in state.cache if isinstance(c, ArraysCache) for array in c.cache]
        fixed = sum(int(array.nbytes) for array in recurrent)
        minimum = max(48, fixed // max(per_token, 1) // 4)
    return position >= minimum
