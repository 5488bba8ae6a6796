"""Limits hold: free disk, bytes an hour, total size. Reads go on, and nothing is lost that need
not be."""

import errno
import os
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from llm_mtplx.coldstore import BLOCK, ColdStore, Collector, StoreLimits
from llm_mtplx.coldstore.index.ledger import UNNAMED, leave_note
from llm_mtplx.coldstore.index.manifest import Manifest
from llm_mtplx.coldstore.keys import Chain
from llm_mtplx.coldstore.root import StoreRoot
from llm_mtplx.coldstore.upkeep.schedule import Upkeep

from .aging import HOUR, Clock, age, on_disk
from .lines import FINGERPRINT, WAIT, files, opened, restore, save_of, tokens
from .lines import write as save_turn
from .test_writer import Gate

IDS = tokens(700)
MORE = tokens(700, seed=1)
MARGIN = 8_000  # headers count at most, before they are written


def write(store: ColdStore, ids: list[int], name: str) -> dict[str, int]:
    """Save as a turn does; how many saves were dropped so far, by reason."""
    store.save(save_of(ids, name, store.missing(Chain(FINGERPRINT, ids))))
    assert store.flush(WAIT)
    return store.report().drops


def test_below_the_floor_nothing_is_written_and_reads_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path) as store:
        save_turn(store, IDS)
    before = on_disk(tmp_path)
    with opened(tmp_path, free_floor_bytes=1 << 60) as store:
        assert write(store, MORE, "more") == {"low_disk": 1}
        assert write(store, MORE, "more") == {"low_disk": 2}
        assert restore(store, IDS)[0].position == 700
        assert store.report().disk_state == "full"
        assert "bytes are free" in store.report().last_error
    assert on_disk(tmp_path) == before
    warnings = [r for r in caplog.records if r.levelname == "WARNING"]
    assert len(warnings) == 1  # a user need not read it every turn


class SmallDisk:
    """What os.statvfs says of a disk that holds the store and ``others`` bytes besides."""

    def __init__(self, cache_dir: Path, size: int) -> None:
        self.others = 0
        self._cache_dir = cache_dir
        self._size = size

    def __call__(self, path: object) -> SimpleNamespace:
        free = self._size - self.others - on_disk(self._cache_dir)
        return SimpleNamespace(f_bavail=free, f_frsize=1)


