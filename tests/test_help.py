"""What ``--help`` says is whole: one short sentence for each command."""

import click
import pytest

from llm_mtplx.commands import COMMANDS, mtplx

from .llm_command import ok


def test_no_summary_is_cut_off() -> None:
    shown = ok("mtplx", "--help")
    listed = shown.split("Commands:\n")[1].splitlines()
    assert not any(line.endswith("...") for line in listed)
    assert [line.split()[0] for line in listed if line] == sorted(COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_summary_is_a_whole_line_of_its_own(name: str) -> None:
    command = mtplx.get_command(click.Context(mtplx), name)
    assert command is not None and command.help
    summary = command.help.splitlines()[0]
    assert command.get_short_help_str(limit=64) == summary.rstrip(".")
    assert f"  {name} " in ok("mtplx", "--help") and summary in ok("mtplx", "--help")
