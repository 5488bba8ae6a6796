"""The end of a process: what was answered is kept, and nothing crashes or hangs."""

import json
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
