"""Requests and events as lines of JSON, between a process and the engine it attaches to.

An empty line says that the other side is alive.
"""

import json
from dataclasses import asdict
from functools import cache
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from .. import errors
from ..errors import EngineError, MtplxError, RequestError
from .protocol import Event, Failed, Request, Text

ALIVE = b"\n"
MAX_LINE = 256 << 20  # bytes; a whole history is one line

_EVENTS: dict[str, Any] = {kind.__name__: kind for kind in get_args(Event)}


def to_line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, default=str).encode() + b"\n"


def from_line(line: bytes) -> dict[str, Any]:
    """Raises ValueError where ``line`` is not one JSON object."""
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError("not a JSON object")
    return message


def request_fields(request: Request) -> dict[str, Any]:
    return asdict(request)


def request_from(fields: Any) -> Request:
    """Raises RequestError, which names the field that is wrong."""
    try:
        return _request_type().validate_python(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RequestError(f"The request cannot be read: {where}: {first['msg']}.") from None


@cache
def _request_type() -> TypeAdapter[Request]:
    return TypeAdapter(Request)


@cache
def _text_type() -> TypeAdapter[Text]:
    return TypeAdapter(Text)


def event_line(event: Event) -> bytes:
    if isinstance(event, Failed):
        kind, message = type(event.error).__name__, str(event.error)
        return to_line({"event": "Failed", "kind": kind, "message": message})
    return to_line({"event": type(event).__name__, **asdict(event)})


def event_from(line: bytes) -> Event:
    """Raises EngineError for what is no event."""
    try:
        fields = from_line(line)
        kind = _EVENTS[fields.pop("event")]
        if kind is Failed:
            return Failed(_error(fields["kind"], fields["message"]))
        if kind is Text and fields.get("tokens"):
            return _text_type().validate_python(fields)
        event: Event = kind(**fields)
    except (ValueError, KeyError, TypeError) as error:
        raise EngineError(f"The resident engine sent what cannot be read: {error!r}.") from None
    return event


def _error(kind: str, message: str) -> MtplxError:
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, MtplxError):
        return known(message)
    return EngineError(message)
