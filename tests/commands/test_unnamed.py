"""States that belong to no conversation are named as what they are."""

import json
from pathlib import Path

import pytest

from ..coldstore.lines import opened, tokens, write
from ..llm_command import ok


@pytest.mark.parametrize("names", [[None, None], [None, "talk"], ["talk", "talk"], []])
def test_status_and_gc_count_them(
    names: list[str | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLM_MTPLX_CACHE_DIR", str(tmp_path))
    with opened(tmp_path) as store:
        for seed, name in enumerate(names):
            write(store, tokens(300, seed=seed), name)
    unnamed = names.count(None)
    if names:
        assert json.loads(ok("mtplx", "gc", "--json"))["unnamed_states"] == unnamed
        assert f"{unnamed} states without a conversation" in ok("mtplx", "gc")
    told = json.loads(ok("mtplx", "status", "--json"))["ssd_session_cache"]
    assert told["unnamed_states"] == unnamed
    shown = ok("mtplx", "status")
    assert (f"{unnamed} states without a conversation" in shown) is bool(unnamed)
    assert ("No conversation is saved." in shown) is (not names)
