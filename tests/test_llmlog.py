"""What llm's log says of our turns, also where there is none."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from llm.cli import cli

from llm_mtplx.commands.llmlog import Reuse, conversation_names, reuse, total

SYSTEM = " ".join(["You answer in short and polite sentences."] * 8)


def test_no_log(user_path: Path) -> None:
    assert (conversation_names(), reuse()) == ({}, {})
    assert total([]).hit_rate is None


@pytest.mark.parametrize("content", [b"", b"no database"])
def test_a_log_that_is_none(user_path: Path, content: bytes) -> None:
    (user_path / "logs.db").write_bytes(content)
    assert (conversation_names(), reuse()) == ({}, {})


def test_reuse_by_conversation() -> None:
    def llm(*args: str) -> str:
        done = CliRunner().invoke(cli, args)
        assert done.exit_code == 0, done.output
        return done.stdout

    llm("-m", "mtplx-demo", "My name is Ossip.", "-s", SYSTEM, "-o", "cache", "off")
    llm("-c", "What is my name?")
    llm("-c", "Do you know my name?")
    turns = json.loads(llm("logs", "--json", "-n", "3"))
    cache = [turn["response_json"]["cache"] for turn in turns]
    ((conversation, found),) = reuse().items()
    assert conversation_names()[conversation].startswith("My name is Ossip")
    assert found.turns == 3
    assert found.restored == sum(each["restored"] for each in cache) > 0
    assert found.prompt_tokens == sum(turn["input_tokens"] for turn in turns)
    assert found.miss_reasons["cache_off"] == 1
    assert total([found, Reuse(1, 10, 0)]).prompt_tokens == found.prompt_tokens + 10
