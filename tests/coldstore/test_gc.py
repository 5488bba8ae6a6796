"""Garbage is found, shown, and removed; nothing else is, whatever happens meanwhile."""

import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from llm_mtplx.coldstore import (
    BLOCK,
    ColdStore,
    Collector,
    GcPlan,
    Removed,
    StoreLimits,
    store_root,
)
from llm_mtplx.coldstore.index.connection import SET_ASIDE
from llm_mtplx.coldstore.keys import Chain
from llm_mtplx.coldstore.reasons import StoreError
from llm_mtplx.coldstore.upkeep import removal as removal_module

from .aging import HOUR, Clock, age
from .lines import FINGERPRINT, WAIT, Memory, files, in_child, opened, restore, save_of, tokens
from .lines import write as save_turn
from .test_writer import Gate

IDS = tokens(700)
OTHER = tokens(600, seed=2)


def at_once(held: float) -> bool:
    return True


def plan(cache_dir: Path, **options: float) -> GcPlan:
    collector = Collector(store_root(cache_dir), StoreLimits())
    try:
        return collector.plan_gc(**options)  # type: ignore[arg-type]
    finally:
        collector.close()


def apply(cache_dir: Path, plan: GcPlan, pause: Callable[[float], bool] = at_once) -> Removed:
    collector = Collector(store_root(cache_dir), StoreLimits())
    try:
        return collector.apply(plan, pause)
    finally:
        collector.close()


def collect(cache_dir: Path, **options: float) -> Removed:
    return apply(cache_dir, plan(cache_dir, **options))


def found(plan: GcPlan) -> dict[str, int]:
    return {kind: count for kind, (count, _) in plan.goes().items() if count}


def tree(path: Path) -> dict[str, tuple[int, bytes]]:
    """Everything below, but what SQLite writes when it is asked."""
    return {
        str(p.relative_to(path)): (p.lstat().st_mode, p.read_bytes() if p.is_file() else b"")
        for p in path.rglob("*")
        if not p.name.startswith("manifest.sqlite") or SET_ASIDE in p.name
    }


def fill(cache_dir: Path) -> None:
    with opened(cache_dir) as store:
        save_turn(store, IDS, "talk")
        save_turn(store, OTHER, "other")


