"""Reading, while nobody waits, what the next prompt will begin with.

Where a template writes an answer otherwise than it was made, the next turn would have to read the
whole answer again before its own first new token. Lives on the engine's thread.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ..architectures.state import State
from ..protocol import Request
from ..sessions.keeper import Keeper
from ..sessions.session import Checkpoint
from ..speculative.decoder import Decoder
from ..speculative.distributions import Sampling
from .load import LoadedModel


@dataclass(frozen=True)
class Ahead:
    """A turn that has ended, and the ids that the next one of its conversation begins with."""

    request: Request
    model: str  # the loaded model's key
    ids: list[int]


def read(model: LoadedModel, keeper: Keeper, ahead: Ahead, busy: Callable[[], bool]) -> None:
    """Keep the state after ``ahead.ids`` in RAM, or as far as it came when somebody comes."""
    request = ahead.request
    taken = keeper.take(
        ahead.ids,
        request.conversation,
        set(),
        lambda: State.empty(model.trunk, model.head),
        "on",
        persist=False,
    )
    session, position = taken.loan.session, taken.loan.position
    with keeper.not_lost(taken.loan, "on"):
        decoder = Decoder(model.trunk, model.head, Sampling(), state=session.state)
        for _ in decoder.prefill(ahead.ids[position:], last=position):
            if busy():
                break
        decoder.settle()
        if decoder.state.position > position:
            session.checkpoints.append(Checkpoint.of(decoder.state))
    keeper.give_back(session, None, "on")
