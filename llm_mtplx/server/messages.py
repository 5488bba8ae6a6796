"""POST /v1/messages and /v1/messages/count_tokens, as Anthropic has them."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, ValidationInfo, model_validator
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from ..catalog.entries import Entry
from ..engine.count import count_tokens
from ..errors import MtplxError
from ..protocol import Event, Finished, Reasoning, Request, Restored, Text, ToolCall, ToolCallPart
from . import tools
from .body import Body, Foreign, read
from .content import Content, part_text
from .errors import ApiError, anthropic_shape, of_turn
from .gateway import Answer, Gateway, hint
from .intake import apart
from .sampling import Sampling
from .sse import frame
from .usage import ANTHROPIC_STOP, anthropic_usage

# They change nothing here: what can be is cached without being asked for.
IGNORED = ("cache_control", "context_management", "inference_geo", "service_tier", "speed")


# What a count does not depend on.
COUNT_IGNORED = (*IGNORED, "max_tokens", "stop_sequences")
# What Anthropic's clients take as a reason to send the whole history, now and from then on.
NO_THREADS = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


class Block(Body):
    cache_control: Any = None  # ignored


class TextBlock(Block):
    type: Literal["text"]
    text: str
    citations: Any = None  # ignored


class ThinkingBlock(Block):
    type: Literal["thinking"]
    thinking: str
    signature: str = ""  # ignored


class HiddenBlock(Block):
    type: Literal["redacted_thinking"]
    data: str = ""  # ignored: nobody here can read it


class CallBlock(Block):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]
    caller: Any = None  # ignored


class ResultBlock(Block):
    type: Literal["tool_result"]
    tool_use_id: str
    content: Content = ""
    is_error: bool | None = None  # ignored: the content says so


Blocks = list[
    Annotated[
        TextBlock | ThinkingBlock | HiddenBlock | CallBlock | ResultBlock,
        Field(discriminator="type"),
    ]
]


KNOWN = ("text", "thinking", "redacted_thinking", "tool_use", "tool_result")


class Message(Body):
    role: Literal["user", "assistant", "system"]
    content: str | Blocks

    @model_validator(mode="before")
    @classmethod
    def _read_blocks(cls, value: Any, info: ValidationInfo) -> Any:
        """Other blocks as the text that they hold. What an earlier answer holds besides text,
        thinking and calls was its maker's own: searches, their results, marks."""
        if not isinstance(value, dict) or not isinstance(value.get("content"), list):
            return value
        blocks = []
        for block in value["content"]:
            kind = block.get("type") if isinstance(block, dict) else None
            if not isinstance(kind, str) or kind in KNOWN:
                blocks.append(block)
            elif value.get("role") == "assistant" and kind != "compaction":
                if info.context is not None:
                    info.context.add(f"messages.content.{kind}")
            else:
                blocks.append({"type": "text", "text": part_text(block, info.context)})
        return {**value, "content": blocks}


class Function(Block):
    type: Literal["custom"] = "custom"
    name: str
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None  # ignored
    input_examples: Any = None  # ignored
    eager_input_streaming: Any = None  # ignored


Tool = Annotated[
    Annotated[Function, Tag("function")] | Annotated[Foreign, Tag("foreign")],
    Discriminator(tools.kind_of(("custom",))),
]


class Choice(Body):
    type: Literal["auto", "none", "any"]
    disable_parallel_tool_use: bool = False


class NamedChoice(Body):
    type: Literal["tool"]
    name: str
    disable_parallel_tool_use: bool = False  # ignored: it is one call anyway


class Metadata(Body):
    user_id: str | None = None


class Thinking(Body):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = Field(default=None, ge=0)
    display: str | None = None  # ignored


class Format(Body):
    type: Literal["json_schema"]
    definition: dict[str, Any] = Field(alias="schema")


class Output(Body):
    format: Format | None = None
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None


class Prompt(Sampling):
    messages: list[Message] = Field(min_length=1)
    system: Content = ""
    tools: list[Tool] = Field(default=[])
    tool_choice: Choice | NamedChoice = Field(default=Choice(type="auto"), discriminator="type")
    thinking: Thinking = Thinking(type="adaptive")
    output_config: Output = Output()
    metadata: Metadata = Metadata()
    thread: dict[str, Any] | bool | None = None


