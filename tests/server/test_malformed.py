"""Bodies and headers that nobody should send are the client's fault, never the server's."""

import json
from typing import Any

import pytest

from .client import Client
from .test_anthropic import WEATHER as CLAUDES_WEATHER
from .test_openai import QUESTION, WEATHER

CHAT, RAW, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
FUNCTION = {"type": "function", **WEATHER["function"]}
CHATS = {
    CHAT: {"messages": QUESTION, "max_tokens": 2},
    RESPONSES: {"input": QUESTION, "max_output_tokens": 2},
    MESSAGES: {"messages": QUESTION, "max_tokens": 2},
    COUNT: {"messages": QUESTION},
}
HALF = '"\\ud800"'  # as JSON text
DEEP = [500, 5_000, 100_000]


def nested(depth: int, kind: str) -> str:
    """JSON text: objects, lists or schemas in each other."""
    begin, end = {
        "objects": ('{"a": ', "}"),
        "lists": ('{"a": [', "]}"),
        "schemas": ('{"type": "object", "properties": {"a": ', "}}"),
        "any": ('{"anyOf": [', "]}"),
    }[kind]
    return begin * depth + "{}" + end * depth


def with_schema(path: str, schema: str) -> dict[str, str]:
    """Fields, as JSON text, in which ``path`` takes a schema."""
    own = {"name": "f", "parameters": 0}
    tool: Any = {
        CHAT: {"type": "function", "function": own},
        RESPONSES: {"type": "function", **own},
    }
    declared = json.dumps(tool.get(path, {"name": "f", "input_schema": 0}))
    named = {"type": "json_schema", "name": "n", "schema": 0}
    form: Any = {
        CHAT: {"response_format": {"type": "json_schema", "json_schema": named}},
        RESPONSES: {"text": {"format": named}},
    }
    output = form.get(path, {"output_config": {"format": {"type": "json_schema", "schema": 0}}})
    if path == CHAT:
        output["response_format"]["json_schema"].pop("type")
    elif path != RESPONSES:
        output["output_config"]["format"].pop("name", None)
    filled = json.dumps(output).replace(": 0", f": {schema}")
    return {"tool": f'{{"tools": [{declared}]}}'.replace(": 0", f": {schema}"), "format": filled}


def post(server: Client, path: str, *parts: str) -> Any:
    """A body of objects that are given as JSON text."""
    inner = [part.strip()[1:-1] for part in parts if part.strip() != "{}"]
    common = '"model": "mtplx-demo", "temperature": 0'
    return server.post(path, ("{" + ", ".join([common, *inner]) + "}").encode())


@pytest.mark.parametrize("path", CHATS)
@pytest.mark.parametrize("depth", DEEP)
@pytest.mark.parametrize("kind", ["objects", "lists", "schemas", "any"])
def test_deep_schemas(server: Client, path: str, depth: int, kind: str) -> None:
    for fields in with_schema(path, nested(depth, kind)).values():
        answer = post(server, path, json.dumps(CHATS[path]), fields)
        assert answer.status == 400, answer.raw
        assert "deeper than 100" in answer.json["error"]["message"]


@pytest.mark.parametrize("path", CHATS)
@pytest.mark.parametrize("kind", ["objects", "schemas", "any"])
def test_what_is_deep_and_yet_allowed_is_answered_or_refused(
    server: Client, path: str, kind: str
) -> None:
    for depth in (20, 40):
        for fields in with_schema(path, nested(depth, kind)).values():
            answer = post(server, path, json.dumps(CHATS[path]), fields)
            assert answer.status in (200, 400), answer.raw
    field = {CHAT: "tool_choice", RESPONSES: "tool_choice"}.get(path)
    if field:
        tool = with_schema(path, nested(40, kind))["tool"]
        answer = post(server, path, json.dumps(CHATS[path]), tool, '{"tool_choice": "required"}')
        assert answer.status in (200, 400), answer.raw


def earlier_call(path: str, given: str) -> str:
    """A history in which a call has the arguments ``given``, JSON text."""
    if path == CHAT:
        call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": given}}
        return json.dumps({"messages": [*QUESTION, {"role": "assistant", "tool_calls": [call]}]})
    if path == RESPONSES:
        call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": given}
        return json.dumps({"input": [*QUESTION, call]})
    block = {"type": "tool_use", "id": "a", "name": "f", "input": 0}
    history = {"messages": [*QUESTION, {"role": "assistant", "content": [block]}]}
    return json.dumps(history).replace('"input": 0', f'"input": {given}')


