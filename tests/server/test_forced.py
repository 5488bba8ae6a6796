"""Calls that clients insist on: also of a model that would never make one."""

import json
from typing import Any

import anthropic
import openai
import pytest

from .test_anthropic import WEATHER as CLAUDES_WEATHER
from .test_openai import QUESTION, WEATHER

LAMP = {
    "type": "object",
    "properties": {
        "room": {"type": "string", "enum": ["kitchen", "bed room"]},
        "on": {"type": "boolean"},
        "fade": {"enum": [1, 5]},
    },
    "required": ["room", "on"],
}
TOOLS = [
    WEATHER,
    {"type": "function", "function": {"name": "set_lamp", "parameters": LAMP}},
]
MODELS = ["mtplx-demo", "endless"]  # the answers of the latter are random
NAMED = {"type": "function", "function": {"name": "set_lamp"}}


def check_lamp(name: str, given: dict[str, Any]) -> None:
    assert name == "set_lamp"
    assert given["room"] in ("kitchen", "bed room")
    assert isinstance(given["on"], bool)
    assert given.get("fade", 1) in (1, 5)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_function_by_name(oai: openai.OpenAI, model: str, stream: bool) -> None:
    options: Any = {"model": model, "messages": QUESTION, "tools": TOOLS, "tool_choice": NAMED}
    if stream:
        with oai.chat.completions.stream(**options) as events:
            (choice,) = events.get_final_completion().choices
    else:
        (choice,) = oai.chat.completions.create(**options, logprobs=True).choices
        assert choice.logprobs.content == []
    assert choice.finish_reason == "tool_calls" and not choice.message.content
    (call,) = choice.message.tool_calls
    check_lamp(call.function.name, json.loads(call.function.arguments))


@pytest.mark.parametrize("thinking", [False, True])
def test_some_function(oai: openai.OpenAI, thinking: bool) -> None:
    (choice,) = oai.chat.completions.create(
        model="mtplx-demo",
        messages=[{"role": "user", "content": "What is the weather in Paris?"}],
        tools=TOOLS,
        tool_choice="required",
        temperature=0,
        extra_body={"chat_template_kwargs": {"enable_thinking": thinking}},
    ).choices
    (call,) = choice.message.tool_calls
    assert (call.function.name, call.function.arguments) == ("get_weather", '{"city": "Paris"}')
    assert hasattr(choice.message, "reasoning_content") == thinking
    assert choice.finish_reason == "tool_calls"


@pytest.mark.parametrize("model", MODELS)
def test_responses(oai: openai.OpenAI, model: str) -> None:
    tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
    choice = {"type": "function", "name": "set_lamp"}
    answer = oai.responses.create(model=model, input="Hello", tools=tools, tool_choice=choice)
    (call,) = answer.output
    check_lamp(call.name, json.loads(call.arguments))
    assert answer.tool_choice.name == "set_lamp"
    some = oai.responses.create(
        model="mtplx-demo",
        input="Hello",
        tools=tools[:1],
        tool_choice="required",
        temperature=0,
    )
    assert [item.name for item in some.output] == ["get_weather"]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("choice", [{"type": "tool", "name": "set_lamp"}, {"type": "any"}])
def test_anthropics_choices(claude: anthropic.Anthropic, model: str, choice: Any) -> None:
    tools = [{"name": "set_lamp", "input_schema": LAMP}]
    if choice["type"] == "tool":
        tools.append(CLAUDES_WEATHER)
    options: Any = {"model": model, "messages": QUESTION, "max_tokens": 200}
    whole = claude.messages.create(**options, tools=tools, tool_choice=choice)
    with claude.messages.stream(**options, tools=tools, tool_choice=choice) as events:
        streamed = events.get_final_message()
    for answer in (whole, streamed):
        (call,) = answer.content
        assert (answer.stop_reason, call.type) == ("tool_use", "tool_use")
        check_lamp(call.name, call.input)


def test_what_cannot_be_insisted_on(oai: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    asked: Any = {"messages": QUESTION, "model": "mtplx-demo", "max_tokens": 3}
    with pytest.raises(openai.BadRequestError, match="before its call was complete"):
        oai.chat.completions.create(**asked, tools=TOOLS, tool_choice="required")
    with pytest.raises(anthropic.BadRequestError, match="there is no tool named 'g'"):
        choice = {"type": "tool", "name": "g"}
        claude.messages.create(**asked, tools=[CLAUDES_WEATHER], tool_choice=choice)
    with pytest.raises(anthropic.BadRequestError, match="there are no 'tools'"):
        claude.messages.create(**asked, tool_choice={"type": "any"})


TWO = [{"role": "user", "content": "What is the weather in Paris and Rome?"}]


@pytest.mark.parametrize("thinking", [False, True])
def test_one_call_at_most(oai: openai.OpenAI, thinking: bool) -> None:
    def cities(**options: Any) -> list[str]:
        extra = {"chat_template_kwargs": {"enable_thinking": thinking}}
        (choice,) = oai.chat.completions.create(
            model="mtplx-demo", messages=TWO, temperature=0, extra_body=extra, **options
        ).choices
        return [json.loads(c.function.arguments)["city"] for c in choice.message.tool_calls or []]

    free = cities(tools=[WEATHER])
    assert len(free) == 2
    assert cities(tools=[WEATHER], parallel_tool_calls=False) == free[:1]


def test_the_same_of_the_others(oai: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    tools = [{"type": "function", **WEATHER["function"]}]
    answer = oai.responses.create(
        model="mtplx-demo", input=TWO, tools=tools, temperature=0, parallel_tool_calls=False
    )
    assert [item.type for item in answer.output] == ["function_call"]
    assert answer.parallel_tool_calls is False
    message = claude.messages.create(
        model="mtplx-demo",
        messages=TWO,
        max_tokens=200,
        tools=[CLAUDES_WEATHER],
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
        extra_body={"temperature": 0},
    )
    assert [block.type for block in message.content] == ["tool_use"]
