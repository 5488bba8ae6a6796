"""A prompt that is too long, in each API's own words: clients shorten their history on them."""

import json
import re
from typing import Any

import anthropic
import openai
import pytest

from llm_mtplx.demo import MODEL_DIR

MODEL = "mtplx-demo"
TEXT = "word " * 20_000
LONG: Any = [{"role": "user", "content": TEXT}]
CONFIG = json.loads((MODEL_DIR / "config.json").read_text())
WINDOW = (CONFIG.get("text_config") or CONFIG)["max_position_embeddings"]


@pytest.mark.parametrize("stream", [False, True])
def test_openais_words(oai: openai.OpenAI, stream: bool) -> None:
    ways: list[tuple[str, Any]] = [
        (
            "messages",
            lambda: oai.chat.completions.create(model=MODEL, messages=LONG, stream=stream),
        ),
        ("prompt", lambda: oai.completions.create(model=MODEL, prompt=TEXT, stream=stream)),
    ]
    if not stream:
        ways.append(("input", lambda: oai.responses.create(model=MODEL, input=TEXT)))
    for param, way in ways:
        with pytest.raises(openai.BadRequestError) as refused:
            way()
        error = refused.value
        assert (error.code, error.type) == ("context_length_exceeded", "invalid_request_error")
        assert error.param == param
        assert f"maximum context length is {WINDOW} tokens" in error.message
        found = re.search(r"resulted in (\d+) tokens", error.message)
        assert found and int(found[1]) >= 20_000


def test_a_stream_of_responses_fails_inside(oai: openai.OpenAI) -> None:
    """Where Codex looks for it."""
    with oai.responses.create(model=MODEL, input=TEXT, stream=True) as events:
        begun, failed = list(events)
    assert (begun.type, failed.type) == ("response.created", "response.failed")
    assert failed.response.status == "failed"
    assert failed.response.error.code == "context_length_exceeded"


@pytest.mark.parametrize("stream", [False, True])
def test_anthropics_words(claude: anthropic.Anthropic, stream: bool) -> None:
    counted = claude.messages.count_tokens(model=MODEL, messages=LONG).input_tokens
    with pytest.raises(anthropic.BadRequestError) as refused:
        claude.messages.create(model=MODEL, max_tokens=8, messages=LONG, stream=stream)
    assert refused.value.body["error"] == {  # type: ignore[index]
        "type": "invalid_request_error",
        "message": f"prompt is too long: {counted} tokens > {WINDOW - 1} maximum",
    }
