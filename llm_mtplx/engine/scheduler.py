"""Which turns go on next: the rounds of all that answer together, and one slice of a prompt.

Turns yield (``Turn.steps``) before each slice of their prompt and before each round. Between two
slices everybody who answers gets a round, so that nobody waits longer for a long prompt than one
slice takes.
"""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ..speculative.batch import Plan, advance
from ..speculative.decoder import Round

if TYPE_CHECKING:
    from ..protocol import Finished
    from .turn import Turn

# Yielded: None before a slice, a plan before a round. Sent: what became of the round, and the
# seconds that it took where it was alone.
Sent: TypeAlias = "tuple[Round, float | None] | None"
T = TypeVar("T")
Steps: TypeAlias = Generator[Plan | None, Sent, T]


@dataclass
class Seat:
    """A turn in progress, or one that waits for others."""

    turn: "Turn"
    steps: "Steps[Finished]"
    ended: Callable[["Finished | Exception"], None]
    begun: bool = False
    plan: Plan | None = None  # of its next round; None: a slice comes next


class Scheduler:
    """The turns in progress. Lives on the engine's thread."""

    def __init__(self, fit: "Callable[[Sequence[Turn]], bool]" = lambda turns: True) -> None:
        """``fit``: whether there is memory for so many turns of one model."""
        self._fit = fit
        self._seats: list[Seat] = []  # who came first is first

    def __len__(self) -> int:
        return len(self._seats)

    def __iter__(self) -> "Iterator[Turn]":
        return (seat.turn for seat in self._seats)

    def admit(self, turn: "Turn", ended: "Callable[[Finished | Exception], None]") -> bool:
        """``ended`` gets how the turn went, or what it failed with. False where it does not begin
        yet."""
        self._seats.append(Seat(turn, turn.steps(), ended))
        self._begin()
        return turn not in [seat.turn for seat in self._seats if not seat.begun]

    def _begin(self) -> None:
        """Nobody is let past one who waits for memory. Who shares the beginning of a prompt that is
        being read, such as a system prompt, waits for it instead of reading it again."""
        for seat in tuple(self._seats):
            if seat.begun:
                continue
            turn = seat.turn
            beside = [s for s in self._seats if s.begun and s.turn.model is turn.model]
            if not turn.cancelled:
                if beside and not self._fit([*(s.turn for s in beside), turn]):
                    return
                if any(s.plan is None and s.turn.will_read(turn) for s in beside):
                    continue
                if beside:
                    try:
                        turn.look_again()
                    except Exception as error:
                        self._leave(seat, error)
                        continue
            seat.begun = True
            self._go_on(seat, None)

    def step(self) -> None:
        """A round for each model's turns that answer, and a slice for one that reads."""
        self._begin()
        answering: dict[str, list[Seat]] = {}
        for seat in self._seats:
            if seat.plan is not None:
                answering.setdefault(seat.turn.model.key, []).append(seat)
        for seats in answering.values():
            self._round(seats)
        reading = [seat for seat in self._seats if seat.begun and seat.plan is None]
        # Who has left need not wait for those who came before.
        reading.sort(key=lambda seat: not seat.turn.cancelled)
        if reading:
            self._go_on(reading[0], None)

    def _round(self, seats: list[Seat]) -> None:
        company = len(seats)
        batch = []
        for seat in seats:
            assert seat.plan is not None
            plan = seat.turn.plan_in(company, seat.plan) if company > 1 else seat.plan
            batch.append((seat.turn.decoder, plan))
        before = time.perf_counter()
        rounds = advance(batch)
        seconds = time.perf_counter() - before if company == 1 else None
        for seat, done in zip(seats, rounds, strict=True):
            if isinstance(done, Exception):
                self._fail(seat, done)
            else:
                self._go_on(seat, (done, seconds))

    def _go_on(self, seat: Seat, sent: Sent) -> None:
        self._next(seat, lambda: seat.steps.send(sent))

    def _fail(self, seat: Seat, error: Exception) -> None:
        self._next(seat, lambda: seat.steps.throw(error))

    def _next(self, seat: Seat, go: Callable[[], Plan | None]) -> None:
        try:
            seat.plan = go()
        except StopIteration as end:
            self._leave(seat, end.value)
        except Exception as error:
            self._leave(seat, error)

    def _leave(self, seat: Seat, result: "Finished | Exception") -> None:
        self._seats.remove(seat)
        seat.ended(result)


def alone(turn: "Turn") -> "Finished":
    """One turn from beginning to end."""
    results: list[Finished | Exception] = []
    scheduler = Scheduler()
    scheduler.admit(turn, results.append)
    while not results:
        scheduler.step()
    (result,) = results
    if isinstance(result, Exception):
        raise result
    return result
