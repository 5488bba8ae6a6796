"""One model's sessions, from RAM and from SSD."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..coldstore import ColdStore
from ..speculative.state import State
from .bank import Bank, Lease
from .cold import read_line, save_line, worth_keeping
from .reasons import Reason, why_not_from_store
from .session import Checkpoint, Session

Source = Literal["ram", "ssd"]
Mode = Literal["on", "write-only", "off"]

TIPS_READ = 2  # a fork's answers may be in the one before the last

ANSWER_START = "<|im_start|>assistant\n"


@dataclass
class Taken:
    lease: Lease
    source: Source | None
    reason: Reason | None


@dataclass(frozen=True)
class Persistence:
    """What the cold store needs to know of a model. ``fingerprint`` may come to be known late."""

    store: ColdStore
    fingerprint: Callable[[], str | None]
    min_tokens: int | None  # the user's, else by the size of a state


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
        self._model = model
        self._decode = decode
        self._message_start = message_start
        self._persistence = persistence

    def known_answers(self, conversation: str | None, mode: Mode) -> dict[str, Sequence[int]]:
        """The ids of earlier answers' messages, by the text they decode to."""
        if mode != "on":
            return {}
        turns = self.bank.known_turns(self._model, conversation)
        known: dict[str, Sequence[int]] = {m: turn.ids for m, turn in turns.items()}
        if conversation is not None and not self.bank.has(self._model, conversation):
            known = {**self._stored_answers(conversation), **known}
        return known

    def _stored_answers(self, conversation: str) -> dict[str, Sequence[int]]:
        persistence = self._persistence
        fingerprint = persistence.fingerprint() if persistence else None
        if persistence is None or fingerprint is None or self._message_start is None:
            return {}
        found: dict[str, Sequence[int]] = {}
        entries = persistence.store.tips(conversation)
        tips = [e for e in entries if e.role == "tip" and e.fingerprint == fingerprint]
        latest = sorted(tips, key=lambda e: (e.created, e.position))[-TIPS_READ:]
        for tip in latest:
            ids = persistence.store.ids(fingerprint, tip.checkpoint)
            if isinstance(ids, list):
                found.update(self._answers_in(ids))
        return found

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
        said: set[tuple[str, str]],
        empty: Callable[[], State],
        mode: Mode,
        persist: bool,
    ) -> Taken:
        """A state at the deepest kept position that ``prompt`` begins with.

        Without ``persist`` nothing is written to the store, not even that it was used.
        """
        if mode != "on":
            lease = Lease(Session(self._model, conversation, empty()), None, Reason.CACHE_OFF)
            return Taken(lease, None, Reason.CACHE_OFF)
        position = self.bank.best_position(self._model, prompt)
        stored, reason = self._from_store(prompt, position, empty, persist)
        if stored is not None:
            state, checkpoint = stored
            session = Session(self._model, conversation, state, [checkpoint])
            return Taken(Lease(session, checkpoint, reason), "ssd", reason)
        lease = self.bank.take(self._model, prompt, conversation, said, empty)
        if lease.position == 0 and reason is not None:
            lease.reason = reason
        return Taken(lease, "ram" if lease.position else None, lease.reason)

    def _from_store(
        self,
        prompt: Sequence[int],
        deeper_than: int,
        empty: Callable[[], State],
        note_use: bool,
    ) -> tuple[tuple[State, Checkpoint] | None, Reason | None]:
        if self._persistence is None:
            return None, None
        fingerprint = self._persistence.fingerprint()
        if fingerprint is None:
            return None, Reason.FINGERPRINT_PENDING
        store = self._persistence.store
        # At least one token of the prompt must be left to forward.
        found = store.lookup(fingerprint, prompt[:-1], deeper_than=deeper_than)
        if found.position == 0:
            return None, why_not_from_store(found.reason)
        try:
            line, missed = read_line(store, found, prompt, empty(), note_use)
            return line, why_not_from_store(missed)
        except (KeyError, ValueError):
            return None, Reason.LAYOUT_REFUSED

    def give_back(self, session: Session, tip: Checkpoint | None, mode: Mode) -> None:
        """Keep a whole session; ``tip`` is the checkpoint that outlives the process."""
        if mode == "off":
            return
        persistence = self._persistence
        fingerprint = persistence.fingerprint() if persistence else None
        if persistence is not None and fingerprint is not None and tip is not None:
            first = session.checkpoints[0]
            shared = [(first, "prefix")] if first.position < tip.position else []
            for checkpoint, role in [*shared, (tip, "tip")]:
                if worth_keeping(session.state, checkpoint, persistence.min_tokens):
                    save_line(
                        persistence.store,
                        fingerprint,
                        session.state,
                        checkpoint,
                        session.conversation,
                        role,
                    )
        self.bank.give_back(session)
