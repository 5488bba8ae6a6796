"""Answers of a schema, and those that must be a call: the rules of one turn, and its end."""

from typing import TYPE_CHECKING

from ..errors import RequestError
from ..speculative.masks import Masks, Until, Without
from .load import LoadedModel
from .protocol import FinishReason, Request

if TYPE_CHECKING:
    from ..chat.grammar import AnswerRules


def rules_for(model: LoadedModel, request: Request, thinking: bool) -> "AnswerRules | None":
    """``thinking``: whether the prompt leaves a think block open."""
    if request.schema is None and not request.must_call:
        return None
    # llguidance is loaded where it is needed only.
    from ..chat.forced import call_grammar
    from ..chat.grammar import AnswerRules, SchemaRules

    tokenizer = model.tokenizer
    if request.schema is not None:
        return SchemaRules(request.schema, tokenizer, model.eos_ids, thinking)
    answer = call_grammar(request.tools, request.must_call, tokenizer)
    return AnswerRules(answer, tokenizer, model.eos_ids, thinking)


def masks_for(
    model: LoadedModel, request: Request, rules: "AnswerRules | None", thinking: bool
) -> Masks | None:
    """Those of the rules; else, where declared tools are not to be called, of the token that
    begins a call, and where they may be called once, of the one that ends it."""
    if rules is not None:
        return Masks(rules)
    if not request.tools or (request.calls and not request.one_call):
        return None
    tokenizer = model.tokenizer
    known = len(tokenizer.token_bytes)
    tag = tokenizer.encode("</tool_call>" if request.calls else "<tool_call>")
    if len(tag) > 1:
        return None
    if not request.calls:
        return Masks(Without(tag[0], known))
    # What reasoning says of calls is none.
    opener = tokenizer.think_end if thinking else None
    return Masks(Until(tag[0], model.eos_ids, known, opener))


def check_complete(
    request: Request, rules: "AnswerRules | None", finish: FinishReason, room: int
) -> None:
    """Half of a JSON document, or of a call, is of no use to anybody."""
    if rules is not None and finish == "length" and not rules.complete:
        what = "call" if request.must_call else "JSON"
        raise RequestError(
            f"The answer reached its limit of {room:,} tokens before its {what} was complete. "
            "Raise -o max_tokens, or turn thinking off."
        )
