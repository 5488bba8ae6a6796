"""openai, anthropic and pydantic-ai: two turns, a tool and its result, an interrupted stream."""

import asyncio
import contextlib
from collections.abc import Iterator

import anthropic
import openai
import pytest
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from .conftest import COUNT, COUNTED, MODEL, Served, call

SYSTEM = "You are a careful assistant who answers in one short sentence. " * 12
ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
FUNCTION = {"name": "add", "description": "Add two numbers", "parameters": ADD}
FIRST, SECOND = "One. <say>First answer.</say>", "Two. <say>Second answer.</say>"
CALL = call("add", {"a": 40, "b": 2})


@pytest.fixture
def oai(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.address}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def claude(served: Served) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=served.address, api_key="none", max_retries=0) as client:
        yield client


def test_openai_chat_completions(oai: openai.OpenAI, served: Served) -> None:
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": FIRST}]
    first = oai.chat.completions.create(model=MODEL, messages=messages)
    assert first.choices[0].message.content == "First answer."
    messages += [first.choices[0].message, {"role": "user", "content": SECOND}]
    second = oai.chat.completions.create(model=MODEL, messages=messages)
    assert second.choices[0].message.content == "Second answer."
    assert second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens - 8

    tools = [{"type": "function", "function": FUNCTION}]
    messages = [{"role": "user", "content": CALL}]
    asked = oai.chat.completions.create(model=MODEL, messages=messages, tools=tools)
    (made,) = asked.choices[0].message.tool_calls
    assert asked.choices[0].finish_reason == "tool_calls"
    assert (made.function.name, made.function.arguments) == ("add", '{"a": 40, "b": 2}')
    result = {"role": "tool", "tool_call_id": made.id, "content": "42"}
    messages += [asked.choices[0].message, result]
    answered = oai.chat.completions.create(model=MODEL, messages=messages, tools=tools)
    assert answered.choices[0].message.content == "The tool returned: 42"
    assert answered.usage.prompt_tokens_details.cached_tokens > asked.usage.prompt_tokens - 8

    before = served.interrupted
    count = [{"role": "user", "content": f"<count>{COUNT}</count>"}]
    with oai.chat.completions.create(model=MODEL, messages=count, stream=True) as stream:
        text = ""
        for chunk in stream:
            text += chunk.choices[0].delta.content or ""
            if len(text) > 40:
                break
    assert text.startswith(COUNTED)
    served.wait_for_interruption(before)


def test_openai_responses(oai: openai.OpenAI, served: Served) -> None:
    history = [{"role": "user", "content": FIRST}]
    first = oai.responses.create(model=MODEL, instructions=SYSTEM, input=history)
    assert first.output_text == "First answer."
    history += [*first.output, {"role": "user", "content": SECOND}]
    second = oai.responses.create(model=MODEL, instructions=SYSTEM, input=history)
    assert second.output_text == "Second answer."
    assert second.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens - 8

    tools = [{"type": "function", **FUNCTION}]
    history = [{"role": "user", "content": CALL}]
    asked = oai.responses.create(model=MODEL, input=history, tools=tools)
    (made,) = (item for item in asked.output if item.type == "function_call")
    assert (made.name, made.arguments) == ("add", '{"a": 40, "b": 2}')
    result = {"type": "function_call_output", "call_id": made.call_id, "output": "42"}
    history += [*asked.output, result]
    answered = oai.responses.create(model=MODEL, input=history, tools=tools)
    assert answered.output_text == "The tool returned: 42"

    before = served.interrupted
    with oai.responses.create(model=MODEL, input=f"<count>{COUNT}</count>", stream=True) as stream:
        text = ""
        for event in stream:
            if event.type == "response.output_text.delta":
                text += event.delta
            if len(text) > 40:
                break
    assert text.startswith(COUNTED)
    served.wait_for_interruption(before)


def test_anthropic_messages(claude: anthropic.Anthropic, served: Served) -> None:
    def ask(messages, **more):
        return claude.messages.create(model=MODEL, max_tokens=100, messages=messages, **more)

    messages = [{"role": "user", "content": FIRST}]
    first = ask(messages, system=SYSTEM)
    assert first.content[0].text == "First answer."
    messages += [{"role": "assistant", "content": first.content}]
    messages += [{"role": "user", "content": SECOND}]
    second = ask(messages, system=SYSTEM)
    assert second.content[0].text == "Second answer."
    assert second.usage.cache_read_input_tokens >= first.usage.input_tokens - 8

    tools = [{"name": "add", "description": "Add two numbers", "input_schema": ADD}]
    messages = [{"role": "user", "content": CALL}]
    asked = ask(messages, tools=tools)
    (made,) = (block for block in asked.content if block.type == "tool_use")
    assert (asked.stop_reason, made.name, made.input) == ("tool_use", "add", {"a": 40, "b": 2})
    result = {"type": "tool_result", "tool_use_id": made.id, "content": "42"}
    messages += [{"role": "assistant", "content": asked.content}]
    messages += [{"role": "user", "content": [result]}]
    assert ask(messages, tools=tools).content[0].text == "The tool returned: 42"

    @anthropic.beta_tool
    def add(a: int, b: int) -> str:
        "Add two numbers"
        return str(a + b)

    runner = claude.beta.messages.tool_runner(
        model=MODEL, max_tokens=100, tools=[add], messages=[{"role": "user", "content": CALL}]
    )
    assert runner.until_done().content[0].text == "The tool returned: 42"

    before = served.interrupted
    count = [{"role": "user", "content": f"<count>{COUNT}</count>"}]
    with claude.messages.stream(model=MODEL, max_tokens=9999, messages=count) as stream:
        text = ""
        for piece in stream.text_stream:
            text += piece
            if len(text) > 40:
                break
    assert text.startswith(COUNTED)
    served.wait_for_interruption(before)


async def _pydantic_ai(kind: type, served: Served) -> None:
    async with openai.AsyncOpenAI(
        base_url=f"{served.address}/v1", api_key="none", max_retries=0
    ) as client:
        agent = Agent(
            kind(MODEL, provider=OpenAIProvider(openai_client=client)), instructions=SYSTEM
        )

        @agent.tool_plain
        def add(a: int, b: int) -> int:
            "Add two numbers"
            return a + b

        first = await agent.run(FIRST)
        assert first.output == "First answer."
        second = await agent.run(SECOND, message_history=first.all_messages())
        assert second.output == "Second answer."
        assert second.usage.cache_read_tokens >= first.usage.input_tokens - 8
        assert (await agent.run(CALL)).output == "The tool returned: 42"
        before = served.interrupted
        async with agent.run_stream(f"<count>{COUNT}</count>") as stream:
            async with contextlib.aclosing(
                stream.stream_text(delta=True, debounce_by=None)
            ) as parts:
                text = ""
                async for part in parts:
                    text += part
                    if len(text) > 40:
                        break
            await stream.cancel() if hasattr(stream, "cancel") else None
    assert text.startswith(COUNTED)
    served.wait_for_interruption(before)


@pytest.mark.parametrize("kind", [OpenAIChatModel, OpenAIResponsesModel])
def test_pydantic_ai(kind: type, served: Served) -> None:
    asyncio.run(_pydantic_ai(kind, served))
