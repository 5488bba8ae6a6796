"""Limits come from the environment, else the settings file; a bad value breaks nothing."""

import json
import logging
from pathlib import Path

import pytest

from llm_mtplx.limits import Limits, limits
from llm_mtplx.settings import cache_dir


@pytest.mark.parametrize(
    ("text", "want"),
    [("1024", 1024), ("24G", 24 << 30), ("1.5k", 1536), ("2 MiB", 2 << 20), ("1TB", 1 << 40)],
)
def test_sizes(monkeypatch: pytest.MonkeyPatch, text: str, want: int) -> None:
    monkeypatch.setenv("LLM_MTPLX_RAM_MAX_BYTES", text)
    assert limits().ram_max_bytes == want


def test_the_environment_wins_over_the_file(monkeypatch, user_path: Path) -> None:
    (user_path / "mtplx").mkdir()
    (user_path / "mtplx" / "settings.json").write_text(
        json.dumps({"min_tokens": 100, "exit_save_s": 1, "unknown": 3})
    )
    monkeypatch.setenv("LLM_MTPLX_MIN_TOKENS", "200")
    assert (limits().min_tokens, limits().exit_save_s) == (200, 1)


@pytest.mark.parametrize(
    ("name", "value"), [("CACHE", "maybe"), ("RAM_MAX_BYTES", "lots"), ("MIN_TOKENS", "0")]
)
def test_a_bad_value_is_passed_over_and_named(monkeypatch, caplog, name, value) -> None:
    monkeypatch.setenv(f"LLM_MTPLX_{name}", value)
    with caplog.at_level(logging.WARNING):
        assert limits() == Limits()
    assert f"LLM_MTPLX_{name}" in caplog.text


@pytest.mark.parametrize("content", ["{", "[]", ""])
def test_an_unreadable_file_is_passed_over(user_path: Path, content: str) -> None:
    (user_path / "mtplx").mkdir()
    (user_path / "mtplx" / "settings.json").write_text(content)
    assert limits() == Limits()


def test_where_the_store_is(monkeypatch, user_path: Path, tmp_path: Path) -> None:
    assert cache_dir() == user_path / "mtplx" / "cache"
    monkeypatch.setenv("LLM_MTPLX_CACHE_DIR", str(tmp_path / "elsewhere"))
    assert cache_dir() == tmp_path / "elsewhere"
    monkeypatch.delenv("LLM_MTPLX_CACHE_DIR")
    monkeypatch.delenv("LLM_USER_PATH")
    assert cache_dir().name == "llm-mtplx"
