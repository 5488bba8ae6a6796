"""The end of a process: what was answered is kept, and nothing crashes or hangs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..llm_command import last_log

MODEL = "mtplx-demo"
TOLD = "My name is Tamsin. I live in Porto. What is the capital of France?"
SYSTEM = (
    "You are a helpful assistant. You answer in short and polite sentences. You are friendly, "
    "you are patient, and you say so when you do not know something. You never make things up."
)

# Every Python behaves as 3.12 and later: no thread starts once the interpreter is ending.
# `ending` is set before the first exit handler runs.
ENDING = """
import threading

ending = threading.Event()
threading._register_atexit(ending.set)
start = threading.Thread.start

def start_or_refuse(thread):
    if ending.is_set():
        raise RuntimeError("can't create new thread at interpreter shutdown")
    start(thread)

threading.Thread.start = start_or_refuse
"""


def run(program: str, *args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a program with the exit time that users have."""
    environment = {k: v for k, v in os.environ.items() if k != "LLM_MTPLX_EXIT_SAVE_S"}
    done = subprocess.run(
        [sys.executable, "-c", program, *args],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert done.returncode == code, done.stderr
    return done


def test_a_turn_that_is_kept_while_the_interpreter_ends_is_restored(user_path: Path) -> None:
    keep_late = """
from llm_mtplx.engine.turn import Turn

keep = Turn.keep

def keep_late(turn):
    assert ending.wait(60)
    keep(turn)

Turn.keep = keep_late
from llm.cli import cli

cli()
"""
    asked = run(ENDING + keep_late, "-m", MODEL, TOLD, "-s", SYSTEM)
    assert "Paris" in asked.stdout
    assert asked.stderr == ""
    run("from llm.cli import cli; cli()", "-c", "What is my name?")
    cache = last_log()["response_json"]["cache"]
    assert cache["source"] == "ssd"
    assert cache["restored"] > 40


def test_a_busy_engine_is_not_ended_within_mlx() -> None:
    """Its thread still wants the interpreter's lock when the last exit handler has run."""
    slow_to_wait = """
from llm_mtplx.engine.engine import shared_engine

def work():
    import mlx.core as mx

    mx.eval(mx.random.normal((64, 64)) @ mx.random.normal((64, 64)))

engine = shared_engine()
engine.call(work)
get = engine._tasks.get

def get_slowly(*args):
    for _ in range(20_000_000):
        pass
    return get(*args)

engine._tasks.get = get_slowly
engine.call(work)
"""
    assert run(slow_to_wait).stderr == ""


@pytest.mark.parametrize("what", ["call", "turn"])
def test_an_interrupted_computation_that_does_not_end_is_left(what: str) -> None:
    """As a round of a large model that takes longer than the process waits for it."""
    cut_off = f"""
import threading
from llm_mtplx.engine import engine as module
from llm_mtplx.protocol import Request
from llm_mtplx.demo import MODEL_DIR

module.EXIT_WAIT_S = 0.1
engine, busy = module.shared_engine(), threading.Event()

def work(*_):
    import mlx.core as mx

    while True:
        mx.eval(mx.random.normal((512, 512)) @ mx.random.normal((512, 512)))
        busy.set()

if {what == "call"}:
    engine._begin(work)
else:
    engine._turn = work
    events = engine.stream(Request("mtplx-demo", MODEL_DIR, [dict(role="user", content="Hi")]))
busy.wait()
print("told", end="")
"""
    ended = run(cut_off, code=1)
    assert (ended.stdout, ended.stderr) == ("told", "")


def test_a_thread_that_asks_while_the_interpreter_ends_is_answered_from_the_ssd() -> None:
    """A program's main thread has ended, and another one of it still has a question."""
    program = f"""
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.engine import shared_engine
from llm_mtplx.protocol import Request

def ask(question):
    said = [dict(role="system", content={SYSTEM!r}), dict(role="user", content=question)]
    asked = Request("mtplx-demo", MODEL_DIR, said, temperature=0)
    return list(engine.stream(asked))[-1]

def ask_late():
    assert ending.wait(60)
    last = ask({TOLD!r})
    print(last.source, last.restored > 40, last.miss_reason)

engine = shared_engine()
ask({TOLD!r})
engine.call(lambda: engine._residents.store.flush(60))
engine.forget(None, 0.0).result()
threading.Thread(target=ask_late).start()
"""
    done = run(ENDING + program)
    assert done.stdout.split() == ["ssd", "True", "None"]
    assert done.stderr == ""
