"""What a user sees on stderr while waiting: a line that comes and goes, and lines that stay."""

import sys

import click


def notice(line: str) -> None:
    """One line for the user, terminal or not."""
    click.echo(f"mtplx: {line}", err=True)


class ProgressLine:
    """Shows a line on stderr where that is a terminal; leaves nothing behind."""

    def __init__(self) -> None:
        self._shown = False
        self._terminal = sys.stderr.isatty()

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, *raised: object) -> None:
        self.clear()

    def show(self, line: str) -> None:
        if self._terminal:
            sys.stderr.write(f"\r\x1b[2K{line}")
            sys.stderr.flush()
            self._shown = True

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._shown = False
