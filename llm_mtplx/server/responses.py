"""POST /v1/responses, without memory of its own: the whole input comes with every request."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Tag
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ..catalog.entries import Entry
from ..engine.protocol import Request
from . import tools
from .body import Body, read
from .content import Content, system_first
from .errors import ApiError
from .gateway import Gateway, hint
from .intake import apart
from .response_frames import Items
from .sampling import Effort, Sampling, level, template_thinking
from .structured import JsonFormat, JsonObject, PlainText, schema_of
from .tools import arguments

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
    type: Literal["reasoning_text"]
    text: str


class Reasoning(Item):
    type: Literal["reasoning"]
    content: list[ReasoningPart] = Field(default=[])
    summary: list[Any] = Field(default=[])  # ignored
    encrypted_content: str | None = None  # ignored: there is none from here


def _with_type(value: Any) -> Any:
    """A message may leave it out."""
    if isinstance(value, dict) and "type" not in value:
        return {"type": "message", **value}
    return value


Input = list[
    Annotated[
        Annotated[Message | Call | Result | Reasoning, Field(discriminator="type")],
        BeforeValidator(_with_type),
    ]
]


class Tool(tools.Function):
    type: Literal["function"]


AnyTool = Annotated[
    Annotated[Tool, Tag("own")] | Annotated[tools.OtherTool, Tag("other")],
    tools.own_or_other("function"),
]


class Choice(Body):
    type: Literal["function"]
    name: str


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
    all_tools: list[AnyTool] = Field(default=[], alias="tools")
    tool_choice: Literal["auto", "none", "required"] | Choice = "auto"
    parallel_tool_calls: bool = True
    text: TextOptions = TextOptions()
    reasoning: ReasoningOptions = ReasoningOptions()
    truncation: Literal["disabled"] = "disabled"
    metadata: dict[str, str] = Field(default={})
    user: str | None = None
    prompt_cache_key: str | None = None

    @property
    def tools(self) -> list[Tool]:
        return [tool for tool in self.all_tools if isinstance(tool, Tool)]


async def responses(http: HttpRequest) -> Response:
    gateway: Gateway = http.app.state.gateway
    gateway.check_room()
    body = await read(http, CreateResponse, IGNORED)
    entry = gateway.entry(body.model)
    named = hint(http, body.metadata, body.prompt_cache_key, body.user)
    live = gateway.begin(http, await apart(request_of, body, entry), named)
    answer = await live.answer(Items(_head(entry, body)), body.stream)
    return tools.name_ignored(answer, body.all_tools)


def request_of(body: CreateResponse, entry: Entry) -> Request:
    return Request(
        model_id=entry.model_id,
        folder=entry.path,
        messages=system_first(_template_messages(body)),
        template_args={
            **tools.template_args(entry.path, body.tools),
            **template_thinking(body.reasoning.effort),
        },
        max_tokens=body.max_output_tokens,
        reasoning_effort=level(body.reasoning.effort),
        schema=schema_of(body.text.format, body.tools, "text.format"),
        calls=body.tool_choice != "none",
        one_call=not body.parallel_tool_calls,
        must_call=_must_call(body),
        **body.sampling(),
    )


def _must_call(body: CreateResponse) -> tuple[str, ...]:
    names = [tool.name for tool in body.tools]
    if isinstance(body.tool_choice, Choice):
        return tools.must_call(names, body.tool_choice.name)
    return tools.must_call(names) if body.tool_choice == "required" else ()


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
            rendered.append({"role": "tool", "name": name, "content": item.output})
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
        "tool_choice": choice.model_dump() if isinstance(choice, Choice) else choice,
        "tools": [tool.model_dump(exclude_none=True) for tool in body.tools],
        "truncation": body.truncation,
    }
