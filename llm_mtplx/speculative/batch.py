"""A round for every conversation of a batch, in one forward a phase."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .decoder import Decoder, Round
from .step import step


@dataclass(frozen=True)
class Plan:
    """What one conversation's next round may do: see ``Decoder.steps``."""

    depth: int
    room: int
    ends: Callable[[int], bool]
    copies: range | None = None


def advance(batch: Sequence[tuple[Decoder, Plan]]) -> list[Round | Exception]:
    """One round each, of conversations of one model; what one failed with is its result.

    Where the forward of several fails, all come back to where they were and go on one by one.
    """
    if len(batch) == 1:
        return [_alone(*batch[0])]
    first = batch[0][0]
    marks = [decoder.state.mark() for decoder, _ in batch]
    steps = [
        decoder.steps(plan.depth, plan.room, plan.ends, plan.copies) for decoder, plan in batch
    ]
    try:
        return step(first.trunk, first.head, steps)
    except Exception:
        for each, (decoder, _), mark in zip(steps, batch, marks, strict=True):
            each.close()
            decoder.state.go_back(mark)
        return [_alone(decoder, plan) for decoder, plan in batch]


def _alone(decoder: Decoder, plan: Plan) -> Round | Exception:
    try:
        return decoder.round(plan.depth, plan.room, plan.ends, plan.copies)
    except Exception as error:
        return error
