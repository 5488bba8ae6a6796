"""Tokens a second and turns that wait, over the last minutes. Imports no MLX."""

from collections import deque
from dataclasses import dataclass

STEP_S = 5
STEPS = 60


@dataclass
class Step:
    number: int  # of STEP_S seconds since the clock began
    waiting: int  # turns at its end
    tokens: int = 0
    most_waiting: int = 0


class Pace:
    """Written on the engine's thread and where turns are queued; read from any."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque(maxlen=STEPS)

    def made(self, now: float, tokens: int) -> None:
        self._step(now).tokens += tokens

    def waits(self, now: float, count: int) -> None:
        step = self._step(now)
        step.waiting = count
        step.most_waiting = max(step.most_waiting, count)

    def _step(self, now: float) -> Step:
        number = int(now // STEP_S)
        if not self._steps or self._steps[-1].number < number:
            before = self._steps[-1].waiting if self._steps else 0
            self._steps.append(Step(number, before, most_waiting=before))
        return self._steps[-1]

    def series(self, now: float) -> dict[str, list[float]]:
        """One value for each step of the last minutes, the oldest first; the last one runs."""
        last, steps = int(now // STEP_S), tuple(self._steps)
        first = last - STEPS + 1
        known = {step.number: step for step in steps}
        waits = [step.waiting for step in steps if step.number < first]
        before = waits[-1] if waits else 0
        tokens: list[float] = []
        waiting: list[float] = []
        for number in range(first, last + 1):
            step = known.get(number)
            tokens.append(step.tokens / STEP_S if step else 0.0)
            waiting.append(step.most_waiting if step else before)
            before = step.waiting if step else before
        return {"tokens_per_s": tokens, "waiting": waiting}
