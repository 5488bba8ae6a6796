"""What is too large is refused early, and nobody waits for it."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_mtplx.chat.length import SLICE, least_tokens
from llm_mtplx.chat.tokenizer import ChatTokenizer
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.engine import shared_engine
from llm_mtplx.errors import RequestError
from llm_mtplx.protocol import Request
from llm_mtplx.server import create_app, intake
from llm_mtplx.server.gateway import Gateway

from .client import Client, ask

CHAT = "/v1/chat/completions"
PATHS = [CHAT, "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"]
TOKENIZER = ChatTokenizer(MODEL_DIR)
WINDOW = 8192


def body_of(path: str, text: str) -> dict:
    said = [{"role": "user", "content": text}]
    asked = {"/v1/completions": {"prompt": text}, "/v1/responses": {"input": text}}
    limits = {"/v1/messages": {"max_tokens": 2}}
    return {"model": "mtplx-demo", **asked.get(path, {"messages": said}), **limits.get(path, {})}


def counted(text: str, encode_calls: list[int]) -> Sequence[int]:
    encode_calls.append(len(text))
    return TOKENIZER.encode(text)


@pytest.mark.parametrize("text", ["a b c. ", "x", " ", "\u00e9\u4e2d", "\U0001f600", "\n\n"])
def test_of_a_text_that_cannot_fit_little_is_encoded(text: str) -> None:
    calls: list[int] = []
    whole = text * (20_000_000 // len(text))
    least = least_tokens(whole, lambda part: counted(part, calls), TOKENIZER.longest, WINDOW)
    assert least > WINDOW
    assert sum(calls) <= 40 * SLICE


def test_no_more_is_encoded_than_shows_that_it_cannot_fit() -> None:
    """Where the size alone does not: a token of a large vocabulary may stand for many bytes."""
    calls: list[int] = []

    def encode(part: str) -> range:
        calls.append(len(part))
        return range(len(part) // 2)

    window = 262_143
    least = least_tokens("x" * 30_000_000, encode, 128, window)
    assert window < least <= window + SLICE
    assert sum(calls) <= 2 * window + 2 * SLICE


@settings(max_examples=50, deadline=None)
@given(st.text(min_size=1, max_size=40), st.integers(1, 4000), st.integers(1, 300))
def test_the_bound_is_never_above_the_count(text: str, times: int, limit: int) -> None:
    whole = text.encode(errors="replace").decode() * times
    least = least_tokens(whole, TOKENIZER.encode, TOKENIZER.longest, limit)
    assert least <= len(TOKENIZER.encode(whole))


def test_a_prompt_that_cannot_fit_is_refused_before_it_is_encoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(
        ChatTokenizer, "encode", lambda self, text: [*counted(text, calls)], raising=True
    )
    said = [{"role": "user", "content": "Once more. " * 300_000}]
    calls.clear()
    with pytest.raises(RequestError, match="accepts at most 8,191"):
        list(shared_engine().stream(Request("mtplx-demo", MODEL_DIR, said)))
    assert sum(calls) == 0


@pytest.mark.parametrize("path", PATHS)
def test_a_body_that_no_context_can_hold(server: Client, path: str) -> None:
    """Said by its length, it is not waited for; sent in chunks, it is read no further."""
    answers = []
    connection = server.connect()
    connection.putrequest("POST", path)
    connection.putheader("Content-Length", str(60 << 20))
    connection.endheaders()  # and nothing of it comes
    answers.append(connection.getresponse())
    told = json.loads(answers[0].read())["error"]
    assert answers[0].status == 413 and "prompt is too long" in told["message"]
    connection.close()
    assert server.get("/health").status == 200
    refused = ask(create_app(require_key=False), path, body_of(path, "x" * (60 << 20)))
    assert refused.status == 413
    fits = server.post(path, body_of(path, "words " * 500_000))
    expected = 200 if path.endswith("count_tokens") else 400
    assert fits.status == expected, fits.raw


def test_a_full_queue_reads_no_body(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unread(request: object) -> bytes:
        raise AssertionError("the body was read")

    monkeypatch.setattr(intake, "received", unread)
    monkeypatch.setattr("llm_mtplx.server.body.received", unread)
    app = create_app(require_key=False, max_waiting=0)
    assert isinstance(app.state.gateway, Gateway)
    for path in PATHS[:4]:
        assert ask(app, path, body_of(path, "Hello")).status == 429


def test_what_a_large_model_can_hold_is_read(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert intake._limit() == intake.ALWAYS
    monkeypatch.setattr(intake, "_window", lambda entry: 262_144)
    assert intake._limit() == 8 << 20
