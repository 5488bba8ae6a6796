"""Codex CLI over /v1/responses."""

from pathlib import Path

import pytest

from .conftest import COUNT, COUNTED, MODEL, Served, call, interrupt_at, json_lines, program, run
from .rpc import Message, driven

CONFIG = """
model = "{model}"
model_provider = "mtplx"
check_for_update_on_startup = false
approval_policy = "never"
sandbox_mode = "danger-full-access"

[analytics]
enabled = false

[model_providers.mtplx]
name = "llm-mtplx"
base_url = "{address}/v1"
wire_api = "responses"
"""


@pytest.fixture(autouse=True)
def home(served: Served, alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = alone.parent / "codex"
    home.mkdir()
    (home / "config.toml").write_text(CONFIG.format(model=MODEL, address=served.address))
    monkeypatch.setenv("CODEX_HOME", str(home))


@pytest.fixture
def codex() -> list[str]:
    return [program("codex"), "exec", "--skip-git-repo-check", "--json"]


def text_of(events: list[dict]) -> str:
    items = [each["item"] for each in events if each["type"] == "item.completed"]
    return "".join(item["text"] for item in items if item["type"] == "agent_message")


def usage_of(events: list[dict]) -> dict:
    (usage,) = (each["usage"] for each in events if each["type"] == "turn.completed")
    return usage


def test_two_turns_a_tool_and_an_interruption(codex: list[str], served: Served) -> None:
    first = json_lines(run([*codex, "One. <say>First answer.</say>"]))
    assert text_of(first) == "First answer."
    resume = [*codex, "resume", "--last"]
    second = json_lines(run([*resume, "Two. <say>Second answer.</say>"]))
    assert text_of(second) == "Second answer."
    read = usage_of(first)["input_tokens"]
    assert usage_of(second)["cached_input_tokens"] >= read - 8

    shell = call("exec_command", {"cmd": "echo RESULT-$((40 + 2))"})
    used = json_lines(run([*resume, shell]))
    (ran,) = (
        each["item"]
        for each in used
        if each["type"] == "item.completed" and each["item"]["type"] == "command_execution"
    )
    assert (ran["exit_code"], ran["aggregated_output"]) == (0, "RESULT-42\n")
    assert "RESULT-42" in text_of(used)

    interrupt_at([*resume, f"<count>{COUNT}</count>"], "turn.started", served)


def delta_of(message: Message) -> str | None:
    """``codex exec`` prints whole messages; what drives its app server gets their pieces."""
    if message.get("method") != "item/agentMessage/delta":
        return None
    delta: str = message["params"]["delta"]
    return delta


def test_a_stream_and_its_interruption(served: Served) -> None:
    before = served.interrupted
    with driven([program("codex"), "app-server"]) as app:
        app.call("initialize", clientInfo={"name": "tests", "title": "tests", "version": "0"})
        app.notify("initialized")
        thread = app.call("thread/start")["thread"]["id"]
        count = [{"type": "text", "text": f"<count>{COUNT}</count>"}]
        turn = app.call("turn/start", threadId=thread, input=count)["turn"]["id"]
        pieces = app.read_text(delta_of, len(COUNTED))
        assert len(pieces) > 1 and "".join(pieces).startswith(COUNTED)
        app.call("turn/interrupt", threadId=thread, turnId=turn)
        ended = app.read(lambda message: message.get("method") == "turn/completed")
        assert ended["params"]["turn"]["status"] == "interrupted"
        served.wait_for_interruption(before)
