"""The examples for API clients in README.md and docs/ work."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ..docs.pages import README, ROOT
from .client import Client

SERVER = ROOT / "docs" / "server.md"
AGENTS = ROOT / "docs" / "agents.md"
ADDRESS = "http://127.0.0.1:8642"
HELLO = {"model": "mtplx-demo", "messages": [{"role": "user", "content": "Hello"}]}


def snippets(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize(
    ("page", "client"), [(SERVER, "openai"), (SERVER, "anthropic"), (README, "openai")]
)
def test_python(server: Client, page: Path, client: str) -> None:
    (code,) = [snippet for snippet in snippets(page, "python") if f"from {client} " in snippet]
    assert ADDRESS in code
    done = subprocess.run(
        [sys.executable, "-c", code.replace(ADDRESS, server.address)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl(server: Client) -> None:
    (code,) = [snippet for snippet in snippets(SERVER, "bash") if "curl " in snippet]
    done = subprocess.run(
        ["bash", "-c", code.replace(ADDRESS, server.address)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Paris" in json.loads(done.stdout)["choices"][0]["message"]["content"]


def test_claude_code_is_given_an_address_that_exists(server: Client) -> None:
    (claude,) = [snippet for snippet in snippets(AGENTS, "bash") if "ANTHROPIC_BASE_URL" in snippet]
    (base,) = re.findall(r"ANTHROPIC_BASE_URL=(\S+)", claude)
    # As Claude Code asks.
    path = base.replace(ADDRESS, "") + "/v1/messages?beta=true"
    asked = {
        **HELLO,
        "max_tokens": 4,
        "system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}],
        "metadata": {"user_id": "user_a_session_b"},
        "thinking": {"type": "disabled"},
    }
    headers = {"authorization": "Bearer none", "anthropic-beta": "a,b"}
    assert server.post(path, asked, **headers).status == 200


def test_opencode_is_given_an_address_that_exists(server: Client) -> None:
    (settings,) = snippets(AGENTS, "json")
    options = json.loads(settings)["provider"]["mtplx"]["options"]
    path = options["baseURL"].replace(ADDRESS, "") + "/chat/completions"
    assert server.post(path, {**HELLO, "max_tokens": 4}).status == 200


def test_codex_is_given_an_address_that_exists(server: Client) -> None:
    (settings,) = snippets(AGENTS, "toml")
    config = tomllib.loads(settings)
    provider = config["model_providers"][config["model_provider"]]
    assert provider["wire_api"] == "responses"
    path = provider["base_url"].replace(ADDRESS, "") + "/responses"
    asked = {"model": "mtplx-demo", "input": "Hello", "max_output_tokens": 4}
    assert server.post(path, asked).status == 200
