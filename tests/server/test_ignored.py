"""What clients ask for beyond what is known: left out by name, or refused where it would count."""

from typing import Any

import pytest

from .client import Answer, Client
from .test_anthropic import WEATHER as CLAUDES_WEATHER
from .test_openai import QUESTION, WEATHER

CHAT, RAW, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
MODEL = "mtplx-demo"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": QUESTION, "max_tokens": 8},
    RAW: {"prompt": "Hello", "max_tokens": 8},
    RESPONSES: {"input": QUESTION, "max_output_tokens": 8},
    MESSAGES: {"messages": QUESTION, "max_tokens": 8},
    COUNT: {"messages": QUESTION},
}
FUNCTION = {"type": "function", **WEATHER["function"]}


def ask(server: Client, path: str, **fields: Any) -> Answer:
    return server.post(path, {"model": MODEL, "temperature": 0, **BODIES[path], **fields})


def ignored(answer: Answer) -> list[str]:
    assert answer.status == 200, answer.raw
    told = answer.headers.get("x-mtplx-ignored", "")
    return told.split(", ") if told else []


@pytest.mark.parametrize("path", BODIES)
def test_unknown_fields_are_left_out_by_name(server: Client, path: str) -> None:
    assert ignored(ask(server, path)) == []
    assert ignored(ask(server, path, mood="good", unset=None)) == ["mood"]
    named = ignored(ask(server, path, **{"a\r\nb: c, d\u00e9": 1}))
    assert named == ["a??b:?c??d?"]
    assert ignored(ask(server, path, **{"": 1, "a": {"": 1}})) == ["?", "a"]


@pytest.mark.parametrize("path", BODIES)
def test_many_and_long_names_fit_a_header(server: Client, path: str) -> None:
    named = ignored(ask(server, path, **{f"field{n:03}{'x' * 100}": 1 for n in range(300)}))
    assert named[0].startswith("field000") and named[-1] == "..."
    assert len(", ".join(named)) < 2000


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES, COUNT])
def test_the_same_inside_messages(server: Client, path: str) -> None:
    at = "input" if path == RESPONSES else "messages"
    kind = "input_text" if path == RESPONSES else "text"
    part = {"type": kind, "text": "Hello", "mood": "good"}
    said = [{"role": "user", "content": [part, {"type": "mood_hint", "level": 3}], "tone": "dry"}]
    named = ignored(ask(server, path, **{at: said}))
    assert {f"{at}.tone"} < set(named)
    assert {name.rpartition(".")[2] for name in named} == {"mood", "mood_hint", "tone"}


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (CHAT, {"n": 2}),
        (CHAT, {"mirostat": 2}),
        (CHAT, {"guided_json": {"type": "object"}}),
        (CHAT, {"functions": [{"name": "f"}]}),
        (CHAT, {"chat_template_kwargs": {"thinking": True}}),
        (CHAT, {"messages": [*QUESTION, {"role": "assistant", "content": "{", "prefix": True}]}),
        (RAW, {"suffix": "x"}),
        (RAW, {"tools": [WEATHER]}),
        (RESPONSES, {"previous_response_id": "resp_1"}),
        (RESPONSES, {"conversation": "conv_1"}),
        (RESPONSES, {"background": True}),
        (RESPONSES, {"prompt": {"id": "pmpt_1"}}),
        (RESPONSES, {"max_tokens": 3}),
        (RESPONSES, {"input": [{"type": "item_reference", "id": "msg_1"}]}),
        (RESPONSES, {"input": [{"type": "compaction", "encrypted_content": "x"}]}),
        (RESPONSES, {"input": [{"type": "news", "text": "x"}]}),
        (MESSAGES, {"prefill": "x"}),
        (MESSAGES, {"thread": {"type": "create"}}),
        (MESSAGES, {"thread": {"type": "continue", "previous_message_id": "msg_1"}}),
        (MESSAGES, {"stop": ["x"]}),
    ],
)
def test_what_would_change_the_answer_is_refused(
    server: Client, path: str, fields: dict[str, Any]
) -> None:
    refused = ask(server, path, **fields)
    assert refused.status == 400, refused.raw
    assert (
        "support" in refused.json["error"]["message"] or "'n'" in refused.json["error"]["message"]
    )


