"""OpenAI's own client: whole and streamed answers, tools, reasoning, usage, refusals."""

import json
from typing import Any

import mlx.core as mx
import numpy as np
import openai
import pytest

from llm_mtplx.architectures.load_trunk import load_trunk
from llm_mtplx.catalog.folder import inspect
from llm_mtplx.chat.tokenizer import ChatTokenizer
from llm_mtplx.demo import MODEL_DIR

MODEL = "mtplx-demo"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather for a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
ASK_WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]


def ask(client: openai.OpenAI, messages: list[dict[str, Any]] = QUESTION, **options: Any) -> Any:
    options = {"temperature": 0, **options}
    return client.chat.completions.create(model=MODEL, messages=messages, **options)


def streamed(chunks: Any) -> tuple[str, str, str | None, Any]:
    """Text, reasoning, finish reason and usage of a stream."""
    text, reasoning, finish, usage = "", "", None, None
    for chunk in chunks:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            finish = choice.finish_reason or finish
    return text, reasoning, finish, usage


def test_an_answer_and_what_it_cost(oai: openai.OpenAI) -> None:
    first = ask(oai)
    assert "Paris" in first.choices[0].message.content
    assert first.choices[0].finish_reason == "stop"
    usage = first.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    again = ask(oai)
    assert again.choices[0].message.content == first.choices[0].message.content
    assert again.usage.prompt_tokens == usage.prompt_tokens
    assert again.usage.prompt_tokens_details.cached_tokens > 0


@pytest.mark.parametrize(
    ("options", "finish"),
    [({}, "stop"), ({"max_tokens": 3}, "length"), ({"stop": ["capital"]}, "stop")],
)
def test_a_stream_is_the_same_answer(
    oai: openai.OpenAI, options: dict[str, Any], finish: str
) -> None:
    whole = ask(oai, **options)
    usage = {"include_usage": True}
    text, _, ended, told = streamed(ask(oai, **options, stream=True, stream_options=usage))
    assert text == whole.choices[0].message.content
    assert ended == whole.choices[0].finish_reason == finish
    assert told.completion_tokens == whole.usage.completion_tokens
    assert streamed(ask(oai, **options, stream=True))[3] is None


def test_a_conversation_goes_on_where_it_ended(oai: openai.OpenAI) -> None:
    told = [
        {"role": "system", "content": "You are helpful."},
        {"role": "user", "content": "My name is Tamsin."},
    ]
    headers = {"x-session-id": "a"}
    first = ask(oai, told, extra_headers=headers)
    told += [
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "What is my name?"},
    ]
    second = ask(oai, told, extra_headers=headers)
    assert "Tamsin" in second.choices[0].message.content
    assert second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens - 8


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_round(oai: openai.OpenAI, stream: bool) -> None:
    options = {"tools": [WEATHER], "temperature": 0}
    if stream:
        asked = {"model": MODEL, "messages": ASK_WEATHER, **options}
        usage = {"include_usage": True}
        with oai.chat.completions.stream(**asked, stream_options=usage) as events:
            answer = events.get_final_completion()
    else:
        answer = ask(oai, ASK_WEATHER, **options)
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    history = [
        *ASK_WEATHER,
        choice.message.model_dump(exclude_none=True, exclude={"parsed"}),
        {"role": "tool", "tool_call_id": call.id, "content": "18 degrees and sunny"},
    ]
    for message in history:
        for made in message.get("tool_calls", []):
            made["function"].pop("parsed_arguments", None)
    second = ask(oai, history, **options)
    assert "18" in second.choices[0].message.content
    assert second.usage.prompt_tokens_details.cached_tokens >= answer.usage.prompt_tokens


