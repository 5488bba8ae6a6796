"""POST /v1/chat/completions"""

import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ..catalog.entries import Entry
from ..errors import MtplxError
from ..protocol import Event, Finished, Reasoning, Request, Text, Token, ToolCall, ToolCallPart
from . import tools
from .body import Body, Foreign, read
from .content import Content, system_first
from .errors import ApiError, of_turn, openai_shape
from .gateway import Answer, Gateway, hint
from .intake import apart
from .logprobs import of_chat
from .sampling import (
    Effort,
    Sampling,
    Stops,
    StreamOptions,
    level,
    stops,
    template_thinking,
)
from .sse import ALIVE, DONE, frame
from .structured import JsonObject, JsonSchema, PlainText, schema_of
from .tools import Called, Choice, arguments, dumped
from .usage import OPENAI_FINISH, openai_usage

# They change nothing here.
IGNORED = (
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "verbosity",
)


class System(Body):
    role: Literal["system", "developer"]
    content: Content
    name: str | None = None


class User(Body):
    role: Literal["user"]
    content: Content
    name: str | None = None


class Custom(Body):
    name: str
    input: str = ""


class Call(Body):
    id: str
    type: Literal["function", "custom"] = "function"
    function: Called | None = None
    custom: Custom | None = None
    index: int | None = None

    @property
    def name(self) -> str:
        called = self.function or self.custom
        return called.name if called else ""


class Assistant(Body):
    role: Literal["assistant"]
    content: Content = ""
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Call] = Field(default=[])
    name: str | None = None
    refusal: str | None = None
    annotations: list[Any] = Field(default=[])  # ignored, as they come back from answers


class Result(Body):
    role: Literal["tool"]
    tool_call_id: str
    content: Content
    name: str | None = None


Message = Annotated[System | User | Assistant | Result, Field(discriminator="role")]


Tool = Annotated[
    Annotated[tools.Tool, Tag("function")] | Annotated[Foreign, Tag("foreign")],
    Discriminator(tools.kind_of(("function",))),
]


class TemplateArgs(Body):
    """What changes the prompt is refused where it is not known."""

    model_config = ConfigDict(extra="forbid", strict=True)

    enable_thinking: bool | None = None


