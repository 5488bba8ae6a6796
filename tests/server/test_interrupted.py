"""An answer that is cut off never looks whole: each API's own error, streamed or not."""

import json
from pathlib import Path
from typing import Any

import pytest

from llm_mtplx.attach.client import Attachment, connect
from llm_mtplx.catalog.entries import Entry, add_entry
from llm_mtplx.engine.engine import shared_engine
from llm_mtplx.engine.streams import AsyncEventStream
from llm_mtplx.errors import Interrupted
from llm_mtplx.protocol import Event, Finished, Request, Text
from llm_mtplx.server import create_app

from ..folders import save_random_model
from ..resident import TIMEOUT_S, resident
from .client import Client, ask

SAID = [{"role": "user", "content": "Hello"}]
ASKED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": SAID},
    "/v1/completions": {"prompt": "Hello", "max_tokens": 100_000},
    "/v1/responses": {"input": "Hello"},
    "/v1/messages": {"messages": SAID, "max_tokens": 100_000},
}
ENDS = (b'"finish_reason": "', b"end_turn", b"message_stop", b"response.completed", b"[DONE]")


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("endless") / "model")


def error_of(path: str, raw: bytes) -> dict[str, Any]:
    """The error that a stream ends with; nothing in it says that the answer is whole."""
    assert not [end for end in ENDS if end in raw]
    last = [part for part in raw.decode().split("\n\n") if part and not part.startswith(":")][-1]
    told = json.loads(last.split("data: ", 1)[1])
    error = told["response"]["error"] if path == "/v1/responses" else told["error"]
    assert isinstance(error, dict)
    return error


@pytest.mark.parametrize("how", ["stop", "cancel"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ASKED)
def test_in_the_middle_of_an_answer(
    endless: Path, path: str, stream: bool, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the engine does it when it ends, and as whoever else may cancel a turn."""
    add_entry(Entry("endless", endless, ()))
    pass_on = AsyncEventStream.sink

    def sink(events: AsyncEventStream, event: Event) -> None:
        pass_on(events, event)
        if isinstance(event, Text):
            while events.job is None:
                pass
            getattr(events.job, how)()

    monkeypatch.setattr(AsyncEventStream, "sink", sink)
    answer = ask(
        create_app(require_key=False),
        path,
        {**ASKED[path], "model": "endless", "stream": stream},
    )
    if stream:
        assert answer.status == 200
        error = error_of(path, answer.raw)
    else:
        assert answer.status == 503
        error = answer.json["error"]
        assert error["type"] == ("api_error" if path == "/v1/messages" else "server_error")
    assert "The answer was cut off" in error["message"]


def test_what_is_cut_off_is_kept(endless: Path) -> None:
    """The next turn of the conversation finds it, as it finds any answer's state."""
    engine = shared_engine()
    events = engine.stream(Request("endless", endless, SAID))
    with pytest.raises(Interrupted):
        for event in events:
            if isinstance(event, Text):
                events._job.stop()
    assert not events._job.abandoned
    latest = engine.call(lambda: engine.observer.recent[0])
    assert latest["finish_reason"] == "interrupted"


def test_a_server_that_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a signal: the one that streams, those that wait and an llm that is attached."""
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    folder = save_random_model(tmp_path / "models" / "endless")
    add_entry(Entry("endless", folder, ()))
    with resident(tmp_path, "--port", "0", "--parallel", "1") as process:
        address = process.first_line.split(" at ")[1].split(". ")[0]  # type: ignore[attr-defined]
        server = Client(address)
        path = "/v1/chat/completions"
        first = server.begin(path, {**ASKED[path], "model": "endless", "stream": True})
        streaming = first.getresponse()
        begun = streaming.readline()
        waiting = {
            path: server.begin(path, {**body, "model": "endless"}) for path, body in ASKED.items()
        }
        attached = iter(Attachment(connect(), Request("endless", folder, SAID)))
        next(attached)
        while server.get("/health").json["engine"]["waiting"] < len(waiting) + 1:
            pass
        process.terminate()
        assert "cut off" in error_of(path, begun + streaming.read())["message"]
        first.close()
        for path, connection in waiting.items():
            answer = connection.getresponse()
            assert answer.status == 503, path
            assert "cut off" in json.loads(answer.read())["error"]["message"]
            connection.close()
        with pytest.raises(Interrupted, match="cut off"):
            for event in attached:
                assert not isinstance(event, Finished)
        assert process.wait(TIMEOUT_S) == 0
