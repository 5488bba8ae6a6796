"""The markup of one tool call to its name and arguments.

mlx-lm's own parser cuts a value at the first closing tag inside it and reads a call without
parameters out of whatever it does not understand; a value may hold markup, and what is not
understood must not be run.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .arguments import typed
from .pieces import Call


class Unfinished(Exception):
    """The call goes on: the last tag belongs to a value."""


class Malformed(Exception):
    """Not a call. Says why."""


_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_FUNCTION = re.compile(r"<function(?:=|\s+name=)\s*\"?([^\s<>\"]+)\"?\s*>\s*")
_FUNCTION_END = re.compile(r"\s*</function>\s*\Z")
_PARAMETER = re.compile(r"\s*<parameter(?:=|\s+name=)\s*\"?([^\s<>\"]+)\"?[ \t]*>")
_AFTER_VALUE = re.compile(r"\s*(?:<parameter[=\s]|</function>\s*\Z)")
_TAG = re.compile(r"<(/?)(tool_call|function|parameter)\b[^<>\n]*(?<!/)>")
_TAG_LINE = re.compile(r"^[ \t]*</?(?:tool_call|function|parameter)\b[^<>\n]*>[ \t]*$", re.M)


def read_call(markup: str, tools: Sequence[Mapping[str, Any]], final: bool = False) -> Call:
    """``markup``: from ``<tool_call>`` to ``</tool_call>``. ``tools`` as the template has them;
    their schemas say what type an argument has. ``final``: nothing follows, so a tag that was
    opened and not closed is part of a value."""
    body = markup.removeprefix(_OPEN).removesuffix(_CLOSE).strip()
    if body.startswith("{"):
        return _read_json(body, tools)
    head = _FUNCTION.match(body)
    if head is None:
        raise Malformed("it names no function")
    name, rest = head.group(1), body[head.end() :]
    if rest.startswith("{"):
        inner = _FUNCTION_END.search(rest)
        if inner is None:
            raise Unfinished
        return Call(name, _object(_load(rest[: inner.start()])))
    try:
        written = dict(_parameters(rest, nested=True))
    except (Malformed, Unfinished) as error:
        if isinstance(error, Unfinished) and not final:
            raise
        written = dict(_parameters(rest, nested=False))
    properties = _schema(name, tools)
    return Call(name, {key: typed(text, *properties(key)) for key, text in written.items()})


def _read_json(body: str, tools: Sequence[Mapping[str, Any]]) -> Call:
    call = _object(_load(body))
    name, arguments = call.get("name"), call.get("arguments")
    if not isinstance(name, str) or not name:
        raise Malformed("it names no function")
    if arguments is None and _takes_nothing(name, tools):
        arguments = {}
    if isinstance(arguments, str):
        arguments = _load(arguments)
    return Call(name, _object(arguments))


def _load(text: str) -> Any:
    try:
        return json.loads(text, strict=False, object_pairs_hook=_each_once)
    except RecursionError:
        raise Malformed("its arguments are nested too deeply") from None
    except ValueError as error:
        if "Unterminated string" in str(error):
            raise Unfinished from None
        raise Malformed("its arguments are not valid JSON") from None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """What was sent of the first of two values cannot be taken back."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise Malformed(f"it gives {key!r} twice")
        found[key] = value
    return found


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Malformed("its arguments are not a JSON object")
    return value


def _parameters(text: str, nested: bool) -> Iterator[tuple[str, str]]:
    """Name and value of each parameter, up to the function's end.

    ``nested``: tags inside a value come in pairs. Without, a value ends at the first closing tag
    that something fitting follows, and may hold no line that is nothing but a tag.
    """
    at, seen = 0, set()
    while not _FUNCTION_END.match(text, at):
        head = _PARAMETER.match(text, at)
        if head is None:
            raise Malformed("there is text where a parameter should be")
        if head.group(1) in seen:
            raise Malformed(f"it gives {head.group(1)!r} twice")
        seen.add(head.group(1))
        end, at = (_nested_end if nested else _plain_end)(text, head.end())
        yield head.group(1), text[head.end() : end].removeprefix("\n").removesuffix("\n")


def _nested_end(text: str, start: int) -> tuple[int, int]:
    """Where the value that begins at ``start`` ends, and where what follows it begins."""
    open_tags: list[str] = []
    for tag in _TAG.finditer(text, start):
        closing, kind = tag.groups()
        if not closing:
            open_tags.append(kind)
        elif open_tags and open_tags[-1] == kind:
            open_tags.pop()
        elif not open_tags and kind == "parameter" and _AFTER_VALUE.match(text, tag.end()):
            return tag.start(), tag.end()
        elif not open_tags and kind == "function":
            raise Malformed("a parameter is not closed")
    raise Unfinished


def _plain_end(text: str, start: int) -> tuple[int, int]:
    for tag in re.finditer("</parameter>", text[start:]):
        end, after = start + tag.start(), start + tag.end()
        if _AFTER_VALUE.match(text, after):
            if _TAG_LINE.search(text[start:end]):
                break
            return end, after
    raise Malformed("a parameter is not closed")


def _function(name: str, tools: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    functions = (tool.get("function", {}) for tool in tools)
    return next((f.get("parameters") or {} for f in functions if f.get("name") == name), {})


def _schema(name: str, tools: Sequence[Mapping[str, Any]]) -> Any:
    whole = _function(name, tools)
    properties = whole.get("properties") or {}
    return lambda key: (properties.get(key), whole)


def _takes_nothing(name: str, tools: Sequence[Mapping[str, Any]]) -> bool:
    declared = any(tool.get("function", {}).get("name") == name for tool in tools)
    return declared and not _function(name, tools).get("properties")
