"""API keys: made once, checked everywhere, and what was read for one is not there for another."""

import base64
from pathlib import Path

import pytest

from llm_mtplx.server import create_app
from llm_mtplx.server.keys import is_loopback, keys_path, make_key, matching, read_keys

from .client import ask

HELLO = {"model": "mtplx-demo", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]}


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
        assert ask(app, path, **headers).status == 401, headers
    basic = base64.b64encode(f"me:{key}".encode()).decode()
    good = 404 if path == "/x" else 200
    for headers in (
        {"authorization": f"Bearer {key}"},
        {"x_api_key": key},
        {"authorization": f"Basic {basic}"},
    ):
        assert ask(app, path, **headers).status == good, headers


def test_what_one_key_has_read_no_other_can_see() -> None:
    path = keys_path()
    path.parent.mkdir(parents=True)
    path.write_text("# two people\nfirst\nsecond\n")
    app = create_app()

    def cached(key: str) -> int:
        answer = ask(app, "/v1/chat/completions", HELLO, x_api_key=key)
        assert answer.status == 200, answer
        return answer.json["usage"]["prompt_tokens_details"]["cached_tokens"]

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
