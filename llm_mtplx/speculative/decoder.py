"""Prefill and rounds: the loop that turns a prompt into tokens.

Plain decoding is the round of depth 0, so greedy, sampled, plain and drafted decoding are one
implementation.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from ..errors import EngineError
from .acceptance import Verdict, accept_greedy, accept_sampled
from .distributions import Candidates, Distribution, Sampling
from .draws import Draws
from .head import MTPHead
from .penalties import Penalties, PenaltySettings
from .recurrent import Tape
from .state import MAX_WAITING, State
from .trunk import Trunk
from .upstream import recurrence_is_a_kernel

# Rows of one prefill forward. Where the recurrence is a loop of ops the graph grows with rows.
KERNEL_CHUNK = 2048
OPS_CHUNK = 512


@dataclass(frozen=True)
class Round:
    tokens: list[int]  # newly emitted: the accepted drafts and the token after them
    drafted: int
    accepted: int


@dataclass(frozen=True)
class Window:
    """What one round's forward left behind to come back to a position inside it."""

    start: int  # position before the forward
    hidden_before: mx.array  # [1, 1, H]
    hidden: mx.array  # [1, T, H]
    tape: Tape


class Decoder:
    """One request's decode. Owns its state; runs on the thread that owns MLX."""

    def __init__(
        self,
        trunk: Trunk,
        head: MTPHead | None,
        sampling: Sampling,
        draws: Draws,
        penalties: Penalties | None = None,
        state: State | None = None,
    ) -> None:
        self.trunk = trunk
        self.head = head
        self.sampling = sampling
        self.draws = draws
        self.penalties = penalties or Penalties(PenaltySettings())
        self.state = state or State.empty(trunk, head)
        self.primary: int | None = None  # emitted, not yet forwarded
        self.hold: int | None = None  # the earliest position rewind() must be able to reach
        self._windows: list[Window] = []

    def prefill(self, ids: list[int], marks: Sequence[int] = ()) -> Iterator[int]:
        """Forward ``ids`` after the state; yields how many are done. Afterwards, ``first()``.

        All but the last run in chunks without logits. The last runs alone, so that every way of
        reaching this position multiplies the same shapes. ``marks`` are positions at which a
        chunk ends, so that the state passes through them.
        """
        chunk = self._chunk_rows()
        done = 0
        while done < len(ids):
            before_mark = [m - self.state.position for m in marks if m > self.state.position]
            rows = min(chunk, len(ids) - 1 - done, *before_mark) or 1
            self._forward(ids[done : done + rows])
            mx.eval(self.state.arrays())
            done += rows
            yield done

    def _chunk_rows(self) -> int:
        fused = recurrence_is_a_kernel(self.trunk.args.linear_key_head_dim)
        return KERNEL_CHUNK if fused else OPS_CHUNK

    def _forward(self, ids: list[int]) -> None:
        """Forward known tokens; the head's history follows one row behind."""
        state = self.state
        hidden = self.trunk.forward(mx.array([ids]), state.cache)
        if state.hidden is not None:
            state.wait(state.hidden, ids[:1])
        state.wait(hidden[:, :-1], ids[1:])
        if self.head is not None and state.waiting_ids:
            state.feed_head(self.trunk, self.head)
        state.hidden = mx.contiguous(hidden[:, -1:])
        state.ids += ids

    def first(self) -> int:
        """The token after the prefilled ids: emitted, and the first primary."""
        assert self.state.hidden is not None, "prefill first"
        logits = self.penalties.apply(self.trunk.logits(self.state.hidden)[0])
        _, verdict = self._judge([], [], logits)
        self.primary = verdict.next_token
        self.penalties.emitted([self.primary])
        return self.primary

    def round(self, depth: int, room: int, ends: Callable[[int], bool]) -> Round:
        """Draft ``depth`` tokens, verify them, emit at most ``room`` >= 1.

        ``ends(token)`` says that nothing may follow ``token``: text and state stop there.
        """
        assert self.primary is not None, "prefill and first() come before the rounds"
        primary, state = self.primary, self.state
        depth = min(depth, room - 1) if self.head is not None else 0
        drafts, proposals = self._draft(primary, depth)

        tape = Tape() if depth or self.hold is not None else None
        tokens = mx.concatenate([mx.array([primary], dtype=mx.uint32), *drafts])[None]
        hidden = self.trunk.forward(tokens, state.cache, tape)
        logits = self.penalties.apply(self.trunk.logits(hidden)[0], drafts)
        drafted, verdict = self._judge(drafts, proposals, logits)

        accepted = drafted[: verdict.accepted]
        emitted = [*accepted, verdict.next_token]
        for at, token in enumerate(accepted):
            if ends(token):
                emitted = accepted = accepted[: at + 1]
                break
        self._keep(primary, accepted, hidden, tape, drafted=depth)
        self.primary = emitted[-1] if len(emitted) > len(accepted) else None
        self.penalties.emitted(emitted)
        return Round(emitted, depth, verdict.accepted)

    def _draft(self, primary: int, depth: int) -> tuple[list[mx.array], list[Distribution]]:
        """``depth`` drafts, each an array [1], and what each was drawn from (none if greedy).

        The head's history ends at the primary's row; the rows of the drafts, made from guesses,
        are forgotten.
        """
        if depth == 0:
            return [], []
        state, head = self.state, self.head
        assert head is not None and state.hidden is not None and state.head_cache is not None
        state.wait(state.hidden, [primary])
        hidden = state.feed_head(self.trunk, head)
        certain = state.head_cache.offset
        drafts: list[mx.array] = []
        proposals: list[Distribution] = []
        for step in range(depth):
            if step:
                embedding = self.trunk.embed(drafts[-1][None])
                hidden = head(hidden, embedding, state.head_cache)
            logits = self.penalties.apply(self.trunk.logits(hidden)[0], drafts)
            if self.sampling.greedy:
                drafts.append(mx.argmax(logits, axis=-1).astype(mx.uint32))
            else:
                candidates = Candidates(logits, self.sampling)
                mx.eval(candidates.arrays)
                (proposal,) = candidates.distributions()
                proposals.append(proposal)
                drafts.append(mx.array([self.draws.pick(proposal)], dtype=mx.uint32))
        state.head_cache.trim(state.head_cache.offset - certain)
        return drafts, proposals

    def _judge(
        self, drafts: list[mx.array], proposals: list[Distribution], logits: mx.array
    ) -> tuple[list[int], Verdict]:
        """The draft ids, how many of them the trunk accepts, and the token after those.

        ``logits`` [depth + 1, V]: the trunk's after the primary and after each draft.
        """
        finite = mx.isfinite(logits.max(axis=-1)).all()
        tokens = mx.concatenate(drafts) if drafts else mx.array([], dtype=mx.uint32)
        if self.sampling.greedy:
            best = mx.argmax(logits, axis=-1)
            mx.eval(best, finite, tokens)
            _require_finite(finite)
            drafted = _ints(tokens)
            return drafted, accept_greedy(drafted, _ints(best))
        candidates = Candidates(logits, self.sampling)
        mx.eval(candidates.arrays, finite, tokens)
        _require_finite(finite)
        drafted = _ints(tokens)
        return drafted, accept_sampled(drafted, proposals, candidates.distributions(), self.draws)

    def _keep(
        self, primary: int, accepted: list[int], hidden: mx.array, tape: Tape | None, drafted: int
    ) -> None:
        """Leave the state as if only the primary and the accepted drafts had been forwarded."""
        state = self.state
        assert state.hidden is not None
        keep = 1 + len(accepted)
        if tape is not None:
            self.trunk.cut(state.cache, tape, forwarded=drafted + 1, keep=keep)
            if self.hold is not None:
                self._windows.append(Window(state.position, state.hidden, hidden, tape))
        if drafted == 0:
            state.wait(state.hidden, [primary])
            if len(state.waiting_ids) >= MAX_WAITING and self.head is not None:
                state.feed_head(self.trunk, self.head)
        state.wait(hidden[:, : keep - 1], accepted)
        state.hidden = hidden[:, keep - 1 : keep]
        state.ids += [primary, *accepted]
        if self._windows:
            held = state.position if self.hold is None else self.hold
            self._windows = [w for w in self._windows if w.start + w.hidden.shape[1] > held]

    def rewind(self, position: int) -> None:
        """Go back to ``position`` >= hold, as if nothing after it had been forwarded or emitted."""
        self.primary = None
        back = self.state.position - position
        if back <= 0:
            return
        window = next(w for w in reversed(self._windows) if w.start <= position)
        keep = position - window.start
        window.tape.cut(keep)
        self.trunk.trim(self.state.cache, back)
        self.state.forget(position)
        self.state.hidden = window.hidden[:, keep - 1 : keep] if keep else window.hidden_before
        self._windows = []

    def settle(self) -> None:
        """Forward the last emitted token and the waiting rows, so that the state is whole."""
        if self.primary is not None:
            self._forward([self.primary])
            self.primary = None
        if self.head is not None and self.state.waiting_ids:
            self.state.feed_head(self.trunk, self.head)
        mx.eval(self.state.arrays())


def _require_finite(finite: mx.array) -> None:
    if not finite.item():
        raise EngineError(
            "The model computed logits that are not finite (NaN or infinity), so this answer "
            "cannot go on. Nothing of it was kept; check the model's files."
        )


def _ints(array: mx.array) -> list[int]:
    values: list[int] = np.array(array).tolist()
    return values
