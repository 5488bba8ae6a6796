"""Fixtures every test may use."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def user_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty llm user directory, so that no test sees another's or the user's."""
    path = tmp_path / "llm user"
    path.mkdir()
    monkeypatch.setenv("LLM_USER_PATH", str(path))
    return path
