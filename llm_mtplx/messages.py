"""llm's messages in the words of chat templates."""

from collections.abc import Collection
from typing import Any, TypeGuard

from llm.parts import (
    AttachmentPart,
    Message,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

from .chat.pieces import Call
from .chat.tools import answer_message
from .errors import RequestError


def template_messages(messages: list[Message], system: str | None) -> list[dict[str, Any]]:
    """The whole history as chat templates take it.

    ``system`` is this call's system prompt; it takes the place of the one the conversation began
    with, which is the first message.
    """
    rendered = []
    for message in messages:
        rendered += _template_message(message)
    if system:
        if rendered and rendered[0]["role"] == "system":
            rendered = rendered[1:]
        rendered.insert(0, {"role": "system", "content": system})
    return rendered


def without_failed_turns(messages: list[Message]) -> tuple[list[Message], int]:
    """A conversation's messages without the turns that failed, and how many those are.

    llm logs a turn that raised, or was stopped before its first token, with an empty answer, and
    the question stays in the history: what was wrong with it would be wrong with every later turn
    too. A question that another question follows has no answer; a call that one follows has no
    result. The last turn is the one to answer, whatever it looks like.
    """
    turns: list[list[Message]] = [[]]
    for message in messages:
        if message.role == "user" and turns[-1] and not _is_opening(turns[-1]):
            turns.append([])
        turns[-1].append(message)
    whole, failed = [], 0
    for turn in turns[:-1]:
        if _has_failed(turn):
            failed += 1
            turn = [message for message in turn if message.role == "system"]
        whole += turn
    return whole + turns[-1], failed


def _is_opening(turn: list[Message]) -> bool:
    return all(message.role == "system" for message in turn)


def _has_failed(turn: list[Message]) -> bool:
    said = [message for message in turn if message.role in ("assistant", "tool") and message.parts]
    if not said:
        return any(message.role == "user" for message in turn)
    return said[-1].role == "assistant" and any(_is_call(part) for part in said[-1].parts)


def _is_call(part: object) -> TypeGuard[ToolCallPart]:
    """llm keeps the beginning of a call whose end never came as ``_raw``; it was not made."""
    return isinstance(part, ToolCallPart) and list(part.arguments or ()) != ["_raw"]


def _template_message(message: Message) -> list[dict[str, Any]]:
    attached = any(
        isinstance(part, AttachmentPart) or (isinstance(part, ToolResultPart) and part.attachments)
        for part in message.parts
    )
    if attached:
        raise RequestError("This model accepts text only; the conversation has an attachment.")
    if message.role == "tool":
        return [
            {"role": "tool", "name": part.name, "content": part.output}
            for part in message.parts
            if isinstance(part, ToolResultPart)
        ]
    content = "".join(part.text for part in message.parts if isinstance(part, TextPart))
    if message.role != "assistant":
        return [{"role": message.role, "content": content}]
    reasoning = "".join(part.text for part in message.parts if isinstance(part, ReasoningPart))
    calls = [Call(part.name, part.arguments) for part in message.parts if _is_call(part)]
    return [answer_message(content, reasoning, calls)]


def check_calls(messages: list[Message], offered: Collection[str]) -> str:
    """That every call has its result and every result its call. Returns the names of called
    functions that are not offered any more, without those that the model made up."""
    waiting: list[tuple[str | None, str]] = []  # id and name of calls without a result so far
    called: dict[str, None] = {}
    for message in messages:
        if message.role != "tool" and waiting:
            break
        for part in message.parts:
            if _is_call(part):
                if not isinstance(part.arguments, dict):
                    raise RequestError(
                        f"The arguments of the call to {part.name!r} are not a JSON object."
                    )
                waiting.append((part.tool_call_id, part.name))
            elif isinstance(part, ToolResultPart):
                asked = [call for call in waiting if call[0] == part.tool_call_id]
                if not asked:
                    raise RequestError(
                        f"The conversation has a result of {part.name!r} without a matching call."
                    )
                waiting.remove(asked[0])
                # So llm answers a call of what was never offered; a function may be gone since.
                if part.output != f'Error: tool "{part.name}" does not exist':
                    called[part.name] = None
    if waiting:
        raise RequestError(f"The conversation has a call to {waiting[0][1]!r} without its result.")
    return ", ".join(repr(name) for name in called if name not in offered)
