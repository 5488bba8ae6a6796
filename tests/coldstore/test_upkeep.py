"""Manifest and files are brought together again in the background, a little at a time."""

import logging
import os
import threading
from pathlib import Path

import pytest

from llm_mtplx.coldstore import ColdStore, StoreLimits
from llm_mtplx.coldstore.index.ledger import read_note
from llm_mtplx.coldstore.index.manifest import Manifest
from llm_mtplx.coldstore.keys import Chain
from llm_mtplx.coldstore.root import StoreRoot
from llm_mtplx.coldstore.upkeep import schedule as upkeep_module
from llm_mtplx.coldstore.upkeep.removal import Removed
from llm_mtplx.coldstore.upkeep.schedule import LOCK, PROGRESS, Upkeep

from .aging import HOUR, Clock, age, on_disk
from .lines import FINGERPRINT, WAIT, files, opened, restore, tokens
from .lines import write as save_turn
from .test_gc import collect, fill, orphan, other_version, put, set_times

IDS = tokens(700)
FULL_DUTY = StoreLimits(duty=1.0)


def tend(cache_dir: Path, limits: StoreLimits = FULL_DUTY) -> None:
    """One round, here and now."""
    Upkeep(StoreRoot(cache_dir), limits, threading.Event()).run()


def note(cache_dir: Path) -> dict[str, object]:
    manifest = Manifest(StoreRoot(cache_dir), WAIT)
    try:
        return read_note(manifest, PROGRESS)
    finally:
        manifest.close()


@pytest.fixture
def aged(tmp_path: Path, clock: Clock) -> Path:
    fill(tmp_path)
    age(tmp_path, clock)
    clock.now += HOUR
    return tmp_path


