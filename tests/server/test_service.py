"""The server itself: who may ask, what is malformed, queues, disconnects, health."""

import json
import re
import shutil
import subprocess

import pytest

from ..waiting import until
from .client import Answer, Client

CHAT = "/v1/chat/completions"
HELLO = {"model": "mtplx-demo", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
ENDLESS = {**HELLO, "model": "endless", "max_tokens": None}
POSTS = [CHAT, "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"]


def health(server: Client) -> dict:
    return server.get("/health").json


def wait_until_idle(server: Client) -> None:
    until(
        lambda: not health(server)["engine"]["running"] and not health(server)["engine"]["waiting"]
    )


@pytest.mark.parametrize("path", ["/", "/health", "/metrics", "/v1/models", "/nowhere"])
def test_other_hosts_and_pages_are_refused(server: Client, path: str) -> None:
    own = server.address.removeprefix("http://")
    for headers, status in [
        ({"Host": "evil.test"}, 403),
        ({"Host": "localhost.evil.test"}, 403),
        ({"Host": ""}, 403),
        ({"Host": own, "Origin": "http://evil.test"}, 403),
        ({"Host": own, "Origin": "null"}, 403),
    ]:
        assert server.get(path, **headers).status == status, headers
    good = 404 if path == "/nowhere" else 200
    port = own.rsplit(":", 1)[1]
    for host in (own, f"localhost:{port}", f"[::1]:{port}", "192.168.1.7"):
        assert server.get(path, Host=host).status == good
    assert server.get(path, Host=own, Origin=server.address).status == good


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"model": NaN}',
        b"[" * 100_000,
        b'{"model": "mtplx-demo"}',
        b'{"model": "mtplx-demo", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"model": 3, "messages": [], "prompt": 3, "input": 3, "max_tokens": 3}',
    ],
)
def test_malformed_bodies_are_the_clients_fault(server: Client, path: str, body: bytes) -> None:
    answer = server.post(path, body)
    assert answer.status == 400, answer.raw
    error = answer.json["error"]
    assert error["message"]
    assert ("type" in answer.json) == path.startswith("/v1/messages")


def test_methods_and_sizes(server: Client) -> None:
    assert server.get(CHAT).status == 405
    assert server.post("/health", {}).status == 405
    connection = server.connect()
    connection.putrequest("POST", CHAT)
    connection.putheader("Content-Length", str(10**12))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


def test_a_client_that_leaves_ends_its_turn(server: Client) -> None:
    for stream in (True, False):
        connection = server.begin(CHAT, {**ENDLESS, "stream": stream})
        if stream:
            answer = connection.getresponse()
            assert answer.readline().startswith(b"data: ")
            answer.close()
        else:
            until(lambda: health(server)["engine"]["running"])
        connection.close()
        wait_until_idle(server)
        latest = server.get("/health/recent").json["recent"][0]
        assert latest["finish_reason"] == "interrupted"


def test_too_many_wait(server: Client) -> None:
    running = server.begin(CHAT, {**ENDLESS, "stream": True})
    assert running.getresponse().readline().startswith(b"data: ")
    waiting = []
    for count in (1, 2):
        waiting.append(server.begin(CHAT, HELLO))
        until(lambda count=count: health(server)["engine"]["waiting"] >= count)
    refused = server.post(CHAT, HELLO)
    assert refused.status == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json["error"]["type"] == "rate_limit_error"
    # What is told of a server that is busy comes at once.
    assert health(server)["engine"]["running"]["phase"] == "answering"
    running.close()
    for connection in waiting:
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["object"]) == (200, "chat.completion")
        connection.close()
    wait_until_idle(server)


def test_health_answers_while_a_long_prompt_is_read(server: Client) -> None:
    long = {**HELLO, "messages": [{"role": "user", "content": "one two three " * 250}]}
    reading = server.begin(CHAT, long)
    seen: list[dict] = []

    def has_begun_and_ended() -> bool:
        now = health(server)["engine"]["running"]
        if now is not None:
            seen.append(now)
        return now is None and bool(seen)

    until(has_begun_and_ended)
    assert json.loads(reading.getresponse().read())["usage"]["prompt_tokens"] > 700
    reading.close()
    progress = [now["done"] for now in seen if now["phase"] == "reading"]
    assert progress == sorted(progress) and progress


def test_health_and_metrics_tell_of_turns(server: Client) -> None:
    server.post(CHAT, HELLO)
    server.post(CHAT, HELLO)
    wait_until_idle(server)
    told = health(server)
    assert told["status"] == "ok"
    assert "mtplx-demo" in [model["id"] for model in told["engine"]["models"]]
    assert told["session_bank"]["entries"] > 0
    assert told["session_bank"]["total_nbytes"] <= told["session_bank"]["max_bytes"]
    metrics = dict(
        line.rsplit(" ", 1)
        for line in server.get("/metrics").raw.decode().splitlines()
        if not line.startswith("#")
    )
    assert float(metrics['mtplx_turns_total{end="length"}']) >= 2
    assert float(metrics['mtplx_restored_tokens_total{source="ram"}']) > 0
    count = metrics["mtplx_time_to_first_token_seconds_count"]
    assert metrics['mtplx_time_to_first_token_seconds_bucket{le="+Inf"}'] == count


def test_the_page_asks_nobody_else(server: Client) -> None:
    page = server.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"].startswith("default-src 'self'")
    source = page.raw.decode()
    assert "//" not in re.sub(r"^ *//.*$|; // .*$", "", source, flags=re.MULTILINE)
    assert not re.search(r"\b(src|href|action|import|XMLHttpRequest|WebSocket|url\()", source)
    assert re.findall(r"fetch\((.*?)\)", source) == ['"health/recent"']
    recent = server.get("/health/recent").json
    assert {"engine", "session_bank", "ssd_session_cache", "recent", "drafted"} <= recent.keys()


BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome-headless-shell",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_the_page_in_a_browser(server: Client) -> None:
    assert CHROMIUM
    server.post(CHAT, HELLO)
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=4000"]
    done = subprocess.run(
        [CHROMIUM, *flags, "--dump-dom", server.address],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "<td>mtplx-demo</td>" in done.stdout
    assert "of prompt tokens cached" in done.stdout


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_the_page_with_credentials_in_its_address(server: Client) -> None:
    assert CHROMIUM
    server.post(CHAT, HELLO)
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=4000"]
    done = subprocess.run(
        [CHROMIUM, *flags, "--dump-dom", server.address.replace("//", "//me:key@")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "no answer (" not in done.stdout.split("<script>")[0]
    assert "<td>mtplx-demo</td>" in done.stdout


def test_the_document_names_what_is_served(server: Client) -> None:
    paths = server.get("/openapi.json").json["paths"]
    assert set(POSTS) <= paths.keys()
    answers: list[Answer] = [server.get(path) for path in paths if "get" in paths[path]]
    assert {answer.status for answer in answers} == {200}
