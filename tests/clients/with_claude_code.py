"""Claude Code, with the environment that docs/agents.md gives."""

import json
from pathlib import Path

import pytest

from .conftest import COUNT, MODEL, Served, call, interrupt_at, json_lines, program, run

QUIET = (
    "DISABLE_TELEMETRY",
    "DISABLE_AUTOUPDATER",
    "DISABLE_ERROR_REPORTING",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
)


@pytest.fixture
def claude(served: Served, alone: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", served.address)
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "none")
    monkeypatch.setenv("ANTHROPIC_MODEL", MODEL)
    monkeypatch.setenv("ANTHROPIC_SMALL_FAST_MODEL", MODEL)
    for name in QUIET:
        monkeypatch.setenv(name, "1")
    # The fewer tools, the shorter the prompt that is read on a CPU.
    return [program("claude"), "--tools", "Bash", "--allowedTools", "Bash", "-p"]


def result_of(told: str) -> dict:
    (result,) = (each for each in json_lines(told) if each["type"] == "result")
    assert not result["is_error"], result
    return result


def test_two_turns_a_tool_a_stream_and_an_interruption(claude: list[str], served: Served) -> None:
    as_json = ["--output-format", "json"]
    first = result_of(run([*claude, "One. <say>First answer.</say>", *as_json]))
    assert first["result"] == "First answer."
    resume = ["--resume", first["session_id"]]
    second = result_of(run([*claude, "Two. <say>Second answer.</say>", *resume, *as_json]))
    assert second["result"] == "Second answer."
    read = first["usage"]["input_tokens"] + first["usage"]["cache_read_input_tokens"]
    # What Claude Code adds to the first message of a session is not the same when it resumes.
    assert second["usage"]["cache_read_input_tokens"] > 0.9 * read

    bash = call("Bash", {"command": "echo RESULT-$((40 + 2))", "description": "Print"})
    streamed = ["--output-format", "stream-json", "--verbose", "--include-partial-messages"]
    told = run([*claude, bash, *resume, *streamed])
    assert "The tool returned: RESULT-42" in result_of(told)["result"]
    events = [each["event"] for each in json_lines(told) if each["type"] == "stream_event"]
    deltas = [each["delta"] for each in events if each["type"] == "content_block_delta"]
    arguments = "".join(d["partial_json"] for d in deltas if d["type"] == "input_json_delta")
    assert json.loads(arguments)["command"] == "echo RESULT-$((40 + 2))"
    assert len([d for d in deltas if d["type"] == "text_delta"]) > 1

    count = [*claude, f"<count>{COUNT}</count>", *resume, *streamed]
    interrupt_at(count, "text_delta", served)
