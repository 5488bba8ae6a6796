"""The ``llm`` command in this process: one engine, and one bank, for all that a process runs."""

import json

import click.testing
from llm.cli import cli

MODEL = "mtplx-demo"


def invoke(*args: str, input: str = "") -> click.testing.Result:
    return click.testing.CliRunner().invoke(cli, args, input=input)


def ok(*args: str, input: str = "") -> str:
    """What a command that succeeds prints."""
    result = invoke(*args, input=input)
    assert result.exit_code == 0, result.output
    return result.stdout


def logs(count: int) -> list[dict]:
    """llm's latest turns, the newest first; all for 0."""
    return json.loads(ok("logs", "--json", "-n", str(count)))


def last_log() -> dict:
    return logs(1)[0]
