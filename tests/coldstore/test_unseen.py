"""What cannot be seen is not absent. As another user: root sees everything."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llm_mtplx.coldstore import Collector, StoreLimits
from llm_mtplx.coldstore.reasons import StoreError
from llm_mtplx.coldstore.root import StoreRoot

from .lines import FINGERPRINT, WAIT, files, in_child, opened, restore, tokens, write

ONE, TWO = tokens(600), tokens(520, seed=2)
LIMITS = StoreLimits(grace_s=0.0, free_floor_bytes=0)
NOBODY = 65534


@pytest.fixture
def cache_dir() -> Iterator[Path]:
    """Where the user below may go; pytest's own directories are closed to it."""
    path = Path(tempfile.mkdtemp())
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    yield path
    shutil.rmtree(path)


def as_a_user(action: Callable[[], None]) -> None:
    def run() -> None:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        action()

    assert in_child(run) == 0


def make(cache_dir: Path) -> None:
    with opened(cache_dir) as store:
        write(store, ONE, "one")
        write(store, TWO, "two")


def closed(cache_dir: Path, what: str) -> Path:
    root = cache_dir / "sessions-v1"
    if what == "blobs":
        return root / "blobs"
    if what == "folder":
        return files(cache_dir, "*.kv")[0].parent
    if what == "entries":
        return files(cache_dir, "*.json")[0].parent
    return files(cache_dir, "*.st")[0]


@pytest.mark.parametrize("what", ["blobs", "folder", "entries", "file"])
def test_a_lost_index_while_a_part_cannot_be_read(cache_dir: Path, what: str) -> None:
    """Neither is the rest taken for everything, nor does gc remove what comes back."""

    def scenario() -> None:
        make(cache_dir)
        everything = files(cache_dir)
        (cache_dir / "sessions-v1" / "manifest.sqlite").unlink()
        shut = closed(cache_dir, what)
        mode = shut.stat().st_mode
        shut.chmod(0)
        with opened(cache_dir) as store:
            assert store.lookup(FINGERPRINT, ONE).position in (0, 600)
            assert store.reconciled(WAIT)
            assert store.lookup(FINGERPRINT, ONE).position in (0, 600)
        collector = Collector(StoreRoot(cache_dir), LIMITS)
        with pytest.raises(StoreError):
            collector.apply(collector.plan_gc())
        collector.close()
        shut.chmod(mode)
        collector = Collector(StoreRoot(cache_dir), LIMITS)
        assert collector.apply(collector.plan_gc()).files == 0
        collector.close()
        assert files(cache_dir) == everything
        with opened(cache_dir) as store:
            for ids in (ONE, TWO):
                assert restore(store, ids)[0].position == len(ids)

    as_a_user(scenario)


def test_forgetting_what_cannot_be_seen_is_not_said_to_be_done(cache_dir: Path) -> None:
    def scenario() -> None:
        make(cache_dir)
        shut = closed(cache_dir, "folder")
        mode = shut.stat().st_mode
        shut.chmod(0)
        with opened(cache_dir) as store:
            assert store.forget(everything=True).reason == "store_unavailable"
        shut.chmod(mode)
        with opened(cache_dir) as store:
            assert store.forget(everything=True).reason is None
        assert files(cache_dir) == []

    as_a_user(scenario)
