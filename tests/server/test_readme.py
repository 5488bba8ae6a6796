"""What the README tells users of other programs to do."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .client import Client

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
PART = README.split("## Use it from other programs")[1].split("\n## ")[0]
ADDRESS = "http://127.0.0.1:8642"


def snippets(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PART, re.DOTALL)


@pytest.mark.parametrize("client", ["openai", "anthropic"])
def test_python(server: Client, client: str) -> None:
    (code,) = [snippet for snippet in snippets("python") if f"from {client} " in snippet]
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
    (code,) = [snippet for snippet in snippets("bash") if "curl " in snippet]
    done = subprocess.run(
        ["bash", "-c", code.replace(ADDRESS, server.address)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Paris" in json.loads(done.stdout)["choices"][0]["message"]["content"]


def test_agents_are_told_addresses_that_exist(server: Client) -> None:
    (claude,) = [snippet for snippet in snippets("bash") if "ANTHROPIC_BASE_URL" in snippet]
    (base,) = re.findall(r"ANTHROPIC_BASE_URL=(\S+)", claude)
    hello = {"model": "mtplx-demo", "messages": [{"role": "user", "content": "Hello"}]}
    # As Claude Code asks.
    path = base.replace(ADDRESS, "") + "/v1/messages?beta=true"
    asked = {
        **hello,
        "max_tokens": 4,
        "system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}],
        "metadata": {"user_id": "user_a_session_b"},
        "thinking": {"type": "disabled"},
    }
    headers = {"authorization": "Bearer none", "anthropic-beta": "a,b"}
    assert server.post(path, asked, **headers).status == 200
    options = json.loads(snippets("json")[0])["provider"]["mtplx"]["options"]
    path = options["baseURL"].replace(ADDRESS, "") + "/chat/completions"
    assert server.post(path, {**hello, "max_tokens": 4}).status == 200