def put(path: Path, content: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def orphan(root: Path, number: int, suffix: str = ".kv") -> Path:
    name = hashlib.blake2b(bytes([number]), digest_size=32).hexdigest()
    area = "entries" if suffix == ".json" else "blobs"
    return put(root / area / name[:2] / f"{name}{suffix}", b"orphan")


@pytest.fixture
def littered(tmp_path: Path, clock: Clock) -> Path:
    """A store with two whole conversations and garbage of every kind, all an hour old."""
    fill(tmp_path)
    root = tmp_path / "sessions-v1"
    lost = tokens(2 * BLOCK + 5, seed=3)
    with opened(tmp_path) as store:
        # A turn that was interrupted: blocks that no state needs.
        store.save(save_of(tokens(2 * BLOCK, seed=4), blocks=[0, BLOCK], checkpoint=False))
        # Two turns later, a state that nobody goes back to.
        for turn in (tokens(300, seed=5), tokens(400, seed=5), tokens(500, seed=5)):
            clock.now += 1
            save_turn(store, turn, "long")
        save_turn(store, lost, "lost")
    chain = Chain(FINGERPRINT, lost)
    (root / "blobs" / chain.key(2).hex()[:2] / f"{chain.key(2).hex()}.kv").unlink()
    state = chain.checkpoint(len(lost))
    (root / "blobs" / state.hex()[:2] / f"{state.hex()}.st").unlink()
    for number, suffix in enumerate((".kv", ".st", ".json")):
        orphan(root, number, suffix)
    put(root / "blobs" / "ab" / f".{'ab' * 32}.{'0' * 32}.tmp")
    put(root / f"{SET_ASIDE}0001")
    put(root / ".STORE-0123")
    put(root / "writers" / f"{'0' * 32}.lock")
    age(tmp_path, clock)
    os.utime(root / f"{SET_ASIDE}0001", (clock.now, clock.now))
    clock.now += HOUR
    return tmp_path


EXPECTED = {
    "orphan_files": 3,
    "temporary_files": 2,
    "set_aside_manifests": 1,
    "rows_without_file": 2,
    "dead_writers": 1,
    "unreachable_blocks": 2,
    "superseded_states": 1,
}


def test_the_report_names_everything_and_touches_nothing(littered: Path) -> None:
    before = tree(littered)
    report = plan(littered)
    assert found(report) == EXPECTED
    assert tree(littered) == before
    assert (report.conversations, report.entries) == (4, 6)
    told = report.told()
    assert told["files"] > len(files(littered))
    assert told["file_bytes"] > told["garbage_bytes"] == report.nbytes > 0


def test_what_the_report_says_goes_and_a_second_one_finds_the_rest(littered: Path) -> None:
    report = plan(littered)
    done = apply(littered, report)
    assert (done.kept, done.failed, done.rows) == (0, 0, 2)
    assert done.nbytes == report.nbytes
    # What the lost rows had held together falls apart only now.
    assert found(plan(littered)) == {"entries_without_state": 1, "unreachable_blocks": 1}
    collect(littered)
    assert found(plan(littered)) == {}
    assert not files(littered, ".*")
    with opened(littered) as store:
        for ids in (IDS, OTHER, tokens(500, seed=5), tokens(400, seed=5)):
            assert restore(store, ids)[0].position == len(ids)
        # Files on disk are those that something reaches.
        report = store.report()
        assert len(files(littered, "*.[ks][vt]")) == report.blocks + report.checkpoints


def test_what_is_young_stays(tmp_path: Path) -> None:
    fill(tmp_path)
    orphan(tmp_path / "sessions-v1", 1)
    with opened(tmp_path) as store:
        store.save(save_of(tokens(BLOCK, seed=4), blocks=[0], checkpoint=False))
        assert store.flush(WAIT)
    report = plan(tmp_path)
    assert found(report) == {}
    assert report.seen.young == 1


def test_what_a_living_writer_has_announced_stays(tmp_path: Path, clock: Clock) -> None:
    gate = Gate("installed")
    store = ColdStore(tmp_path, failpoint=gate)
    store.save(save_of(IDS))
    assert gate.reached.wait(WAIT)
    temp = put(
        tmp_path / "sessions-v1" / "blobs" / "ab" / f".{'ab' * 32}.{store._writer._uuid}.tmp"
    )
    age(tmp_path, clock)
    clock.now += HOUR
    report = plan(tmp_path)
    assert found(report) == {}
    assert report.pending_writes == 4
    apply(tmp_path, report)
    gate.opened.set()
    assert store.flush(WAIT)
    assert restore(store, IDS)[0].position == 700
    assert temp.exists()
    assert store.close(WAIT)


def test_a_block_that_another_is_about_to_save_too_stays(tmp_path: Path, clock: Clock) -> None:
    """Its row, of a turn that was interrupted, is garbage; its file is there for both."""
    gate = Gate("installed")
    store = ColdStore(tmp_path, failpoint=gate)
    store.save(save_of(IDS))
    assert gate.reached.wait(WAIT)
    with opened(tmp_path) as other:
        other.save(save_of(IDS, blocks=[0], checkpoint=False))
        assert other.flush(WAIT)
    age(tmp_path, clock)
    clock.now += HOUR
    report = plan(tmp_path)
    assert found(report) == {"unreachable_blocks": 1}
    assert apply(tmp_path, report).kept == 1
    gate.opened.set()
    assert store.flush(WAIT)
    assert store.report().drops == {}
    assert restore(store, IDS)[0].position == 700
    assert store.close(WAIT)


def test_a_killed_writer_s_work_is_removed(tmp_path: Path) -> None:
    def child() -> None:
        gate = Gate("temp_written")
        ColdStore(tmp_path, failpoint=gate).save(save_of(IDS))
        gate.reached.wait(WAIT)
        os._exit(9)

    assert in_child(child) == 9
    assert len(files(tmp_path, ".*.tmp")) == 1
    assert set(found(plan(tmp_path))) == {"temporary_files", "dead_writers"}
    collect(tmp_path)
    assert not files(tmp_path, ".*.tmp")
    assert found(plan(tmp_path)) == {}


def test_what_came_into_use_after_the_report_stays(littered: Path) -> None:
    """Each thing that was garbage is wanted again before it is removed."""
    report = plan(littered, older_than=60)
    assert "evicted_states" in found(report)
    interrupted = tokens(2 * BLOCK, seed=4)
    with opened(littered) as store:
        assert store.missing(Chain(FINGERPRINT, interrupted)) == []
        save_turn(store, [*interrupted, 7], "went on")
        restore(store, OTHER)
        save_turn(store, tokens(300, seed=5), "a fork")
        assert store.flush(WAIT)
    done = apply(littered, report)
    assert done.kept >= 3
    with opened(littered) as store:
        for ids in ([*interrupted, 7], OTHER, tokens(300, seed=5)):
            assert restore(store, ids)[0].position == len(ids)
        assert restore(store, IDS)[0].position == 0


def test_a_state_that_another_conversation_names_meanwhile_stays(
    tmp_path: Path, clock: Clock
) -> None:
    """Within the second in which it was used last: the time does not tell."""
    fill(tmp_path)
    clock.now += HOUR
    report = plan(tmp_path, older_than=60)
    clock.now -= HOUR
    with opened(tmp_path) as store:
        save_turn(store, IDS, "copy")
    clock.now += HOUR
    apply(tmp_path, report)
    with opened(tmp_path) as store:
        assert restore(store, IDS)[0].position == 700
        assert [each.name for each in store.report().conversations] == ["copy"]


def test_an_orphan_that_a_writer_found_and_kept_stays(tmp_path: Path, clock: Clock) -> None:
    """Its bytes are right, so the writer does not write it again."""
    fill(tmp_path)
    with opened(tmp_path) as store:
        store._manifest.remove([], [row.key for row in store._manifest.checkpoints()], [])
    age(tmp_path, clock)
    clock.now += HOUR
    report = plan(tmp_path)
    assert found(report)["orphan_files"] == 2
    gate = Gate("announced")
    store = ColdStore(tmp_path, failpoint=gate)
    store.save(save_of(IDS, blocks=[]))
    assert gate.reached.wait(WAIT)
    done = apply(tmp_path, report)
    # The other's state and entry went, and all the blocks, which no state needed.
    assert (done.files, done.kept) == (2 + 4, 2)
    assert len(files(tmp_path)) == 2
    gate.opened.set()
    assert store.flush(WAIT)
    assert store.report().drops == {"line_gone": 1}
    save_turn(store, IDS)
    assert restore(store, IDS)[0].position == 700
    assert store.close(WAIT)


def test_a_reader_is_not_disturbed(tmp_path: Path, clock: Clock) -> None:
    """One that found a line before it went says so, one that has the files open reads on."""
    fill(tmp_path)
    age(tmp_path, clock)
    clock.now += HOUR
    with opened(tmp_path) as store:
        there = store.lookup(FINGERPRINT, IDS)
        assert there.position == 700
        assert collect(tmp_path, max_bytes=0).files == 8
        restored = store.read(there, Memory.of(700).place)
        assert (restored.position, restored.reason) == (0, "not_found")
        save_turn(store, IDS)
        assert restore(store, IDS)[0].position == 700
        assert store.flush(WAIT)
        age(tmp_path, clock)
        clock.now += HOUR

        memory = Memory.of(700)

        def place(header):  # type: ignore[no-untyped-def]
            collect(tmp_path, max_bytes=0)
            return memory.place(header)

        restored = store.read(store.lookup(FINGERPRINT, IDS), place)
        assert restored.position in (0, 700)
        assert files(tmp_path) == []


def test_between_two_steps_others_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, each step holds the manifest for a moment only."""
    fill(tmp_path)
    root = tmp_path / "sessions-v1"
    for number in range(3000):
        name = hashlib.blake2b(number.to_bytes(4, "big"), digest_size=32).hexdigest()
        path = root / "blobs" / name[:2] / f"{name}.kv"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(1100))
        os.utime(path, (1, 1))
    monkeypatch.setattr(removal_module, "HOLD_S", 0.0)
    report = plan(tmp_path)
    assert found(report) == {"orphan_files": 3000}
    assert report.nbytes == 3000 * 1100
    steps = 0
    with opened(tmp_path, write_busy_s=0.0) as other:

        def pause(held: float) -> bool:
            nonlocal steps
            steps += 1
            if steps % 500 == 0:
                save_turn(other, tokens(300, seed=steps), "meanwhile")
            return True

        assert apply(tmp_path, report, pause).files == 3000
        assert other.report().drops == {}
    assert steps == 3000


def test_it_can_be_stopped_and_begun_again(littered: Path) -> None:
    report = plan(littered)
    assert apply(littered, report, lambda held: False).stopped
    collect(littered)
    collect(littered)
    assert found(plan(littered)) == {}


def test_a_kill_at_any_removal_costs_nothing_that_is_kept(littered: Path) -> None:
    report = plan(littered, older_than=60)
    for at in range(0, 20, 3):
        copy = littered.parent / f"copy {at}"
        shutil.copytree(littered, copy)

        def child(copy: Path = copy, at: int = at) -> None:
            left = at
            unlink = os.unlink

            def unlink_or_die(*arguments: object, **options: object) -> None:
                nonlocal left
                if left == 0:
                    os._exit(9)
                left -= 1
                unlink(*arguments, **options)  # type: ignore[arg-type]

            os.unlink = unlink_or_die  # type: ignore[assignment]
            collect(copy)

        in_child(child)
        collect(copy)
        collect(copy)
        assert found(plan(copy)) == {}
        with opened(copy) as store:
            for ids in (IDS, OTHER, tokens(500, seed=5)):
                assert restore(store, ids)[0].position == len(ids)
        shutil.rmtree(copy)
    assert found(report)["evicted_states"] > 0


def test_what_cannot_be_removed_is_counted(littered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError("not yours")

    report = plan(littered)
    with monkeypatch.context() as patched:
        patched.setattr("os.unlink", refuse)
        with pytest.raises(StoreError, match="not yours"):  # the locks of the dead come first
            apply(littered, report)
    locks = littered / "sessions-v1" / "writers"
    shutil.rmtree(locks)
    with monkeypatch.context() as patched:
        patched.setattr("os.unlink", refuse)
        done = apply(littered, report)
    assert done.failed > 0
    assert "not yours" in done.error
    collect(littered)
    collect(littered)
    assert found(plan(littered)) == {}


def test_by_age_and_by_size(tmp_path: Path, clock: Clock) -> None:
    with opened(tmp_path) as store:
        for number in range(3):
            save_turn(store, tokens(700, seed=number), f"talk {number}")
            clock.now += HOUR
    age(tmp_path, clock)
    clock.now += HOUR
    one = sum(p.stat().st_size for p in files(tmp_path, "*.[ks][vt]")) // 3

    def left() -> set[str]:
        with opened(tmp_path) as store:
            return {each.name for each in store.report().conversations}

    assert found(plan(tmp_path, older_than=4.5 * HOUR)) == {}
    collect(tmp_path, older_than=3.5 * HOUR)
    assert left() == {"talk 1", "talk 2"}
    beside = plan(tmp_path).seen.nbytes - 2 * one
    collect(tmp_path, max_bytes=beside + one + one // 2)
    assert left() == {"talk 2"}


def test_a_clock_that_was_set_back(littered: Path, clock: Clock) -> None:
    """What is from the time to come is neither protected for ever nor a reason to remove more."""
    clock.now -= 1000 * HOUR
    assert found(plan(littered)) == EXPECTED
    collect(littered)
    collect(littered)
    assert found(plan(littered)) == {}
    with opened(littered) as store:
        for ids in (IDS, OTHER, tokens(500, seed=5)):
            assert restore(store, ids)[0].position == len(ids)


def test_lost_entries_are_written_again_so_that_the_manifest_may_be_lost_too(
    littered: Path,
) -> None:
    before = tree(littered)
    for path in files(littered, "*.json"):
        path.unlink()
    report = plan(littered)
    assert len(report.seen.unfiled) == report.told()["missing_entry_files"] == 6
    assert found(report)["rows_without_file"] == 2  # those of blocks and states
    full = replace(report, room=replace(report.room, free=0))
    assert apply(littered, full).rewritten == 0
    assert files(littered, "*.json") == []
    with opened(littered) as store:
        assert store.forget("other").conversations == 1
    assert apply(littered, report).rewritten == 6 - 2  # without the superseded, the forgotten
    collect(littered)
    after = tree(littered)
    kept = [str(path.relative_to(littered)) for path in files(littered, "*.json")]
    assert len(kept) == 3  # without the one without a state
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    (littered / "sessions-v1" / "manifest.sqlite").unlink()
    with opened(littered) as store:
        store.lookup(FINGERPRINT, IDS)
        assert store.reconciled(WAIT)
        assert [tip.position for tip in store.tips("talk")] == [700]
        assert [tip.position for tip in store.tips("long")] == [500, 400]


def test_a_lost_manifest_makes_nothing_garbage(tmp_path: Path, clock: Clock) -> None:
    fill(tmp_path)
    age(tmp_path, clock)
    clock.now += HOUR
    (tmp_path / "sessions-v1" / "manifest.sqlite").unlink()
    report = plan(tmp_path)
    assert found(report).keys() <= {"set_aside_manifests"}
    assert report.conversations == 2
    apply(tmp_path, report)
    with opened(tmp_path) as store:
        assert restore(store, IDS)[0].position == 700


def test_a_manifest_that_is_lost_after_the_report_stops_the_removal(littered: Path) -> None:
    report = plan(littered, older_than=60)
    apply(littered, report, lambda held: False)  # dead writers and the first step
    before = files(littered)
    (littered / "sessions-v1" / "manifest.sqlite").unlink()
    with pytest.raises(StoreError, match="rebuilding"):
        apply(littered, report)
    assert files(littered) == before


def other_version(cache_dir: Path, marker: bytes = b'{"store": "llm-mtplx", "format": 2}') -> Path:
    beside = cache_dir / "sessions-v2"
    put(beside / "STORE", marker)
    put(beside / "blobs" / "ab" / "whatever", b"y" * 1000)
    (beside / "link").symlink_to(cache_dir / "sessions-v1")
    return beside


def set_times(path: Path, when: float) -> None:
    for each in [path, *path.rglob("*")]:
        os.utime(each, (when, when), follow_symlinks=False)


def test_a_store_of_another_version_goes_after_thirty_days(tmp_path: Path, clock: Clock) -> None:
    fill(tmp_path)
    beside = other_version(tmp_path)
    set_times(beside, clock.now - 29 * 86_400)
    report = plan(tmp_path)
    assert sum(sibling.nbytes for sibling in report.siblings) > 1000
    assert report.room.stored > 1000 + report.seen.nbytes
    assert found(report) == {}
    set_times(beside, clock.now - 31 * 86_400)
    before = tree(tmp_path / "sessions-v1")
    assert found(plan(tmp_path)) == {"other_versions": 1}
    collect(tmp_path)
    assert not beside.exists()
    assert tree(tmp_path / "sessions-v1").keys() == before.keys()


def test_a_store_of_another_version_that_is_used_again_is_not_said_to_be_gone(
    tmp_path: Path, clock: Clock
) -> None:
    fill(tmp_path)
    beside = other_version(tmp_path)
    set_times(beside, 1)
    report = plan(tmp_path)
    os.utime(beside / "STORE", (clock.now, clock.now))
    done = apply(tmp_path, report)
    assert (done.files, done.nbytes, done.kept) == (0, 0, 1)
    assert beside.exists()


@pytest.mark.parametrize("marker", [b"", b'{"store": "another", "format": 2}'])
def test_a_directory_beside_the_store_that_is_not_ours_stays(tmp_path: Path, marker: bytes) -> None:
    fill(tmp_path)
    beside = other_version(tmp_path, marker)
    elsewhere = other_version(tmp_path / "elsewhere")
    (tmp_path / "sessions-v3").symlink_to(elsewhere)
    for path in (beside, elsewhere):
        set_times(path, 1)
    before = tree(beside), tree(elsewhere)
    assert plan(tmp_path).siblings == ()
    collect(tmp_path)
    assert (tree(beside), tree(elsewhere)) == before


@pytest.mark.parametrize("name", ["", "/", "..", "plain", "nothing", "link"])
def test_what_is_not_a_store_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "cache").mkdir()
    plain = tmp_path / "plain"
    put(plain / "blobs" / "ab" / f"{'ab' * 32}.kv")
    put(plain / "sessions-v1" / "blobs" / "ab" / f"{'ab' * 32}.kv")
    (tmp_path / "link").symlink_to(plain)
    for path in (plain / "blobs").rglob("*"):
        os.utime(path, (1, 1))
    before = tree(tmp_path)
    directory = Path(name) if name in ("", "/") else tmp_path / "cache" / name
    if name in ("plain", "link"):
        directory = tmp_path / name
    with pytest.raises(StoreError, match=r"store_absent|not_a_store"):
        collect(directory)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("place", ["blobs", "entries", "writers", "blobs/ab"])
def test_a_link_out_of_the_store_is_refused(tmp_path: Path, clock: Clock, place: str) -> None:
    fill(tmp_path)
    outside = tmp_path / "outside"
    for name in (f"{'ab' * 32}.kv", f"ab/{'ab' * 32}.kv", f"{'0' * 32}.lock"):
        put(outside / name)
    inside = tmp_path / "sessions-v1" / place
    if inside.exists():
        shutil.rmtree(inside)
    inside.symlink_to(outside)
    clock.now += HOUR
    before = tree(outside)
    with pytest.raises(StoreError, match="is not a directory"):
        collect(tmp_path)
    assert tree(outside) == before
    with opened(tmp_path) as store:
        restore(store, IDS)


def test_a_link_with_a_file_s_name_goes_and_not_what_it_leads_to(
    tmp_path: Path, clock: Clock
) -> None:
    fill(tmp_path)
    outside = put(tmp_path / "outside")
    link = orphan(tmp_path / "sessions-v1", 1)
    link.unlink()
    link.symlink_to(outside)
    age(tmp_path, clock)
    clock.now += HOUR
    assert collect(tmp_path).files == 1
    assert not link.is_symlink()
    assert outside.exists()


def test_files_of_others_below_the_store_are_left_alone(tmp_path: Path, clock: Clock) -> None:
    fill(tmp_path)
    root = tmp_path / "sessions-v1"
    strange = [
        put(root / "notes.txt"),
        put(root / "blobs" / "notes.txt"),
        put(root / "blobs" / "ab" / "notes.kv"),
        put(root / "blobs" / "ab" / f"{'cd' * 32}.kv"),  # in a place where none looks for it
        put(root / "blobs" / "ab" / f"{'ab' * 32}.kv" / "within"),
    ]
    age(tmp_path, clock)
    clock.now += HOUR
    report = plan(tmp_path)
    assert report.seen.unknown == 3
    apply(tmp_path, report)
    assert all(path.exists() for path in strange)


def test_a_plan_is_for_one_store_only(tmp_path: Path) -> None:
    for name in ("one", "two"):
        fill(tmp_path / name)
    with pytest.raises(ValueError):
        apply(tmp_path / "two", plan(tmp_path / "one"))


def test_the_store_itself_or_its_cache_directory_may_be_named(tmp_path: Path) -> None:
    fill(tmp_path)
    disk = tmp_path / "another disk é"
    (tmp_path / "sessions-v1").rename(disk)
    (tmp_path / "sessions-v1").symlink_to(disk)
    assert plan(tmp_path).path == plan(disk).path == str(disk)
    assert plan(tmp_path / "sessions-v1").conversations == 2