def test_no_calls_of_tools_that_are_only_declared(oai: openai.OpenAI) -> None:
    free = ask(oai, ASK_WEATHER, tools=[WEATHER])
    bound = ask(oai, ASK_WEATHER, tools=[WEATHER], tool_choice="none")
    assert bound.choices[0].message.tool_calls is None
    assert bound.choices[0].finish_reason == "stop"
    assert bound.usage.prompt_tokens == free.usage.prompt_tokens


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_is_apart_from_the_answer(oai: openai.OpenAI, stream: bool) -> None:
    thinking = {"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}}
    asked = [{"role": "user", "content": "What is 17 + 25?"}]
    if stream:
        text, reasoning, _, _ = streamed(ask(oai, asked, stream=True, **thinking))
    else:
        message = ask(oai, asked, **thinking).choices[0].message
        text, reasoning = message.content, message.reasoning_content
    assert reasoning and text and "think>" not in text + reasoning
    assert not hasattr(
        ask(oai, asked, reasoning_effort="none").choices[0].message, "reasoning_content"
    )


SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["Paris", "Rome"]},
        "people": {"type": "integer"},
    },
    "required": ["city", "people"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_of_a_schema(oai: openai.OpenAI, stream: bool) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA}}
    answer = ask(oai, response_format=wanted, stream=stream)
    text = streamed(answer)[0] if stream else answer.choices[0].message.content
    said = json.loads(text)
    assert said.keys() == {"city", "people"}
    assert said["city"] in ("Paris", "Rome") and isinstance(said["people"], int)


def test_the_same_of_responses_and_any_object(oai: openai.OpenAI) -> None:
    made = oai.responses.create(
        model=MODEL,
        input="What is the capital of France?",
        text={"format": {"type": "json_schema", "name": "city", "schema": SCHEMA}},
    )
    assert json.loads(made.output_text)["city"] in ("Paris", "Rome")
    with pytest.raises(openai.BadRequestError, match="not JSON of a schema"):
        ask(oai, response_format={"type": "json_object"}, tools=[WEATHER])


def test_a_seed_repeats(oai: openai.OpenAI) -> None:
    story = [{"role": "user", "content": "Tell me a story."}]
    texts = {
        ask(oai, story, temperature=1.1, seed=7, max_tokens=30).choices[0].message.content
        for _ in range(3)
    }
    assert len(texts) == 1


def test_the_coldest_temperature_is_none(oai: openai.OpenAI) -> None:
    joke = [{"role": "user", "content": "Tell me a joke."}]
    assert len({said(oai, joke, temperature) for temperature in (0, 1e-308, 1e-9)}) == 1


def said(oai: openai.OpenAI, messages: list[dict[str, str]], temperature: float) -> str | None:
    made = ask(oai, messages, temperature=temperature, max_tokens=20)
    return made.choices[0].message.content


def test_a_prompt_as_it_stands(oai: openai.OpenAI) -> None:
    prompt = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    options = {"model": MODEL, "prompt": prompt, "temperature": 0, "max_tokens": 20}
    whole = oai.completions.create(**options)
    assert "Paris" in whole.choices[0].text
    chunks = oai.completions.create(**options, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text


@pytest.fixture(scope="module")
def plain() -> Any:
    """The demo model's log-probabilities [ids, V] by mlx-lm's own forward."""
    model = load_trunk(inspect(MODEL_DIR))[0].model

    def forward(ids: list[int]) -> np.ndarray:
        logits = np.array(model(mx.array([ids]))[0].astype(mx.float32), np.float64)
        return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))

    return forward


def test_logprobs_are_those_of_a_plain_forward(oai: openai.OpenAI, plain: Any) -> None:
    tokenizer = ChatTokenizer(MODEL_DIR)
    prompt = tokenizer.encode(tokenizer.render(QUESTION, {}))
    options = {"logprobs": True, "top_logprobs": 3}
    whole = ask(oai, **options).choices[0]
    told = whole.logprobs.content
    assert b"".join(bytes(token.bytes) for token in told) == whole.message.content.encode()
    ids = [tokenizer.token_bytes.index(bytes(token.bytes)) for token in told]
    for row, token, at in zip(plain([*prompt, *ids])[len(prompt) - 1 :], ids, told, strict=False):
        np.testing.assert_allclose(at.logprob, row[token], atol=1e-4)
        best = [top.logprob for top in at.top_logprobs]
        np.testing.assert_allclose(best, np.sort(row)[::-1][:3], atol=1e-4)
        assert tokenizer.token_bytes[row.argmax()] == bytes(at.top_logprobs[0].bytes)
    streamed_ = []
    for chunk in ask(oai, **options, stream=True):
        (choice,) = chunk.choices
        listed = choice.logprobs.content if choice.logprobs else []
        assert "".join(token.token for token in listed) == (choice.delta.content or "")
        streamed_ += listed
    assert streamed_ == told
    assert ask(oai).choices[0].logprobs is None


