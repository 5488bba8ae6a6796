"""The text of an argument to the value its JSON schema asks for."""

import ast
import json
from collections.abc import Mapping
from typing import Any

_MAX_REFS = 16  # a schema may refer to itself

_TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def typed(text: str, schema: Any, root: Mapping[str, Any]) -> Any:
    """``text`` as written stays where it fits no type: the function's own complaint tells the
    model more than a call that was not made.

    ``schema`` is the argument's, None where it is not declared; ``root`` holds its definitions.
    """
    wanted = types_of(schema, root)
    if wanted == {"string"}:
        return text
    value = _literal(text)
    if isinstance(value, str):
        return text
    if not wanted or any(_is(value, kind) for kind in wanted):
        return value
    if "integer" in wanted and isinstance(value, float) and value.is_integer():
        return int(value)
    return text


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool) and kind != "boolean":
        return False
    return isinstance(value, _TYPES.get(kind, ()))


def _literal(text: str) -> Any:
    """The JSON value, or the Python one: models write both. Text that is neither is itself."""
    try:
        return json.loads(text, strict=False, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        pass
    if text.strip()[:1] not in ("[", "{", "(") and text.strip() not in ("True", "False", "None"):
        return text
    try:
        value = ast.literal_eval(text.strip())
        return json.loads(json.dumps(value))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def types_of(schema: Any, root: Mapping[str, Any]) -> set[str]:
    """The JSON types that ``schema`` allows; empty where it does not say."""
    return _types(schema, root, _MAX_REFS)


def resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """``schema``, or what it refers to; empty where that is none."""
    for _ in range(_MAX_REFS):
        if not isinstance(schema, Mapping):
            break
        if not isinstance(ref := schema.get("$ref"), str):
            return schema
        schema = _resolve(ref, root)
    return {}


def _types(schema: Any, root: Mapping[str, Any], refs: int) -> set[str]:
    if not isinstance(schema, Mapping) or refs == 0:
        return set()
    if isinstance(ref := schema.get("$ref"), str):
        return _types(_resolve(ref, root), root, refs - 1)
    declared = schema.get("type")
    if isinstance(declared, str):
        return {declared}
    if isinstance(declared, list):
        return {kind for kind in declared if isinstance(kind, str)}
    for word in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(word), list):
            found = [_types(part, root, refs - 1) for part in schema[word]]
            return set().union(*found)
    values = schema["enum"] if isinstance(schema.get("enum"), list) else []
    values = [schema["const"]] if "const" in schema else values
    return {_type_of(value) for value in values}


def _type_of(value: Any) -> str:
    return next((kind for kind in _TYPES if _is(value, kind)), "string")


def _resolve(ref: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for step in ref.removeprefix("#/").split("/"):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found
