"""A turn whose time is over: told in each API's own words, and what there is of it is kept."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llm_mtplx.catalog.entries import Entry, add_entry
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.engine import shared_engine
from llm_mtplx.engine.streams import AsyncEventStream
from llm_mtplx.protocol import Event, Finished, Request, Restored, Text
from llm_mtplx.server import create_app

from ..folders import save_random_model
from .client import ask

SAID = [{"role": "user", "content": "Hello"}]
ASKED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": SAID},
    "/v1/completions": {"prompt": "Hello", "max_tokens": 4000},
    "/v1/responses": {"input": "Hello"},
    "/v1/messages": {"messages": SAID, "max_tokens": 4000},
}


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("endless") / "model")


@contextlib.contextmanager
def ends_before_its_end() -> Iterator[None]:
    """No answer of the block goes on until it is over."""
    before = answers_that_were_over()
    yield
    shared_engine().call(lambda: None)
    assert answers_that_were_over() == before


@contextlib.contextmanager
def nothing_said_yet() -> Iterator[None]:
    """The engine is busy with something else until the block is over."""
    over = threading.Event()
    busy = threading.Thread(target=shared_engine().call, args=(over.wait,))
    busy.start()
    try:
        yield
    finally:
        over.set()
        busy.join()


def answers_that_were_over() -> int:
    turns = shared_engine().observer.totals.turns
    return turns["eos"] + turns["length"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ASKED)
def test_before_there_is_anything_to_tell(endless: Path, path: str, stream: bool) -> None:
    add_entry(Entry("endless", endless, ()))
    app = create_app(require_key=False, timeout_s=1e-4)
    body = {**ASKED[path], "model": "endless", "stream": stream}
    with ends_before_its_end(), nothing_said_yet():
        answer = ask(app, path, body)
    told = answer.json
    assert answer.status == 504
    assert "not complete within the time limit of 0.0001 seconds" in told["error"]["message"]
    kind = "timeout_error" if path == "/v1/messages" else "server_error"
    assert told["error"]["type"] == kind
    assert told["error"].get("code") == (None if path == "/v1/messages" else "timeout")


@pytest.mark.parametrize("path", ASKED)
def test_in_the_middle_of_a_stream(
    endless: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_entry(Entry("endless", endless, ()))
    engine, begun = shared_engine(), list[AsyncEventStream]()
    start = engine.astream

    def astream(*args: Any) -> AsyncEventStream:
        begun.append(start(*args))
        return begun[-1]

    monkeypatch.setattr(engine, "astream", astream)

    def sent(part: bytes) -> None:
        if b"delta" in part or b'"text": ' in part:
            begun[0].expire()  # as its timer does

    body = {**ASKED[path], "model": "endless", "stream": True}
    with ends_before_its_end():
        answer = ask(create_app(engine, require_key=False), path, body, sent)
    frames = [part for part in answer.raw.decode().split("\n\n") if part]
    assert answer.status == 200
    if frames[-1] == "data: [DONE]":
        frames.pop()
    told = json.loads(frames[-1].split("data: ", 1)[1])
    error = told["response"]["error"] if path == "/v1/responses" else told["error"]
    assert "not complete within the time limit" in error["message"]


async def unread() -> AsyncEventStream:
    return AsyncEventStream(None)


@pytest.mark.parametrize("expired", [True, False])
def test_what_was_generated_is_kept(expired: bool) -> None:
    """Unlike the answer of a turn that is left before its time is over."""
    engine = shared_engine()
    events: list[Event] = []
    known, ended = threading.Event(), threading.Event()
    stream = asyncio.run(unread())

    def sink(event: Event) -> None:
        events.append(event)
        if isinstance(event, Text):
            known.wait()
            if expired:
                stream.expire()  # as its timer does
            stream.abandon()  # as its reader does at the end
        if isinstance(event, Finished):
            ended.set()

    said = [{"role": "user", "content": f"Count from 1 to {8 + expired}."}]
    verbatim = {"template_args": {"preserve_thinking": True}, "temperature": 0}
    stream.job = engine._submit(Request("mtplx-demo", MODEL_DIR, said, **verbatim), sink)
    known.set()
    assert ended.wait(120)
    done = events[-1]
    assert isinstance(done, Finished)
    assert (done.finish_reason, done.output_tokens > 0) == ("interrupted", True)
    answer = "".join(event.text for event in events if isinstance(event, Text))
    onwards = [*said, {"role": "assistant", "content": answer}, {"role": "user", "content": "?"}]
    again = engine.stream(Request("mtplx-demo", MODEL_DIR, onwards, max_tokens=1, **verbatim))
    (restored,) = [event.tokens for event in again if isinstance(event, Restored)]
    if expired:
        assert restored == done.prompt_tokens + done.output_tokens
    else:
        assert restored < done.prompt_tokens
