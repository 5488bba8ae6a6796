"""Function tools and their calls, in the words of chat templates."""

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Literal, TypeVar

from ..catalog.template import knows_tools
from ..chat.pieces import Call
from ..chat.tools import answer_message, declared
from .body import Body, Foreign, parse
from .errors import ApiError


class Function(Body):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None  # ignored: arguments are the model's


class Tool(Body):
    type: Literal["function"]
    function: Function


class Called(Body):
    name: str
    arguments: str


class Named(Body):
    name: str


class Allowed(Body):
    """Which of the declared tools may be used, and whether one must be."""

    mode: Literal["auto", "required"] = "auto"
    tools: list[dict[str, Any]]


class Choice(Body):
    """A tool by its name, or by its type where it has none; or some of those that are declared."""

    type: str
    name: str | None = None
    function: Named | None = None
    custom: Named | None = None
    allowed_tools: Allowed | None = None
    mode: Literal["auto", "required"] = "auto"
    tools: list[dict[str, Any]] | None = None

    @property
    def tool(self) -> str:
        """What is insisted on."""
        named = self.function or self.custom
        return self.name or (named.name if named else self.type)

    @property
    def allowed(self) -> Allowed | None:
        if self.type != "allowed_tools":
            return None
        if self.allowed_tools is not None:
            return self.allowed_tools
        return Allowed(mode=self.mode, tools=self.tools or [])


def kind_of(functions: Collection[str | None]) -> Callable[[Any], str]:
    """Tells tools that are functions, whose type is in ``functions``, from those of others."""

    def told(tool: Any) -> str:
        if isinstance(tool, Foreign):
            return "foreign"
        kind = tool.get("type") if isinstance(tool, dict) else None
        return "foreign" if isinstance(kind, str) and kind not in functions else "function"

    return told


F = TypeVar("F", bound=Body)


def functions_of(tools: Sequence[F | Foreign]) -> list[F]:
    """Those that the model can be told of."""
    return [tool for tool in tools if not isinstance(tool, Foreign)]


def foreign_of(tools: Iterable[Any]) -> list[Foreign]:
    return [tool for tool in tools if isinstance(tool, Foreign)]


def allowed_of(choice: Any, functions: list[F], name_of: Callable[[F], str]) -> list[F]:
    """The functions that ``choice`` allows. Others are not declared: then none can be called."""
    allowed = choice.allowed if isinstance(choice, Choice) else None
    if allowed is None:
        return functions
    names = []
    for tool in allowed.tools:
        inner = tool.get("function")
        names.append(tool.get("name") or (inner.get("name") if isinstance(inner, dict) else None))
    return [function for function in functions if name_of(function) in names]


def wanted_calls(
    choice: str | Choice, names: Sequence[str], foreign: Sequence[Foreign]
) -> tuple[str, ...]:
    """Of which functions one must be called; none where a call is up to the model."""
    if isinstance(choice, str):
        return must_call(names, foreign=foreign) if choice == "required" else ()
    allowed = choice.allowed
    if allowed is not None:
        return must_call(names, foreign=foreign) if allowed.mode == "required" else ()
    if choice.type == "function":
        return must_call(names, choice.tool, foreign)
    raise not_run(choice.tool, choice.type)


def not_run(name: str, kind: str) -> ApiError:
    why = f"'tool_choice': {name!r} is a tool of type {kind!r}, which a local model cannot run."
    return ApiError(400, why, param="tool_choice")


def template_args(entry_path: Any, functions: Iterable[Function]) -> dict[str, Any]:
    tools = declared(
        (each.name, each.description, each.parameters or {"type": "object", "properties": {}})
        for each in functions
    )
    if not tools:
        return {}
    if not knows_tools(entry_path):
        raise ApiError(400, "This model's chat template does not support tools.", param="tools")
    return {"tools": tools}


def must_call(
    functions: Iterable[str], wanted: str | None = None, foreign: Sequence[Foreign] = ()
) -> tuple[str, ...]:
    """Of which functions one must be called: ``wanted`` or, without it, any of ``functions``."""
    names = tuple(dict.fromkeys(functions))
    for tool in foreign:
        if wanted is not None and wanted == tool.called and wanted not in names:
            raise not_run(wanted, tool.type)
    if not names:
        kind = " that a local model can run" if foreign else ""
        why = f"'tool_choice' requires a call, but there are no 'tools'{kind}."
        raise ApiError(400, why, param="tool_choice")
    if wanted is not None and wanted not in names:
        raise ApiError(
            400, f"'tool_choice': there is no tool named {wanted!r}.", param="tool_choice"
        )
    return names if wanted is None else (wanted,)


def arguments(text: str, where: str) -> dict[str, Any]:
    """What a client sends back as the arguments of an earlier call."""
    try:
        found = parse(text or "{}")
    except ValueError as error:
        why = f"'{where}': the text of a call's arguments {error}."
        raise ApiError(400, why, param=where) from None
    if not isinstance(found, dict):
        raise ApiError(
            400, f"'{where}': the arguments of a call are not a JSON object.", param=where
        )
    return found


def dumped(arguments: dict[str, Any]) -> str:
    """As the parts of a call that is being written are, in a row."""
    return json.dumps(arguments, ensure_ascii=False)


def answer(
    text: str, reasoning: str, calls: Iterable[tuple[str, dict[str, Any]]]
) -> dict[str, Any]:
    """An earlier answer as a message of the history."""
    return answer_message(text, reasoning, [Call(name, given) for name, given in calls])
