"""A resident engine as a user starts it: ``llm mtplx serve`` in a process of its own."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SERVE = [sys.executable, "-m", "llm", "mtplx", "serve"]
TIMEOUT_S = 120


@contextlib.contextmanager
def resident(user_path: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Listening when the block begins, ended when it ends. Its first line is on ``stdout``."""
    user_path.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [*SERVE, *options],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "LLM_USER_PATH": str(user_path)},
    )
    try:
        assert process.stdout
        process.first_line = process.stdout.readline()  # type: ignore[attr-defined]
        assert "Listening" in process.first_line, process.first_line  # type: ignore[attr-defined]
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.terminate()
        process.wait(TIMEOUT_S)
        assert process.stdout
        process.stdout.close()
