"""A call's arguments come while they are written, in every API, and are those of a whole answer."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from llm_mtplx.attach.wire import event_from, event_line
from llm_mtplx.catalog.entries import Entry
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.protocol import Event, Finished, Text, ToolCall, ToolCallPart
from llm_mtplx.server import chat_completions, messages
from llm_mtplx.server.response_frames import Items

GIVEN: dict[str, Any] = {"path": "a.py", "text": 'one\n"two" \u00e9', "count": 7}
WHOLE = json.dumps(GIVEN, ensure_ascii=False)
CALL = ToolCall("edit", GIVEN)
PARTS = [
    ToolCallPart("edit", WHOLE[at : at + 5], begins=at == 0) for at in range(0, len(WHOLE) - 8, 5)
]
DONE = Finished("tool_calls", 9, 5, 0, 1, 0, [], [], None, 0, None, None, 0.0, 1.5, 1.0, 0.0, 0)
SAID = {"model": "mtplx-demo", "messages": [{"role": "user", "content": "Hello"}]}


def about(api: str) -> Any:
    if api == "chat":
        body = chat_completions.ChatCompletion.model_validate(SAID)
        return chat_completions._About(Entry("mtplx-demo", MODEL_DIR), body)
    return messages._About("mtplx-demo") if api == "messages" else Items({})


def frames(api: str, events: list[Event]) -> list[dict[str, Any]]:
    async def read() -> list[bytes]:
        async def each() -> AsyncIterator[Event | None]:
            for event in events:
                yield event_from(event_line(event))  # as an attached process gets it

        return [frame async for frame in about(api).frames(each())]

    told = [frame.decode().split("data: ", 1)[1] for frame in asyncio.run(read())]
    return [json.loads(frame) for frame in told if not frame.startswith("[DONE]")]


def calls_of(api: str, told: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """Name and pieces of each call, as clients put them together."""
    calls: dict[Any, tuple[str, list[str]]] = {}
    for frame in told:
        if api == "chat":
            for choice in frame["choices"]:
                for call in choice["delta"].get("tool_calls", []):
                    function = call["function"]
                    assert ("id" in call) == ("name" in function) == (call["index"] not in calls)
                    calls.setdefault(call["index"], (function.get("name"), []))
                    calls[call["index"]][1].append(function["arguments"])
        elif api == "messages":
            block = frame.get("content_block", {})
            if block.get("type") == "tool_use":
                calls[frame["index"]] = (block["name"], [])
            if frame.get("delta", {}).get("type") == "input_json_delta":
                calls[frame["index"]][1].append(frame["delta"]["partial_json"])
        elif frame["type"] == "response.output_item.added":
            if frame["item"]["type"] == "function_call":
                calls[frame["item"]["id"]] = (frame["item"]["name"], [])
        elif frame["type"] == "response.function_call_arguments.delta":
            calls[frame["item_id"]][1].append(frame["delta"])
    return list(calls.values())


@pytest.mark.parametrize("api", ["chat", "messages", "responses"])
def test_parts_are_told_as_they_come(api: str) -> None:
    other = ToolCall("now", {})
    calls = calls_of(api, frames(api, [Text("Hm."), *PARTS, CALL, other, *PARTS, CALL, DONE]))
    assert [(name, "".join(parts)) for name, parts in calls] == [
        ("edit", WHOLE),
        ("now", "{}"),
        ("edit", WHOLE),
    ]
    for name, parts in calls:
        assert (len(parts) == len(PARTS) + 1) == (name == "edit")


@pytest.mark.parametrize("api", ["chat", "messages", "responses"])
def test_a_call_that_is_never_whole_stays_a_beginning(api: str) -> None:
    """Text may follow it, and another call; and the answer may end."""
    events = [*PARTS, Text("<tool_call>"), *PARTS, CALL, *PARTS, DONE]
    told = frames(api, events)
    sent = ["".join(parts) for _, parts in calls_of(api, told)]
    begun = "".join(part.text for part in PARTS)
    assert sent == [begun, WHOLE, begun]
    if api == "responses":
        output = told[-1]["response"]["output"]
        statuses = [item["status"] for item in output if item["type"] == "function_call"]
        assert statuses == ["incomplete", "completed", "incomplete"]
