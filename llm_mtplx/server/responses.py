"""POST /v1/responses, without memory of its own: the whole input comes with every request."""

import json
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationInfo
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ..catalog.entries import Entry
from ..protocol import Request
from . import tools
from .body import Body, Foreign, read
from .content import Content, is_content, system_first
from .errors import ApiError, TooLong
from .gateway import Gateway, hint
from .intake import apart
from .response_frames import Items
from .sampling import Effort, Sampling, level, template_thinking
from .structured import JsonFormat, JsonObject, PlainText, schema_of
from .tools import Choice, arguments

# They change nothing here: nothing is stored, and what can be is cached without being asked for.
IGNORED = (
    "client_metadata",
    "include",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "stream_options",
)


class Item(Body):
    id: str | None = None  # ignored, as they come back from answers
    status: str | None = None


class Message(Item):
    type: Literal["message"]
    role: Literal["system", "developer", "user", "assistant"]
    content: Content
    phase: str | None = None  # ignored


class Call(Item):
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str


class Result(Item):
    type: Literal["function_call_output"]
    call_id: str
    output: Content


class ReasoningPart(Body):
    type: str
    text: str = ""


class Reasoning(Item):
    type: Literal["reasoning"]
    content: list[ReasoningPart] = Field(default=[])
    summary: list[Any] = Field(default=[])  # ignored
    encrypted_content: str | None = None  # ignored: there is none from here


class ForeignCall(Item):
    """A call of a tool that is no function, with whatever it has for arguments."""

    type: Literal["custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call"]
    call_id: str
    name: str | None = None
    input: str | None = None
    action: dict[str, Any] | None = None
    operation: dict[str, Any] | None = None

    @property
    def called(self) -> str:
        return self.name or self.type.removesuffix("_call")

    @property
    def arguments(self) -> dict[str, Any]:
        return self.action or self.operation or {"input": self.input or ""}


class ForeignResult(Item):
    type: Literal[
        "custom_tool_call_output",
        "local_shell_call_output",
        "shell_call_output",
        "apply_patch_call_output",
    ]
    call_id: str
    output: Any = ""

    @property
    def text(self) -> str:
        return self.output if isinstance(self.output, str) else json.dumps(self.output)


class Left(Item):
    """What another model or its server did, or says of itself; it is not read."""

    type: str


ITEMS: dict[str, str] = {
    "message": "message",
    "function_call": "call",
    "function_call_output": "result",
    "reasoning": "reasoning",
    **dict.fromkeys(get_args(ForeignCall.model_fields["type"].annotation), "foreign_call"),
    **dict.fromkeys(get_args(ForeignResult.model_fields["type"].annotation), "foreign_result"),
}
# What servers of others ran: its outcome is in the answer that followed. And marks of clients.
LEFT = (
    "code_interpreter_call",
    "file_search_call",
    "ghost_snapshot",
    "image_generation_call",
    "mcp_approval_request",
    "mcp_approval_response",
    "mcp_call",
    "mcp_list_tools",
    "program",
    "program_output",
    "tool_search_call",
    "tool_search_output",
    "web_search_call",
)
# They have no content of their own, and yet the answer would depend on them.
NOT_HERE = ("additional_tools", "compaction", "compaction_trigger", "item_reference")


def _item(value: Any, info: ValidationInfo) -> Any:
    """A message may leave out its type. Raises ValueError for what cannot be read."""
    if not isinstance(value, dict):
        return value
    if value.get("type") is None:
        return {**value, "type": "message"}
    kind = value["type"]
    if not isinstance(kind, str) or kind in ITEMS:
        return value
    if kind in NOT_HERE or (kind not in LEFT and is_content(value)):
        raise ValueError(f"an item of type {kind!r} is not supported")
    if info.context is not None:
        info.context.add(f"input.{kind}")
    return {"type": kind}


def _kind(item: Any) -> str:
    kind = item.get("type") if isinstance(item, dict) else getattr(item, "type", None)
    return ITEMS.get(kind, "left") if isinstance(kind, str) else "message"


Input = list[
    Annotated[
        Annotated[
            Annotated[Message, Tag("message")]
            | Annotated[Call, Tag("call")]
            | Annotated[Result, Tag("result")]
            | Annotated[Reasoning, Tag("reasoning")]
            | Annotated[ForeignCall, Tag("foreign_call")]
            | Annotated[ForeignResult, Tag("foreign_result")]
            | Annotated[Left, Tag("left")],
            Discriminator(_kind),
        ],
        BeforeValidator(_item),
    ]
]


class Function(tools.Function):
    type: Literal["function"]


Tool = Annotated[
    Annotated[Function, Tag("function")] | Annotated[Foreign, Tag("foreign")],
    Discriminator(tools.kind_of(("function",))),
]


