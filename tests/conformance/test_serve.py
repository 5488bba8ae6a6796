"""``llm mtplx serve``, ``stop`` and keep-alive, as a user runs them."""

import json
import os
import plistlib
import subprocess
import sys
from pathlib import Path

import click.testing
import pytest
from click.testing import CliRunner
from llm.cli import cli

from llm_mtplx.attach.client import ask

from ..resident import SERVE, TIMEOUT_S, resident


def llm(*args: str) -> click.testing.Result:
    return CliRunner().invoke(cli, args)


def mtplx(*args: str) -> click.testing.Result:
    return llm("mtplx", *args)


def test_the_first_call_starts_an_engine_and_uses_it() -> None:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "llm", "-m", "mtplx-demo", "What is the capital of France?"],
            capture_output=True,
            text=True,
            env={**os.environ, "LLM_MTPLX_KEEP_ALIVE": "5m", "LLM_MTPLX_DEBUG": "1"},
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, done.stderr
        assert "in this process" not in done.stderr
        assert "Paris" in done.stdout
        status = ask("status")
        assert [model["id"] for model in status["engine"]["models"]] == ["mtplx-demo"]
        assert status["address"] is None
        assert status["session_bank"]["entries"] == 1
        conversation = json.loads(llm("logs", "--json", "-n", "1").stdout)[0]["conversation_id"]
        assert mtplx("forget", conversation).exit_code == 0
        assert ask("status")["session_bank"]["entries"] == 0
        shown = mtplx("status").stdout
        assert f"Engine: process {status['pid']}, " in shown and "mtplx-demo" in shown
    finally:
        stopped = mtplx("stop")
    assert stopped.stdout == "The engine has stopped.\n"
    again = mtplx("stop")
    assert (again.exit_code, again.stderr) == (1, "Error: No engine is running.\n")


def test_there_is_one_engine_and_it_ends_by_itself(user_path: Path) -> None:
    with resident(user_path, "--no-http") as first:
        second = subprocess.run(
            [*SERVE, "--no-http"], capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert second.returncode == 1
        assert second.stderr.startswith("Error: An engine is already running.")
        detached = mtplx("serve", "--detach", "--require-key")
        assert detached.exit_code == 1
        assert detached.stderr.startswith("Error: An engine is already running.")
        assert ask("stop")["pid"] == first.pid
        assert first.wait(TIMEOUT_S) == 0
    with resident(user_path, "--no-http", "--keep-alive", "0.1s") as idle:
        assert idle.wait(TIMEOUT_S) == 0


def test_service_files_start_the_same(user_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_MTPLX_CACHE_MAX_SIZE", "100% of <5G>")
    options = ["--no-http", "--timeout", "10m", "--unload-after", "90s"]
    told = plistlib.loads(mtplx("serve", *options, "--print-service", "launchd").stdout.encode())
    command = told["ProgramArguments"]
    assert command == [*SERVE, "--no-http", "--timeout", "600.0", "--unload-after", "90.0"]
    # It must find the same place as llm in this shell.
    assert told["EnvironmentVariables"]["LLM_USER_PATH"] == str(user_path)
    assert told["EnvironmentVariables"]["LLM_MTPLX_CACHE_MAX_SIZE"] == "100% of <5G>"
    unit = mtplx("serve", *options, "--print-service", "systemd").stdout
    assert f"ExecStart={' '.join(command)}\n" in unit
    assert f"Environment='LLM_USER_PATH={user_path}'\n" in unit
    assert "Environment='LLM_MTPLX_CACHE_MAX_SIZE=100%% of <5G>'\n" in unit


def test_durations_are_checked() -> None:
    refused = mtplx("serve", "--keep-alive", "soon")
    assert refused.exit_code == 2
    assert "'soon' is not a valid duration" in refused.stderr