def test_both_directions_and_one_line_of_what_was_done(
    aged: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    root = aged / "sessions-v1"
    for number, suffix in enumerate((".kv", ".st", ".json")):
        orphan(root, number, suffix)
    put(root / "manifest.sqlite.set-aside-0001")
    put(root / "blobs" / "ab" / f".{'ab' * 32}.{'0' * 32}.tmp")
    lost = next(p for p in files(aged, "*.kv") if p.stem == Chain(FINGERPRINT, IDS).key(2).hex())
    lost.unlink()
    gone = next(path for path in files(aged, "*.json") if path.read_bytes() != b"orphan")
    gone.unlink()
    age(aged, clock)
    os.utime(root / "manifest.sqlite.set-aside-0001", (1, 1))
    clock.now += HOUR
    with caplog.at_level(logging.INFO):
        tend(aged)
    (line,) = [r.getMessage() for r in caplog.records if "reconciled" in r.getMessage()]
    assert "reconciled all of the store" in line
    assert "5 files of" in line
    assert "1 rows without a file removed, 1 entries' files written again" in line
    assert gone.exists()
    with opened(aged) as store:
        assert restore(store, tokens(600, seed=2))[0].position == 600
        assert store.lookup(FINGERPRINT, IDS, needs_checkpoint=False).position == 256
        assert store.missing(Chain(FINGERPRINT, IDS)) == [256]


def test_below_the_floor_of_free_disk_no_entry_is_written_again(aged: Path) -> None:
    entry = files(aged, "*.json")[0]
    entry.unlink()
    tend(aged, StoreLimits(duty=1.0, free_floor_bytes=1 << 60))
    assert note(aged)["at"] == 0  # the walk was whole
    assert not entry.exists()


def test_a_walk_that_is_interrupted_is_gone_on_with_by_another_process(
    aged: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    orphans = [orphan(aged / "sessions-v1", number) for number in range(40)]
    age(aged, clock)
    clock.now += HOUR
    stop = threading.Event()
    first = Upkeep(StoreRoot(aged), FULL_DUTY, stop)
    walked: list[str] = []
    shard = upkeep_module.Census.shard

    def watched(census, area, name):  # type: ignore[no-untyped-def]
        if census._root.path != aged / "sessions-v1":  # of a store that a test before has left
            return shard(census, area, name)
        walked.append(f"{area}/{name}")
        if len(walked) == 100:
            stop.set()
        return shard(census, area, name)

    monkeypatch.setattr(upkeep_module.Census, "shard", watched)
    with monkeypatch.context() as patched:
        patched.setattr(upkeep_module, "Compaction", None)  # packing is not begun any more
        first.run()
    assert len(walked) == 100
    assert 0 < sum(path.exists() for path in orphans) < 40
    assert note(aged)["at"] == 100
    tend(aged)
    assert walked == [f"{area}/{i:02x}" for area in ("blobs", "entries") for i in range(256)]
    assert not any(path.exists() for path in orphans)
    tend(aged)
    assert len(walked) == 512  # not due again
    clock.now += HOUR
    tend(aged)
    assert len(walked) == 1024
    clock.now -= 5 * HOUR
    tend(aged)
    assert len(walked) == 1536  # a clock set back does not put it off


def test_only_a_small_share_of_the_time_is_worked(aged: Path) -> None:
    """After each part it rests nineteen times as long as that took."""
    stop = threading.Event()
    upkeep = Upkeep(StoreRoot(aged), StoreLimits(), stop)
    rests: list[float] = []

    def wait(seconds: float) -> bool:
        rests.append(seconds)
        return False

    stop.wait = wait  # type: ignore[method-assign, assignment]
    upkeep._pause(0.001)
    assert rests == [pytest.approx(0.019)]
    upkeep.run()
    places = {path.parent for path in files(aged)}
    assert len(rests) >= len(places)


def test_resting_is_not_work_to_rest_from(aged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()
    upkeep = Upkeep(StoreRoot(aged), StoreLimits(), stop)
    now = 0.0
    rests: list[int] = []
    shard = upkeep_module.Census.shard

    def rest(seconds: float) -> bool:
        nonlocal now
        now += seconds
        rests.append(round(seconds))
        return False

    def walk(census, area, name):  # type: ignore[no-untyped-def]
        nonlocal now
        now += 1.0
        return shard(census, area, name)

    def remove(strays: object) -> Removed:
        upkeep._pause(2.0)  # as after two seconds of work
        return Removed()

    stop.wait = rest  # type: ignore[method-assign, assignment]
    upkeep._remover.strays = remove  # type: ignore[method-assign]
    monkeypatch.setattr(upkeep_module.Census, "shard", walk)
    monkeypatch.setattr("time.monotonic", lambda: now)
    upkeep._walk({})
    assert set(rests) == {38, 19}


def test_one_process_works_at_a_time(aged: Path) -> None:
    stray = orphan(aged / "sessions-v1", 1)
    os.utime(stray, (1, 1))
    with upkeep_module._alone(StoreRoot(aged)) as alone:
        assert alone
        tend(aged)
        assert stray.exists()
    tend(aged)
    assert not stray.exists()
    assert (aged / "sessions-v1" / LOCK).stat().st_mode & 0o777 == 0o600


# From Python 3.12 on, forking beside other threads warns.
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_forked_meanwhile_does_not_keep_others_from_working(aged: Path) -> None:
    root = StoreRoot(aged)
    waiting, ended = os.pipe()
    with upkeep_module._alone(root) as alone:
        assert alone
        pid = os.fork()
        if pid == 0:
            os.close(ended)
            os.read(waiting, 1)  # until the parent is done
            os._exit(0)
    try:
        with upkeep_module._alone(root) as alone:
            assert alone
    finally:
        os.close(ended)
        os.close(waiting)
        os.waitpid(pid, 0)


def test_what_lies_beside_the_rows_counts_against_the_cap(aged: Path, clock: Clock) -> None:
    strange = put(aged / "sessions-v1" / "blobs" / "ab" / "notes.kv", bytes(1_000_000))
    beside = other_version(aged)
    set_times(beside, clock.now - 86_400)
    tend(aged)
    with opened(aged) as store:
        other = store.report().other_bytes
    assert other > 1_001_000
    # What gc removes is not counted until the next walk.
    stray = orphan(aged / "sessions-v1", 1)
    stray.write_bytes(bytes(10**7))
    tend(aged)  # too young
    clock.now += HOUR
    age(aged, clock)
    tend(aged)
    with opened(aged) as store:
        assert store.report().other_bytes > 10**7
    os.utime(stray, (1, 1))
    assert collect(aged).nbytes == 10**7
    with opened(aged) as store:
        assert store.report().other_bytes < other + 10**6
    strange.unlink()
    set_times(beside, clock.now - 31 * 86_400)
    clock.now += HOUR
    tend(aged)
    assert not beside.exists()
    with opened(aged) as store:
        assert store.report().other_bytes < 1_000_000


def test_another_version_that_cannot_be_removed_is_in_the_way_of_nothing(
    aged: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    beside = other_version(aged)
    set_times(beside, 1)

    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError("not yours")

    with monkeypatch.context() as patched, caplog.at_level(logging.INFO):
        patched.setattr("shutil.rmtree", refuse)
        tend(aged)
    assert beside.exists()
    assert "1 could not be removed: not yours" in caplog.text
    assert note(aged).keys() >= {"walked", "packed"}
    with opened(aged) as store:
        assert store.report().other_bytes > 1000
    clock.now += HOUR
    tend(aged)
    assert not beside.exists()


def test_a_cap_that_was_lowered_is_kept_to(aged: Path, clock: Clock) -> None:
    """Without a single write."""
    with opened(aged) as store:
        restore(store, IDS)
        assert store.flush(WAIT)
    clock.now += HOUR
    tend(aged)
    with opened(aged) as store:
        other = store.report().other_bytes
        largest = store.report().largest_bytes
    clock.now += HOUR
    tend(aged, StoreLimits(duty=1.0, max_bytes=other + largest + 1000))
    assert on_disk(aged) <= largest + 1000
    with opened(aged) as store:
        assert [each.name for each in store.report().conversations] == ["talk"]
        assert restore(store, IDS)[0].position == 700


def test_nothing_is_judged_by_half_an_index(aged: Path) -> None:
    before = files(aged)
    (aged / "sessions-v1" / "manifest.sqlite").unlink()
    tend(aged)
    assert files(aged) == before
    with opened(aged) as store:
        store.lookup(FINGERPRINT, IDS)
        assert store.reconciled(WAIT)
    tend(aged)
    assert files(aged) == before


@pytest.mark.parametrize("content", [None, {"notes.txt": "x"}, {"STORE": "a shop"}])
def test_where_there_is_no_store_nothing_happens(
    tmp_path: Path, content: dict[str, str] | None
) -> None:
    root = tmp_path / "sessions-v1"
    for name, text in (content or {}).items():
        put(root / name, text.encode())
    tend(tmp_path)
    assert {p.name: p.read_text() for p in root.glob("*")} == (content or {})


def test_a_store_tends_itself(aged: Path) -> None:
    stray = orphan(aged / "sessions-v1", 1)
    os.utime(stray, (1, 1))
    store = ColdStore(aged, FULL_DUTY)
    store.tend()
    store._background.join(WAIT)
    assert not stray.exists()
    assert store.close(WAIT)


def test_reading_alone_starts_nothing(aged: Path) -> None:
    """A process that may not write leaves garbage where it is."""
    stray = orphan(aged / "sessions-v1", 1)
    os.utime(stray, (1, 1))
    with opened(aged) as store:
        restore(store, IDS)
        store.report()
        store.tips("talk")
    assert stray.exists()


def test_a_tip_with_two_successors_goes_and_the_last_two_stay(tmp_path: Path, clock: Clock) -> None:
    turns = [tokens(300 + 50 * number) for number in range(6)]
    with opened(tmp_path) as store:
        for turn in turns:
            save_turn(store, turn)
            clock.now += 60
    tend(tmp_path)
    with opened(tmp_path) as store:
        assert len(store.tips("talk")) == 6  # each may still be read by somebody
    clock.now += HOUR
    tend(tmp_path)
    with opened(tmp_path) as store:
        assert [tip.position for tip in store.tips("talk")] == [550, 500]
        for turn in turns[-2:]:
            assert restore(store, turn)[0].position == len(turn)
    assert len(files(tmp_path, "*.st")) == len(files(tmp_path, "*.json")) == 2


def test_a_manifest_that_is_lost_during_a_walk_makes_nothing_garbage(aged: Path) -> None:
    """The walk goes on over an empty one, to which every file is a stranger."""
    before = files(aged)
    upkeep = Upkeep(StoreRoot(aged), FULL_DUTY, threading.Event())
    losses: list[Path] = []

    def lose(worked: float) -> bool:
        if not losses:
            losses.append(aged / "sessions-v1" / "manifest.sqlite")
            losses[0].unlink()
        return True

    upkeep._pause = lose  # type: ignore[method-assign]
    upkeep.run()
    assert losses
    assert files(aged) == before
    with opened(aged) as store:
        store.lookup(FINGERPRINT, IDS)
        assert store.reconciled(WAIT)
        assert restore(store, IDS)[0].position == 700
