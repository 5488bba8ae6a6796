"""Function tools and their calls, in the words of chat templates."""

import json
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator
from starlette.responses import Response

from ..catalog.template import knows_tools
from ..chat.pieces import Call
from ..chat.tools import answer_message, declared
from ..progress import notice
from .body import Body
from .errors import ApiError


class Function(Body):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None  # ignored: arguments are the model's


class Tool(Body):
    type: Literal["function"]
    function: Function


class OtherTool(BaseModel):
    """One that only its provider can run, or that comes in a form no template knows."""

    model_config = ConfigDict(extra="ignore")
    type: str


IGNORED_HEADER = "x-mtplx-ignored"
_told: set[str] = set()


def own_or_other(*own: str | None) -> Discriminator:
    """Tells our tools by their ``type``, of which None means that it is left out."""

    def tag(tool: Any) -> str:
        kind = tool.get("type") if isinstance(tool, dict) else getattr(tool, "type", None)
        return "own" if kind in own or not isinstance(kind, str | None) else "other"

    return Discriminator(tag)


def name_ignored(response: Response, tools: Iterable[Any]) -> Response:
    """Say which tools were not offered to the model: in a header, and in the log once a kind."""
    kinds = sorted({f"tools:{tool.type}" for tool in tools if isinstance(tool, OtherTool)})
    if kinds:
        response.headers[IGNORED_HEADER] = ", ".join(kinds).encode("ascii", "replace").decode()
    for kind in set(kinds) - _told:
        _told.add(kind)
        notice(f"a client offers {kind}, which no local model can use; it is left out.")
    return response


class Called(Body):
    name: str
    arguments: str


def template_args(entry_path: Any, functions: Iterable[Function]) -> dict[str, Any]:
    tools = declared(
        (each.name, each.description, each.parameters or {"type": "object", "properties": {}})
        for each in functions
    )
    if not tools:
        return {}
    if not knows_tools(entry_path):
        raise ApiError(400, "This model's chat template has no place for tools.", param="tools")
    return {"tools": tools}


def must_call(functions: Iterable[str], wanted: str | None = None) -> tuple[str, ...]:
    """Of which functions one must be called: ``wanted`` or, without it, any of ``functions``."""
    names = tuple(dict.fromkeys(functions))
    if not names:
        why = "'tool_choice' asks for a call, and there are no 'tools'."
        raise ApiError(400, why, param="tool_choice")
    if wanted is not None and wanted not in names:
        raise ApiError(400, f"'tool_choice': no tool is called {wanted!r}.", param="tool_choice")
    return names if wanted is None else (wanted,)


def arguments(text: str, where: str) -> dict[str, Any]:
    """What a client sends back as the arguments of an earlier call."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ApiError(400, f"'{where}': the arguments of a call are no JSON object.", param=where)
    return found


def dumped(arguments: dict[str, Any]) -> str:
    """As the parts of a call that is being written are, in a row."""
    return json.dumps(arguments, ensure_ascii=False)


def answer(
    text: str, reasoning: str, calls: Iterable[tuple[str, dict[str, Any]]]
) -> dict[str, Any]:
    """An earlier answer as a message of the history."""
    return answer_message(text, reasoning, [Call(name, given) for name, given in calls])
