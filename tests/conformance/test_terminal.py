"""What a person at a terminal sees: Ctrl-C, the progress line, and clean pipes."""

import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ..folders import save_random_model
from ..llm_command import logs, ok

LLM = [sys.executable, "-m", "llm"]
TIMEOUT_S = 120


@pytest.fixture
def endless(tmp_path: Path) -> str:
    """A model whose answers go on until the context is full."""
    folder = save_random_model(tmp_path / "acme" / "endless")
    ok("mtplx", "add", str(folder), "-a", "endless")
    return "endless"


def start(*args: str, **streams) -> subprocess.Popen[bytes]:
    def heed_interrupts() -> None:
        # A shell's background jobs ignore them, and so would what they start.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    return subprocess.Popen([*LLM, *args], env=os.environ, preexec_fn=heed_interrupts, **streams)


def read_until(descriptor: int, wanted: bytes) -> bytes:
    seen = b""
    while wanted not in seen:
        ready, _, _ = select.select([descriptor], [], [], TIMEOUT_S)
        assert ready, f"nothing more came after {seen!r}"
        chunk = os.read(descriptor, 65536)
        assert chunk, f"the stream ended after {seen!r}"
        seen += chunk
    return seen


def test_ctrl_c_in_chat_ends_the_answer_and_the_chat_goes_on(endless: str) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    chat = start("chat", "-m", endless, **pipes)
    assert chat.stdin and chat.stdout
    read_until(chat.stdout.fileno(), b"> ")
    chat.stdin.write(b"Hello\n")
    chat.stdin.flush()
    read_until(chat.stdout.fileno(), b" ")
    os.read(chat.stdout.fileno(), 1)
    chat.send_signal(signal.SIGINT)
    read_until(chat.stdout.fileno(), b"> ")
    chat.stdin.write(b"exit\n")
    chat.stdin.flush()
    _, errors = chat.communicate(timeout=TIMEOUT_S)
    assert (chat.returncode, errors) == (0, b"")
    (turn,) = logs(0)
    assert turn["response"]
    assert turn["response_json"]["finish_reason"] == "interrupted"


def test_ctrl_c_in_prompt_does_as_llm_does(endless: str) -> None:
    prompt = start("-m", endless, "Hello", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert prompt.stdout
    os.read(prompt.stdout.fileno(), 1)
    prompt.send_signal(signal.SIGINT)
    _, errors = prompt.communicate(timeout=TIMEOUT_S)
    assert prompt.returncode == 1
    assert b"Aborted!" in errors and b"Traceback" not in errors
    assert logs(0) == []


def test_the_progress_line_comes_and_goes_on_a_terminal() -> None:
    ours, theirs = pty.openpty()
    prompt = start("-m", "mtplx-demo", "Hello", stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    out, _ = prompt.communicate(timeout=TIMEOUT_S)
    shown = os.read(ours, 65536)
    os.close(ours)
    assert prompt.returncode == 0
    assert b"loading the model" in shown and b"reading " in shown
    assert shown.endswith(b"\r\x1b[2K")
    assert b"\x1b" not in out and out.strip()


def test_a_pipe_gets_the_answer_and_nothing_else() -> None:
    done = subprocess.run(
        [*LLM, "-m", "mtplx-demo", "Hello"], capture_output=True, env=os.environ, timeout=TIMEOUT_S
    )
    assert done.returncode == 0
    assert done.stderr == b""
    assert done.stdout.strip() == logs(1)[0]["response"].strip().encode()


def test_a_seed_repeats_in_fresh_processes_warm_or_cold() -> None:
    """Three processes' first answers, and a warm one in this process, at the default draft."""
    options = ["-o", "temperature", "1.1", "-o", "seed", "7", "-o", "max_tokens", "40"]
    args = ["-m", "mtplx-demo", "Tell me a story.", *options]
    texts = {
        subprocess.run(
            [*LLM, *args], capture_output=True, text=True, env=os.environ, timeout=TIMEOUT_S
        ).stdout
        for _ in range(2)
    }
    texts |= {ok(*args) for _ in range(2)}
    assert len(texts) == 1 and texts.pop().strip()
