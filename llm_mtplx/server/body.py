"""Request bodies: read up to a limit, and every field known, ignored or refused by name."""

import json
from collections.abc import Collection
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request

from .errors import ApiError
from .intake import apart, received


class Body(BaseModel):
    """Takes nothing it does not know."""

    model_config = ConfigDict(extra="forbid", strict=True)


B = TypeVar("B", bound=Body)


async def read(request: Request, kind: type[B], ignored: Collection[str]) -> B:
    """The body as ``kind``, without the fields in ``ignored`` and those that are null."""
    raw = await received(request)
    return await apart(_read, raw, kind, ignored)


def _read(raw: bytes, kind: type[B], ignored: Collection[str]) -> B:
    fields = {
        name: _without_nulls(name, value)
        for name, value in _object(raw).items()
        if value is not None and name not in ignored
    }
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        _refuse(error)


def _object(raw: bytes) -> dict[str, Any]:
    try:
        text = raw.decode()
        if "\\ud" in text.lower():
            json.dumps(json.loads(text), ensure_ascii=False).encode()  # no half characters
        content = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise ApiError(400, "The body is not valid JSON.") from None
    if not isinstance(content, dict):
        raise ApiError(400, "The body is not a JSON object.")
    return content


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _without_nulls(name: str, value: Any) -> Any:
    """Clients send messages back with every field they know of."""
    if name not in ("messages", "input") or not isinstance(value, list):
        return value
    return [
        {key: part for key, part in message.items() if part is not None}
        if isinstance(message, dict)
        else message
        for message in value
    ]


def _refuse(error: ValidationError) -> NoReturn:
    # Of what a union may be, that which comes furthest is meant.
    first = max(error.errors(), key=lambda problem: len(problem["loc"]))
    names = [str(p) for p in first["loc"] if not str(p).endswith("]") and p != "str"]
    where = ".".join(names)
    if first["type"] == "extra_forbidden":
        raise ApiError(
            400, f"'{where}' is not supported.", param=where, code="unsupported_parameter"
        )
    raise ApiError(400, f"'{where}': {first['msg']}.", param=where)
