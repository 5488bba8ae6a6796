"""The sessions in RAM.

A turn takes a state out of the bank and gives it back afterwards. The bank never hands out arrays
that somebody else can write: going on in the same line moves its state out, another line from the
same beginning gets a copy, also while the session is out on loan. A state is used only for ids that
begin with its own ids.

Lives on the engine's thread.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from weakref import WeakSet

import numpy as np

from ..architectures.state import State
from ..coldstore import ladder
from .budgets import BankLimits
from .reasons import Reason
from .session import Checkpoint, KnownTurn, Session, copy_to, go_back, pack

TURN_CHECKPOINTS = 2  # kept besides the end of the system prompt and the ladder
DROPPED_KNOWN = 256  # conversations of which it is known why RAM does not hold them


@dataclass
class Loan:
    """A session on loan to a turn: its state is at ``checkpoint``, empty where that is None."""

    session: Session
    checkpoint: Checkpoint | None
    reason: Reason | None  # why not more

    @property
    def position(self) -> int:
        return self.checkpoint.position if self.checkpoint else 0


class Bank:
    def __init__(self, limits: BankLimits, clock: Callable[[], float]) -> None:
        self.limits = limits
        self._clock = clock
        self.stays = True  # whether this process is there for turns to come
        self._sessions: list[Session] = []
        self._lent: WeakSet[Session] = WeakSet()  # until they are given back, or given up
        self._dropped: dict[str, Reason] = {}  # conversations that RAM does not hold any more

    @property
    def sessions(self) -> tuple[Session, ...]:
        return tuple(self._sessions)

    @property
    def leases(self) -> tuple[Session, ...]:
        """Sessions that are kept although they are over the budget of one: at most the latest."""
        limit = self.limits.per_session_bytes
        return tuple(session for session in self._sessions if session.nbytes > limit)

    @property
    def nbytes(self) -> int:
        return sum(session.nbytes for session in self._sessions)

    def limit_to(self, limits: BankLimits) -> None:
        """Other limits from now on; what they do not hold is dropped."""
        self.limits = limits
        self._fit()

    def known_turns(
        self, model: str, conversation: str | None, pointer: str | None
    ) -> dict[str, KnownTurn]:
        """Answers by the message they decode to. Those of the session that ``pointer`` names win,
        then those of ``conversation``."""
        rising = sorted(
            self._of(model),
            key=lambda s: (_named(s, pointer), _same(s, conversation), s.last_used),
        )
        return {turn.message: turn for session in rising for turn in session.turns}

    def has(self, model: str, conversation: str | None, pointer: str | None) -> bool:
        """Whether the session is here that ``pointer`` names; without one, any of
        ``conversation``."""
        return any(
            _same(session, conversation) if pointer is None else _named(session, pointer)
            for session in self._of(model)
        )

    def best_position(self, model: str, prompt: Sequence[int] | np.ndarray) -> int:
        """The deepest position ``take`` could give of ``prompt``; changes nothing."""
        wanted = pack(prompt)
        best = 0
        for session in (*self._of(model), *self._lent_of(model)):
            shared = common_prefix(_packed(session), wanted)
            checkpoint = session.deepest(shared)
            best = max(best, checkpoint.position if checkpoint else 0)
        return best

    def take(
        self,
        model: str,
        prompt: Sequence[int] | np.ndarray,
        conversation: str | None,
        said: set[tuple[str, str, str]],
        empty: Callable[[], State],
    ) -> Loan:
        """A state at the deepest kept position that ``prompt`` begins with: at its very end, too,
        where the hidden row that was kept gives the next token and nothing is left to forward.

        ``said``: text, reasoning and calls of every assistant message of the prompt, to tell an
        edited history from one that the template rewrites.
        """
        self.drop_idle()
        wanted = pack(prompt)
        best: tuple[Checkpoint, Session] | None = None
        resting = sorted(self._of(model), key=lambda s: (_same(s, conversation), s.last_used))
        for session in (*self._lent_of(model), *resting):
            shared = common_prefix(_packed(session), wanted)
            checkpoint = session.deepest(shared)
            if checkpoint and (best is None or checkpoint.position >= best[0].position):
                lent = session not in resting
                if not (lent and self._too_large(session, checkpoint)):
                    best = (checkpoint, session)
        reason = self._reason(model, wanted, conversation, said, best)
        if best is None:
            return self._lend(Loan(Session(model, conversation, empty()), None, reason))
        checkpoint, session = best
        rests = session in resting
        goes_on = rests and self._goes_on(session, checkpoint, conversation)
        if goes_on or (rests and self._too_large(session, checkpoint)):
            if goes_on:
                self._sessions.remove(session)
            else:
                # A copy does not fit: the older line leaves RAM for it.
                self._drop(session, Reason.EVICTED)
            go_back(session.state, checkpoint)
            leased = session
        else:
            session.last_used = self._clock()
            leased = Session(model, conversation, copy_to(session.state, checkpoint, empty()))
            leased.turns = list(session.turns)
            leased.asked = session.asked
            leased.checkpoints = list(session.checkpoints)
        leased.conversation = conversation or leased.conversation
        leased.cut_to(checkpoint)
        return self._lend(Loan(leased, checkpoint, reason))

    def _lend(self, loan: Loan) -> Loan:
        self._lent.add(loan.session)
        return loan

    def _too_large(self, session: Session, checkpoint: Checkpoint) -> bool:
        """Whether a copy does not fit beside what is there."""
        return session.nbytes_at(checkpoint) > self.limits.total_bytes - self.nbytes

    def give_back(self, session: Session) -> None:
        """Keep a session whose state is whole; what the limits do not hold is dropped."""
        self._lent.discard(session)
        session.last_used = self._clock()
        session.packed = pack(session.ids)
        session.checkpoints = _retained(session)
        self._dropped.pop(session.conversation or "", None)
        if session.nbytes > self.limits.total_bytes:
            self._drop(session, Reason.OVERSIZED)
            return
        for leased in self.leases:
            self._drop(leased, Reason.OVERSIZED)
        if self.stays:
            # Growing copies every row: better now than when the next answer begins.
            session.state.reserve()
        self._sessions.append(session)
        self._fit()

    def forget(self, conversation: str | None, unused_s: float) -> None:
        """Drop the sessions of a conversation (None: of all) that were not used for so long."""
        before = self._clock() - unused_s
        self._sessions = [
            session
            for session in self._sessions
            if conversation not in (None, session.conversation) or session.last_used > before
        ]

    def unload(self, model: str) -> None:
        """Forget every session of a model that is unloaded."""
        self._sessions = [session for session in self._sessions if session.model != model]

    def _of(self, model: str) -> list[Session]:
        return [session for session in self._sessions if session.model == model]

    def _lent_of(self, model: str) -> list[Session]:
        """Sessions of turns in progress, as they are now."""
        lent = [session for session in self._lent if session.model == model]
        for session in lent:
            session.packed = pack(session.ids)
        return lent

    def _goes_on(self, session: Session, checkpoint: Checkpoint, conversation: str | None) -> bool:
        """Whether this turn continues the session's own line rather than another from it.

        It does from the session's very end; and within one conversation where only its last
        answer is left behind, since a rewriting template leaves it behind every time.
        """
        if checkpoint.position == len(session.ids):
            return True
        return _same(session, conversation) and checkpoint.position >= session.last_header

    def _reason(
        self,
        model: str,
        wanted: np.ndarray,
        conversation: str | None,
        said: set[tuple[str, str, str]],
        best: tuple[Checkpoint, Session] | None,
    ) -> Reason | None:
        own = [s for s in self._of(model) if _same(s, conversation)]
        session = own[-1] if own else (best[1] if best else None)
        if session is None:
            return self._dropped.get(conversation or "", Reason.NOTHING_STORED)
        position = best[0].position if best else 0
        shared = common_prefix(_packed(session), wanted)
        if position >= min(len(session.ids), len(wanted) - 1):
            return None
        if shared >= len(session.ids) or not _same(session, conversation):
            return Reason.BETWEEN_CHECKPOINTS if best else Reason.NOTHING_STORED
        inside = [turn for turn in session.turns if turn.start <= shared < turn.end]
        unchanged = inside and inside[0].said in said
        return Reason.TEMPLATE_REWRITES if unchanged else Reason.HISTORY_EDITED

    def drop_idle(self) -> None:
        now = self._clock()
        for session in self.leases:
            if session.last_used < now - self.limits.pin_s:
                self._drop(session, Reason.OVERSIZED)
        for session in self.sessions:
            if self.limits.idle_s and session.last_used < now - self.limits.idle_s:
                self._drop(session, Reason.IDLE)

    def _fit(self) -> None:
        """Drop the least recently used until the limits hold."""
        self._sessions.sort(key=lambda session: session.last_used)
        while len(self._sessions) > self.limits.entries or self.nbytes > self.limits.total_bytes:
            self._drop(self._sessions[0], Reason.EVICTED)

    def _drop(self, session: Session, reason: Reason) -> None:
        if session in self._sessions:
            self._sessions.remove(session)
        if session.conversation is not None:
            self._dropped.pop(session.conversation, None)
            self._dropped[session.conversation] = reason
            while len(self._dropped) > DROPPED_KNOWN:
                del self._dropped[next(iter(self._dropped))]


def common_prefix(a: np.ndarray, b: np.ndarray) -> int:
    """How many leading ids are equal."""
    length = min(len(a), len(b))
    different = np.flatnonzero(a[:length] != b[:length])
    return int(different[0]) if len(different) else length


def _packed(session: Session) -> np.ndarray:
    assert session.packed is not None, "only what rests in the bank is compared"
    return session.packed


def _same(session: Session, conversation: str | None) -> bool:
    return conversation is not None and session.conversation == conversation


def _named(session: Session, pointer: str | None) -> bool:
    return pointer is not None and session.pointer == pointer


def _retained(session: Session) -> list[Checkpoint]:
    """The first (the end of the system prompt, where there is one), the ladder's, the end of the
    latest question, and the latest ones."""
    by_position = {c.position: c for c in session.checkpoints}
    ordered = sorted(by_position)
    kept = {*ordered[:1], *ladder.kept(ordered, len(session.ids)), *ordered[-TURN_CHECKPOINTS:]}
    return [by_position[at] for at in ordered if at in kept or at == session.asked]
