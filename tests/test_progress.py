"""The transient line on stderr: words, one line high, and nothing where it could not be erased."""

import fcntl
import os
import pty
import struct
import sys
import termios

import pytest

from llm_mtplx.model import progress_words
from llm_mtplx.protocol import Progress, Restored
from llm_mtplx.sessions.reasons import Reason
from llm_mtplx.terminal import ProgressLine

COLUMNS = 40


def shown(line: str, monkeypatch: pytest.MonkeyPatch, term: str) -> bytes:
    """What a terminal gets while ``line`` is shown."""
    monkeypatch.setenv("TERM", term)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    with os.fdopen(theirs, "w") as stderr:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stderr)
            with ProgressLine() as progress:
                progress.show(line)
        stderr.write("END")
        stderr.flush()
        seen = b""
        while not seen.endswith(b"END"):
            seen += os.read(ours, 65536)
    os.close(ours)
    return seen.removesuffix(b"END")


@pytest.mark.parametrize("term", ["dumb", ""])
def test_nothing_where_nothing_can_be_erased(monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    assert shown("reading 1 of 2 tokens", monkeypatch, term) == b""


def test_a_line_is_never_longer_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    line = b"\r\x1b[2K" + b"x" * (COLUMNS - 1) + b"\r\x1b[2K"
    assert shown("x" * 100, monkeypatch, "xterm") == line


@pytest.mark.parametrize("reason", [None, *Reason])
def test_words_for_every_reason(reason: Reason | None) -> None:
    words = progress_words(Progress("reading", 0, 900), Restored(100, 900, "ram", reason, 0.1))
    assert words.startswith("reading 0 of 900 tokens, 100 of them from ram")
    assert "_" not in words
    assert reason is None or reason.meaning in words