@pytest.mark.parametrize("path", CHATS)
@pytest.mark.parametrize(
    "given",
    [
        *(nested(depth, "objects") for depth in DEEP),
        f'{{"a": {HALF}}}',
        f'{{{HALF}: "a"}}',
        '{"a": [{"b": "x\\uDFFFy"}]}',
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        "[]",
        "3",
    ],
    ids=lambda given: given[:20],
)
def test_arguments_that_cannot_be_written_again(server: Client, path: str, given: str) -> None:
    limit = "max_output_tokens" if path == RESPONSES else "max_tokens"
    answer = post(server, path, earlier_call(path, given), json.dumps({limit: 2}))
    assert answer.status == 400, answer.raw
    assert answer.json["error"]["message"]


@pytest.mark.parametrize("path", [*CHATS, RAW])
@pytest.mark.parametrize(
    "fields",
    [
        f'{{"stop": [{HALF}]}}',
        f'{{"stop_sequences": [{HALF}]}}',
        f'{{"user": {HALF}}}',
        f'{{"metadata": {{"user_id": {HALF}}}}}',
        f'{{"metadata": {{{HALF}: "a"}}}}',
        f"{{{HALF}: 1}}",
        f'{{"tools": [{{"type": "function", "name": {HALF}}}]}}',
        f'{{"instructions": {HALF}}}',
        f'{{"system": {HALF}}}',
        f'{{"prompt": {HALF}}}',
        f'{{"model": {HALF}}}',
        '{"unknown": "\\uDC00\\uD800"}',
        '{"unknown": 1e400}',
        '{"temperature": Infinity}',
        '{"unknown": 1' + "0" * 5000 + "}",
    ],
    ids=lambda fields: fields[:30],
)
def test_halves_of_characters_and_numbers_beyond_all(
    server: Client, path: str, fields: str
) -> None:
    known = CHATS.get(path, {"prompt": "Hello", "max_tokens": 2})
    answer = post(server, path, json.dumps(known), fields)
    assert answer.status == 400, answer.raw
    assert answer.json["error"]["message"]


def test_whole_characters_are_read(server: Client) -> None:
    """A pair of halves is one character; text may speak of halves."""
    for text in ('"\\ud83d\\ude00"', '"\\\\ud800"'):
        fields = f'{{"messages": [{{"role": "user", "content": {text}}}], "max_tokens": 2}}'
        assert post(server, CHAT, fields).status == 200
    given = json.dumps({"a": "\U0001f600"})
    assert post(server, CHAT, earlier_call(CHAT, given), '{"max_tokens": 2}').status == 200


@pytest.mark.parametrize("path", ["/", "/health", "/v1/models", "/nowhere"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://["},
        {"Origin": "http://[::1"},
        {"Origin": "http://]"},
        {"Origin": "http://[evil]"},
        {"Origin": "["},
        {"Origin": "http://\u212a\u2100".encode().decode("latin-1")},
        {"Origin": "http://a:b:c"},
        {"Origin": ""},
        {"Origin": "//"},
        {"Host": "["},
        {"Host": "[::1"},
        {"Host": "]"},
        {"Host": "[::1]evil"},
        {"Host": "evil@localhost"},
        {"Host": "localhost:80evil"},
        {"Host": "localhost/evil"},
        {"Host": "http://["},
        {"Host": "localhost]"},
        {"Host": "\xe9"},
        {"Host": "127.0.0.1, evil.test"},
    ],
    ids=str,
)
def test_malformed_hosts_and_origins(server: Client, path: str, headers: dict[str, str]) -> None:
    answer = server.get(path, **headers)
    assert answer.status in (400, 403), answer.raw


def test_malformed_keys_and_lengths(server: Client) -> None:
    for value in ("Basic \xe9", "Basic =", "Basic", "Bearer", "\xff", "Basic /w=="):
        assert server.get("/health", Authorization=value).status == 200
    for length in ("-1", "1e3", "\xb2", "9" * 5000):
        connection = server.connect()
        connection.putrequest("POST", CHAT)
        connection.putheader("Content-Length", length)
        connection.endheaders()
        assert connection.getresponse().status in (400, 413, 431)
        connection.close()


def test_declared_tools_of_claude_are_as_before(server: Client) -> None:
    fields = {**CHATS[MESSAGES], "tools": [CLAUDES_WEATHER]}
    assert post(server, MESSAGES, json.dumps(fields)).status == 200