def test_what_asks_for_nothing_is_not_refused(server: Client) -> None:
    for fields in ({"echo": False}, {"suffix": ""}, {"mirostat": 0}, {"typical_p": 1}):
        ignored(ask(server, RAW, **fields))
    ignored(ask(server, RESPONSES, background=False, truncation="auto"))
    ignored(ask(server, CHAT, functions=[], function_call="auto", guided_json=None))


MEDIA = [
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}},
    {"type": "image_url", "image_url": {"url": "data:,"}},
    {"type": "input_image", "image_url": "data:,"},
    {"type": "input_image", "detail": "low"},
    {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
    {"type": "input_file", "file_id": "file_1"},
    {"type": "file", "file": {"file_id": "file_1"}},
    {"type": "document", "source": {"type": "base64", "data": ""}},
    {"type": "document", "source": {"type": "url", "url": "https://a.test"}},
    {"type": "container_upload", "file_id": "file_1"},
    {"type": "hologram", "data": "x"},
    {"text": "x"},
]


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES, COUNT])
@pytest.mark.parametrize("part", MEDIA, ids=lambda part: part.get("type", "none"))
def test_content_that_cannot_be_read_is_refused_by_name(
    server: Client, path: str, part: dict[str, Any]
) -> None:
    at = "input" if path == RESPONSES else "messages"
    refused = ask(server, path, **{at: [{"role": "user", "content": [part]}]})
    assert refused.status == 400, refused.raw
    assert f"{at}.0" in refused.json["error"]["message"]
    assert part.get("type", "type") in refused.json["error"]["message"]


def test_blocks_that_are_text_are_read(server: Client) -> None:
    def tokens(*blocks: Any) -> int:
        answer = ask(server, COUNT, messages=[{"role": "user", "content": [*blocks]}])
        return int(answer.json["input_tokens"])

    text = {"type": "text", "text": "The capital of France is Paris."}
    source = {"type": "text", "media_type": "text/plain", "data": text["text"]}
    none = tokens({"type": "text", "text": ""})
    for block in (
        {"type": "document", "source": source, "citations": {"enabled": True}},
        {"type": "document", "source": {"type": "content", "content": [text]}},
        {"type": "search_result", "source": "a", "title": "b", "content": [text]},
        {"type": "compaction", "content": text["text"]},
    ):
        assert tokens(block) >= tokens(text) > none
    result = {"type": "tool_result", "tool_use_id": "a", "content": [{**text}]}
    call = {"type": "tool_use", "id": "a", "name": "get_weather", "input": {}}
    history = [*QUESTION, {"role": "assistant", "content": [call]}]
    assert ask(server, COUNT, messages=[*history, {"role": "user", "content": [result]}]).json


def test_what_other_models_did_is_left_out(server: Client) -> None:
    searched = [
        {"type": "redacted_thinking", "data": "x"},
        {"type": "thinking", "thinking": "Hm.", "signature": "x"},
        {"type": "server_tool_use", "id": "a", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "a", "content": []},
        {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}},
        {"type": "text", "text": "Paris.", "citations": None},
    ]
    history = [*QUESTION, {"role": "assistant", "content": searched}, *QUESTION]
    named = ignored(ask(server, MESSAGES, messages=history))
    assert named == [
        "messages.content.server_tool_use",
        "messages.content.web_search_tool_result",
        "messages.content.fallback",
    ]
    items = [
        *QUESTION,
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}},
        {"type": "custom_tool_call", "call_id": "a", "name": "apply_patch", "input": "*** Begin"},
        {"type": "custom_tool_call_output", "call_id": "a", "output": "Done"},
        {"type": "local_shell_call", "call_id": "b", "action": {"command": ["ls"]}},
        {"type": "local_shell_call_output", "call_id": "b", "output": "a.py"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        *QUESTION,
    ]
    assert ignored(ask(server, RESPONSES, input=items)) == ["input.web_search_call"]
    custom = {"id": "a", "type": "custom", "custom": {"name": "apply_patch", "input": "*** Begin"}}
    chat = [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [custom]},
        {"role": "tool", "tool_call_id": "a", "content": "Done"},
    ]
    assert ignored(ask(server, CHAT, messages=chat)) == []