class ChatCompletion(Sampling):
    messages: list[Message] = Field(min_length=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    stop: Stops = None
    n: Literal[1] = 1
    logprobs: bool = False
    top_logprobs: int = Field(default=0, ge=0, le=20)
    modalities: list[Literal["text"]] = Field(default=[])
    stream_options: StreamOptions = StreamOptions()
    tools: list[Tool] = Field(default=[])
    tool_choice: Literal["auto", "none", "required"] | Choice = "auto"
    parallel_tool_calls: bool = True
    response_format: PlainText | JsonObject | JsonSchema = Field(
        default=PlainText(type="text"), discriminator="type"
    )
    reasoning_effort: Effort = None
    chat_template_kwargs: TemplateArgs = TemplateArgs()
    metadata: dict[str, str] = Field(default={})
    user: str | None = None
    prompt_cache_key: str | None = None


async def chat_completions(http: HttpRequest) -> Response:
    gateway: Gateway = http.app.state.gateway
    gateway.check_room()
    body = await read(http, ChatCompletion, IGNORED)
    entry = gateway.entry(body.model)
    named = hint(http, body.metadata, body.prompt_cache_key, body.user)
    live = gateway.begin(http, await apart(request_of, body, entry), named)
    return await live.answer(_About(entry, body), body.stream)


def request_of(body: ChatCompletion, entry: Entry) -> Request:
    if body.top_logprobs and not body.logprobs:
        raise ApiError(400, "'top_logprobs' needs 'logprobs': true.", param="top_logprobs")
    functions = _functions(body)
    return Request(
        model_id=entry.model_id,
        folder=entry.path,
        messages=system_first(_template_messages(body.messages)),
        template_args={
            **tools.template_args(entry.path, functions),
            **template_thinking(body.reasoning_effort),
            **body.chat_template_kwargs.model_dump(exclude_none=True),
        },
        stop=stops(body.stop),
        max_tokens=body.max_completion_tokens or body.max_tokens,
        reasoning_effort=level(body.reasoning_effort),
        schema=schema_of(body.response_format, functions, "response_format"),
        logprobs=body.top_logprobs if body.logprobs else None,
        calls=body.tool_choice != "none",
        one_call=not body.parallel_tool_calls,
        must_call=tools.wanted_calls(
            body.tool_choice, [f.name for f in functions], tools.foreign_of(body.tools)
        ),
        **body.sampling(),
    )


def _functions(body: ChatCompletion) -> list[tools.Function]:
    functions = [tool.function for tool in tools.functions_of(body.tools)]
    return tools.allowed_of(body.tool_choice, functions, lambda function: function.name)


def _template_messages(messages: list[Message]) -> list[dict[str, Any]]:
    names: dict[str, str] = {}
    rendered: list[dict[str, Any]] = []
    for at, message in enumerate(messages):
        if isinstance(message, Result):
            if message.tool_call_id not in names:
                where = f"messages.{at}.tool_call_id"
                raise ApiError(400, f"'{where}': no earlier call has this id.", param=where)
            name = names[message.tool_call_id]
            rendered.append({"role": "tool", "name": name, "content": message.content})
        elif isinstance(message, Assistant):
            names |= {call.id: call.name for call in message.tool_calls}
            rendered.append(_assistant(message, f"messages.{at}.tool_calls"))
        else:
            role = "user" if isinstance(message, User) else "system"
            rendered.append({"role": role, "content": message.content})
    return rendered


def _assistant(message: Assistant, where: str) -> dict[str, Any]:
    made = []
    for call in message.tool_calls:
        if call.function is not None:
            made.append((call.name, arguments(call.function.arguments, where)))
        elif call.custom is not None:
            made.append((call.name, {"input": call.custom.input}))
        else:
            raise ApiError(400, f"'{where}': a call has no function name.", param=where)
    said = message.reasoning_content or message.reasoning or ""
    return tools.answer(message.content or message.refusal or "", said, made)


class _About:
    """One completion's id, model and time, and what is to be told of it."""

    def __init__(self, entry: Entry, body: ChatCompletion) -> None:
        self._head = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": entry.model_id,
        }
        self._with_usage = body.stream_options.include_usage
        self._with_logprobs = body.logprobs

    def whole(self, answer: Answer) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        if answer.calls:
            message["tool_calls"] = [
                _call(call.name, dumped(call.arguments)) for call in answer.calls
            ]
        else:
            message["content"] = answer.text
        finish = OPENAI_FINISH[answer.finished.finish_reason]
        told = self._logprobs(answer.tokens)
        choice = {"index": 0, "message": message, "logprobs": told, "finish_reason": finish}
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": openai_usage(answer.finished),
        }

    async def frames(self, events: AsyncIterator[Event | None]) -> AsyncGenerator[bytes, None]:
        yield self._chunk({"role": "assistant", "content": ""})
        calls = 0
        sent: str | None = None  # what is sent of the arguments of the one that is being written
        try:
            async for event in events:
                if event is None:
                    yield ALIVE
                elif isinstance(event, Text):
                    yield self._chunk({"content": event.text}, tokens=event.tokens)
                elif isinstance(event, Reasoning):
                    yield self._chunk({"reasoning_content": event.text})
                elif isinstance(event, ToolCallPart):
                    if event.begins:
                        calls += sent is not None
                        told = _call(event.name, event.text)
                    else:
                        told = {"function": {"arguments": event.text}}
                    sent = event.text if event.begins else (sent or "") + event.text
                    yield self._chunk({"tool_calls": [{"index": calls, **told}]})
                elif isinstance(event, ToolCall):
                    given = dumped(event.arguments)
                    told = _call(event.name, given)
                    if sent is not None:
                        told = {"function": {"arguments": given.removeprefix(sent)}}
                    yield self._chunk({"tool_calls": [{"index": calls, **told}]})
                    calls, sent = calls + 1, None
                elif isinstance(event, Finished):
                    yield self._chunk({}, OPENAI_FINISH[event.finish_reason])
                    if self._with_usage:
                        yield self._frame(choices=[], usage=openai_usage(event))
        except MtplxError as error:
            yield frame(openai_shape(of_turn(error)))
        else:
            yield DONE  # never after an error: who looks at nothing else must not take it for whole

    def _chunk(
        self, delta: dict[str, Any], finish: str | None = None, tokens: Sequence[Token] = ()
    ) -> bytes:
        told = self._logprobs(tokens) if tokens else None
        choice = {"index": 0, "delta": delta, "logprobs": told, "finish_reason": finish}
        return self._frame(choices=[choice])

    def _logprobs(self, tokens: Sequence[Token]) -> dict[str, Any] | None:
        return of_chat(tokens) if self._with_logprobs else None

    def _frame(self, **content: Any) -> bytes:
        return frame({**self._head, "object": "chat.completion.chunk", **content})


def _call(name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}
