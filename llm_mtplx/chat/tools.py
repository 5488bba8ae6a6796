"""Tools and their calls in the words of chat templates. No MLX, no tokenizer."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .pieces import Call

Message = dict[str, Any]


def declare(name: str, description: str | None, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """One function, its keys in one order: the same meaning gives the same prompt."""
    function = {"name": name, "parameters": parameters}
    if description:
        function["description"] = description
    declared: dict[str, Any] = _ordered({"type": "function", "function": function})
    return declared


def declared(tools: Iterable[tuple[str, str | None, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """(name, description, parameters) of each: one of a name, the last, in one order, whatever
    order they came in."""
    by_name = {name: declare(name, text, parameters) for name, text, parameters in tools}
    return [by_name[name] for name in sorted(by_name)]


def _ordered(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _ordered(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_ordered(part) for part in value]
    return value


def names_of(tools: Iterable[Mapping[str, Any]]) -> list[str]:
    return [tool["function"]["name"] for tool in tools]


def answer_message(text: str, reasoning: str, calls: Iterable[Call]) -> Message:
    """An answer as a message of the history."""
    message: Message = {"role": "assistant", "content": text}
    # Templates look for a think block in the content of a message that has no reasoning.
    if reasoning or "</think>" in text:
        message["reasoning_content"] = reasoning
    made = [
        {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]
    if made:
        message["tool_calls"] = made
    return message


def results_for(calls: Sequence[Call]) -> list[Message]:
    """What may follow an answer: the results of its calls, or else a question."""
    if not calls:
        return [{"role": "user", "content": "x"}]
    return [{"role": "tool", "name": call.name, "content": "x"} for call in calls]


def said(message: Message) -> tuple[str, str, str]:
    """An answer's text, reasoning and calls, to compare it with another."""
    calls = json.dumps(message.get("tool_calls", []), sort_keys=True)
    return message["content"], message.get("reasoning_content", ""), calls


def all_said(messages: Iterable[Message]) -> set[tuple[str, str, str]]:
    return {said(message) for message in messages if message["role"] == "assistant"}