class CreateMessage(Prompt):
    max_tokens: int = Field(ge=1)
    stop_sequences: list[Annotated[str, Field(min_length=1)]] = Field(default=[])


class CountTokens(Prompt):
    pass


async def messages(http: HttpRequest) -> Response:
    gateway: Gateway = http.app.state.gateway
    gateway.check_room()
    body = await read(http, CreateMessage, IGNORED)
    entry = gateway.entry(body.model)
    stop = tuple(body.stop_sequences)
    request = await apart(request_of, body, entry, body.max_tokens, stop)
    live = gateway.begin(http, request, hint(http, None, body.metadata.user_id))
    return await live.answer(_About(entry.model_id), body.stream)


async def count(http: HttpRequest) -> Response:
    gateway: Gateway = http.app.state.gateway
    body = await read(http, CountTokens, COUNT_IGNORED)
    request = await apart(request_of, body, gateway.entry(body.model))
    try:
        tokens = await asyncio.to_thread(count_tokens, request)
    except MtplxError as error:
        raise of_turn(error) from None
    return JSONResponse({"input_tokens": tokens})


def request_of(
    body: Prompt, entry: Entry, max_tokens: int | None = None, stop: tuple[str, ...] = ()
) -> Request:
    if body.thread:
        why = "Threads are not supported: send the whole history without 'thread'."
        raise ApiError(400, why, param="thread", details=NO_THREADS)
    declared = tools.functions_of(body.tools)
    functions = [
        tools.Function(name=t.name, description=t.description, parameters=t.input_schema)
        for t in declared
    ]
    thinking, effort = body.thinking, body.output_config.effort
    wanted = body.output_config.format
    if wanted is not None and declared:
        raise ApiError(400, "'output_config.format' and 'tools' cannot be used together.")
    told = {} if thinking.type == "adaptive" else {"enable_thinking": thinking.type == "enabled"}
    return Request(
        model_id=entry.model_id,
        folder=entry.path,
        messages=_template_messages(body),
        template_args={**tools.template_args(entry.path, functions), **told},
        stop=stop,
        max_tokens=max_tokens,
        thinking_budget=thinking.budget_tokens if thinking.type == "enabled" else None,
        schema=wanted.definition if wanted is not None else None,
        reasoning_effort="xhigh" if effort == "max" else effort,
        calls=body.tool_choice.type != "none",
        one_call=body.tool_choice.disable_parallel_tool_use,
        must_call=_must_call(body),
        **body.sampling(),
    )


def _must_call(body: Prompt) -> tuple[str, ...]:
    names = [tool.name for tool in tools.functions_of(body.tools)]
    foreign = tools.foreign_of(body.tools)
    if isinstance(body.tool_choice, NamedChoice):
        return tools.must_call(names, body.tool_choice.name, foreign)
    return tools.must_call(names, foreign=foreign) if body.tool_choice.type == "any" else ()


def _template_messages(body: Prompt) -> list[dict[str, Any]]:
    rendered = [{"role": "system", "content": body.system}] if body.system else []
    names: dict[str, str] = {}
    for at, message in enumerate(body.messages):
        blocks = message.content
        if isinstance(blocks, str):
            rendered.append({"role": message.role, "content": blocks})
            continue
        text = "".join(block.text for block in blocks if isinstance(block, TextBlock))
        if message.role == "assistant":
            calls = [block for block in blocks if isinstance(block, CallBlock)]
            names |= {call.id: call.name for call in calls}
            said = "".join(b.thinking for b in blocks if isinstance(b, ThinkingBlock))
            rendered.append(tools.answer(text, said, [(c.name, c.input) for c in calls]))
            continue
        results = [block for block in blocks if isinstance(block, ResultBlock)]
        for result in results:
            if result.tool_use_id not in names:
                where = f"messages.{at}.tool_use_id"
                raise ApiError(400, f"'{where}': no earlier call has this id.", param=where)
            name = names[result.tool_use_id]
            rendered.append({"role": "tool", "name": name, "content": result.content})
        if text or not results:
            rendered.append({"role": message.role, "content": text})
    return rendered


