"""Anthropic's own client."""

from typing import Any

import anthropic
import pytest

MODEL = "mtplx-demo"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
WEATHER = {
    "name": "get_weather",
    "description": "Get the current weather for a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
ASK_WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]


def ask(client: anthropic.Anthropic, messages: Any = QUESTION, **options: Any) -> Any:
    """Not every parameter is one of the client's own."""
    options = {"max_tokens": 40, **options}
    extra = {"temperature": 0, **options.pop("extra_body", {})}
    return client.messages.create(model=MODEL, messages=messages, extra_body=extra, **options)


def stream(client: anthropic.Anthropic, messages: Any = QUESTION, **options: Any) -> Any:
    options = {"max_tokens": 40, "extra_body": {"temperature": 0}, **options}
    with client.messages.stream(model=MODEL, messages=messages, **options) as events:
        return events.get_final_message()


@pytest.mark.parametrize(
    ("options", "reason", "sequence"),
    [
        ({}, "end_turn", None),
        ({"max_tokens": 3}, "max_tokens", None),
        ({"stop_sequences": ["x", "capital"]}, "stop_sequence", "capital"),
    ],
)
def test_whole_and_streamed_are_the_same(
    claude: anthropic.Anthropic, options: dict[str, Any], reason: str, sequence: str | None
) -> None:
    whole, last = ask(claude, **options), stream(claude, **options)
    assert whole.content[0].text == last.content[0].text
    assert (whole.stop_reason, whole.stop_sequence) == (reason, sequence)
    assert (last.stop_reason, last.stop_sequence) == (reason, sequence)
    assert whole.usage.output_tokens == last.usage.output_tokens


def test_what_is_cached_is_no_input(claude: anthropic.Anthropic) -> None:
    asked = {"system": [{"type": "text", "text": "You are helpful."}], "messages": QUESTION}
    counted = claude.messages.count_tokens(model=MODEL, **asked).input_tokens
    ask(claude, **asked)
    usage = ask(claude, **asked).usage
    assert usage.cache_read_input_tokens > 0
    assert usage.input_tokens + usage.cache_read_input_tokens == counted


@pytest.mark.parametrize("way", [ask, stream])
def test_a_tool_round(claude: anthropic.Anthropic, way: Any) -> None:
    answer = way(claude, ASK_WEATHER, tools=[WEATHER])
    assert answer.stop_reason == "tool_use"
    call = answer.content[-1]
    assert (call.type, call.name, call.input) == ("tool_use", "get_weather", {"city": "Paris"})
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "18 degrees and sunny"}
    history = [
        *ASK_WEATHER,
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": [result]},
    ]
    second = ask(claude, history, tools=[WEATHER])
    assert "18" in second.content[0].text
    first = answer.usage
    read = first.input_tokens + first.cache_read_input_tokens
    assert second.usage.cache_read_input_tokens >= read


@pytest.mark.parametrize("way", [ask, stream])
def test_thinking(claude: anthropic.Anthropic, way: Any) -> None:
    asked = [{"role": "user", "content": "What is 17 + 25?"}]
    options = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2048}
    thought, said = way(claude, asked, **options).content
    assert (thought.type, said.type) == ("thinking", "text")
    assert thought.thinking and said.text
    (only,) = ask(claude, asked, thinking={"type": "disabled"}).content
    assert only.type == "text"


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"type": "image", "source": {"type": "base64", "data": ""}}, "image"),
        ({"type": "tool_result", "tool_use_id": "unknown", "content": "x"}, "no earlier call"),
    ],
)
def test_content_that_cannot_be_read_is_refused(
    claude: anthropic.Anthropic, block: dict[str, Any], words: str
) -> None:
    with pytest.raises(anthropic.BadRequestError, match=words) as refused:
        ask(claude, [{"role": "user", "content": [block]}])
    assert refused.value.body["error"]["type"] == "invalid_request_error"


def test_errors_have_anthropics_shape(claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match="'prefill' is not supported"):
        ask(claude, extra_body={"prefill": "x"})
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(model="nobody", messages=QUESTION, max_tokens=3)
    assert next(model.id for model in claude.models.list()) == MODEL
