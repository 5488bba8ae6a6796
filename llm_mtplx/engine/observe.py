"""What the engine has done and is doing, for whoever watches it.

Written on the engine's thread, read from any: what is handed out is never changed afterwards.
Imports no MLX.
"""

import logging
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from ..protocol import Finished, Request
from .pace import Pace

logger = logging.getLogger(__name__)

RECENT_TURNS = 20
TTFT_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
GAP_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


@dataclass
class Histogram:
    """Seconds, counted in buckets."""

    ends: tuple[float, ...]  # of the buckets; one more has no end
    counts: Counter[float] = field(default_factory=Counter)
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[next((end for end in self.ends if seconds <= end), float("inf"))] += 1
        self.total += seconds


@dataclass
class Totals:
    """Since the engine began."""

    turns: Counter[str] = field(default_factory=Counter)  # by how they ended
    prompt_tokens: int = 0
    restored: Counter[str] = field(default_factory=Counter)  # tokens, by where they came from
    output_tokens: int = 0
    decode_s: float = 0.0
    prefill_s: float = 0.0
    rounds: int = 0
    drafted: Counter[int] = field(default_factory=Counter)  # by position in the draft
    accepted: Counter[int] = field(default_factory=Counter)
    not_kept: int = 0  # turns whose state was lost to an error
    missed: Counter[str] = field(default_factory=Counter)  # turns, by reason
    ttft: Histogram = field(default_factory=lambda: Histogram(TTFT_BUCKETS_S))  # turns
    gaps: Histogram = field(default_factory=lambda: Histogram(GAP_BUCKETS_S))  # inside answers

    def add(self, turn: Finished) -> None:
        self.turns[turn.finish_reason] += 1
        self.prompt_tokens += turn.prompt_tokens
        self.output_tokens += turn.output_tokens
        self.decode_s += turn.decode_s
        self.prefill_s += turn.prefill_s
        self.rounds += turn.rounds
        self.drafted.update(dict(enumerate(turn.drafted)))
        self.accepted.update(dict(enumerate(turn.accepted)))
        if turn.source:
            self.restored[turn.source] += turn.restored
        if turn.miss_reason:
            self.missed[turn.miss_reason] += 1
        if turn.output_tokens:
            self.ttft.add(turn.ttft_s)


@dataclass(frozen=True)
class Running:
    """A turn in progress."""

    model: str
    phase: str
    since: float  # time.monotonic()
    now: float = 0.0  # when this was so
    done: int = 0
    total: int = 0


class Observer:
    def __init__(self) -> None:
        self.began = time.time()
        self.totals = Totals()
        self._running: dict[int, Running] = {}  # by their numbers
        self._begun = 0
        self.memory: dict[str, Any] = {}  # models, session_bank and MLX's own, as last published
        self.last_turn = time.monotonic()
        self.last_error = ""  # of what comes after an answer
        self.pace = Pace()
        self._recent: deque[dict[str, Any]] = deque(maxlen=RECENT_TURNS)

    @property
    def recent(self) -> list[dict[str, Any]]:
        """The latest turns, newest first."""
        return list(reversed(tuple(self._recent)))

    @property
    def running(self) -> tuple[Running, ...]:
        """The turns in progress, who began first first."""
        return tuple(self._running.copy().values())

    def begin(self, request: Request) -> int:
        """The number under which the turn is told of."""
        self._begun += 1
        self._running[self._begun] = Running(request.model_id, "waiting", time.monotonic())
        return self._begun

    def progress(self, number: int, phase: str, done: int = 0, total: int = 0) -> None:
        running = self._running.get(number)
        if running is not None:
            now = time.monotonic()
            if phase == "answering":
                goes_on = running.phase == phase
                self.pace.made(now, done - (running.done if goes_on else 0))
                if goes_on:
                    self.totals.gaps.add(now - running.now)
            self._running[number] = Running(running.model, phase, running.since, now, done, total)

    def finish(self, number: int, request: Request, turn: Finished) -> None:
        self._ended(number)
        self.totals.add(turn)
        self._recent.append(
            {
                "time": time.time(),
                "model": request.model_id,
                "finish_reason": turn.finish_reason,
                "prompt_tokens": turn.prompt_tokens,
                "cached": turn.restored,
                "cached_from": turn.source,
                "miss_reason": turn.miss_reason,
                "miss_meaning": _meaning(turn.miss_reason),
                "output_tokens": turn.output_tokens,
                # A turn that was interrupted while its prompt was read has none.
                "ttft_ms": round(turn.ttft_s * 1000, 1) if turn.output_tokens else None,
                "generation_tps": round((turn.output_tokens - 1) / turn.decode_s, 1)
                if turn.output_tokens > 1 and turn.decode_s > 0
                else None,
                "depth": turn.depth,
                "drafted": turn.drafted,
                "accepted": turn.accepted,
                "seed": turn.seed,
            }
        )

    def fail(self, number: int) -> None:
        self._ended(number)
        self.totals.turns["error"] += 1

    def not_kept(self, error: Exception) -> None:
        """The answer is out, and its state is lost. One line a process."""
        if not self.totals.not_kept:
            logger.warning("a turn's state was not saved; answers are not affected: %r", error)
        self.totals.not_kept += 1
        self.last_error = repr(error)

    def _ended(self, number: int) -> None:
        self._running.pop(number, None)
        self.last_turn = time.monotonic()


def _meaning(reason: str | None) -> str | None:
    from ..sessions.reasons import Reason  # not where an engine is only attached to

    return next((known.meaning for known in Reason if known == reason), None)