def test_logprobs_of_a_prompt_as_it_stands(oai: openai.OpenAI, plain: Any) -> None:
    tokenizer = ChatTokenizer(MODEL_DIR)
    prompt = tokenizer.render(QUESTION, {})
    ids = tokenizer.encode(prompt)
    options = {"model": MODEL, "prompt": prompt, "temperature": 0, "max_tokens": 20}
    whole = oai.completions.create(**options, logprobs=2).choices[0]
    told = whole.logprobs
    assert "".join(told.tokens) == whole.text
    for token, offset in zip(told.tokens, told.text_offset, strict=True):
        assert whole.text[offset:].startswith(token)
    made = [tokenizer.token_bytes.index(token.encode()) for token in told.tokens]
    rows = plain([*ids, *made])[len(ids) - 1 :]
    want = [row[token] for row, token in zip(rows, made, strict=False)]
    np.testing.assert_allclose(told.token_logprobs, want, atol=1e-4)
    assert all(2 <= len(top) <= 3 for top in told.top_logprobs)
    parts = [
        chunk.choices[0] for chunk in oai.completions.create(**options, logprobs=2, stream=True)
    ]
    assert [t for part in parts if part.logprobs for t in part.logprobs.tokens] == told.tokens
    offsets = [at for part in parts if part.logprobs for at in part.logprobs.text_offset]
    assert offsets == told.text_offset


def test_models(oai: openai.OpenAI) -> None:
    assert [model.id for model in oai.models.list()] == [MODEL, "mtplx/models/endless"]
    assert oai.models.retrieve("mtplx/models/endless").id == "mtplx/models/endless"
    with pytest.raises(openai.NotFoundError):
        oai.models.retrieve("nobody")


def test_a_response(oai: openai.OpenAI) -> None:
    asked = {"model": MODEL, "input": "What is the capital of France?", "temperature": 0}
    whole = oai.responses.create(**asked, instructions="You are helpful.")
    assert (whole.status, "Paris" in whole.output_text) == ("completed", True)
    with oai.responses.stream(**asked, instructions="You are helpful.") as events:
        last = events.get_final_response()
    assert last.output_text == whole.output_text
    assert last.usage.output_tokens == whole.usage.output_tokens
    cut = oai.responses.create(**asked, max_output_tokens=3)
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_round_of_responses(oai: openai.OpenAI, stream: bool) -> None:
    options: Any = {
        "model": MODEL,
        "tools": [{"type": "function", **WEATHER["function"]}],
        "temperature": 0,
    }
    if stream:
        with oai.responses.stream(input=ASK_WEATHER, **options) as events:
            answer = events.get_final_response()
    else:
        answer = oai.responses.create(input=ASK_WEATHER, **options)
    (call,) = answer.output
    assert (call.type, call.name) == ("function_call", "get_weather")
    assert json.loads(call.arguments) == {"city": "Paris"}
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees"}
    made = call.model_dump(exclude_none=True, exclude={"parsed_arguments"})
    second = oai.responses.create(input=[*ASK_WEATHER, made, result], **options)
    assert "18" in second.output_text
    assert second.usage.input_tokens_details.cached_tokens >= answer.usage.input_tokens


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"n": 2}, "n"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ({"logit_bias": {"5": 101}}, "logit_bias"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "sometimes", "tools": [WEATHER]}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        ({"temperature": -1}, "temperature"),
        ({"stop": [""]}, "stop"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"extra_body": {"mirostat": 2}}, "mirostat"),
        ({"extra_body": {"seed": 1.5}}, "seed"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    oai: openai.OpenAI, options: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ask(oai, **options)
    assert refused.value.param.split(".")[0] == param
    assert f"'{refused.value.param}'" in refused.value.message


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]},
        {"role": "tool", "tool_call_id": "unknown", "content": "x"},
        {"role": "user", "content": [{"type": "text", "txt": "x"}]},
        {"role": "judge", "content": "x"},
        {"role": "user", "content": 3},
    ],
)
def test_messages_that_cannot_be_read_are_refused(
    oai: openai.OpenAI, message: dict[str, Any]
) -> None:
    with pytest.raises(openai.BadRequestError, match=r"messages\.0"):
        ask(oai, [message])
