"""Reading a beginning that many prompts share, to keep its state."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..architectures.state import State
from ..catalog.families import family_at
from ..errors import RequestError
from ..protocol import Request
from ..sessions.keeper import Keeper
from ..sessions.session import Checkpoint
from ..speculative.decoder import Decoder
from ..speculative.distributions import Sampling
from .beginning import beginning_of
from .load import LoadedModel

FINGERPRINT_WAIT_S = 600.0
WRITE_WAIT_S = 600.0


@dataclass(frozen=True)
class Warmed:
    tokens: int  # of the beginning
    restored: int  # of them known before
    kept: bool  # whether the store has all of it


def warm(model: LoadedModel, keeper: Keeper, requests: Sequence[Request]) -> Warmed:
    """Keep the state after what all ``requests`` begin with."""
    family = family_at(model.folder.path)
    system, beginning = beginning_of(model.tokenizer, family, requests)
    if not beginning:
        raise RequestError(
            "There is nothing to process: specify a system prompt, template or fragment."
        )
    if len(beginning) >= model.context_window:
        raise RequestError(
            f"The prefix has {len(beginning):,} tokens; {requests[0].model_id} accepts "
            f"at most {model.context_window - 1:,}."
        )
    keeper.wait_for_store(FINGERPRINT_WAIT_S)
    taken = keeper.take(
        beginning, None, set(), lambda: State.empty(model.trunk, model.head), "on", True
    )
    session, position = taken.loan.session, taken.loan.position
    with keeper.not_lost(taken.loan, "on"):
        decoder = Decoder(model.trunk, model.head, Sampling(), state=session.state)
        for _ in decoder.prefill(beginning[position:], [system]):
            if decoder.state.position == system < len(beginning):
                session.checkpoints.append(Checkpoint.of(decoder.state))
        decoder.settle()
        tip = Checkpoint.of(decoder.state)
        if position < len(beginning):
            session.checkpoints.append(tip)
    keeper.give_back(session, tip, "on", {system: "prefix"})
    return Warmed(len(beginning), position, keeper.is_stored(beginning, WRITE_WAIT_S))
