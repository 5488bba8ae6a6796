"""Fixtures every test may use."""

from pathlib import Path

import pytest
from hypothesis import settings

from llm_mtplx import once

# A busy machine is no fault of the test's.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def nothing_said_yet() -> None:
    """Every test is like a new process: what is printed once has not been printed."""
    once.reset()


@pytest.fixture(autouse=True)
def user_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty llm user directory and home, so that no test sees another's or the user's."""
    path = tmp_path / "llm user"
    path.mkdir()
    monkeypatch.setenv("LLM_USER_PATH", str(path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("HF_HOME", "HF_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return path
