"""Answers with a schema: the rules of one turn, and its end."""

from typing import TYPE_CHECKING

from ..errors import RequestError
from .load import LoadedModel
from .protocol import FinishReason, Request

if TYPE_CHECKING:
    from ..chat.grammar import SchemaRules


def rules_for(model: LoadedModel, request: Request, thinking: bool) -> "SchemaRules | None":
    """``thinking``: whether the prompt leaves a think block open."""
    if request.schema is None:
        return None
    # llguidance is loaded where it is needed only.
    from ..chat.grammar import SchemaRules

    return SchemaRules(request.schema, model.tokenizer, model.eos_ids, thinking)


def check_complete(rules: "SchemaRules | None", finish: FinishReason, room: int) -> None:
    """Half of a JSON document is of no use to anybody."""
    if rules is not None and finish == "length" and not rules.complete:
        raise RequestError(
            f"The answer reached its limit of {room:,} tokens before its JSON was complete. "
            "Raise -o max_tokens, or turn thinking off."
        )
