"""A response's output items, whole or as they come."""

import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any

from ..errors import MtplxError
from ..protocol import Event, Finished, Reasoning, Text, ToolCall, ToolCallPart
from . import tools
from .errors import ApiError, of_turn
from .gateway import Answer
from .sse import ALIVE, frame
from .usage import responses_usage

ARGUMENTS = "response.function_call_arguments"


class Items:
    """One response; at most one of its items is open at a time."""

    def __init__(self, head: dict[str, Any]) -> None:
        self._head = {
            "id": f"resp_{uuid.uuid4().hex}",
            "created_at": int(time.time()),
            **head,
        }
        self._output: list[dict[str, Any]] = []
        self._open: dict[str, Any] | None = None
        self._frames = 0

    def whole(self, answer: Answer) -> dict[str, Any]:
        if answer.reasoning:
            self._output.append(_reasoning(answer.reasoning, "completed"))
        if answer.text or not answer.calls:
            self._output.append(_message(answer.text, "completed"))
        self._output += [_call(call.name, tools.dumped(call.arguments)) for call in answer.calls]
        return self._finished(answer.finished)

    def failed(self, error: ApiError) -> Iterator[bytes]:
        """A stream of a response that never began to be answered."""
        begun = self._response("in_progress")
        yield self._frame("response.created", response=begun)
        told = {"code": error.code or "server_error", "message": error.message}
        failed = {**self._response("failed"), "error": told}
        yield self._frame("response.failed", response=failed)

    async def frames(self, events: AsyncIterator[Event | None]) -> AsyncGenerator[bytes, None]:
        begun = self._response("in_progress")
        yield self._frame("response.created", response=begun)
        yield self._frame("response.in_progress", response=begun)
        try:
            async for event in events:
                if event is None:
                    yield ALIVE
                elif isinstance(event, Finished):
                    if not self._output and self._open is None:
                        yield self._begin(_message("", "in_progress"))
                        yield self._part_added()
                    for piece in self._close():
                        yield piece
                    whole = self._finished(event)
                    yield self._frame(f"response.{whole['status']}", response=whole)
                else:
                    for piece in self._take(event):
                        yield piece
        except MtplxError as error:
            told = {"code": "server_error", "message": of_turn(error).message}
            if self._open is not None:
                self._output.append({**self._open, "status": "incomplete"})
            failed = {**self._response("failed"), "error": told}
            yield self._frame("response.failed", response=failed)

    def _take(self, event: Event) -> list[bytes]:
        if isinstance(event, Text):
            return self._add("message", _message("", "in_progress"), event.text)
        if isinstance(event, Reasoning):
            return self._add("reasoning", _reasoning("", "in_progress"), event.text)
        if isinstance(event, ToolCallPart):
            pieces = self._call(event.name) if event.begins else []
            return [*pieces, self._arguments(event.text)]
        if isinstance(event, ToolCall):
            writing = self._open is not None and self._open["type"] == "function_call"
            pieces = [] if writing else self._call(event.name)
            assert self._open is not None
            given = tools.dumped(event.arguments)
            pieces.append(self._arguments(given.removeprefix(self._open["arguments"])))
            item = {**self._open, "status": "completed"}
            told = {"item_id": item["id"], "output_index": len(self._output)}
            done = f"{ARGUMENTS}.done"
            pieces.append(self._frame(done, **told, name=item["name"], arguments=given))
            return [*pieces, self._end(item)]
        return []

    def _call(self, name: str) -> list[bytes]:
        return [*self._close(), self._begin({**_call(name, ""), "status": "in_progress"})]

    def _arguments(self, part: str) -> bytes:
        assert self._open is not None
        self._open["arguments"] += part
        told = {"item_id": self._open["id"], "output_index": len(self._output)}
        return self._frame(f"{ARGUMENTS}.delta", **told, delta=part)

    def _add(self, kind: str, item: dict[str, Any], text: str) -> list[bytes]:
        """``text`` in the open item if it is of this kind, else in ``item``."""
        pieces = []
        if self._open is None or self._open["type"] != kind:
            pieces = [*self._close(), self._begin(item), self._part_added()]
        assert self._open is not None
        self._open["content"][0]["text"] += text
        return [
            *pieces,
            self._frame(f"response.{self._part()['type']}.delta", **self._at(), delta=text),
        ]

    def _begin(self, item: dict[str, Any]) -> bytes:
        self._open = item
        shown = {**item, "content": []} if "content" in item else item
        at = len(self._output)
        return self._frame("response.output_item.added", output_index=at, item=shown)

    def _part_added(self) -> bytes:
        return self._frame("response.content_part.added", **self._at(), part=dict(self._part()))

    def _close(self) -> list[bytes]:
        item = self._open
        if item is None:
            return []
        if item["type"] == "function_call":  # it was not written to its end
            return [self._end({**item, "status": "incomplete"})]
        part, at = self._part(), self._at()
        done = f"response.{part['type']}.done"
        return [
            self._frame(done, **at, text=part["text"]),
            self._frame("response.content_part.done", **at, part=dict(part)),
            self._end({**item, "status": "completed"}),
        ]

    def _end(self, item: dict[str, Any]) -> bytes:
        at = len(self._output)
        self._output.append(item)
        self._open = None
        return self._frame("response.output_item.done", output_index=at, item=item)

    def _part(self) -> dict[str, Any]:
        assert self._open is not None
        part: dict[str, Any] = self._open["content"][0]
        return part

    def _at(self) -> dict[str, Any]:
        assert self._open is not None
        return {
            "item_id": self._open["id"],
            "output_index": len(self._output),
            "content_index": 0,
        }

    def _finished(self, turn: Finished) -> dict[str, Any]:
        cut = turn.finish_reason == "length"
        whole = self._response("incomplete" if cut else "completed")
        whole["incomplete_details"] = {"reason": "max_output_tokens"} if cut else None
        return {**whole, "usage": responses_usage(turn)}

    def _response(self, status: str) -> dict[str, Any]:
        return {
            **self._head,
            "status": status,
            "incomplete_details": None,
            "output": list(self._output),
            "usage": None,
        }

    def _frame(self, kind: str, **content: Any) -> bytes:
        self._frames += 1
        return frame({"type": kind, "sequence_number": self._frames - 1, **content}, kind)


def _message(text: str, status: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {
        "id": f"msg_{uuid.uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": [part],
    }


def _reasoning(text: str, status: str) -> dict[str, Any]:
    return {
        "id": f"rs_{uuid.uuid4().hex}",
        "type": "reasoning",
        "status": status,
        "summary": [],
        "content": [{"type": "reasoning_text", "text": text}],
    }


def _call(name: str, arguments: str) -> dict[str, Any]:
    return {
        "id": f"fc_{uuid.uuid4().hex}",
        "type": "function_call",
        "status": "completed",
        "call_id": f"call_{uuid.uuid4().hex[:24]}",
        "name": name,
        "arguments": arguments,
    }