FOREIGN = {
    CHAT: [{"type": "custom", "custom": {"name": "patch", "format": {"type": "text"}}}],
    RESPONSES: [
        {"type": "web_search", "external_web_access": False},
        {"type": "custom", "name": "patch", "format": {"type": "grammar", "definition": "x"}},
        {"type": "local_shell"},
        {"type": "namespace", "name": "mcp__a__", "tools": [FUNCTION]},
        {"type": "mcp", "server_label": "a", "server_url": "https://a.test"},
        {"type": "computer_use_preview", "display_width": 1, "display_height": 1},
    ],
    MESSAGES: [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
        {"type": "bash_20250124", "name": "bash"},
        {"type": "mcp_toolset", "mcp_server_name": "a"},
    ],
}
FOREIGN[COUNT] = FOREIGN[MESSAGES]
OWN = {CHAT: WEATHER, RESPONSES: FUNCTION, MESSAGES: CLAUDES_WEATHER, COUNT: CLAUDES_WEATHER}


@pytest.mark.parametrize("path", FOREIGN)
def test_tools_that_cannot_be_run_here_are_left_out(server: Client, path: str) -> None:
    plain = ask(server, path, tools=[OWN[path]])
    mixed = ask(server, path, tools=[*FOREIGN[path], OWN[path]])
    assert ignored(mixed) == sorted(f"tools:{tool['type']}" for tool in FOREIGN[path])
    assert ignored(plain) == []
    if path == COUNT:
        assert mixed.json == plain.json
    else:
        counts = [next(iter(answer.json["usage"].values())) for answer in (plain, mixed)]
        reads = [
            answer.json["usage"].get("cache_read_input_tokens", 0) for answer in (plain, mixed)
        ]
        assert counts[0] + reads[0] == counts[1] + reads[1]
    assert ignored(ask(server, path, tools=FOREIGN[path]))


@pytest.mark.parametrize(
    ("path", "choice", "words"),
    [
        (CHAT, {"type": "custom", "custom": {"name": "patch"}}, "'patch' is a tool of type"),
        (CHAT, {"type": "function", "function": {"name": "patch"}}, "'patch' is a tool of type"),
        (CHAT, "required", "no 'tools' that a local model can run"),
        (RESPONSES, {"type": "custom", "name": "patch"}, "'patch' is a tool of type 'custom'"),
        (RESPONSES, {"type": "web_search"}, "'web_search' is a tool of type"),
        (RESPONSES, {"type": "mcp", "server_label": "a"}, "'mcp' is a tool of type 'mcp'"),
        (RESPONSES, "required", "no 'tools' that a local model can run"),
        (MESSAGES, {"type": "tool", "name": "web_search"}, "type 'web_search_20250305'"),
        (MESSAGES, {"type": "any"}, "no 'tools' that a local model can run"),
    ],
)
def test_to_insist_on_one_of_them_is_an_error(
    server: Client, path: str, choice: Any, words: str
) -> None:
    refused = ask(server, path, tools=FOREIGN[path], tool_choice=choice)
    assert refused.status == 400
    assert words in refused.json["error"]["message"]


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
def test_some_of_the_declared_tools(server: Client, path: str) -> None:
    lamp = {"name": "set_lamp", "parameters": {"type": "object", "properties": {}}}
    chat = path == CHAT
    other = {"type": "function", "function": lamp} if chat else {"type": "function", **lamp}
    one = {"type": "function", "function": {"name": "set_lamp"}} if chat else other

    def answer(tools: list[Any], choice: Any) -> Any:
        at, limit = ("messages", "max_tokens") if chat else ("input", "max_output_tokens")
        asked = {at: [{"role": "user", "content": "What is the weather in Paris?"}], limit: 200}
        answer = ask(server, path, **asked, tools=tools, tool_choice=choice)
        assert answer.status == 200, answer.raw
        return answer.json

    def allowed(mode: str) -> dict[str, Any]:
        some = {"mode": mode, "tools": [one]}
        return {"type": "allowed_tools", **({"allowed_tools": some} if chat else some)}

    made = answer([OWN[path], other], allowed("required"))
    if chat:
        (call,) = made["choices"][0]["message"]["tool_calls"]
        call = call["function"]
    else:
        (call,) = made["output"]
    assert call["name"] == "set_lamp"
    # Those that are not allowed are not declared.
    read = "prompt_tokens" if chat else "input_tokens"
    narrowed = answer([OWN[path], other], allowed("auto"))["usage"][read]
    assert narrowed == answer([other], "auto")["usage"][read]
    assert narrowed < answer([OWN[path], other], "auto")["usage"][read]
