"""An engine that is killed in the middle of several answers loses those, and nothing else."""

import json
import threading
from pathlib import Path

import pytest

from llm_mtplx.attach.client import Attachment, ask, connect
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.protocol import Event, Finished, Request, Text

from ..resident import resident
from ..waiting import until

END = json.loads((MODEL_DIR / "config.json").read_text())["eos_token_id"]  # never said
NAMES = ("Tamsin", "Olga", "Ruben", "Ines")


def begin(said: list[dict[str, str]], name: str, **options) -> Attachment:
    settings = {"temperature": 0, "conversation": name, **options}
    return Attachment(connect(), Request("mtplx-demo", MODEL_DIR, said, **settings))


def answer(events: list[Event]) -> tuple[str, Finished]:
    last = events[-1]
    assert isinstance(last, Finished)
    return "".join(event.text for event in events if isinstance(event, Text)), last


def test_only_the_turns_in_flight_are_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    kept: dict[str, list[dict[str, str]]] = {}
    with resident(tmp_path, "--no-http") as process:
        for name in NAMES:
            question = f"My name is {name}. I live in Porto and I like long walks. " * 4
            said = [{"role": "user", "content": f"{question}What is my name?"}]
            text, _ = answer(list(begin(said, name)))
            kept[name] = [*said, {"role": "assistant", "content": text}]
        until(lambda: ask("status")["session_bank"]["entries"] == len(NAMES))  # all are kept
        until(lambda: ask("status")["saves"]["pending_bytes"] == 0)
        on_their_way = [threading.Event() for _ in NAMES]

        def listen(turn: Attachment, begun: threading.Event) -> None:
            try:
                for event in turn:
                    if isinstance(event, Text):
                        begun.set()
            except Exception:
                return  # the engine is gone

        for name, begun in zip(NAMES, on_their_way, strict=True):
            said = [*kept[name], {"role": "user", "content": "Count from 1 to 99."}]
            turn = begin(said, name, max_tokens=4000, depth=0, logit_bias=[(END, -100.0)])
            threading.Thread(target=listen, args=(turn, begun)).start()
        for begun in on_their_way:
            assert begun.wait(60)
        assert len(ask("status")["engine"]["in_progress"]) == 4
        process.kill()
        process.wait()
    with resident(tmp_path, "--no-http"):
        for name in NAMES:
            said = [*kept[name], {"role": "user", "content": "What is my name?"}]
            text, last = answer(list(begin(said, name)))
            assert text == answer(list(begin(said, name, cache="off")))[0]
            assert last.source == "ssd"
            assert last.restored > 60
