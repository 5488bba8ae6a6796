"""Prefill and rounds: the loop that turns a prompt into tokens.

Plain decoding is the round of depth 0, and greedy decoding is sampling without noise, so greedy,
sampled, plain and drafted decoding are one implementation. Every token is the argmax of the trunk's
shaped logits and of noise that seed and position determine; a draft is the same of the head's. What
is emitted therefore depends on neither head nor depth.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import mlx.core as mx
import numpy as np

from ..architectures.gated_delta import Tape
from ..architectures.mlx_lm_compat import ArraysCache, recurrence_is_a_kernel
from ..architectures.mtp_head import MTPHead
from ..architectures.state import MAX_WAITING, State
from ..architectures.trunk import Trunk
from ..errors import EngineError
from .acceptance import accept
from .distributions import Choice, Sampling, choose
from .logprobs import Logprobs
from .masks import Masks
from .noise import Noise
from .penalties import Penalties, PenaltySettings

# Rows of one prefill forward. Where the recurrence is a loop of ops the graph grows with rows.
KERNEL_CHUNK = 2048
OPS_CHUNK = 512

# Rounds that can be taken back row by row. Each pins one recurrent state, 154 MB on a 27B, and a
# stop string may stay undecided for long: as long as a tool call is being written.
MAX_WINDOWS = 4


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
    kept: int  # rows that were right


@dataclass(frozen=True)
class Ahead:
    """A plain forward that was begun before its token was read."""

    before: list[tuple[ArraysCache, list[mx.array | None]]]  # recurrent arrays it moves on from
    hidden: mx.array  # [1, 1, H]
    logits: mx.array  # [1, V], the trunk's own
    shaped: mx.array  # [1, V], what the token after it is chosen from
    choice: Choice


class Decoder:
    """One request's decode. Owns its state; runs on the thread that owns MLX."""

    def __init__(
        self,
        trunk: Trunk,
        head: MTPHead | None,
        sampling: Sampling,
        seed: int = 0,
        penalties: Penalties | None = None,
        state: State | None = None,
        draft_sampling: Sampling | None = None,
        masks: Masks | None = None,
        logprobs: Logprobs | None = None,
    ) -> None:
        """``draft_sampling``: how drafts are shaped, where not as the tokens themselves. It changes
        how many are accepted, never a token; a greedy request drafts greedily."""
        self.trunk = trunk
        self.head = head
        self.sampling = sampling
        self.draft_sampling = draft_sampling or sampling
        self._noise = Noise(seed)
        self.penalties = penalties or Penalties(PenaltySettings())
        self.masks = masks
        self.logprobs = logprobs
        self._state = state or State.empty(trunk, head)
        self._ahead: Ahead | None = None
        self.primary: int | None = None  # emitted, not yet forwarded
        self.hold: int | None = None  # the earliest position rewind() must be able to reach
        self._windows: list[Window] = []

    @property
    def state(self) -> State:
        """The state after what has been forwarded and read; nothing is ahead of it."""
        self._land()
        return self._state

    def prefill(
        self, ids: list[int], marks: Sequence[int] = (), last: int | None = None
    ) -> Iterator[int]:
        """Forward ``ids`` after the state; yields how many are done. Afterwards, ``first()``.

        ``marks`` are positions at which a chunk ends, so that the state passes through them. What
        follows position ``last`` (else the last id) runs alone, so that every way of reaching the
        end multiplies the same shapes there.
        """
        chunk = self._chunk_rows()
        start, end = self._state.position, self._state.position + len(ids)
        stops = {*marks, end - 1 if last is None else last, end}
        while (position := self._state.position) < end:
            stop = min(stop for stop in stops if stop > position)
            rows = ids[position - start :][: min(stop - position, chunk)]
            self._forward(rows)
            mx.eval(self._state.arrays())
            yield self._state.position - start

    def _chunk_rows(self) -> int:
        fused = recurrence_is_a_kernel(self.trunk.args.linear_key_head_dim)
        return KERNEL_CHUNK if fused else OPS_CHUNK

    def _forward(self, ids: list[int]) -> None:
        """Forward known tokens; the head's history follows one row behind."""
        state = self._state
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
        assert self._state.hidden is not None, "prefill first"
        logits = self.trunk.logits(self._state.hidden)[0]
        _, own = self._judge([], self._shaped(logits))
        self.primary = own[0]
        self._emitted([self.primary], logits)
        return self.primary

    def force(self, tokens: list[int]) -> None:
        """Emit ``tokens`` whatever the model would: as if it had chosen them."""
        self._land()
        *known, last = [*([] if self.primary is None else [self.primary]), *tokens]
        if known:
            self._forward(known)
        # Nothing before them can be come back to.
        self._windows = []
        self.primary = last
        self._emitted(tokens)

    def _shaped(self, logits: mx.array, drafts: Sequence[mx.array] = ()) -> mx.array:
        """``logits`` [T, V], the trunk's or the head's, so far shaped as is done on the device.
        The last row follows all ``drafts``, the row above it all but one.
        """
        logits = self.penalties.apply(logits, drafts)
        return logits if self.masks is None else self.masks.apply(logits, drafts)

    def _emitted(self, tokens: list[int], logits: mx.array | None = None) -> None:
        """``logits``: what the trunk chose them from, a row each; None where it did not."""
        self.penalties.emitted(tokens)
        if self.masks is not None:
            self.masks.emitted(tokens)
        if self.logprobs is not None:
            self.logprobs.add(tokens, logits)

    def round(self, depth: int, room: int, ends: Callable[[int], bool]) -> Round:
        """Draft ``depth`` tokens, verify them, emit at most ``room`` >= 1.

        ``ends(token)`` says that nothing may follow ``token``: text and state stop there.
        """
        assert self.primary is not None, "prefill and first() come before the rounds"
        primary, state = self.primary, self._state
        depth = min(depth, room - 1) if self.head is not None else 0
        # Rules must know a token before they can say what may follow it.
        if depth == 0 and self.hold is None and self.masks is None:
            return self._plain_round(primary, room)
        self._land()
        drafts = self._draft(primary, depth)

        tape = Tape() if depth or self.hold is not None else None
        tokens = mx.concatenate([mx.array([primary], dtype=mx.uint32), *drafts])[None]
        hidden = self.trunk.forward(tokens, state.cache, tape)
        logits = self.trunk.logits(hidden)[0]
        drafted, own = self._judge(drafts, self._shaped(logits, drafts))

        right = accept(drafted, own)
        accepted = drafted[:right]
        emitted = [*accepted, own[right]]
        for at, token in enumerate(accepted):
            if ends(token):
                emitted = accepted = accepted[: at + 1]
                break
        self._keep(primary, accepted, hidden, tape, drafted=depth)
        self.primary = emitted[-1] if len(emitted) > len(accepted) else None
        self._emitted(emitted, logits)
        return Round(emitted, depth, right)

    @property
    def _next(self) -> int:
        """The place of the next token in the line of ids, the first being 0."""
        return self._state.position + (self.primary is not None)

    def _plain_round(self, primary: int, room: int) -> Round:
        """One token. The next forward is begun before this token is read, so that the device does
        not wait for Python."""
        state = self._state
        now = self._ahead or self._launch(mx.array([primary], dtype=mx.uint32), self._next)
        token = now.choice.tokens
        self._ahead = self._launch(token, self._next + 1, [token]) if room > 1 else None
        (own,) = self._read(now.choice, now.shaped, self._next)
        if [own] != _ints(token):
            self._land()
        assert state.hidden is not None
        self._wait_for_head(state.hidden, primary)
        state.hidden = now.hidden
        state.ids.append(primary)
        self.primary = own
        self._emitted([own], now.logits)
        return Round([own], 0, 0)

    def _wait_for_head(self, hidden: mx.array, token: int) -> None:
        self._state.wait(hidden, [token])
        if len(self._state.waiting_ids) >= MAX_WAITING and self.head is not None:
            self._state.feed_head(self.trunk, self.head)

    def _launch(self, token: mx.array, position: int, unread: Sequence[mx.array] = ()) -> Ahead:
        """Forward ``token`` [1] without waiting for it, and choose the one at ``position``.

        ``unread``: tokens chosen, but not counted as emitted yet.
        """
        cache = self._state.cache
        before = [(c, list(c.cache)) for c in cache if isinstance(c, ArraysCache)]
        hidden = self.trunk.forward(token[None], cache)
        logits = self.trunk.logits(hidden)[0]
        shaped = self._shaped(logits, unread)
        choice = choose(shaped, self.sampling, self._noise.keys(position, 1))
        mx.async_eval(*choice.arrays)  # type: ignore[no-untyped-call]
        return Ahead(before, hidden, logits, shaped, choice)

    def _land(self) -> None:
        """Take back a forward that is ahead of the tokens read."""
        if self._ahead is not None:
            for cache, arrays in self._ahead.before:
                cache.cache = arrays
            self.trunk.trim(self._state.cache, 1)
            self._ahead = None

    def _draft(self, primary: int, depth: int) -> list[mx.array]:
        """``depth`` drafts, each an array [1].

        The head's history ends at the primary's row; the rows of the drafts, made from guesses,
        are forgotten.
        """
        if depth == 0:
            return []
        state, head = self._state, self.head
        assert head is not None and state.hidden is not None and state.head_cache is not None
        state.wait(state.hidden, [primary])
        hidden = state.feed_head(self.trunk, head)
        certain = state.head_cache.offset
        drafts: list[mx.array] = []
        for step in range(depth):
            if step:
                embedding = self.trunk.embed(drafts[-1][None])
                hidden = head(hidden, embedding, state.head_cache)
            logits = self._shaped(head.logits(hidden, self.trunk)[0], drafts)
            keys = self._noise.keys(self._next + step, 1)
            drafts.append(choose(logits, self.draft_sampling, keys).tokens)
            # The device drafts while Python builds what comes next.
            mx.async_eval(drafts[-1])  # type: ignore[no-untyped-call]
        state.head_cache.trim(state.head_cache.offset - certain)
        return drafts

    def _judge(self, drafts: list[mx.array], logits: mx.array) -> tuple[list[int], list[int]]:
        """The draft ids, and the trunk's own choices in their places and after them.

        ``logits`` [depth + 1, V]: the trunk's after the primary and after each draft, shaped.
        """
        rows = logits.shape[0]
        choice = choose(logits, self.sampling, self._noise.keys(self._next, rows))
        drafted = mx.concatenate(drafts) if drafts else mx.array([], dtype=mx.uint32)
        mx.eval(*choice.arrays, drafted)
        return _ints(drafted), self._read(choice, logits, self._next)

    def _read(self, choice: Choice, logits: mx.array, position: int) -> list[int]:
        """``choice`` as ids; ``logits`` [T, V]: what it was made from, ``position`` the first's."""
        mx.eval(choice.arrays)
        _require_finite(choice.top)
        tokens = _ints(choice.tokens)
        unsure = [] if choice.sure is None else np.flatnonzero(~np.array(choice.sure)).tolist()
        for row in unsure:
            keys = self._noise.keys(position + row, 1)
            exact = choose(logits[row : row + 1], self.sampling, keys, whole=True)
            tokens[row] = _ints(exact.tokens)[0]
        return tokens

    def _keep(
        self, primary: int, accepted: list[int], hidden: mx.array, tape: Tape | None, drafted: int
    ) -> None:
        """Leave the state as if only the primary and the accepted drafts had been forwarded."""
        state = self._state
        assert state.hidden is not None
        keep = 1 + len(accepted)
        if tape is not None:
            self.trunk.cut(state.cache, tape, forwarded=drafted + 1, keep=keep)
            if self.hold is not None:
                self._hold_round(Window(state.position, state.hidden, hidden, tape, keep))
        if drafted == 0:
            self._wait_for_head(state.hidden, primary)
        state.wait(hidden[:, : keep - 1], accepted)
        state.hidden = hidden[:, keep - 1 : keep]
        state.ids += [primary, *accepted]
        if self._windows:
            held = state.position if self.hold is None else self.hold
            self._windows = [w for w in self._windows if w.start + w.hidden.shape[1] > held]

    def _hold_round(self, window: Window) -> None:
        """The oldest window reaches the earliest position, the newest ones what is likely asked
        for; rows between them are forwarded again where they are."""
        if self._windows:
            self._windows[-1].tape.forget_states()
        self._windows.append(window)
        if len(self._windows) > MAX_WINDOWS:
            del self._windows[1]

    def rewind(self, position: int) -> None:
        """Go back to ``position`` >= hold, as if nothing after it had been forwarded or emitted."""
        self._land()
        self.primary = None
        state = self._state
        if position >= state.position:
            return
        window = next(w for w in reversed(self._windows) if w.start <= position)
        keep = min(position - window.start, window.kept)
        end = window.start + keep
        between = state.ids[end:position]
        window.tape.cut(keep)
        self.trunk.trim(state.cache, state.position - end)
        state.forget(end)
        state.hidden = window.hidden[:, keep - 1 : keep] if keep else window.hidden_before
        self._windows = []
        if between:
            self._forward(between)

    def settle(self) -> None:
        """Forward the last emitted token and the waiting rows, so that the state is whole."""
        self._land()
        if self.primary is not None:
            self._forward([self.primary])
            self.primary = None
        if self.head is not None and self._state.waiting_ids:
            self._state.feed_head(self.trunk, self.head)
        mx.eval(self._state.arrays())


def _require_finite(top: mx.array) -> None:
    """``top``: the largest logit of each row. The largest of anything and NaN is NaN."""
    values = cast(list[float], top.tolist())
    if not all(map(math.isfinite, values)):
        raise EngineError(
            "The model computed logits that are not finite (NaN or infinity), so this "
            "answer cannot continue. Nothing of it was saved; check the model's files."
        )


def _ints(array: mx.array) -> list[int]:
    values: list[int] = np.array(array).tolist()
    return values
