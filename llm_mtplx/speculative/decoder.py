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
from .copying import CopyIndex
from .distributions import Choice, Sampling, choose
from .logprobs import Logprobs
from .masks import Masks
from .noise import Noise
from .penalties import Penalties, PenaltySettings
from .step import Draft, Read, Steps, Verify, alone
from .windows import Window, Windows

# Rows of one prefill forward: no more than it takes to read fast, because others who are being
# answered wait for it. On a CPU 128 rows are read as fast as 512.
KERNEL_CHUNK = 512
OPS_CHUNK = 128


@dataclass(frozen=True)
class Round:
    tokens: list[int]  # newly emitted: the accepted drafts and the token after them
    drafted: int  # the head's and the copied ones
    accepted: int
    copied: int = 0  # the first so many drafts


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
        self._windows = Windows()
        self._index = CopyIndex()

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
        _, own = alone(self.trunk, self.head, self._judge([], self._shaped(logits)))
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
        self._windows = Windows()
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

    def round(
        self, depth: int, room: int, ends: Callable[[int], bool], copies: range | None = None
    ) -> Round:
        """One round of this conversation alone: see ``steps``."""
        assert self.primary is not None, "prefill and first() come before the rounds"
        plain = self._drafted(depth, room) == 0 and not self._copied(copies, room)
        # Rules must know a token before they can say what may follow it.
        if plain and self.hold is None and self.masks is None:
            return self._plain_round(self.primary, room)
        return alone(self.trunk, self.head, self.steps(depth, room, ends, copies))

    def _drafted(self, depth: int, room: int) -> int:
        return min(depth, room - 1) if self.head is not None else 0

    def _copied(self, copies: range | None, room: int) -> Sequence[int]:
        """What is copied from the line as drafts, if it is of one of the lengths ``copies``."""
        if copies is None or self.primary is None:
            return []
        ids, most = self._state.ids, min(copies.stop, room) - 1
        self._index.extend(ids)
        found = self._index.after(ids, self.primary, most)
        return found if len(found) >= copies.start else []

    def steps(
        self, depth: int, room: int, ends: Callable[[int], bool], copies: range | None = None
    ) -> Steps[Round]:
        """Draft, verify, emit at most ``room`` >= 1.

        Drafts are what can be copied from the line, if it is of one of the lengths ``copies``, and
        where that is less than ``depth`` tokens the head goes on from it. ``ends(token)`` says that
        nothing may follow ``token``: text and state stop there.
        """
        self._land()
        primary, state = self.primary, self._state
        assert primary is not None, "prefill and first() come before the rounds"
        depth = self._drafted(depth, room)
        copied = [mx.array([token], dtype=mx.uint32) for token in self._copied(copies, room)]
        with_head = len(copied) < depth
        drafts = copied
        if with_head:
            drafts = yield from self._draft(primary, depth, copied)

        tape = Tape() if drafts or self.hold is not None else None
        tokens = mx.concatenate([mx.array([primary], dtype=mx.uint32), *drafts])[None]
        hidden, logits = yield Verify(tokens, state.cache, tape)
        drafted, own = yield from self._judge(drafts, self._shaped(logits, drafts))

        right = accept(drafted, own)
        accepted = drafted[:right]
        emitted = [*accepted, own[right]]
        for at, token in enumerate(accepted):
            if ends(token):
                emitted = accepted = accepted[: at + 1]
                break
        self._keep(primary, accepted, hidden, tape, with_head)
        self.primary = emitted[-1] if len(emitted) > len(accepted) else None
        self._emitted(emitted, logits)
        return Round(emitted, len(drafts), right, len(copied))

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

    def _draft(
        self, primary: int, depth: int, copied: Sequence[mx.array] = ()
    ) -> Steps[list[mx.array]]:
        """``depth`` drafts, each an array [1], the copied ones first.

        The head's history ends at the primary's row; the rows of the drafts, made from guesses,
        are forgotten.
        """
        if depth == 0:
            return []
        state = self._state
        assert state.hidden is not None and state.head_cache is not None
        state.wait(state.hidden, [primary])
        hidden, tokens = state.waiting_rows()
        drafts: list[mx.array] = []
        for step in range(depth):
            hidden, logits = yield Draft(hidden, tokens, state.head_cache)
            if not step:
                state.fed()
                certain = state.head_cache.offset
            keys = self._noise.keys(self._next + step, 1)
            if step < len(copied):
                drafts.append(copied[step])
            else:
                shaped = self._shaped(logits, drafts)
                drafts.append(choose(shaped, self.draft_sampling, keys).tokens)
            tokens = drafts[-1][None]
            # The device drafts while Python builds what comes next.
            mx.async_eval(drafts[-1])  # type: ignore[no-untyped-call]
        state.head_cache.trim(state.head_cache.offset - certain)
        return drafts

    def _judge(
        self, drafts: list[mx.array], logits: mx.array
    ) -> Steps[tuple[list[int], list[int]]]:
        """The draft ids, and the trunk's own choices in their places and after them.

        ``logits`` [depth + 1, V]: the trunk's after the primary and after each draft, shaped.
        """
        rows = logits.shape[0]
        choice = choose(logits, self.sampling, self._noise.keys(self._next, rows))
        drafted = mx.concatenate(drafts) if drafts else mx.array([], dtype=mx.uint32)
        yield Read([*choice.arrays, drafted])
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
        self,
        primary: int,
        accepted: list[int],
        hidden: mx.array,
        tape: Tape | None,
        with_head: bool,
    ) -> None:
        """Leave the state as if only the primary and the accepted drafts had been forwarded.

        ``with_head``: the primary's row is in the head's history already.
        """
        state = self._state
        assert state.hidden is not None
        keep = 1 + len(accepted)
        if tape is not None:
            self.trunk.cut(state.cache, tape, forwarded=hidden.shape[1], keep=keep)
            if self.hold is not None:
                self._windows.add(Window(state.position, state.hidden, hidden, tape, keep))
        if not with_head:
            self._wait_for_head(state.hidden, primary)
        state.wait(hidden[:, : keep - 1], accepted)
        state.hidden = hidden[:, keep - 1 : keep]
        state.ids += [primary, *accepted]
        self._windows.forget(state.position if self.hold is None else self.hold)

    def rewind(self, position: int) -> None:
        """Go back to ``position`` >= hold, as if nothing after it had been forwarded or emitted."""
        self._land()
        self.primary = None
        state = self._state
        if position >= state.position:
            return
        window = self._windows.at(position)
        keep = min(position - window.start, window.kept)
        end = window.start + keep
        between = state.ids[end:position]
        window.tape.cut(keep)
        self.trunk.trim(state.cache, state.position - end)
        state.forget(end)
        state.hidden = window.hidden[:, keep - 1 : keep] if keep else window.hidden_before
        self._windows = Windows()
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
