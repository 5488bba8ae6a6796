"""Requests and events as lines of JSON, between a process and the engine it attaches to.

An empty line says that the other side is alive.
"""

import json
from dataclasses import asdict
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

from .. import errors
from ..errors import EngineError, MtplxError, RequestError
from ..protocol import Event, Failed, Request

ALIVE = b"\n"
MAX_LINE = 256 << 20  # bytes; a whole history is one line


class Unreadable(EngineError):
    """The other side ended, or said something that is no event."""


_EVENTS: dict[str, Any] = {kind.__name__: kind for kind in get_args(Event)}


class _Model(BaseModel):
    id: str
    bytes: int


class _Running(BaseModel):
    phase: str


class _Engine(BaseModel):
    idle_s: float
    waiting: int
    running: _Running | None
    models: list[_Model]


class _Status(BaseModel):
    """What commands read of an engine's status; there is more."""

    pid: int
    address: str | None
    engine: _Engine
    session_bank: dict[str, Any]


def to_line(message: dict[str, Any]) -> bytes:
    return json.dumps(message, default=str).encode() + b"\n"


def from_line(line: bytes) -> dict[str, Any]:
    """Raises ValueError where ``line`` is not one JSON object."""
    try:
        message = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deep") from None
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
        raise RequestError(f"The request cannot be read: {_first(error)}.") from None


def status_from(line: bytes) -> dict[str, Any]:
    """Raises ValueError for what is no status of an engine."""
    status = from_line(line)
    try:
        _Status.model_validate(status)
    except ValidationError as error:
        raise ValueError(_first(error)) from None
    return status


def greeting_from(line: bytes) -> dict[str, Any]:
    """What the other side says it is. Raises ValueError."""
    greeting = from_line(line).get("hello")
    if not isinstance(greeting, dict):
        raise ValueError("not a greeting")
    return greeting


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"


@cache
def _request_type() -> TypeAdapter[Request]:
    return TypeAdapter(Request)


@cache
def _event_type(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def event_line(event: Event) -> bytes:
    if isinstance(event, Failed):
        kind, message = type(event.error).__name__, str(event.error)
        return to_line({"event": "Failed", "kind": kind, "message": message})
    return to_line({"event": type(event).__name__, **asdict(event)})


def event_from(line: bytes) -> Event:
    """Raises Unreadable for what is no event."""
    try:
        fields = from_line(line)
        kind = _EVENTS[fields.pop("event")]
        if kind is Failed:
            return Failed(_error(fields["kind"], fields["message"]))
        event: Event = _event_type(kind).validate_python(fields)
    except (ValueError, KeyError, TypeError) as error:
        why = _first(error) if isinstance(error, ValidationError) else repr(error)
        raise Unreadable(f"The background engine sent an unreadable message: {why}.") from None
    return event


def _error(kind: str, message: str) -> MtplxError:
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, MtplxError):
        return known(message)
    return EngineError(message)