def test_on_a_disk_that_runs_full_the_least_recently_used_goes(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The floor stays free, and what is new is kept. What others fill is not made up for."""
    with opened(tmp_path) as store:
        save_turn(store, IDS, "talk 0")
    one = on_disk(tmp_path)
    floor = 100 * one
    disk = SmallDisk(tmp_path, floor + 3 * one + MARGIN)
    monkeypatch.setattr("os.statvfs", disk)
    with opened(tmp_path, free_floor_bytes=floor) as store:
        for number in range(1, 6):
            age(tmp_path, clock)
            clock.now += HOUR
            assert write(store, tokens(700, seed=number), f"talk {number}") == {}
            assert disk(tmp_path).f_bavail >= floor
        kept = {each.name for each in store.report().conversations}
        assert kept == {"talk 5", "talk 4"} | (kept & {"talk 3"})
        disk.others = 10 * one
        age(tmp_path, clock)
        clock.now += HOUR
        assert write(store, tokens(700, seed=6), "talk 6") == {"low_disk": 1}
        assert {each.name for each in store.report().conversations} == kept


def test_the_budget_of_an_hour_counts_every_process(tmp_path: Path, clock: Clock) -> None:
    with opened(tmp_path) as store:
        save_turn(store, IDS)
        written = store.report().written_last_hour
        assert written == store.report().written_bytes > on_disk(tmp_path)
    budget = {"write_budget_bytes": written + MARGIN}
    with opened(tmp_path, **budget) as store:
        assert write(store, MORE, "more") == {"write_budget": 1}
        assert restore(store, IDS)[0].position == 700
        assert store.flush(WAIT)
        clock.now += HOUR - 61
        assert write(store, MORE, "more") == {"write_budget": 2}
        clock.now += 61
        assert write(store, MORE, "more") == {"write_budget": 2}
        assert restore(store, MORE)[0].position == 700


def test_the_budget_counts_what_is_written_not_what_is_saved(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        save_turn(store, IDS)
        written = store.report().written_last_hour
        save_turn(store, IDS)
        save_turn(store, IDS, "another")
        entries = sum(path.stat().st_size for path in files(tmp_path, "*.json"))
        assert store.report().written_last_hour < written + entries


def test_a_clock_set_back_does_not_stop_writes(tmp_path: Path, clock: Clock) -> None:
    with opened(tmp_path) as store:
        save_turn(store, IDS)
        written = store.report().written_last_hour
    with opened(tmp_path, write_budget_bytes=written + MARGIN) as store:
        clock.now -= 10 * HOUR
        assert write(store, MORE, "more") == {}
        assert restore(store, MORE)[0].position == 700


def test_the_cap_is_never_passed_and_the_least_recently_used_goes(
    tmp_path: Path, clock: Clock
) -> None:
    with opened(tmp_path) as store:
        save_turn(store, IDS, "talk 0")
    one = on_disk(tmp_path)
    cap = 4 * one + one // 2
    with opened(tmp_path, max_bytes=cap) as store:
        for number in range(1, 9):
            clock.now += HOUR
            ids = tokens(700, seed=number)
            assert write(store, ids, f"talk {number}") == {}
            age(tmp_path, clock)
            assert on_disk(tmp_path) <= cap
            if number == 3:
                restore(store, IDS)  # so that this is used more recently than 1 and 2
                assert store.flush(WAIT)
        kept = {each.name for each in store.report().conversations}
    assert kept == {"talk 6", "talk 7", "talk 8"} | (kept & {"talk 5", "talk 0"})
    assert len(kept) >= 3


def test_what_others_share_stays_when_a_conversation_goes(tmp_path: Path, clock: Clock) -> None:
    system = tokens(2 * BLOCK)
    old, new = [*system, *tokens(400, seed=1)], [*system, *tokens(400, seed=2)]
    with opened(tmp_path) as store:
        save_turn(store, old, "old")
        age(tmp_path, clock)
        clock.now += HOUR
        save_turn(store, new, "new")
        clock.now += HOUR
        used = on_disk(tmp_path)
    with opened(tmp_path, max_bytes=used) as store:
        assert write(store, tokens(100, seed=3), "third") == {}
        assert {each.name for each in store.report().conversations} == {"new", "third"}
        assert restore(store, new)[0].position == len(new)


def test_what_is_in_use_is_not_removed_for_something_new(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        save_turn(store, IDS)
        used = on_disk(tmp_path)
    with opened(tmp_path, max_bytes=used + 100) as store:
        assert write(store, MORE, "more") == {"no_room": 1}
        assert restore(store, IDS)[0].position == 700


def test_half_an_index_makes_no_room(tmp_path: Path, clock: Clock) -> None:
    """A rebuild has come as far as the blocks, none of which a checkpoint seems to need."""
    with opened(tmp_path) as store:
        save_turn(store, IDS)
        save_turn(store, MORE, "more")
        blocks = store._manifest.blocks()
    age(tmp_path, clock)
    clock.now += HOUR
    before = files(tmp_path)
    (tmp_path / "sessions-v1" / "manifest.sqlite").unlink()
    manifest = Manifest(StoreRoot(tmp_path), WAIT)
    manifest.add_found(blocks, [])
    manifest.close()
    new = tokens(300, seed=2)
    with opened(tmp_path, max_bytes=1000) as store:
        store.save(save_of(new, "new"))
        assert store.flush(WAIT)
        assert store.report().drops == {"no_room": 1}
        assert files(tmp_path) == before
        store.lookup(FINGERPRINT, IDS)
        assert store.reconciled(WAIT)
        assert restore(store, IDS)[0].position == 700
        assert restore(store, MORE)[0].position == 700


def test_the_only_copy_stays_until_its_successor_is_in(tmp_path: Path, clock: Clock) -> None:
    """A conversation that fills the store alone: its old state goes after the new one came."""
    turns = [tokens(count) for count in (500, 600, 650)]
    with opened(tmp_path) as store:
        for turn in turns[:2]:
            save_turn(store, turn)
            age(tmp_path, clock)
            clock.now += HOUR
    with opened(tmp_path / "all") as store:
        for turn in turns:
            save_turn(store, turn)
    first = next(p for p in files(tmp_path, "*.st") if b'"end":500' in p.read_bytes())
    cap = on_disk(tmp_path / "all") - first.stat().st_size + 2500
    gate = Gate("temp_synced")
    store = ColdStore(tmp_path, StoreLimits(max_bytes=cap), gate)
    store.save(save_of(turns[2], blocks=store.missing(Chain(FINGERPRINT, turns[2]))))
    assert gate.reached.wait(WAIT)
    assert restore(store, turns[2])[0].position == 600  # the newest there is
    assert restore(store, turns[0])[0].position == 0  # an older one made room
    gate.opened.set()
    assert store.flush(WAIT)
    assert store.report().drops == {}
    assert restore(store, turns[2])[0].position == 650
    assert on_disk(tmp_path) <= cap
    assert store.close(WAIT)


def test_blocks_that_a_save_builds_on_do_not_make_room_for_it(tmp_path: Path, clock: Clock) -> None:
    """A fork of an old conversation is saved while that is the first to go."""
    old = tokens(600)
    fork = [*old[: 2 * BLOCK], *tokens(40, seed=5)]
    with opened(tmp_path) as store:
        save_turn(store, old, "old")
        age(tmp_path, clock)
        clock.now += 2 * HOUR
        missing = store.missing(Chain(FINGERPRINT, fork))
        assert missing == []
        used = on_disk(tmp_path)
    with opened(tmp_path, max_bytes=used + 10) as store:
        store.save(save_of(fork, "fork", missing))
        assert store.flush(WAIT)
        assert store.report().drops == {}
        assert restore(store, fork)[0].position == len(fork)
        assert [each.name for each in store.report().conversations] == ["fork"]


def test_a_state_is_not_committed_over_blocks_that_were_removed(tmp_path: Path) -> None:
    """Between asking what is missing and writing it, another process forgets the blocks."""
    gate = Gate("announced")
    with opened(tmp_path) as store:
        save_turn(store, IDS[:600], "old")
    store = ColdStore(tmp_path, failpoint=gate)
    missing = store.missing(Chain(FINGERPRINT, IDS))
    assert missing == []
    store.save(save_of(IDS, "new", missing))
    assert gate.reached.wait(WAIT)
    with opened(tmp_path) as other:
        assert other.forget("old").blocks == 2
    gate.opened.set()
    assert store.flush(WAIT)
    assert store.report().drops == {"line_gone": 1}
    assert store.lookup(FINGERPRINT, IDS).position == 0
    assert write(store, IDS, "new") == {"line_gone": 1}
    assert restore(store, IDS)[0].position == 700
    assert store.close(WAIT)


def test_more_than_the_queue_holds_streams_through_it(tmp_path: Path) -> None:
    with opened(tmp_path, backlog_bytes=10_000) as store:
        many = tokens(20 * BLOCK + 10)
        save = save_of(many)
        for rows in save.blocks:
            nbytes = sum(section.nbytes for section in rows.sections)
            assert store.wait_for_room(nbytes, WAIT)
            end = rows.start + BLOCK
            assert store.save(save_of(many[:end], None, [rows.start], False)) is None
            assert store.report().pending_bytes <= 10_000
        assert store.wait_for_room(1000, WAIT)
        assert store.save(save_of(many, blocks=[])) is None
        assert store.flush(WAIT)
        assert store.report().drops == {}
        assert restore(store, many)[0].position == len(many)


def test_waiting_for_room_ends(tmp_path: Path) -> None:
    gate = Gate("announced")
    store = ColdStore(tmp_path, StoreLimits(backlog_bytes=10), gate)
    store.save(save_of(IDS))
    assert gate.reached.wait(WAIT)
    assert not store.wait_for_room(1000, 0.0)
    gate.opened.set()
    assert store.wait_for_room(1000, WAIT)
    assert store.close(WAIT)


def test_a_disk_that_fills_while_room_is_made(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest cannot grow any more: that save is dropped, the rest is there."""
    with opened(tmp_path) as store:
        save_turn(store, IDS)
        age(tmp_path, clock)
        clock.now += HOUR
    with opened(tmp_path, max_bytes=on_disk(tmp_path) + MARGIN) as store:

        def full(*arguments: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patched:
            patched.setattr("llm_mtplx.coldstore.upkeep.removal.Remover.cuts", full)
            assert write(store, MORE, "more") == {"disk_full": 1}
        assert restore(store, IDS)[0].position == 700
        assert store.flush(WAIT)  # the time it was used is written
        clock.now += HOUR
        assert write(store, MORE, "more") == {"disk_full": 1}
        assert restore(store, MORE)[0].position == 700


@pytest.mark.parametrize("which", ["*.st", "*.kv", "CACHEDIR.TAG", "manifest.sqlite", "old"])
def test_a_file_of_holes_counts_for_what_it_takes(tmp_path: Path, which: str) -> None:
    """64 GB long, a few KB on the disk: neither conversations nor saves go for it."""
    limits = {"max_bytes": 1 << 30, "grace_s": 0.0}
    with opened(tmp_path, **limits) as store:
        save_turn(store, IDS)
        save_turn(store, MORE, "more")
    before = on_disk(tmp_path)
    if which == "old":
        shutil.copytree(tmp_path / "sessions-v1", tmp_path / "sessions-v0")
        os.truncate(tmp_path / "sessions-v0" / "CACHEDIR.TAG", 1 << 36)
    elif which.startswith("*"):
        os.truncate(min(files(tmp_path, which)), 1 << 36)
    else:
        os.truncate(tmp_path / "sessions-v1" / which, 1 << 36)
    allowed = StoreLimits(free_floor_bytes=0, **limits)  # type: ignore[arg-type]
    Upkeep(StoreRoot(tmp_path), allowed, threading.Event()).run()
    collector = Collector(StoreRoot(tmp_path), allowed)
    try:
        plan = collector.plan_gc()
        assert not plan.evicted
        assert plan.nbytes <= before
        collector.apply(plan)
    finally:
        collector.close()
    with opened(tmp_path, **limits) as store:
        for number in (2, 3):
            assert write(store, tokens(700, seed=number), f"talk {number}") == {}
        for ids in (IDS, MORE):
            restore(store, ids)  # finds out what is damaged
            save_turn(store, ids, "again")
            assert restore(store, ids)[0].position == 700
        report = store.report()
        assert report.nbytes + report.other_bytes <= 10 * before
        assert report.drops == {}


@pytest.mark.parametrize("tended", [False, True])
def test_a_note_that_claims_too_much_costs_nothing(tmp_path: Path, tended: bool) -> None:
    """A damaged index may say that terabytes lie beside its rows: they are counted first."""
    limits = {"max_bytes": 1 << 30, "grace_s": 0.0, "reconcile_every_s": 1e12}
    with opened(tmp_path, **limits) as store:
        for number in range(3):
            save_turn(store, tokens(700, seed=number), f"talk {number}")
    root = StoreRoot(tmp_path)
    manifest = Manifest(root, WAIT)
    leave_note(manifest, UNNAMED, {"bytes": 1 << 43})
    manifest.close()
    if tended:
        allowed = StoreLimits(free_floor_bytes=0, **limits)  # type: ignore[arg-type]
        Upkeep(root, allowed, threading.Event()).run()
    with opened(tmp_path, **limits) as store:
        assert write(store, MORE, "another") == {}
        report = store.report()
        assert report.other_bytes < 1 << 20
        assert len(report.conversations) == 4
