"""One line of exact token ids with its state and the positions it can go back to."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import mlx.core as mx
import numpy as np

from ..architectures.mlx_lm_compat import ArraysCache, KVCache, copy_with_room, spare_rows
from ..architectures.state import State


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The part of a state that cannot be cut, at one position.

    mlx-lm never writes recurrent arrays in place, so these are references, not copies.
    """

    position: int
    recurrent: tuple[tuple[mx.array, ...], ...]  # of each recurrent layer
    hidden: mx.array  # [1, 1, H], row position - 1

    @classmethod
    def of(cls, state: State) -> "Checkpoint":
        assert state.hidden is not None
        recurrent = tuple(tuple(c.cache) for c in state.cache if isinstance(c, ArraysCache))
        hidden = mx.contiguous(state.hidden)
        mx.eval(hidden, recurrent)
        return cls(state.position, recurrent, hidden)

    @property
    def nbytes(self) -> int:
        return sum(int(array.nbytes) for array in self.arrays)

    @property
    def arrays(self) -> list[mx.array]:
        return [self.hidden, *(array for layer in self.recurrent for array in layer)]


@dataclass(frozen=True)
class KnownTurn:
    """An answer as the model made it: the ids of its whole message and what they say."""

    message: str  # from <|im_start|> to <|im_end|>, as the ids decode
    ids: tuple[int, ...]
    said: tuple[str, str, str] | None  # text, reasoning and calls
    start: int  # where in the session's ids it began to be made, the answer header
    end: int  # position after its last id in the session; before start once it is left behind


@dataclass(eq=False)
class Session:
    model: str  # which loaded model the state belongs to
    conversation: str | None
    state: State
    checkpoints: list[Checkpoint] = field(default_factory=list)  # ascending positions
    turns: list[KnownTurn] = field(default_factory=list)
    asked: int = 0  # where the latest question ends, before the tool rounds that answer it
    pointer: str | None = None  # what the line was called when it was last kept on the SSD
    last_used: float = 0.0
    packed: np.ndarray | None = None  # the ids as the bank last compared them

    @property
    def ids(self) -> list[int]:
        return self.state.ids

    @property
    def nbytes(self) -> int:
        """Bytes of KV capacity and of all checkpoints; arrays that they share count once."""
        arrays = {id(a): int(a.nbytes) for a in self.state.arrays()}
        for checkpoint in self.checkpoints:
            arrays.update({id(a): int(a.nbytes) for a in checkpoint.arrays})
        return sum(arrays.values())

    def adopt(self, turns: Sequence[KnownTurn]) -> None:
        """Take answers over that the line holds and that came from elsewhere."""
        have = {turn.message for turn in self.turns}
        self.turns = [*(turn for turn in turns if turn.message not in have), *self.turns]

    def nbytes_at(self, checkpoint: Checkpoint) -> int:
        """Bytes of a copy of the line up to ``checkpoint``."""
        capacity = checkpoint.position + self.state.spare_rows(checkpoint.position)
        rows = sum(
            array.nbytes * capacity // array.shape[2]
            for cache in [*self.state.cache, self.state.head_cache]
            if isinstance(cache, KVCache) and cache.keys is not None
            for array in (cache.keys, cache.values)
        )
        return int(rows) + checkpoint.nbytes

    @property
    def last_header(self) -> int:
        """Where the answer to the latest question begins, with its tool rounds; the session's end
        where there is none."""
        return min(self.turns[-1].start, self.asked) if self.turns else len(self.ids)

    def cut_to(self, checkpoint: Checkpoint) -> None:
        """Forget checkpoints and places of answers that lie behind ``checkpoint``."""
        self.checkpoints = [c for c in self.checkpoints if c.position <= checkpoint.position]
        self.turns = [
            turn if turn.end <= checkpoint.position else replace(turn, end=-1)
            for turn in self.turns
        ]

    def deepest(self, limit: int) -> Checkpoint | None:
        """The deepest checkpoint at or before ``limit``."""
        reachable = [c for c in self.checkpoints if c.position <= limit]
        return reachable[-1] if reachable else None


def pack(ids: Sequence[int] | np.ndarray) -> np.ndarray:
    """Ids as an array, four times as fast as numpy makes one of a list."""
    return ids if isinstance(ids, np.ndarray) else np.array(array("I", ids))


def go_back(state: State, checkpoint: Checkpoint) -> None:
    """Cut ``state`` to the checkpoint, in place, also from the middle of a round that failed: its
    rows are in the caches, its ids not yet in the state."""
    recurrent = iter(checkpoint.recurrent)
    for cache in state.cache:
        if isinstance(cache, KVCache):
            cache.trim(cache.offset - checkpoint.position)
        else:
            cache.cache = list(next(recurrent))
    state.forget(checkpoint.position)
    state.hidden = checkpoint.hidden


def copy_to(state: State, checkpoint: Checkpoint, empty: State) -> State:
    """A state of its own at the checkpoint; ``state`` is not touched. ``empty`` is filled."""
    recurrent = iter(checkpoint.recurrent)
    for source, target in zip(state.cache, empty.cache, strict=True):
        if isinstance(source, KVCache):
            _copy_rows(source, target, checkpoint.position)
        else:
            target.cache = list(next(recurrent))
    if state.head_cache is not None and empty.head_cache is not None:
        _copy_rows(state.head_cache, empty.head_cache, checkpoint.position - 1)
    empty.ids = state.ids[: checkpoint.position]
    empty.hidden = checkpoint.hidden
    mx.eval(empty.arrays())
    return empty


def _copy_rows(source: KVCache, target: KVCache, rows: int) -> None:
    if rows > 0:
        room = spare_rows(rows, target.max_rows)
        # A plain slice would be a view: the next write would copy the whole of it.
        target.keys = copy_with_room(source.keys, rows, room)
        target.values = copy_with_room(source.values, rows, room)
        target.offset = rows