class _About:
    """One message's id and model, and what is to be told of it."""

    def __init__(self, model: str) -> None:
        self._head = {
            "id": f"msg_{uuid.uuid4().hex}",
            "type": "message",
            "role": "assistant",
            "model": model,
        }

    def whole(self, answer: Answer) -> dict[str, Any]:
        content: list[dict[str, Any]] = []
        if answer.reasoning:
            content.append({"type": "thinking", "thinking": answer.reasoning, "signature": ""})
        if answer.text:
            content.append({"type": "text", "text": answer.text})
        content += [{**_call(call.name), "input": call.arguments} for call in answer.calls]
        return {
            **self._head,
            "content": content,
            **_stop(answer.finished),
            "usage": anthropic_usage(answer.finished),
        }

    async def frames(self, events: AsyncIterator[Event | None]) -> AsyncGenerator[bytes, None]:
        blocks = _Blocks()
        try:
            async for event in events:
                if not blocks.begun:
                    blocks.begun = True
                    yield self._start(event)
                if event is None:
                    yield _frame("ping")
                elif isinstance(event, Finished):
                    for piece in blocks.close():
                        yield piece
                    usage = anthropic_usage(event)
                    yield _frame("message_delta", delta=_stop(event), usage=usage)
                    yield _frame("message_stop")
                else:
                    for piece in blocks.take(event):
                        yield piece
        except MtplxError as error:
            yield frame(anthropic_shape(of_turn(error)), "error")

    def _start(self, first: Event | None) -> bytes:
        """What is known of the cost: nothing while the turn waits."""
        usage = {"input_tokens": 0, "output_tokens": 0}
        if isinstance(first, Restored):
            usage["input_tokens"] = first.prompt_tokens - first.tokens
            usage["cache_read_input_tokens"] = first.tokens
        started: dict[str, Any] = {**self._head, "content": [], "usage": usage}
        return _frame(
            "message_start", message={**started, "stop_reason": None, "stop_sequence": None}
        )


class _Blocks:
    """The content blocks of a stream: one is open at a time."""

    def __init__(self) -> None:
        self.begun = False  # whether the message is
        self._index = -1
        self._open: str | None = None
        self._sent = ""  # of the arguments of the call that is open

    def take(self, event: Event) -> list[bytes]:
        if isinstance(event, Text):
            opened = self._switch("text", {"type": "text", "text": ""})
            return [*opened, self._delta({"type": "text_delta", "text": event.text})]
        if isinstance(event, Reasoning):
            block = {"type": "thinking", "thinking": "", "signature": ""}
            opened = self._switch("thinking", block)
            return [*opened, self._delta({"type": "thinking_delta", "thinking": event.text})]
        if isinstance(event, ToolCallPart):
            opened = self._call(event.name) if event.begins else []
            self._sent += event.text
            return [*opened, self._json(event.text)]
        if isinstance(event, ToolCall):
            opened = [] if self._open == "tool_use" else self._call(event.name)
            rest = tools.dumped(event.arguments).removeprefix(self._sent)
            return [*opened, self._json(rest), *self.close()]
        return []

    def _call(self, name: str) -> list[bytes]:
        self._sent = ""
        return [*self.close(), *self._switch("tool_use", {**_call(name), "input": {}})]

    def _json(self, part: str) -> bytes:
        return self._delta({"type": "input_json_delta", "partial_json": part})

    def close(self) -> list[bytes]:
        if self._open is None:
            return []
        self._open = None
        return [_frame("content_block_stop", index=self._index)]

    def _switch(self, kind: str, block: dict[str, Any]) -> list[bytes]:
        if self._open == kind:
            return []
        closed = self.close()
        self._open = kind
        self._index += 1
        return [*closed, _frame("content_block_start", index=self._index, content_block=block)]

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _frame("content_block_delta", index=self._index, delta=delta)


def _frame(kind: str, **content: Any) -> bytes:
    return frame({"type": kind, **content}, kind)


def _call(name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex[:24]}", "name": name}


def _stop(turn: Finished) -> dict[str, Any]:
    return {"stop_reason": ANTHROPIC_STOP[turn.finish_reason], "stop_sequence": turn.stop_string}
