"""opencode, configured as docs/agents.md shows."""

import json
from pathlib import Path

import pytest

from .conftest import COUNT, COUNTED, MODEL, Served, call, interrupt_at, json_lines, program, run
from .rpc import Message, driven


@pytest.fixture(autouse=True)
def settings(served: Served, alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE"):
        monkeypatch.setenv(f"OPENCODE_DISABLE_{name}", "1")
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{served.address}/v1"},
        "models": {MODEL: {"limit": {"context": 200_000, "output": 32_000}}},
    }
    settings = {
        "provider": {"mtplx": provider},
        "model": f"mtplx/{MODEL}",
        "small_model": f"mtplx/{MODEL}",
        "permission": {"bash": "allow"},
        # The fewer tools, the shorter the prompt that is read on a CPU.
        "tools": {"*": False, "bash": True},
    }
    (alone / "opencode.json").write_text(json.dumps(settings))


@pytest.fixture
def opencode() -> list[str]:
    return [program("opencode"), "run", "--format", "json"]


def text_of(events: list[dict]) -> str:
    return "".join(each["part"]["text"] for each in events if each["type"] == "text")


def tokens_of(events: list[dict]) -> dict:
    return [each["part"]["tokens"] for each in events if each["type"] == "step_finish"][-1]


def test_two_turns_a_tool_and_an_interruption(opencode: list[str], served: Served) -> None:
    first = json_lines(run([*opencode, "One. <say>First answer.</say>"]))
    assert text_of(first) == "First answer."
    second = json_lines(run([*opencode, "-c", "Two. <say>Second answer.</say>"]))
    assert text_of(second) == "Second answer."
    before, after = tokens_of(first), tokens_of(second)
    read = before["input"] + before["cache"]["read"]
    assert after["cache"]["read"] >= read - 8 and after["input"] < 200

    bash = call("bash", {"command": "echo RESULT-$((40 + 2))", "description": "Print"})
    used = json_lines(run([*opencode, "-c", bash]))
    (tool,) = (each["part"] for each in used if each["type"] == "tool_use")
    assert tool["state"]["status"] == "completed" and "RESULT-42" in tool["state"]["output"]
    assert "The tool returned: RESULT-42" in text_of(used)

    interrupt_at([*opencode, "-c", f"<count>{COUNT}</count>"], "step_start", served)


def chunk_of(message: Message) -> str | None:
    """``opencode run`` prints whole messages; an editor gets their pieces."""
    update = message.get("params", {}).get("update", {})
    if update.get("sessionUpdate") != "agent_message_chunk":
        return None
    text: str = update["content"]["text"]
    return text


def test_a_stream_and_its_interruption(served: Served, alone: Path) -> None:
    with driven([program("opencode"), "acp"]) as editor:
        editor.call("initialize", protocolVersion=1, clientCapabilities={})
        session = editor.call("session/new", cwd=str(alone), mcpServers=[])["sessionId"]

        def asked(text: str) -> int:
            prompt = [{"type": "text", "text": text}]
            return editor.begin("session/prompt", sessionId=session, prompt=prompt)

        # Also the title of the session is made of its first prompt.
        first = asked("One. <say>First answer.</say>")
        assert "".join(editor.read_text(chunk_of, 13)) == "First answer."
        assert editor.answer(first)["stopReason"] == "end_turn"

        before = served.interrupted
        counting = asked(f"<count>{COUNT}</count>")
        pieces = editor.read_text(chunk_of, len(COUNTED))
        assert len(pieces) > 1 and "".join(pieces).startswith(COUNTED)
        editor.notify("session/cancel", sessionId=session)
        assert editor.answer(counting)["stopReason"] == "cancelled"
        served.wait_for_interruption(before)
