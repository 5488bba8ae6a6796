"""Answers with a schema: the rules of one turn, and its end."""

from typing import TYPE_CHECKING

from ..errors import RequestError
from ..speculative.masks import Masks, Without
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


def masks_for(model: LoadedModel, request: Request, rules: "SchemaRules | None") -> Masks | None:
    """Those of a schema; else, where declared tools are not to be called, of the token that
    begins a call."""
    if rules is not None:
        return Masks(rules)
    if not request.tools or request.calls:
        return None
    begins = model.tokenizer.encode("<tool_call>")
    known = len(model.tokenizer.token_bytes)
    return Masks(Without(begins[0], known)) if len(begins) == 1 else None


def check_complete(rules: "SchemaRules | None", finish: FinishReason, room: int) -> None:
    """Half of a JSON document is of no use to anybody."""
    if rules is not None and finish == "length" and not rules.complete:
        raise RequestError(
            f"The answer reached its limit of {room:,} tokens before its JSON was complete. "
            "Raise -o max_tokens, or turn thinking off."
        )