class TextOptions(Body):
    format: PlainText | JsonObject | JsonFormat = Field(
        default=PlainText(type="text"), discriminator="type"
    )
    verbosity: str | None = None  # ignored


class ReasoningOptions(Body):
    effort: Effort = None
    summary: str | None = None  # ignored: the reasoning itself is given
    generate_summary: str | None = None


class CreateResponse(Sampling):
    input: str | Input
    instructions: str | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    tools: list[Tool] = Field(default=[])
    tool_choice: Literal["auto", "none", "required"] | Choice = "auto"
    parallel_tool_calls: bool = True
    text: TextOptions = TextOptions()
    reasoning: ReasoningOptions = ReasoningOptions()
    # Nothing is ever cut out of the input: one that is too long is refused in either case.
    truncation: Literal["disabled", "auto"] = "disabled"
    metadata: dict[str, str] = Field(default={})
    user: str | None = None
    prompt_cache_key: str | None = None


async def responses(http: HttpRequest) -> Response:
    gateway: Gateway = http.app.state.gateway
    gateway.check_room()
    body = await read(http, CreateResponse, IGNORED)
    entry = gateway.entry(body.model)
    named = hint(http, body.metadata, body.prompt_cache_key, body.user)
    live = gateway.begin(http, await apart(request_of, body, entry), named)
    items = Items(_head(entry, body))
    try:
        return await live.answer(items, body.stream)
    except TooLong as error:
        if not body.stream:
            raise
        # On a stream clients look for it there: Codex then shortens its history and goes on.
        return Response(b"".join(items.failed(error)), media_type="text/event-stream")


def request_of(body: CreateResponse, entry: Entry) -> Request:
    functions = _functions(body)
    return Request(
        model_id=entry.model_id,
        folder=entry.path,
        messages=system_first(_template_messages(body)),
        template_args={
            **tools.template_args(entry.path, functions),
            **template_thinking(body.reasoning.effort),
        },
        max_tokens=body.max_output_tokens,
        reasoning_effort=level(body.reasoning.effort),
        schema=schema_of(body.text.format, functions, "text.format"),
        calls=body.tool_choice != "none",
        one_call=not body.parallel_tool_calls,
        must_call=tools.wanted_calls(
            body.tool_choice, [f.name for f in functions], tools.foreign_of(body.tools)
        ),
        **body.sampling(),
    )


def _functions(body: CreateResponse) -> list[Function]:
    functions = tools.functions_of(body.tools)
    return tools.allowed_of(body.tool_choice, functions, lambda function: function.name)


def _template_messages(body: CreateResponse) -> list[dict[str, Any]]:
    """Reasoning, text and calls that stand side by side are one answer."""
    rendered: list[dict[str, Any]] = []
    if body.instructions:
        rendered.append({"role": "system", "content": body.instructions})
    if isinstance(body.input, str):
        return [*rendered, {"role": "user", "content": body.input}]
    names: dict[str, str] = {}
    said, text = "", ""
    calls: list[tuple[str, dict[str, Any]]] = []

    def close() -> None:
        nonlocal said, text, calls
        if said or text or calls:
            rendered.append(tools.answer(text, said, calls))
        said, text, calls = "", "", []

    for at, item in enumerate(body.input):
        if isinstance(item, Reasoning):
            said += "".join(part.text for part in item.content)
        elif isinstance(item, Call):
            names[item.call_id] = item.name
            calls.append((item.name, arguments(item.arguments, f"input.{at}.arguments")))
        elif isinstance(item, ForeignCall):
            names[item.call_id] = item.called
            calls.append((item.called, item.arguments))
        elif isinstance(item, Left):
            continue
        elif isinstance(item, Message) and item.role == "assistant":
            text += item.content
        elif isinstance(item, Message):
            close()
            role = "user" if item.role == "user" else "system"
            rendered.append({"role": role, "content": item.content})
        else:
            close()
            if item.call_id not in names:
                where = f"input.{at}.call_id"
                raise ApiError(400, f"'{where}': no earlier call has this id.", param=where)
            name = names[item.call_id]
            output = item.output if isinstance(item, Result) else item.text
            rendered.append({"role": "tool", "name": name, "content": output})
    close()
    if not rendered:
        raise ApiError(400, "'input' is empty.", param="input")
    return rendered


def _head(entry: Entry, body: CreateResponse) -> dict[str, Any]:
    choice = body.tool_choice
    return {
        "object": "response",
        "model": entry.model_id,
        "error": None,
        "instructions": body.instructions,
        "metadata": body.metadata,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "max_output_tokens": body.max_output_tokens,
        "parallel_tool_calls": body.parallel_tool_calls,
        "previous_response_id": None,
        "store": False,
        "tool_choice": choice if isinstance(choice, str) else choice.model_dump(exclude_none=True),
        "tools": [tool.model_dump(exclude_none=True) for tool in _functions(body)],
        "truncation": body.truncation,
    }
