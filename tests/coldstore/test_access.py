"""Who may read the store, and what happens where it may not be written."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from llm_mtplx.coldstore import ColdStore, Collector, StoreLimits, store_root
from llm_mtplx.coldstore.reasons import StoreError
from llm_mtplx.coldstore.upkeep.schedule import Upkeep

from .lines import FINGERPRINT, WAIT, files, flip_last, in_child, opened, restore, save_of, tokens
from .lines import write as save_turn
from .test_gc import orphan

IDS = tokens(700)
NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can drop its uid")


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """A directory that any user can reach."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.mark.parametrize("umask", [0, 0o022, 0o077, 0o777])
def test_everything_is_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with opened(tmp_path / "cache") as store:
            save_turn(store, IDS)
            save_turn(store, IDS)
            assert store.report().drops == {}
            modes = {path: path.stat().st_mode for path in store.path.rglob("*")}
    finally:
        os.umask(before)
    kinds = {path.name: stat.S_IMODE(mode) for path, mode in modes.items()}
    assert "manifest.sqlite-wal" in kinds
    for path, mode in modes.items():
        assert stat.S_IMODE(mode) == (0o700 if stat.S_ISDIR(mode) else 0o600), path
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700


@needs_root
@pytest.mark.parametrize("umask", [0, 0o777])
def test_an_ordinary_user_s_umask_neither_opens_nor_closes_it(open_dir: Path, umask: int) -> None:
    """Root passes where modes refuse: the same again without its powers, directories above too."""
    os.chmod(open_dir, 0o777)

    def action() -> None:
        os.umask(umask)
        store = ColdStore(open_dir / "deep" / "er")
        save_turn(store, IDS)
        save_turn(store, tokens(300, seed=4))
        assert store.report().drops == {}
        assert restore(store, IDS)[0].position == 700
        assert store.compact(-10.0).files == 3
        assert store.forget("talk").conversations == 1
        assert store.close(WAIT)

    assert as_nobody(action) == 0
    for path in (open_dir / "deep").rglob("*"):
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == expected, path


def test_backups_are_told_to_leave_it_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        save_turn(store, IDS)
    tag = store.path / "CACHEDIR.TAG"
    assert tag.read_bytes().startswith(b"Signature: 8a477f597d28d172789f06886806bc55\n")
    (store.path / "STORE").unlink()
    for name in ("blobs", "entries", "writers"):
        shutil.rmtree(store.path / name)
    for path in store.path.glob("manifest*"):
        path.unlink()
    with opened(tmp_path) as store:  # killed before the marker was there
        save_turn(store, IDS)
        assert restore(store, IDS)[0].position == 700


@pytest.mark.skipif(sys.platform != "darwin", reason="Time Machine is a Mac's")
def test_time_machine_leaves_it_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        save_turn(store, IDS)
    told = subprocess.run(["tmutil", "isexcluded", store.path], capture_output=True, check=True)
    assert b"[Excluded]" in told.stdout


def share(root: Path) -> None:
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def as_nobody(action) -> int:  # type: ignore[no-untyped-def]
    def child() -> None:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        action()

    return in_child(child)


@needs_root
def test_a_read_only_store_is_read_and_not_written(open_dir: Path) -> None:
    with opened(open_dir) as store:
        save_turn(store, IDS)
    share(open_dir / "sessions-v1")
    before = {path: path.stat().st_mtime_ns for path in (open_dir / "sessions-v1").rglob("*")}

    def action() -> None:
        store = ColdStore(open_dir)
        assert restore(store, IDS)[0].position == 700
        store.save(save_of(tokens(300, seed=1)))
        assert store.flush(WAIT)
        assert store.report().drops == {"store_read_only": 1}
        assert store.report().reason is None
        assert store.forget("talk").reason == "store_unavailable"
        assert restore(store, IDS)[0].position == 700
        store.close(WAIT)

    assert as_nobody(action) == 0
    after = {path: path.stat().st_mtime_ns for path in (open_dir / "sessions-v1").rglob("*")}
    assert after == before


@needs_root
def test_a_bad_file_in_a_read_only_store_is_passed_over(open_dir: Path) -> None:
    with opened(open_dir) as store:
        save_turn(store, IDS[:300])
        save_turn(store, IDS)
    flip_last(next(p for p in files(open_dir, "*.st") if b'"end":700' in p.read_bytes()))
    share(open_dir / "sessions-v1")

    def action() -> None:
        store = ColdStore(open_dir)
        restored, _ = restore(store, IDS)
        assert (restored.position, restored.reason) == (300, "corrupt_checkpoint")
        assert store.lookup(FINGERPRINT, IDS).position == 300
        store.close(WAIT)

    assert as_nobody(action) == 0


@needs_root
def test_somebody_else_s_store_is_a_miss(open_dir: Path) -> None:
    with opened(open_dir) as store:
        save_turn(store, IDS)

    def action() -> None:
        store = ColdStore(open_dir)
        assert store.lookup(FINGERPRINT, IDS).reason == "store_unavailable"
        store.save(save_of(IDS))
        assert store.flush(WAIT)
        assert store.report().drops == {"store_unavailable": 1}
        store.close(WAIT)

    assert as_nobody(action) == 0


@needs_root
def test_a_place_where_no_store_can_be_made(open_dir: Path) -> None:
    def action() -> None:
        store = ColdStore(open_dir / "cache")
        assert store.lookup(FINGERPRINT, IDS).reason == "store_absent"
        store.save(save_of(IDS))
        assert store.flush(WAIT)
        assert store.report().drops == {"store_read_only": 1}
        store.close(WAIT)

    assert as_nobody(action) == 0


@needs_root
def test_a_store_that_may_only_be_read_is_reported_and_not_collected(open_dir: Path) -> None:
    with opened(open_dir) as store:
        save_turn(store, IDS)
    os.utime(orphan(open_dir / "sessions-v1", 1), (1, 1))
    share(open_dir / "sessions-v1")

    def action() -> None:
        collector = Collector(store_root(open_dir), StoreLimits())
        plan = collector.plan_gc()
        assert plan.goes()["orphan_files"][0] == 1
        done = collector.apply(plan, lambda held: True)
        assert (done.files, done.failed) == (0, 1)
        assert "Permission denied" in done.error
        Upkeep(store_root(open_dir), StoreLimits(), threading.Event()).run()

    assert as_nobody(action) == 0
    assert len(files(open_dir)) == 5


@needs_root
def test_somebody_else_s_store_is_not_collected(open_dir: Path) -> None:
    with opened(open_dir) as store:
        save_turn(store, IDS)

    def action() -> None:
        with pytest.raises(StoreError, match="store_unavailable"):
            Collector(store_root(open_dir), StoreLimits()).plan_gc(max_bytes=0)
        Upkeep(store_root(open_dir), StoreLimits(), threading.Event()).run()

    assert as_nobody(action) == 0
    assert len(files(open_dir)) == 4


def test_the_store_s_path_may_hold_anything(tmp_path: Path) -> None:
    with opened(tmp_path / "a b?c#d%20 é") as store:
        save_turn(store, IDS)
        assert restore(store, IDS)[0].position == 700
