"""The engine answers from any thread, survives failures, and never hangs a forked child."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.engine import shared_engine
from llm_mtplx.errors import EngineError, ModelFolderError
from llm_mtplx.protocol import Event, Finished, Request, Text

from ..folders import copy_demo, demo_weights, save


def request(folder: Path = MODEL_DIR, **options) -> Request:
    messages = [{"role": "user", "content": "Count from 1 to 5."}]
    return Request("mtplx-demo", folder, messages, **{"max_tokens": 8, **options})


def answer(events: list[Event]) -> str:
    assert isinstance(events[-1], Finished)
    return "".join(event.text for event in events if isinstance(event, Text))


def test_mlx_has_a_thread_of_its_own() -> None:
    thread = shared_engine().call(threading.current_thread)
    assert thread is not threading.current_thread()
    assert shared_engine().call(threading.current_thread) is thread


def test_answers_are_the_same_from_any_thread() -> None:
    here = answer(list(shared_engine().stream(request())))
    elsewhere: list[str] = []
    threads = [
        threading.Thread(
            target=lambda: elsewhere.append(answer(list(shared_engine().stream(request()))))
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert elsewhere == [here] * 3


def test_a_failed_turn_leaves_the_engine_working(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match="does not exist"):
        list(shared_engine().stream(request(tmp_path / "gone")))
    assert answer(list(shared_engine().stream(request())))


def test_logits_that_are_not_finite_end_the_turn(tmp_path: Path) -> None:
    folder = copy_demo(tmp_path / "model")
    weights = demo_weights()
    name = "model.language_model.norm.weight"
    weights[name] = weights[name] * float("nan")
    save(folder / "model.safetensors", weights)
    for temperature in (0.0, 0.8):
        with pytest.raises(EngineError, match="not finite"):
            list(shared_engine().stream(request(folder, temperature=temperature)))
    assert answer(list(shared_engine().stream(request())))


def test_a_surprise_becomes_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("by design")

    monkeypatch.setattr("llm_mtplx.engine.turn.Turn", broken)
    with pytest.raises(EngineError, match="ZeroDivisionError: by design"):
        list(shared_engine().stream(request()))


FORKED = """
import os, sys, warnings
warnings.simplefilter("ignore")
import llm
model = llm.get_model("mtplx-demo")
if sys.argv[1] == "after":
    model.prompt("Hello", max_tokens=4).text()
pid = os.fork()
if pid == 0:
    try:
        text = model.prompt("Hello", max_tokens=4).text()
        print("child answered" if text else "child empty", flush=True)
    except llm.ModelError as error:
        print(f"child refused: {error}", flush=True)
    sys.stdout.flush()
    os._exit(0)
os.waitpid(pid, 0)
print("parent answered" if model.prompt("Hello", max_tokens=4).text() else "parent empty")
"""


@pytest.mark.parametrize(
    ("when", "child"),
    [("after", "child refused: This process was forked"), ("before", "child answered")],
)
def test_a_forked_child_never_hangs(when: str, child: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED, when],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(child)
    assert "\n" not in lines[0]
    assert lines[-1] == "parent answered"
