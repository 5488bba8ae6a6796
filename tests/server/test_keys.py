"""API keys: made once, checked everywhere, and what was read for one is not there for another."""

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp

from llm_mtplx.server import create_app
from llm_mtplx.server.keys import is_loopback, keys_path, make_key, matching, read_keys

HELLO = {"model": "mtplx-demo", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]}


def ask(
    app: ASGIApp, path: str, body: dict[str, Any] | None = None, **headers: str
) -> tuple[int, Any]:
    """Status and JSON of one request to ``app``, in this process."""
    sent: list[dict[str, Any]] = []
    raw = json.dumps(body or {}).encode()
    incoming: Iterator[dict[str, Any]] = iter([{"type": "http.request", "body": raw}])

    async def receive() -> dict[str, Any]:
        message = next(incoming, None)
        if message is None:
            await asyncio.Event().wait()
        return message or {}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST" if body else "GET",
        "path": path,
        "query_string": b"",
        "headers": [
            (b"host", b"localhost"),
            *((k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()),
        ],
    }
    asyncio.run(app(scope, receive, send))
    content = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], json.loads(content) if content.startswith(b"{") else content


def test_a_key_is_made_and_shown_once() -> None:
    made = make_key()
    assert made and read_keys() == [made]
    assert make_key() is None
    assert keys_path().stat().st_mode & 0o777 == 0o600


def test_no_app_without_a_key() -> None:
    with pytest.raises(ValueError, match="no API key"):
        create_app()


@pytest.mark.parametrize(
    "path", ["/", "/health", "/health/recent", "/metrics", "/openapi.json", "/v1/models", "/x"]
)
def test_every_route_asks_for_the_key(path: str) -> None:
    key = make_key()
    assert key
    app = create_app()
    for headers in ({}, {"authorization": "Bearer x"}, {"x_api_key": key[:-1]}):
        assert ask(app, path, **headers)[0] == 401, headers
    basic = base64.b64encode(f"me:{key}".encode()).decode()
    good = 404 if path == "/x" else 200
    for headers in (
        {"authorization": f"Bearer {key}"},
        {"x_api_key": key},
        {"authorization": f"Basic {basic}"},
    ):
        assert ask(app, path, **headers)[0] == good, headers


def test_what_one_key_has_read_no_other_can_see() -> None:
    path = keys_path()
    path.parent.mkdir(parents=True)
    path.write_text("# two people\nfirst\nsecond\n")
    app = create_app()

    def cached(key: str) -> int:
        status, answer = ask(app, "/v1/chat/completions", HELLO, x_api_key=key)
        assert status == 200, answer
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert (cached("first"), cached("first") > 0) == (0, True)
    assert (cached("second"), cached("second") > 0) == (0, True)


def test_matching_takes_whole_keys() -> None:
    assert matching("b", ["a", "b"]) == "b"
    assert matching("", ["a"]) is None
    assert matching("ä", ["a"]) is None


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("box", False)],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_the_file_is_read_as_it_is(user_path: Path) -> None:
    assert read_keys() == []
