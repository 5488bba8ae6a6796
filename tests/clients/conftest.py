"""One server for all clients, and the surroundings in which they run: a home of their own, and no
way to anything but 127.0.0.1."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
MODEL = "dictated"
NOWHERE = "http://127.0.0.1:9"  # where no proxy listens
PROXIES = ("http_proxy", "https_proxy", "all_proxy")
# Both are less than a test may take, so that what hangs is named.
TIMEOUT_S = 240  # of one program; the prompt of a coding agent takes 10 s on two cores
GONE_S = 60  # until the server has begun an answer, or has ended it for a client that is gone
COUNT = 20_000  # numbers: more than is said before the interruption
COUNTED = "1 2 3 4 5 6 7 8 9 10"  # how they begin


@dataclass
class Served:
    address: str

    def metric(self, name: str, **labels: str) -> float:
        """What ``/metrics`` says; 0 where it says nothing."""
        with urllib.request.urlopen(f"{self.address}/metrics") as answer:
            text = answer.read().decode()
        told = "".join(rf'(?=[^}}]*{key}="{value}")' for key, value in labels.items())
        found = re.search(rf"^mtplx_{name}\{{?{told}[^ ]* (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    @property
    def interrupted(self) -> float:
        return self.metric("turns_total", end="interrupted")

    @property
    def answering(self) -> bool:
        """Whether tokens of an answer are out, and more of them are being made."""
        with urllib.request.urlopen(f"{self.address}/health") as answer:
            running = json.load(answer)["engine"]["running"]
        return running is not None and running["phase"] == "answering" and running["done"] > 0

    def wait_for_answer(self) -> None:
        _wait(lambda: self.answering, "no answer was begun")

    def wait_for_interruption(self, before: float) -> None:
        """A client that has gone away has ended its answer."""
        gone = "the answer of a client that went away goes on"
        _wait(lambda: self.interrupted > before, gone)


def _wait(done: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + GONE_S
    while not done():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("served")
    environment = {
        **os.environ,
        "LLM_USER_PATH": str(home),
        "LLM_MTPLX_CACHE_DIR": str(home / "cache"),
        "LLM_MTPLX_MIN_TOKENS": "64",
    }
    command = [sys.executable, "-m", "tests.clients.served", str(home / "model"), "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, cwd=HERE.parent.parent
    )
    try:
        assert process.stdout
        listening = process.stdout.readline()
        yield Served(listening.split(" at ")[1].split(". ")[0])
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)
        assert process.stdout
        process.stdout.close()


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home; nothing of this machine's settings or keys, and no way out of it. Returns the
    directory to work in."""
    for name in list(os.environ):
        if name.startswith(("ANTHROPIC_", "OPENAI_", "CLAUDE", "CODEX_", "OPENCODE", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in PROXIES:
        monkeypatch.setenv(name, NOWHERE)
        monkeypatch.setenv(name.upper(), NOWHERE)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1,localhost")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("PWD", str(work))  # where opencode looks
    return work


def program(name: str) -> str:
    path = HERE / "node_modules" / ".bin" / name
    assert path.exists(), "run 'make clients', which installs the programs"
    return str(path)


def node() -> str:
    path = shutil.which("node")
    assert path, "these tests need node"
    return path


def pinned(name: str) -> str:
    """The version of an npm package that package.json names."""
    version: str = json.loads((HERE / "package.json").read_text())["dependencies"][name]
    return version


@contextlib.contextmanager
def running(
    command: list[str], *, stderr: int, stdin: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[str]]:
    """A program, which is ended with all that it started: some are only launchers of another."""
    process = subprocess.Popen(
        command,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def run(command: list[str]) -> str:
    """What a program that succeeds prints."""
    with running(command, stderr=subprocess.PIPE) as process:
        out, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, out + errors
    return out


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def interrupt_at(command: list[str], wanted: str, served: Served) -> None:
    """Ctrl-C once ``wanted`` is in what the program prints and the server is writing its answer;
    the server sees that the client has gone. Programs print ``wanted`` before they send a request,
    and one that is not there yet cannot be interrupted."""
    before, made = served.interrupted, served.metric("output_tokens_total")
    with running(command, stderr=subprocess.STDOUT) as process:
        assert process.stdout
        seen = ""
        for line in process.stdout:
            seen += line
            if wanted in line:
                break
        else:
            raise AssertionError(f"it ended without {wanted!r}: {seen}")
        served.wait_for_answer()
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=TIMEOUT_S)
    served.wait_for_interruption(before)
    assert served.metric("output_tokens_total") > made


def call(name: str, arguments: dict[str, Any]) -> str:
    """A prompt that makes the model call a tool."""
    return f"Go. <call>{json.dumps({'name': name, 'arguments': arguments})}</call>"
