"""Our own small files: whole or not at all, no update lost, nothing that waits or is too large."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from llm_mtplx import jsonfile


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    jsonfile.write(path, {"b": [1, "é"]})
    assert jsonfile.read(path) == {"b": [1, "é"]}
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_bytes_are_synced_before_the_name(tmp_path: Path, monkeypatch) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(handle: int) -> None:
        steps.append("folder" if os.path.isdir(f"/proc/self/fd/{handle}") else "file")
        fsync(handle)

    def noted_replace(source: object, target: object) -> None:
        steps.append("replace")
        replace(source, target)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    jsonfile.write(tmp_path / "a.json", {})
    assert [s for s in steps if s != "folder"] == ["file", "replace"]
    if Path("/proc/self/fd").is_dir():
        assert steps == ["file", "replace", "folder"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_nothing_is_left_of_a_failed_write(tmp_path: Path, monkeypatch, failing: str) -> None:
    path = tmp_path / "here" / "a.json"
    jsonfile.write(path, {"a": 1})

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="No space"):
        jsonfile.write(path, {"a": 2})
    monkeypatch.undo()
    assert os.listdir(path.parent) == ["a.json"]
    assert jsonfile.read(path) == {"a": 1}


def test_what_is_no_json_leaves_nothing_either(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        jsonfile.write(tmp_path / "here" / "a.json", {"a": object()})
    assert os.listdir(tmp_path / "here") == []


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """Some keep their settings in a synced folder."""
    (tmp_path / "synced").mkdir()
    (tmp_path / "a.json").symlink_to("synced/a.json")
    jsonfile.write(tmp_path / "a.json", {"a": 1})
    assert (tmp_path / "a.json").is_symlink()
    assert jsonfile.read(tmp_path / "synced" / "a.json") == {"a": 1}


ADD = """
import sys
from pathlib import Path
from llm_mtplx.catalog.entries import Entry, add_entry, remove_entry
me = sys.argv[1]
for number in range(20):
    add_entry(Entry(f"mtplx/{me}/{number}", Path("/models") / me))
    if number % 2:
        remove_entry(f"mtplx/{me}/{number}")
"""


def test_no_update_is_lost_between_processes(user_path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", ADD, name]) for name in "abc"]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    registered = json.loads((user_path / "mtplx" / "models.json").read_text())["models"]
    assert set(registered) == {f"mtplx/{me}/{n}" for me in "abc" for n in range(0, 20, 2)}
    left = [name for name in os.listdir(user_path / "mtplx") if name != ".models.json.lock"]
    assert left == ["models.json"]


def test_who_waits_too_long_says_so(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(jsonfile, "WAIT_S", 0.0)
    path = tmp_path / "a.json"
    with (
        jsonfile.locked(path),
        pytest.raises(TimeoutError, match="another process"),
        jsonfile.locked(path),
    ):
        pass


def fifo(path: Path) -> None:
    os.mkfifo(path)


def deep(path: Path) -> None:
    path.write_text('{"a":' + "[" * 100_000)


def large(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def no_text(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00")


@pytest.mark.parametrize("make", [fifo, Path.mkdir, deep, large, no_text])
def test_what_cannot_be_read_is_an_error_at_once(tmp_path: Path, make) -> None:
    path = tmp_path / "a.json"
    make(path)
    with pytest.raises((OSError, ValueError)):
        jsonfile.read(path)
    assert jsonfile.read_or_empty(path) == {}
