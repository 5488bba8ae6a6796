"""What is not kept is said: one line, counters and the last error, by the process that has them."""

import asyncio
import json
import logging
import threading
from pathlib import Path

import pytest

from llm_mtplx.attach.client import Attachment, ask, connect
from llm_mtplx.attach.lifetime import _watch
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.engine import Engine
from llm_mtplx.protocol import Finished, Request
from llm_mtplx.server.metrics import exposition
from llm_mtplx.sessions import fingerprint

from ..llm_command import ok
from ..resident import resident
from ..waiting import until

TALK = [
    {"role": "system", "content": "You are a helpful assistant. " * 12},
    {"role": "user", "content": "What is the capital of France?"},
]


def request(conversation: str = "talk") -> Request:
    return Request("mtplx-demo", MODEL_DIR, TALK, conversation=conversation, temperature=0)


def finished(engine: Engine, asked: Request) -> Finished:
    last = list(engine.stream(asked))[-1]
    assert isinstance(last, Finished)
    engine.call(lambda: None)  # what comes after the answer is done
    return last


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    monkeypatch.setenv("LLM_MTPLX_CACHE_DIR", str(tmp_path / "cache"))
    return Engine()


def test_a_resident_engine_tells_of_saves_that_fail(user_path: Path) -> None:
    """Its counters, not those of the process that asks."""
    store = user_path / "mtplx" / "cache" / "sessions-v1"
    store.parent.mkdir(parents=True)
    store.write_text("in the way")
    with resident(user_path, "--no-http"):
        assert isinstance(list(Attachment(connect(), request()))[-1], Finished)
        # The answer comes before its saves: of what conversations share, and of its own end.
        until(lambda: sum(ask("status")["saves"]["not_kept"].values()) == 2)
        saves = ask("status")["saves"]
        assert saves["not_kept"] == {"store_unavailable": 2}
        assert saves["last_error"]
        shown = json.loads(ok("mtplx", "status", "--json"))
        assert shown["saves"] == saves
        assert "Saves that failed: " in ok("mtplx", "status")
    assert json.loads(ok("mtplx", "status", "--json"))["saves"] is None


def test_weights_that_cannot_be_identified_are_one_line_and_a_reason(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(file: Path) -> str:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(fingerprint, "_hash_file", fail)
    assert finished(engine, request("one")).miss_reason == "fingerprint_failed"
    finished(engine, request("two"))
    (line,) = warnings(caplog)
    assert "weights could not be identified" in line and "Input/output error" in line
    assert engine.saves is not None
    assert engine.saves.drops == {"fingerprint_failed": 2}
    assert 'mtplx_saves_failed_total{reason="fingerprint_failed"} 2' in exposition(engine)


def test_weights_that_are_still_hashed_are_said_to_be(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go_on, real = threading.Event(), fingerprint._hash_file

    def wait(file: Path) -> str:
        assert go_on.wait(120)
        return real(file)

    monkeypatch.setattr(fingerprint, "INLINE_BYTES", 0)
    monkeypatch.setattr(fingerprint, "_hash_file", wait)
    assert finished(engine, request()).miss_reason == "fingerprint_pending"
    go_on.set()
    (line,) = warnings(caplog)
    assert "still being identified" in line


def test_a_state_that_is_lost_is_one_line_and_counted(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(turn: object) -> None:
        raise ValueError("unforeseen")

    monkeypatch.setattr("llm_mtplx.engine.turn.Turn.keep", fail)
    for name in ("one", "two"):
        finished(engine, request(name))
    (line,) = warnings(caplog)
    assert "unforeseen" in line
    assert "mtplx_turns_not_kept_total 2" in exposition(engine)


class Flaky:
    """An engine whose first questions fail."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.asked = 0

    @property
    def idle_s(self) -> float:
        self.asked += 1
        if self.asked < 3:
            raise RuntimeError("unforeseen")
        return self._engine.idle_s


def test_the_watcher_outlives_an_error(
    engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def watch() -> None:
        stopping = asyncio.Event()
        watching = asyncio.create_task(_watch(flaky, tmp_path / "x", 0.001, 0, stopping))  # type: ignore[arg-type]
        done = asyncio.create_task(stopping.wait())
        await asyncio.wait([watching, done], return_when=asyncio.FIRST_COMPLETED)
        assert stopping.is_set()
        watching.cancel()

    flaky = Flaky(engine)
    asyncio.run(watch())
    assert flaky.asked == 3
    assert len(warnings(caplog)) == 1
