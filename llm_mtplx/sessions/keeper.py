"""One model's sessions, from RAM and from SSD."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from ..architectures.state import State
from ..coldstore import Chain, CheckpointRole, ColdStore
from .bank import Bank, Loan
from .persist import read_line, save_blocks, save_line, worth_keeping
from .reasons import Reason, why_not_from_store
from .session import Checkpoint, Session, go_back, pack

logger = logging.getLogger(__name__)

Source = Literal["ram", "ssd"]
Mode = Literal["on", "write-only", "off"]

TIPS_READ = 2  # a fork's answers may be in the one before the last

ROWS_READ = 128  # from the SSD in the time that forwarding one token takes, at least

ANSWER_START = "<|im_start|>assistant\n"


@dataclass
class Taken:
    loan: Loan
    source: Source | None
    reason: Reason | None


@dataclass(frozen=True)
class Persistence:
    """What the cold store needs to know of a model. ``fingerprint`` may come to be known late;
    ``wait`` returns once it is, or after so many seconds."""

    store: ColdStore
    fingerprint: Callable[[], str | None]
    min_tokens: int | None  # the user's, else by the size of a state
    wait: Callable[[float], None] = lambda timeout: None
    failure: Callable[[], Exception | None] = lambda: None  # why it will not come to be known


class Keeper:
    """Where a turn's state comes from and goes to. Lives on the engine's thread."""

    def __init__(
        self,
        bank: Bank,
        model: str,
        decode: Callable[[Sequence[int]], str | None],
        message_start: int | None,
        persistence: Persistence | None,
    ) -> None:
        self.bank = bank
        self.model = model
        self._decode = decode
        self._message_start = message_start
        self._persistence = persistence
        self._unread: Reason | None = None  # why the ids of a line could not be read

    def known_answers(
        self, conversation: str | None, pointer: str | None, mode: Mode
    ) -> dict[str, Sequence[int]]:
        """The ids of earlier answers' messages, by the text they decode to.

        Where two lines say the same in other ids, those that ``pointer`` names win, then those
        of ``conversation``, then the latest.
        """
        self._unread = None
        if mode != "on":
            return {}
        turns = self.bank.known_turns(self.model, conversation, pointer)
        known: dict[str, Sequence[int]] = {m: turn.ids for m, turn in turns.items()}
        if not self.bank.has(self.model, conversation, pointer):
            stored = self._stored_answers(conversation, pointer)
            known = {**known, **stored} if pointer is not None else {**stored, **known}
        return known

    def _stored_answers(
        self, conversation: str | None, pointer: str | None
    ) -> dict[str, Sequence[int]]:
        persistence = self._persistence
        fingerprint = persistence.fingerprint() if persistence else None
        if persistence is None or fingerprint is None or self._message_start is None:
            return {}
        entries = persistence.store.tips(conversation) if conversation is not None else []
        tips = [e for e in entries if e.role == "tip" and e.fingerprint == fingerprint]
        latest = sorted(tips, key=lambda e: (e.created, e.position))[-TIPS_READ:]
        lines = [tip.checkpoint for tip in latest]
        if pointer is not None:
            lines.append(pointer)
        found: dict[str, Sequence[int]] = {}
        for line in lines:
            ids = persistence.store.ids(fingerprint, line)
            if isinstance(ids, list):
                found.update(self._answers_in(ids))
            elif any(line == tip.checkpoint for tip in latest):
                # A pointer may name anything; a tip names what was here.
                self._unread = why_not_from_store(ids) or Reason.FILE_GONE
        return found

    def pointer(self, line: Sequence[int], state: State, mode: Mode) -> str | None:
        """What ``line`` will be called on the SSD; None where it will not be there. ``state``
        has rows of the line, and more or fewer."""
        persistence = self._persistence
        fingerprint = persistence.fingerprint() if persistence else None
        if persistence is None or fingerprint is None or mode == "off":
            return None
        if not worth_keeping(state, len(line), persistence.min_tokens):
            return None
        return Chain(fingerprint, line).pointer(len(line))

    def why_not_stored(self, state: State, position: int) -> Reason:
        """Why nothing is kept of a conversation that has been going on up to ``position``."""
        if self._persistence is None:
            return Reason.NOTHING_STORED
        if not worth_keeping(state, position, self._persistence.min_tokens):
            return Reason.TOO_SHORT
        return Reason.NOTHING_STORED

    def _answers_in(self, ids: list[int]) -> dict[str, Sequence[int]]:
        starts = [at for at, token in enumerate(ids) if token == self._message_start]
        found: dict[str, Sequence[int]] = {}
        for start, end in zip(starts, [*starts[1:], len(ids)], strict=True):
            text = self._decode(ids[start:end])
            if text is not None and text.startswith(ANSWER_START):
                # What follows the message's last token is the border to the next. An answer
                # that was cut short has no last token.
                message, closed, rest = text.partition("<|im_end|>")
                if rest in ("", "\n"):
                    found[message + closed] = ids[start : end - len(rest)]
        return found

    def take(
        self,
        prompt: Sequence[int],
        conversation: str | None,
        said: set[tuple[str, str, str]],
        empty: Callable[[], State],
        mode: Mode,
        persist: bool,
    ) -> Taken:
        """A state at the deepest kept position that ``prompt`` begins with.

        Without ``persist`` nothing is written to the store, not even that it was used.
        """
        if persist and mode != "off" and self._persistence is not None:
            self._persistence.store.start()  # a turn may end when the process does
        if mode != "on":
            loan = Loan(Session(self.model, conversation, empty()), None, Reason.CACHE_OFF)
            taken = Taken(loan, None, Reason.CACHE_OFF)
        else:
            taken = self._take(prompt, conversation, said, empty, persist)
        if persist and mode != "off" and self._persistence is not None:
            # After the lookup: what upkeep finds gone could not be named as a reason any more.
            self._persistence.store.tend()
        return taken

    def best_position(self, prompt: Sequence[int]) -> int:
        """The deepest position of ``prompt`` at which RAM has a state now."""
        return self.bank.best_position(self.model, pack(prompt))

    def _take(
        self,
        prompt: Sequence[int],
        conversation: str | None,
        said: set[tuple[str, str, str]],
        empty: Callable[[], State],
        persist: bool,
    ) -> Taken:
        packed = pack(prompt)
        position = self.bank.best_position(self.model, packed)
        stored, reason = self._from_store(prompt, position, conversation, empty, persist)
        if stored is not None:
            state, checkpoint = stored
            session = Session(self.model, conversation, state, [checkpoint])
            return Taken(Loan(session, checkpoint, reason), "ssd", reason)
        loan = self.bank.take(self.model, packed, conversation, said, empty)
        if loan.position == 0 and reason is not None:
            loan.reason = reason
        return Taken(loan, "ram" if loan.position else None, loan.reason)

    def _from_store(
        self,
        prompt: Sequence[int],
        deeper_than: int,
        conversation: str | None,
        empty: Callable[[], State],
        note_use: bool,
    ) -> tuple[tuple[State, Checkpoint] | None, Reason | None]:
        if self._persistence is None:
            return None, None
        if len(prompt) - deeper_than <= deeper_than // ROWS_READ:
            return None, None  # reading all rows for the few that RAM lacks would take longer
        fingerprint = self._persistence.fingerprint()
        if fingerprint is None:
            failed = self._persistence.failure() is not None
            return None, Reason.FINGERPRINT_FAILED if failed else Reason.FINGERPRINT_PENDING
        store = self._persistence.store
        found = store.lookup(fingerprint, prompt, deeper_than=deeper_than)
        if found.position == 0:
            # Without the model's own ids for its answers the line itself may not be found.
            reason = why_not_from_store(found.reason) or self._unread
            if reason is None and self._kept_by_others(fingerprint, conversation):
                reason = Reason.WEIGHTS_CHANGED
            return None, reason
        try:
            line, missed = read_line(store, found, prompt, empty(), note_use)
            return line, why_not_from_store(missed)
        except (KeyError, ValueError):
            return None, Reason.LAYOUT_REFUSED

    def _kept_by_others(self, fingerprint: str, conversation: str | None) -> bool:
        """Whether all that the store has of the conversation has another fingerprint."""
        if self._persistence is None or conversation is None:
            return False
        entries = self._persistence.store.tips(conversation)
        return bool(entries) and all(e.fingerprint != fingerprint for e in entries)

    def saving(self, ids: Sequence[int], state: State, mode: Mode) -> Iterator[bool]:
        """Hands the whole blocks of ``ids`` to the store, one at each step, as soon as ``state``
        has come to their ends: their rows do not change any more, so that a prompt is written while
        it is being read and while its answer is made. False where there is nothing to do yet."""
        persistence = self._persistence
        if persistence is None or mode == "off":
            return
        while state.position == 0:  # what a token weighs is known once there is one
            yield False
        fingerprint = persistence.fingerprint()
        if fingerprint is None or not worth_keeping(state, len(ids), persistence.min_tokens):
            return
        # One chain for all blocks: hashing the line anew for each took 4 s of 262,144 tokens.
        chain = Chain(fingerprint, ids)
        yield from save_blocks(persistence.store, chain, state, len(ids))

    @contextmanager
    def not_lost(self, loan: Loan, mode: Mode) -> Iterator[None]:
        """No exception inside loses the session from RAM: it goes back as it was taken, and the
        exception that is seen is the first."""
        try:
            yield
        except BaseException:
            try:
                self.put_back(loan, mode)
            except Exception as error:
                logger.warning("a session was lost after an error: %r", error)
            raise

    def put_back(self, loan: Loan, mode: Mode, to: Checkpoint | None = None) -> None:
        """Give a session back as it was at a checkpoint, else as it was taken. A new one, which has
        neither, is dropped."""
        checkpoint = to or loan.checkpoint
        if checkpoint is not None:
            go_back(loan.session.state, checkpoint)
            loan.session.cut_to(checkpoint)
            self.give_back(loan.session, None, mode)

    def give_back(
        self,
        session: Session,
        tip: Checkpoint | None,
        mode: Mode,
        roles: Mapping[int, CheckpointRole] = MappingProxyType({}),
    ) -> None:
        """Keep a whole session; ``tip`` is the checkpoint that outlives the process, and with it
        those before it at the positions of ``roles``."""
        if mode == "off":
            return
        try:
            if tip is not None:
                self._persist(session, tip, {**roles, tip.position: "tip"})
        finally:
            self.bank.give_back(session)

    def _persist(
        self, session: Session, tip: Checkpoint, roles: Mapping[int, CheckpointRole]
    ) -> None:
        persistence = self._persistence
        if persistence is None:
            return
        fingerprint = persistence.fingerprint()
        if fingerprint is None:
            if worth_keeping(session.state, tip.position, persistence.min_tokens):
                _say_why(persistence)
            return
        chain = Chain(fingerprint, session.ids[: tip.position])
        session.pointer = chain.pointer(tip.position)
        for checkpoint in session.checkpoints:
            role = roles.get(checkpoint.position) if checkpoint.position <= tip.position else None
            if role and worth_keeping(session.state, checkpoint.position, persistence.min_tokens):
                save_line(
                    persistence.store,
                    chain,
                    session.state,
                    checkpoint,
                    session.conversation,
                    role,
                )

    def wait_for_store(self, timeout: float) -> None:
        """Until it is known under which fingerprint states are kept."""
        if self._persistence is not None:
            self._persistence.wait(timeout)

    def is_stored(self, ids: Sequence[int], timeout: float) -> bool:
        """Whether the store has the state after ``ids``, once it has written what it was given."""
        persistence = self._persistence
        fingerprint = persistence.fingerprint() if persistence else None
        if persistence is None or fingerprint is None:
            return False
        persistence.store.flush(timeout)
        return persistence.store.lookup(fingerprint, ids).position == len(ids)


def _say_why(persistence: Persistence) -> None:
    """Why nothing can be kept of a turn whose fingerprint is not known."""
    failure = persistence.failure()
    if failure is not None:
        detail = f"the model's weights could not be identified: {failure}"
        persistence.store.not_kept("fingerprint_failed", detail)
    else:
        detail = "the model's weights are still being identified"
        persistence.store.not_kept("fingerprint_pending", detail)
