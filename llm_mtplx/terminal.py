"""What a user sees on stderr while waiting: a line that comes and goes, and lines that stay."""

import os
import sys

import click


def notice(line: str) -> None:
    """One line for the user, terminal or not."""
    click.echo(f"mtplx: {line}", err=True)


class ProgressLine:
    """Shows a line on stderr if that is a terminal that can erase it; leaves nothing behind."""

    def __init__(self) -> None:
        self._shown = False
        # A dumb terminal shows escape codes instead of obeying them.
        self._terminal = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "")

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, *raised: object) -> None:
        self.clear()

    def show(self, line: str) -> None:
        if self._terminal:
            # A line that wraps could not be erased.
            sys.stderr.write(f"\r\x1b[2K{line[: _columns() - 1]}")
            sys.stderr.flush()
            self._shown = True

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._shown = False


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        return 80
