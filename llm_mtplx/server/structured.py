"""Answers in JSON."""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from .body import Body
from .errors import ApiError


class PlainText(Body):
    type: Literal["text"]


class JsonObject(Body):
    type: Literal["json_object"]


class Schema(Body):
    name: str = ""
    description: str | None = None
    # Pydantic's models have a method of the field's own name.
    definition: dict[str, Any] = Field({}, alias="schema")
    strict: bool | None = None  # ignored: every answer conforms


class JsonSchema(Body):
    type: Literal["json_schema"]
    json_schema: Schema


class JsonFormat(Schema):
    """The same as Responses has it."""

    type: Literal["json_schema"]


def schema_of(
    wanted: PlainText | JsonObject | JsonSchema | JsonFormat, tools: Sequence[Any], param: str
) -> dict[str, Any] | None:
    """What a Request is told of it. ``param`` is the field's name in this API."""
    if isinstance(wanted, PlainText):
        return None
    if tools:
        why = "a tool call is not JSON of a schema; remove one of them"
        raise ApiError(400, f"'{param}' and 'tools': {why}.", param=param)
    if isinstance(wanted, JsonObject):
        return {"type": "object"}
    schema = wanted.json_schema if isinstance(wanted, JsonSchema) else wanted
    return schema.definition or {"type": "object"}
