"""Five JSON schemas and what to ask for each: for tests and for benchmarks."""

from typing import Any

from llm.utils import schema_dsl

Schema = dict[str, Any]

_TREE: Schema = {
    "$defs": {
        "Leaf": {
            "type": "object",
            "properties": {"label": {"type": "string", "maxLength": 8}},
            "required": ["label"],
        },
        "Branch": {
            "type": "object",
            "properties": {
                "label": {"type": "string", "minLength": 2, "maxLength": 20},
                "children": {"type": "array", "items": {"$ref": "#/$defs/Leaf"}, "maxItems": 3},
            },
            "required": ["label", "children"],
        },
    },
    "type": "array",
    "items": {"$ref": "#/$defs/Branch"},
    "minItems": 1,
    "maxItems": 2,
}
_EVENT: Schema = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["meeting", "call", None, 7]},
        "day": {"type": "string", "format": "date"},
        "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{1,3}$"},
        "where": {
            "anyOf": [
                {"type": "null"},
                {
                    "type": "object",
                    "properties": {
                        "room": {"type": "integer", "minimum": 1, "maximum": 40},
                        "open": {"type": "boolean"},
                    },
                    "required": ["room"],
                },
            ]
        },
    },
    "required": ["kind", "day", "where"],
}
_SCORES: Schema = {
    "type": "object",
    "properties": {"share": {"type": "integer", "minimum": -50, "exclusiveMaximum": 1000}},
    "patternProperties": {"^[a-c]$": {"type": "boolean"}},
    "additionalProperties": False,
    "maxProperties": 4,
    "required": ["share"],
}

_DOG: Schema = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 16},
        "age": {"type": "integer", "minimum": 0, "maximum": 30},
    },
    "required": ["name"],
}
_DOGS: Schema = {
    "type": "object",
    "properties": {"items": {"type": "array", "items": _DOG, "maxItems": 4}},
    "required": ["items"],
}

SCHEMAS: dict[str, tuple[Schema, str]] = {
    "dsl": (
        schema_dsl("name, age int, weight float, good bool"),
        "My name is Tamsin and I am 31 years old.",
    ),
    "dogs": (_DOGS, "Tell me about three dogs as JSON."),
    "tree": (_TREE, "As JSON: the label is oak and there are no children."),
    "event": (_EVENT, "As JSON: the day is Monday."),
    "scores": (_SCORES, "Write this as JSON: the share is 3."),
}
