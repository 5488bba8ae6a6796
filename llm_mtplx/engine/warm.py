"""Reading a beginning that many prompts share, to keep its state."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..catalog.families import family_at
from ..chat.effort import as_the_family
from ..errors import RequestError
from ..sessions.bank import common_prefix
from ..sessions.keeper import Keeper
from ..sessions.session import Checkpoint
from ..speculative.decoder import Decoder
from ..speculative.distributions import Sampling
from ..speculative.state import State
from .load import LoadedModel
from .protocol import Request

FINGERPRINT_WAIT_S = 600.0
WRITE_WAIT_S = 600.0


@dataclass(frozen=True)
class Warmed:
    tokens: int  # of the beginning
    restored: int  # of them known before
    kept: bool  # whether the store has all of it


def warm(model: LoadedModel, keeper: Keeper, requests: Sequence[Request]) -> Warmed:
    """Keep the state after what all ``requests`` begin with."""
    system, beginning = _beginning(model, requests)
    if not beginning:
        raise RequestError("There is nothing to read: give a system prompt, template or fragment.")
    if len(beginning) >= model.context_window:
        raise RequestError(
            f"The beginning has {len(beginning):,} tokens; {requests[0].model_id} takes at most "
            f"{model.context_window - 1:,}."
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


def _beginning(model: LoadedModel, requests: Sequence[Request]) -> tuple[int, list[int]]:
    """Where the system prompt ends, and the ids that all ``requests`` begin with."""
    tokenizer, family = model.tokenizer, family_at(model.folder.path)
    texts = []
    for request in requests:
        request, _ = as_the_family(request, tokenizer, family)
        texts.append(
            tokenizer.render(request.messages, request.template_args, generation_prompt=False)
        )
    lines = [tokenizer.encode(text) for text in texts]
    shared = lines[0]
    for line in lines[1:]:
        shared = shared[: common_prefix(np.asarray(shared), np.asarray(line))]
    system = len(tokenizer.encode(texts[0][: max(texts[0].find("<|im_start|>user"), 0)]))
    opening = tokenizer.encode("<|im_start|>user\n")
    # A system prompt alone ends where every turn with it leaves a checkpoint.
    return system, shared[:system] if len(shared) <= system + len(opening) else shared
