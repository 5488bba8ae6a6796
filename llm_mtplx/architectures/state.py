"""The state of a decode: everything needed to go on from a position.

After n forwarded tokens: the trunk's cache covers n rows; ``hidden`` is hidden row n - 1; the
head's history covers rows 0 .. n - 2, where row j = (hidden row j, token j + 1). The latest rows
of that history may be *waiting*: they are forwarded through the head in one batch when the next
draft starts, or when the state is settled.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import mlx.core as mx

from .mlx_lm_compat import ArraysCache, GrowingKVCache, KVCache, spare_rows
from .mtp_head import MTPHead
from .shapes import Shapes, shapes_of
from .trunk import Cache, Trunk

MAX_WAITING = 512  # rows; bounds the hidden rows a long plain decode keeps


@dataclass(frozen=True)
class Mark:
    """Where a state was before a forward whose rows nobody has computed yet."""

    position: int
    hidden: mx.array | None
    waiting_hidden: list[mx.array]
    waiting_ids: list[int]
    recurrent: list[list[mx.array | None]]
    head_rows: int


@dataclass
class State:
    cache: Cache
    head_cache: KVCache | None
    ids: list[int] = field(default_factory=list)  # forwarded tokens
    hidden: mx.array | None = None  # [1, 1, H]
    waiting_hidden: list[mx.array] = field(default_factory=list)  # each [1, m, H]
    waiting_ids: list[int] = field(default_factory=list)
    shapes: Callable[[], Shapes] | None = None  # of the arrays that it will have

    @classmethod
    def empty(cls, trunk: Trunk, head: MTPHead | None) -> "State":
        state = cls(trunk.make_cache(), head.make_cache(trunk.max_rows) if head else None)
        state.shapes = lambda: shapes_of(trunk, head)
        return state

    @property
    def position(self) -> int:
        return len(self.ids)

    @property
    def head_position(self) -> int:
        """Rows of the head's history, waiting ones included. Position - 1 between rounds."""
        assert self.head_cache is not None
        return int(self.head_cache.offset) + len(self.waiting_ids)

    def wait(self, hidden: mx.array, ids: list[int]) -> None:
        """Let rows (``hidden`` [1, m, H], the m tokens after them) wait for the head."""
        if self.head_cache is not None and ids:
            self.waiting_hidden.append(hidden)
            self.waiting_ids += ids

    def feed_head(self, trunk: Trunk, head: MTPHead) -> None:
        """Forward all waiting rows through the head."""
        hidden, tokens = self.waiting_rows()
        head(hidden, trunk.embed(tokens), self.head_cache)
        self.fed()

    def waiting_rows(self) -> tuple[mx.array, mx.array]:
        """Hidden rows [1, m, H] and the tokens [1, m] after them."""
        return mx.concatenate(self.waiting_hidden, axis=1), mx.array([self.waiting_ids])

    def fed(self) -> None:
        """The waiting rows are in the head's cache now."""
        self.waiting_hidden, self.waiting_ids = [], []

    def mark(self) -> Mark:
        """To `go_back` to. Recurrent arrays are replaced and KV is written behind its end by what
        follows, so that nothing need be copied."""
        recurrent = [list(c.cache) for c in self.cache if isinstance(c, ArraysCache)]
        head_rows = 0 if self.head_cache is None else self.head_cache.offset
        waiting = list(self.waiting_hidden), list(self.waiting_ids)
        return Mark(self.position, self.hidden, *waiting, recurrent, head_rows)

    def go_back(self, mark: Mark) -> None:
        recurrent = iter(mark.recurrent)
        for cache in self.cache:
            if isinstance(cache, ArraysCache):
                cache.cache = next(recurrent)
            else:
                cache.trim(cache.offset - mark.position)
        if self.head_cache is not None:
            self.head_cache.trim(self.head_cache.offset - mark.head_rows)
        self.ids = self.ids[: mark.position]
        self.hidden = mark.hidden
        self.waiting_hidden, self.waiting_ids = mark.waiting_hidden, mark.waiting_ids

    def forget(self, position: int) -> None:
        """Drop ids and head rows from ``position`` on; cache and hidden row are the caller's."""
        self.ids = self.ids[:position]
        if self.head_cache is None:
            return
        surplus = self.head_position - (position - 1)
        waiting = len(self.waiting_ids)
        if surplus >= waiting:
            self.head_cache.trim(surplus - waiting)
            self.waiting_hidden, self.waiting_ids = [], []
        else:
            rows = mx.concatenate(self.waiting_hidden, axis=1)
            self.waiting_hidden = [rows[:, : waiting - surplus]]
            self.waiting_ids = self.waiting_ids[: waiting - surplus]

    def spare_rows(self, rows: int) -> int:
        """Room that a copy of the first ``rows`` gets for more."""
        limits = [c.max_rows for c in self.cache if isinstance(c, GrowingKVCache)]
        return spare_rows(rows, limits[0] if limits else None)

    def reserve(self) -> None:
        """Room for the next rows in every layer, so that writing them copies nothing."""
        for cache in [*self.cache, self.head_cache]:
            if isinstance(cache, GrowingKVCache):
                cache.reserve()

    def is_finite(self) -> bool:
        """Whether the last hidden row is; NaN and infinity go on into every later one."""
        return self.hidden is None or bool(mx.isfinite(self.hidden).all().item())

    def arrays(self) -> list[mx.array]:
        """All arrays of the state, for evaluation."""
        found = [] if self.hidden is None else [self.hidden]
        for cache in [*self.cache, self.head_cache]:
            if isinstance(cache, KVCache):
                found += [x for x in (cache.keys, cache.values) if x is not None]
            elif cache is not None:
                found += [x for x in cache.cache if x is not None]
        return found + self.waiting_hidden
