"""What the documentation shows is what is printed: the commands and the Python programs in it.

A page's examples run in order, in one user directory. An example that cannot be run here says
above itself why: ``<!-- not run: the reason -->``.
"""

import contextlib
import io
import logging
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from llm_mtplx import once
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine import engine as engines
from llm_mtplx.engine.engine import Engine

from ..llm_command import invoke
from .pages import PAGES, name_of

CONSOLE = re.compile(r"(?P<mark><!-- not run: \S.* -->\n)?```console\n(?P<body>.*?)```", re.DOTALL)
CODE = r"(?:(?!```).)*"
PROGRAM = re.compile(
    rf"```python\n(?P<code>{CODE})```\n\n```text\n(?P<output>{CODE})```", re.DOTALL
)
TIMEOUT_S = 60
NOTES = "Note {}: the fox went into the woods and met a bear.\n"

# What differs from machine to machine and from run to run.
VARIES = (
    (re.compile(r"\b[\d.]+ (B|KiB|MiB|GiB)"), "SIZE"),
    (re.compile(r"\b\d+ ms\b"), "TIME"),
    (re.compile(r"\b\d+ files\b"), "FILES"),
    # Printed by the first call of a process, and here one process runs them all.
    (re.compile(r"^mtplx: the model is loaded in this process: .*$", re.MULTILINE), ""),
)


def commands(page: Path) -> Iterator[tuple[str, str]]:
    """Each command that is shown with its output, and the output."""
    for block in CONSOLE.finditer(page.read_text(encoding="utf-8")):
        assert block["body"].startswith("$ "), f"{name_of(page)}: {block['body']}"
        if block["mark"] is None:
            for part in block["body"].removeprefix("$ ").split("\n$ "):
                command, _, output = part.partition("\n")
                yield command, output


def comparable(text: str, user_path: Path) -> list[str]:
    """The lines, in any order: where stderr goes between those of stdout is the terminal's."""
    text = text.replace(str(user_path / "mtplx" / "cache"), "~/.cache/llm-mtplx")
    for pattern, word in VARIES:
        text = pattern.sub(word, text)
    if f"llm is {version('llm')}" not in text and "llm is " in text:
        text = re.sub(r"\d+", "N", text)  # another llm than the one that is shown
    return sorted(line for line in text.splitlines() if line)


@pytest.fixture
def engine(user_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """A page's own, with a store below its user directory."""
    engine = Engine()
    monkeypatch.setattr(engines, "_engine", engine)
    yield engine
    engine.close()


def run(
    command: str,
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> str:
    """What a new process would print, stderr included."""
    once.reset()
    piped = ""
    if command.startswith("cat "):
        file, command = re.split(r" \| ", command.removeprefix("cat "), maxsplit=1)
        piped = Path(file).read_text()
    words = [os.path.expanduser(word) for word in shlex.split(command)]
    with monkeypatch.context() as environment:
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            environment.setenv(name, value)
        assert words.pop(0) == "llm"
        caplog.clear()
        result = invoke(*words, input=piped)
        # Without pytest, a warning is a line on stderr.
        warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
        output = "\n".join([result.stdout, result.stderr, *warnings])
    engine.call(lambda: None)  # the turn's state is handed over to the store
    store = engine._store
    assert store is None or store.flush(TIMEOUT_S)
    engine.tidy(1e-9)  # a new process has nothing in RAM
    return output


@pytest.mark.parametrize("page", [p for p in PAGES if any(commands(p))], ids=name_of)
def test_commands(
    page: Path,
    engine: Engine,
    user_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("".join(NOTES.format(n) for n in range(1, 41)))
    shutil.copytree(MODEL_DIR, tmp_path / "home" / "models" / "my-qwen")
    for command, shown in commands(page):
        printed = run(command, engine, monkeypatch, caplog)
        assert comparable(printed, user_path) == comparable(shown, user_path), command


@pytest.mark.parametrize(
    "page", [p for p in PAGES if PROGRAM.search(p.read_text(encoding="utf-8"))], ids=name_of
)
def test_programs(page: Path) -> None:
    for program in PROGRAM.finditer(page.read_text(encoding="utf-8")):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(program["code"], name_of(page), "exec"), {"__name__": "example"})
        assert printed.getvalue() == program["output"]
