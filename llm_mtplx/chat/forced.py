"""The grammar of an answer that must be a call, in the words in which the model's template writes
calls.

Where those are JSON, the arguments follow the function's schema. Where they are tags, they are the
declared ones, in the order of the declaration, with all that are required: each of its type, and
text as it comes, except that it holds none of the tags that calls are made of.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import RequestError
from .arguments import resolved, types_of
from .grammar import SHARED, Schema, compile_schema, listed, named

if TYPE_CHECKING:
    from .tokenizer import ChatTokenizer

OPEN, CLOSE = "<tool_call>", "</tool_call>"

_END = "\n</parameter>\n"
# One token kind up to the end of the value: the lexer does not go back from text to a tag.
_TEXT = r"""
ANYTHING: /(?s:.*)/
TEXT: (ANYTHING & ~/(?s:.*)<\/?(tool_call|function|parameter)(?s:.*)/) "\n</parameter>\n"
"""
_TAG_NAME = re.compile(r"[^\s<>\"]+")
# What says which properties an object has.
_SHAPES = (
    "properties",
    "patternProperties",
    "additionalProperties",
    "$ref",
    "allOf",
    "anyOf",
    "oneOf",
)


def call_grammar(
    tools: Sequence[Mapping[str, Any]], names: Sequence[str], tokenizer: "ChatTokenizer"
) -> str:
    """Rules in Lark's notation whose ``answer`` is a call of one of ``names`` in ``tools``, as the
    template has them."""
    example = _example(tokenizer)
    write = _tagged if "<function=f>" in example else _json
    if OPEN not in example:
        raise RequestError(
            "This model's chat template has no format for tool calls, so a call cannot be required."
        )
    functions = [tool["function"] for tool in tools if tool["function"]["name"] in names]
    rules = [f"answer: {_tag(OPEN, tokenizer)} ({_any(functions)}) {_tag(CLOSE, tokenizer)}", _TEXT]
    for at, function in enumerate(functions):
        try:
            rules += write(f"f{at}", function["name"], function.get("parameters") or {})
        except RequestError as error:
            raise RequestError(f"The function {function['name']!r}: {error}") from None
    return "\n".join(rules)


def _any(functions: Sequence[object]) -> str:
    return " | ".join(f"f{at}" for at in range(len(functions)))


def _example(tokenizer: "ChatTokenizer") -> str:
    """How the template writes a call of f."""
    call = {"type": "function", "function": {"name": "f", "arguments": {"a": "b"}}}
    asked = {"role": "user", "content": "x"}
    answered = {"role": "assistant", "content": "", "tool_calls": [call]}
    return tokenizer.render([asked, answered], {}, generation_prompt=False)


def _tag(tag: str, tokenizer: "ChatTokenizer") -> str:
    ids = tokenizer.encode(tag)
    return f"<[{ids[0]}]>" if len(ids) == 1 and ids[0] in tokenizer.added_ids else _exactly(tag)


def _exactly(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _json(rule: str, name: str, parameters: Schema) -> Iterator[str]:
    schema = {"type": "object", **parameters}
    if not any(schema.get(word) for word in _SHAPES):
        schema["additionalProperties"] = False
    head = f'\n{{"name": {json.dumps(name)}, "arguments": '
    yield f"{rule}: {_exactly(head)} {rule}a {_exactly('}' + chr(10))}"
    yield f"{rule}a: %json {compile_schema(schema)}"


def _tagged(rule: str, name: str, parameters: Schema) -> Iterator[str]:
    properties = named(parameters, "properties")
    required = [key for key in listed(parameters, "required") if isinstance(key, str)]
    parts = []
    for at, key in enumerate(dict.fromkeys([*properties, *required])):
        parts.append(f"{rule}p{at}" if key in required else f"{rule}p{at}?")
        head = _exactly(f"<parameter={_tag_name(key)}>\n")
        value = _value(f"{rule}v{at}", properties.get(key), parameters)
        yield f"{rule}p{at}: {head} {rule}v{at}\n{value}"
    head = _exactly(f"\n<function={_tag_name(name)}>\n")
    yield f"{rule}: {head} {' '.join(parts)} {_exactly('</function>' + chr(10))}"


def _value(rule: str, schema: Any, root: Schema) -> str:
    """A value and the end of its tag."""
    found = resolved(schema, root)
    values = found.get("enum", [found["const"]] if "const" in found else None)
    if isinstance(values, list) and values:
        texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
        return f"{rule}: ({' | '.join(map(_exactly, texts))}) {_exactly(_END)}"
    kinds = types_of(found, root)
    if not kinds or "string" in kinds:
        return f"{rule}: TEXT"
    shared = {word: root[word] for word in SHARED if word in root}
    return f"{rule}: {rule}j {_exactly(_END)}\n{rule}j: %json {compile_schema({**shared, **found})}"


def _tag_name(name: str) -> str:
    if not _TAG_NAME.fullmatch(name):
        raise RequestError(f"This model cannot write the name {name!r} in a call.")
    return name
