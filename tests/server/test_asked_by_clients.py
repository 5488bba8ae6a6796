"""What coding agents send beside what a local model can use: it costs them no answer."""

import anthropic
import openai
import pytest

from llm_mtplx.chat.tokenizer import late_system_as_user

from .client import Client

MODEL = "mtplx-demo"
QUESTION = {"role": "user", "content": "What is the capital of France?"}
LATE = {"role": "system", "content": "Be brief."}
THANKS = {"role": "user", "content": "Thank you!"}
WEB, SHELL = {"type": "web_search"}, {"type": "local_shell"}
GRAMMAR = {"type": "custom", "name": "patch", "format": {"type": "grammar"}}
FUNCTION = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}}


def test_a_late_system_message_is_read_where_it_stands(
    claude: anthropic.Anthropic, oai: openai.OpenAI
) -> None:
    first = claude.messages.create(model=MODEL, max_tokens=20, messages=[QUESTION])
    history = [QUESTION, {"role": "assistant", "content": first.content}, LATE, THANKS]
    late = claude.messages.create(model=MODEL, max_tokens=20, messages=history)
    without = claude.messages.create(model=MODEL, max_tokens=20, messages=[*history[:2], THANKS])
    read = late.usage.input_tokens + late.usage.cache_read_input_tokens
    short = without.usage.input_tokens + without.usage.cache_read_input_tokens
    assert read > short
    # What stands before it is not read again.
    assert late.usage.cache_read_input_tokens >= first.usage.input_tokens - 8
    spoken = oai.chat.completions.create(
        model=MODEL, max_tokens=20, messages=[QUESTION, LATE, THANKS]
    )
    assert spoken.choices[0].message.content
    items = [QUESTION, {"role": "developer", "content": "Be brief."}]
    assert oai.responses.create(model=MODEL, max_output_tokens=20, input=items).output


def test_late_system_messages_become_part_of_the_next_message_of_the_user() -> None:
    marked = "[System message]\nBe brief.\n[End of system message]"
    answer = {"role": "assistant", "content": "Paris."}
    first = {"role": "system", "content": "First."}
    for messages, expected in (
        ([first, QUESTION], [first, QUESTION]),
        (
            [first, QUESTION, answer, LATE, THANKS],
            [first, QUESTION, answer, {"role": "user", "content": f"{marked}\n\nThank you!"}],
        ),
        (
            [QUESTION, LATE, LATE],
            [QUESTION, {"role": "user", "content": f"{marked}\n\n{marked}"}],
        ),
        (
            [QUESTION, LATE, answer, THANKS],
            [QUESTION, {"role": "user", "content": marked}, answer, THANKS],
        ),
    ):
        before = [dict(message) for message in messages]
        assert late_system_as_user(messages) == expected
        assert messages == before


@pytest.mark.parametrize("stream", [False, True])
def test_tools_that_no_local_model_can_use_are_left_out_and_named(
    server: Client, stream: bool
) -> None:
    body = {"model": MODEL, "input": "Hello!", "max_output_tokens": 20, "stream": stream}
    alone = server.post("/v1/responses", {**body, "tools": [FUNCTION]})
    with_others = server.post("/v1/responses", {**body, "tools": [WEB, FUNCTION, GRAMMAR, SHELL]})
    assert (alone.status, with_others.status) == (200, 200)
    ignored = "tools:custom, tools:local_shell, tools:web_search"
    assert with_others.headers["x-mtplx-ignored"] == ignored
    assert "x-mtplx-ignored" not in alone.headers
    if not stream:
        (same, usage) = (each.json["usage"]["input_tokens"] for each in (alone, with_others))
        assert same == usage

    body = {"model": MODEL, "messages": [QUESTION], "max_tokens": 20, "stream": stream}
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    answer = server.post("/v1/messages", {**body, "tools": [search]})
    assert answer.status == 200
    assert answer.headers["x-mtplx-ignored"] == "tools:web_search_20250305"


def test_what_asks_for_one_of_them_is_an_error(server: Client) -> None:
    body = {"model": MODEL, "input": "Hello!", "tools": [WEB]}
    for choice in ("required", WEB, {"type": "function", "name": "web_search"}):
        answer = server.post("/v1/responses", {**body, "tool_choice": choice})
        assert answer.status == 400 and "tool_choice" in answer.json["error"]["param"]
    # A tool of ours that lacks something is none of theirs.
    for bad in ({"type": "function"}, {"name": "x"}, "web_search", {"type": 3}):
        assert server.post("/v1/responses", {**body, "tools": [bad]}).status == 400


def test_a_client_that_wants_a_thread_goes_on_without(
    claude: anthropic.Anthropic, server: Client
) -> None:
    body = {"model": MODEL, "messages": [QUESTION], "max_tokens": 20, "thread": {"type": "create"}}
    refused = server.post("/v1/messages", body).json["error"]
    assert refused["details"]["error_code"] == "thread_unsupported_request"

    @anthropic.beta_tool
    def add(a: int, b: int) -> str:
        "Add two numbers"
        return str(a + b)

    runner = claude.beta.messages.tool_runner(
        model=MODEL, max_tokens=200, tools=[add], messages=[QUESTION]
    )
    assert "Paris" in runner.until_done().content[0].text
