"""Answers of a schema, and those that must be a call: the rules of one turn, and its end."""

from typing import TYPE_CHECKING

from ..errors import RequestError
from ..protocol import FinishReason, Request
from ..speculative.masks import Masks, Until, Without
from .load import LoadedModel

if TYPE_CHECKING:
    from ..chat.answer import Answer
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
    model: LoadedModel,
    request: Request,
    rules: "AnswerRules | None",
    finish: FinishReason,
    prompt_tokens: int,
    answer: "Answer",
) -> None:
    """Half of a JSON document, or of a call, is of no use to anybody."""
    if rules is None or finish != "length" or rules.complete:
        return
    what = "call" if request.must_call else "JSON"
    full = prompt_tokens + answer.tokens >= model.context_window
    limit = f"the end of the context, {model.context_window:,} tokens," if full else "its limit"
    after = "" if full else f" of {answer.tokens:,} tokens"
    raise RequestError(
        f"The answer reached {limit}{after} before its {what} was complete. "
        + _why_not_complete(request, answer, full)
    )


def _why_not_complete(request: Request, answer: "Answer", full: bool) -> str:
    """What took the room, and what to do about it."""
    bound = "limit the schema's strings and arrays (maxLength, maxItems)"
    if answer.cycles.now is not None:
        limited = "" if request.schema is None else f", {bound}"
        return (
            f"It repeats itself ({answer.cycles.now}), so more room would not help. Change the "
            f"prompt{limited}, or set repetition_penalty to 1.1."
        )
    remedy = "Shorten the prompt, or start a new conversation" if full else "Raise max_tokens"
    if 2 * answer.reasoning_tokens > answer.tokens:
        return (
            f"{answer.reasoning_tokens:,} of these tokens are reasoning. {remedy}, set "
            "thinking_budget, or turn thinking off."
        )
    return f"{remedy}." if request.schema is None else f"{remedy}, or {bound}."
