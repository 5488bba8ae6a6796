"""``llm mtplx gc``: the report is what --apply does; exit codes as documented."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from llm.cli import cli

from ..coldstore.lines import files, flip_last, opened, tokens, write
from ..coldstore.test_gc import orphan, tree


def llm(*args: str) -> Result:
    return CliRunner().invoke(cli, ["mtplx", *args])


@pytest.fixture
def cache_dir(user_path: Path) -> Path:
    cache_dir = user_path / "mtplx" / "cache"
    with opened(cache_dir) as store:
        write(store, tokens(700), "talk")
        write(store, tokens(600, seed=1), "other")
    for number in range(3):
        os.utime(orphan(cache_dir / "sessions-v1", number), (1, 1))
    return cache_dir


def test_the_report_touches_nothing_and_apply_does_what_it_says(cache_dir: Path) -> None:
    before = tree(cache_dir)
    shown = llm("gc")
    assert shown.exit_code == 0
    assert "3       18 B  files without an index entry" in shown.output
    assert "'llm mtplx gc --apply' would free 18 B" in shown.output
    assert tree(cache_dir) == before
    done = llm("gc", "--apply")
    assert done.exit_code == 0
    assert "Deleted 3 files, 18 B." in done.output
    assert "There are no unused files." in llm("gc").output
    assert "talk" in llm("status").output


def test_json(cache_dir: Path) -> None:
    told = json.loads(llm("gc", "--json").output)
    assert told["conversations"] == 2
    assert told["garbage"]["orphan_files"] == {"count": 3, "bytes": 18}
    assert told["garbage_bytes"] == 18
    assert told["limits"]["effective_max_bytes"] > 0
    assert "removed" not in told
    told = json.loads(llm("gc", "--apply", "--json").output)
    assert told["removed"]["files"] == 3
    assert json.loads(llm("gc", "--json").output)["garbage_bytes"] == 0


def test_a_lost_entry_is_told_and_written_again(cache_dir: Path) -> None:
    entry = files(cache_dir, "*.json")[0]
    entry.unlink()
    assert "1 entry files are missing; --apply writes them again." in llm("gc").output
    assert "Wrote 1 entry files again." in llm("gc", "--apply").output
    assert entry.exists()
    assert "entry files are missing" not in llm("gc").output


def test_where_nothing_is_stored() -> None:
    assert llm("gc").output == "The store is empty.\n"
    assert json.loads(llm("gc", "--json").output).keys() == {"dir"}


@pytest.mark.parametrize("name", ["/", "..", ".", "nowhere"])
def test_a_directory_that_is_not_a_store_is_refused(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(next((cache_dir / "sessions-v1" / "blobs").iterdir()))
    before = tree(cache_dir)
    done = llm("gc", "--apply", "--dir", name)
    assert done.exit_code == 1
    assert "nothing was touched" in done.output
    assert len(done.output.splitlines()) == 1
    assert tree(cache_dir) == before


def test_a_link_out_of_the_store_is_refused(cache_dir: Path, tmp_path: Path) -> None:
    (cache_dir / "sessions-v1" / "entries").rename(tmp_path / "outside")
    (cache_dir / "sessions-v1" / "entries").symlink_to(tmp_path / "outside")
    before = tree(tmp_path)
    done = llm("gc", "--apply")
    assert done.exit_code == 1
    assert "Nothing was touched" in done.output
    assert tree(tmp_path) == before


def test_wrong_usage(cache_dir: Path) -> None:
    for arguments in (("--max-size", "lots"), ("--older-than", "-1"), ("--bytes", "1")):
        assert llm("gc", *arguments).exit_code == 2


def test_what_could_not_be_removed_is_an_error(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError("not yours")

    with monkeypatch.context() as patched:
        patched.setattr("os.unlink", refuse)
        done = llm("gc", "--apply")
    assert done.exit_code == 1
    assert "3 files could not be deleted: not yours" in done.output


def test_another_directory_may_be_named(cache_dir: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "a b é"
    cache_dir.rename(elsewhere)
    assert llm("gc").output == "The store is empty.\n"
    for named in (elsewhere, elsewhere / "sessions-v1"):
        assert json.loads(llm("gc", "--json", "--dir", str(named)).output)["conversations"] == 2


def test_sizes_and_ages(cache_dir: Path) -> None:
    """What was used in the last ten minutes stays, whatever is asked for."""
    for path in files(cache_dir, "*.st"):
        flip_last(path)
    told = json.loads(llm("gc", "--json", "--older-than", "0", "--max-size", "1K").output)
    assert told["garbage"]["evicted_states"]["count"] == 0


def test_status_shows_the_limits(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_MTPLX_CACHE_MAX_SIZE", "1M")
    monkeypatch.setenv("LLM_MTPLX_WRITE_BUDGET_PER_HOUR", "10K")
    group = json.loads(llm("status", "--json").output)["ssd_session_cache"]
    assert group["max_bytes"] == group["effective_max_bytes"] == 1 << 20
    assert group["limits"]["cache_max_size"] == 1 << 20
    assert group["limits"]["write_budget_per_hour"] == 10 << 10
    assert group["limits"]["backlog_bytes"] == 4 << 30
    assert group["written_last_hour_bytes"] > 10 << 10
    assert group["skips_writes"] == "write_budget"
    assert group["low_disk"] is False
    shown = llm("status").output
    assert "Limit 1.0 MiB" in shown
    assert "Nothing is being written: write_budget. Saved state is still used." in shown
