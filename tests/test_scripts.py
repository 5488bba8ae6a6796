"""What a newcomer's machine may have on its PATH."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout's scripts, and a PATH folder with a shell and dirname but no Python."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "uv", tmp_path / "scripts" / "uv")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "dirname"):
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    return tmp_path


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def run_uv(checkout: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / "scripts" / "uv", "--version"],
        env={"PATH": str(checkout / "bin")},
        capture_output=True,
        text=True,
        timeout=60,
    )


def python_that_installs_uv(checkout: Path) -> str:
    """A Python whose venv has a pip that installs a uv that says its name."""
    program(checkout / "new-uv", "echo uv of our own")
    program(checkout / "new-python", f"cp {checkout}/new-uv .uv/bin/uv")
    return f"""
case "$*" in
    "-m venv .uv") mkdir -p .uv/bin && cp {checkout}/new-python .uv/bin/python ;;
    *) exec {sys.executable} "$@" ;;
esac"""


def add_tools(checkout: Path, *names: str) -> None:
    for name in names:
        found = shutil.which(name)
        assert found is not None
        (checkout / "bin" / name).symlink_to(found)


def test_a_python_that_does_not_run_is_passed_over(checkout: Path) -> None:
    program(
        checkout / "bin" / "python3.13", "echo 'pyenv: python3.13: command not found'; exit 127"
    )
    program(checkout / "bin" / "python3.12", "exit 1")
    program(checkout / "bin" / "python3.11", python_that_installs_uv(checkout))
    add_tools(checkout, "mkdir", "cp")
    ran = run_uv(checkout)
    assert (ran.returncode, ran.stdout) == (0, "uv of our own\n"), ran.stderr


@pytest.mark.parametrize(
    "missing", ["raise SystemExit(1)", "import sys; sys.version_info = (3, 10)", "import nothing"]
)
def test_without_a_usable_python_one_line_says_what_to_install(
    checkout: Path, missing: str
) -> None:
    """Too old, without venv, or not running at all."""
    site = checkout / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(missing.replace("nothing", "sys") + "\n")
    if missing == "import nothing":
        (site / "ensurepip.py").write_text("raise ImportError\n")
    program(
        checkout / "bin" / "python3",
        f'PYTHONPATH={site} exec {os.path.realpath(sys.executable)} "$@"',
    )
    ran = run_uv(checkout)
    assert ran.returncode == 1
    assert ran.stderr.count("\n") == 1
    assert "No Python 3.11 or newer with venv and pip" in ran.stderr
