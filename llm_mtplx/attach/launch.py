"""Starting a resident engine: a new process in a session of its own. Imports no MLX."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import EngineError
from ..limits import limits
from .client import NoEngine, ask
from .socket_path import make_directory, socket_path

START_S = 60.0  # a busy machine may take long to start Python
_POLL_S = 0.02


def wanted() -> bool:
    """Whether a call that finds no engine is to start one."""
    return limits().keep_alive > 0


def log_path() -> Path:
    return socket_path().with_suffix(".log")


def keep_alive_options() -> list[str]:
    return ["--no-http", "--keep-alive", f"{limits().keep_alive}"]


def start_engine(options: Sequence[str]) -> dict[str, Any]:
    """Start ``llm mtplx serve`` in the background; returns its status once it answers.

    Raises EngineError with its last line where it does not.
    """
    make_directory()
    log = os.open(log_path(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "llm", "mtplx", "serve", *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    finally:
        os.close(log)
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            return ask("status")
        except NoEngine:
            if process.poll() is not None and process.returncode != 0:
                raise EngineError(_last_line()) from None
        time.sleep(_POLL_S)
    raise EngineError(f"The engine did not start within {START_S:.0f} s; see {log_path()}.")


def _last_line() -> str:
    lines = log_path().read_text(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("Error: ") if lines else "The engine stopped during startup."
