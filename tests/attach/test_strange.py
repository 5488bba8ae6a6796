"""What listens where an engine should does not answer as one: the model is loaded here."""

import asyncio
import contextlib
import json
import logging
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from llm_mtplx.attach import choose
from llm_mtplx.attach import client as attach
from llm_mtplx.attach import socket_path as place
from llm_mtplx.attach.client import NoEngine, ask
from llm_mtplx.attach.handshake import hello
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.errors import EngineError
from llm_mtplx.protocol import Event, Finished, Request, Text

from ..llm_command import invoke

ASKED = Request(
    "mtplx-demo",
    MODEL_DIR,
    [{"role": "user", "content": "What is the capital of France?"}],
    temperature=0,
    cache="off",
)

GREETINGS = {
    "nothing": b"",
    "an empty line": b"\n",
    "garbage": b"\xff\x00\x8egarbage\n",
    "a truncated line": b'{"hello": {"mlx": "0.3',
    "no object": b"[]\n",
    "null": b"null\n",
    "another object": b'{"greeting": {}}\n',
    "a list for a greeting": b'{"hello": ["mlx"]}\n',
    "a number for a greeting": b'{"hello": 3}\n',
    "null for a greeting": b'{"hello": null}\n',
    "deep": b'{"hello": ' + b"[" * 50_000 + b"\n",
    "no end": b"x" * 200_000,
    "http": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "another version": b'{"hello": {"mlx": 3, "llm-mtplx": null}}\n',
}

EVENTS = {
    "nothing": b"",
    "an empty line and nothing": b"\n",
    "garbage": b"\xff\x00\n",
    "a truncated line": b'{"event": "Text", "text": "Par',
    "no object": b"[]\n",
    "no event": b'{"text": "Paris"}\n',
    "an unknown event": b'{"event": "Later"}\n',
    "a list for a name": b'{"event": []}\n',
    "a number for a text": b'{"event": "Text", "text": 3}\n',
    "null for a text": b'{"event": "Text", "text": null}\n',
    "an end without figures": b'{"event": "Finished"}\n',
    "progress of words": b'{"event": "Progress", "phase": "reading", "done": "much"}\n',
    "a failure without a message": b'{"event": "Failed", "kind": 3}\n',
    "deep": b'{"event": ' + b"[" * 50_000 + b"\n",
}

STATUSES = {
    **GREETINGS,
    "no engine": b'{"pid": 1, "address": null}\n',
    "an engine of words": b'{"pid": 1, "address": null, "engine": "idle", "session_bank": {}}\n',
    "a part of one": b'{"pid": 1, "address": null, "engine": {"idle_s": 3}, "session_bank": {}}\n',
}


@contextlib.contextmanager
def listening(*answers: bytes) -> Iterator[None]:
    """To each line that comes in the next of ``answers`` goes out; then the connection ends."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection, contextlib.suppress(OSError), connection.makefile("rb") as lines:
                    for answer in answers:
                        lines.readline()
                        connection.sendall(answer)

    place.make_directory()
    path = place.socket_path()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            path.unlink()


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has not begun to use its own engine, and has printed nothing."""
    monkeypatch.setattr(choose, "started_engine", lambda: None)
    monkeypatch.setattr(choose, "_told", set(), raising=False)


def answer() -> str:
    return text(list(choose.stream(ASKED, stays=False)))


def text(events: list[Event]) -> str:
    assert isinstance(events[-1], Finished)
    return "".join(event.text for event in events if isinstance(event, Text))


def ours() -> bytes:
    return json.dumps({"hello": hello(MODEL_DIR)}).encode() + b"\n"


@pytest.mark.parametrize("greeting", GREETINGS.values(), ids=list(GREETINGS))
def test_a_greeting_of_another_kind(greeting: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with listening(greeting):
        assert "Paris" in answer()
        assert "Paris" in answer()
    lines = [r for r in caplog.records if r.levelno >= logging.WARNING]
    # That another version is resident is no fault.
    assert len(lines) == (0 if b"llm-mtplx" in greeting else 1)


@pytest.mark.parametrize("events", EVENTS.values(), ids=list(EVENTS))
@pytest.mark.parametrize("how", ["thread", "loop"])
def test_events_of_another_kind(events: bytes, how: str, caplog: pytest.LogCaptureFixture) -> None:
    async def collect() -> list[Event]:
        return [event async for event in choose.astream(ASKED)]

    with listening(ours(), events):
        said = answer() if how == "thread" else text(asyncio.run(collect()))
    assert "Paris" in said
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1


def test_what_has_begun_is_not_begun_again() -> None:
    with listening(ours(), b'{"event": "Text", "text": "Rome"}\n{"event": "Text", "text": 3}\n'):
        events = iter(choose.stream(ASKED, stays=False))
        assert next(events) == Text("Rome")
        with pytest.raises(EngineError, match="unreadable message: text"):
            next(events)


@pytest.mark.parametrize("status", STATUSES.values(), ids=list(STATUSES))
def test_commands_say_that_it_cannot_be_read(status: bytes) -> None:
    with listening(status):
        with pytest.raises(NoEngine, match="does not respond"):
            ask("status")
        shown = invoke("mtplx", "status")
        assert shown.exit_code == 0, shown.output
        assert "does not respond like an engine" in shown.stderr
        assert len(shown.stderr.splitlines()) == 1


def test_an_engine_that_is_wanted_and_does_not_start_is_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv("LLM_MTPLX_KEEP_ALIVE", "10m")
    for name in (place, attach):
        monkeypatch.setattr(name, "directory", lambda: tmp_path / "file")
    (tmp_path / "file").touch()
    assert "Paris" in answer()
    assert "Paris" in answer()
    (line,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert "the background engine could not be started" in line
    assert os.fspath(tmp_path / "file") in line
