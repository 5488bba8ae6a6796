"""Requests as coding agents send them."""

from typing import Any

import anthropic
import openai
import pytest

from .client import Client
from .test_anthropic import WEATHER as CLAUDES_WEATHER
from .test_openai import WEATHER

MODEL = "mtplx-demo"
ASKED = "What is the capital of France?"
LATE = "Answer briefly."
LIMIT = {"model": MODEL, "temperature": 0}


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions", "/v1/responses"])
def test_system_messages_in_mid_conversation(server: Client, path: str, role: str) -> None:
    """They are read, and what came before them is not read again."""
    if path == "/v1/messages" and role == "developer":
        return
    at, limit = (
        ("input", "max_output_tokens") if path == "/v1/responses" else ("messages", "max_tokens")
    )
    body: dict[str, Any] = {**LIMIT, limit: 8}
    asked = {"role": "user", "content": ASKED}
    talk: list[dict[str, Any]] = [{"role": "user", "content": f"My name is Tamsin. {role} {path}"}]

    def answer() -> tuple[int, int]:
        """How much of the prompt was read, and how much was cached; the answer joins the talk."""
        told = server.post(path, {**body, at: talk})
        assert told.status == 200, told.raw
        usage = told.json["usage"]
        if path == "/v1/messages":
            talk.append({"role": "assistant", "content": told.json["content"]})
            cached = usage["cache_read_input_tokens"]
            return usage["input_tokens"] + cached, cached
        if path == "/v1/responses":
            talk.extend(told.json["output"])
            return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]
        talk.append(told.json["choices"][0]["message"])
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]

    first, _ = answer()
    talk.append(asked)
    plain, cached = answer()
    assert cached >= first - 8
    del talk[2:]
    talk += [{"role": role, "content": LATE}, asked]
    late, cached = answer()
    assert late > plain + 5
    assert cached >= first - 8
    talk.append(asked)
    assert answer()[1] >= late - 8


def test_a_late_system_message_counts(claude: anthropic.Anthropic) -> None:
    def tokens(*late: Any) -> int:
        messages: Any = [{"role": "user", "content": ASKED}, *late]
        return claude.messages.count_tokens(model=MODEL, messages=messages).input_tokens

    said = {"role": "system", "content": [{"type": "text", "text": LATE}]}
    assert tokens(said) > tokens() + 5


def test_claude_codes_request(server: Client) -> None:
    body = {
        "model": MODEL,
        "max_tokens": 8,
        "stream": True,
        "system": [
            {"type": "text", "text": "x-header: a"},
            {"type": "text", "text": "Help.", "cache_control": {"type": "ephemeral"}},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": ASKED}]},
            {"role": "system", "content": "The date is 2026-01-01."},
        ],
        "tools": [
            {**CLAUDES_WEATHER, "eager_input_streaming": True, "defer_loading": True},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
        ],
        "thinking": {"type": "adaptive", "display": "omitted"},
        "output_config": {"effort": "high", "task_budget": None},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "metadata": {"user_id": "{}", "more": "x"},
        "diagnostics": {"previous_message_id": None},
    }
    answer = server.post("/v1/messages?beta=true", body)
    assert answer.status == 200, answer.raw
    assert b"event: message_stop" in answer.raw
    assert sorted(answer.headers["x-mtplx-ignored"].split(", ")) == [
        "content.cache_control",
        "context_management",
        "diagnostics",
        "metadata.more",
        "tools.defer_loading",
        "tools:web_search_20250305",
    ]


def test_codex_request(server: Client) -> None:
    function = {"type": "function", "strict": False, **WEATHER["function"]}
    body = {
        "model": MODEL,
        "instructions": "You are helpful.",
        "input": [
            {"type": "message", "role": "developer", "content": [part("Be kind.")]},
            {"type": "message", "role": "user", "content": [part(ASKED)]},
            {"type": "message", "role": "developer", "content": [part(LATE)]},
        ],
        "tools": [function, {"type": "web_search", "external_web_access": False}],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "high", "summary": "auto", "context": "all"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "a",
        "client_metadata": {"x-codex-installation-id": "a"},
        "text": {"verbosity": "low"},
        "max_output_tokens": 8,
    }
    answer = server.post("/v1/responses", body)
    assert answer.status == 200, answer.raw
    assert b"event: response.incomplete" in answer.raw or b"response.completed" in answer.raw
    assert sorted(answer.headers["x-mtplx-ignored"].split(", ")) == [
        "client_metadata",
        "include",
        "reasoning.context",
        "store",
        "tools:web_search",
    ]


def part(text: str) -> dict[str, str]:
    return {"type": "input_text", "text": text}


def test_codex_second_turn(oai: openai.OpenAI) -> None:
    """The items of an answer come back as they were given."""
    tools: Any = [{"type": "function", **WEATHER["function"]}, {"type": "local_shell"}]
    asked: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
    first = oai.responses.create(**LIMIT, input=asked, tools=tools)
    made = [item.model_dump() for item in first.output]
    result = {"type": "function_call_output", "call_id": first.output[-1].call_id}
    result["output"] = [part("18 degrees and sunny")]
    second = oai.responses.create(**LIMIT, input=[*asked, *made, result], tools=tools)
    assert "18" in second.output_text
