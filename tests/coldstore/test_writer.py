"""The background writer: bounded, first writer wins, every failure counted, never in the way."""

import errno
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from llm_mtplx.coldstore import BLOCK, ColdStore, StoreLimits
from llm_mtplx.coldstore.entries import read_entry
from llm_mtplx.coldstore.keys import Chain
from llm_mtplx.coldstore.reasons import StoreError

from .lines import FINGERPRINT, WAIT, files, in_child, killer, opened, restore, save_of, tokens
from .lines import write as save_turn

IDS = tokens(700)


class Gate:
    """A failpoint that holds the writer at a step until it is opened."""

    def __init__(self, name: str) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()
        self._name = name

    def __call__(self, name: str) -> None:
        if name == self._name:
            self.reached.set()
            assert self.opened.wait(WAIT)


def failing(step: str, error: int, times: int = 1) -> Callable[[str], None]:
    left = times

    def failpoint(name: str) -> None:
        nonlocal left
        if name == step and left:
            left -= 1
            raise OSError(error, os.strerror(error))

    return failpoint


STEPS = [
    "announced",
    "temp_opened",
    "temp_written",
    "temp_synced",
    "installed",
    "entry_installed",
    "committed",
]


def test_the_queue_is_bounded_in_bytes(tmp_path: Path) -> None:
    gate = Gate("announced")
    store = ColdStore(tmp_path, StoreLimits(backlog_bytes=10_000), gate)
    small = save_of(IDS, blocks=[0], checkpoint=False)  # 4,096 bytes
    assert store.save(small) is None
    assert gate.reached.wait(WAIT)
    assert store.save(save_of(IDS, blocks=[BLOCK], checkpoint=False)) is None
    assert store.save(save_of(IDS)) == "backlog_full"
    assert store.report().drops == {"backlog_full": 1}
    assert store.report().pending_bytes == 8192
    gate.opened.set()
    assert store.flush(WAIT)
    assert store.report().pending_bytes == 0
    assert store.missing(Chain(FINGERPRINT, IDS)) == []
    assert store.close(WAIT)


def test_a_save_larger_than_the_whole_queue_gets_through_alone(tmp_path: Path) -> None:
    with opened(tmp_path, backlog_bytes=1) as store:
        save_turn(store, IDS)
        save_turn(store, tokens(700, seed=1))
        assert restore(store, IDS)[0].position == 700
        assert store.report().drops == {}


def test_flush_and_close_give_up_after_the_stated_time(tmp_path: Path) -> None:
    gate = Gate("temp_written")
    store = ColdStore(tmp_path, failpoint=gate)
    store.save(save_of(IDS))
    store.save(save_of(tokens(300, seed=1)))
    assert gate.reached.wait(WAIT)
    assert not store.flush(0.0)
    assert not store.close(0.0)
    assert store.save(save_of(tokens(300, seed=2))) == "closed"
    gate.opened.set()
    thread = store._writer._thread
    assert thread is not None
    thread.join(WAIT)
    # The queued save, the rest of the one under way, the one too late.
    assert store.report().drops == {"closed": 3}
    assert store.report().pending_bytes == 0
    with opened(tmp_path) as again:
        assert again.missing(Chain(FINGERPRINT, IDS)) == [BLOCK]
        assert again.report().announced == 0
    assert not files(tmp_path, ".*")


def test_one_time_is_stated_for_all_there_is_to_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate("temp_written")
    store = ColdStore(tmp_path, failpoint=gate)
    store.save(save_of(IDS))
    assert gate.reached.wait(WAIT)
    waits: list[float] = []
    monkeypatch.setattr(store._background, "join", waits.append)
    assert not store.close(0.01)
    assert waits == [0.0]  # the writer took all of it
    gate.opened.set()


@pytest.mark.parametrize("step", STEPS)
def test_a_full_disk_at_any_step_costs_that_save_and_nothing_else(
    tmp_path: Path, step: str
) -> None:
    with opened(tmp_path) as store:
        save_turn(store, IDS[:300])
    store = ColdStore(tmp_path, failpoint=failing(step, errno.ENOSPC))
    save_turn(store, IDS)
    report = store.report()
    assert report.drops == {"disk_full": 1}
    assert "No space left" in report.last_error
    assert report.announced == 0
    assert report.pending_bytes == 0
    assert not files(tmp_path, ".*")
    assert restore(store, IDS[:300])[0].position == 300
    save_turn(store, IDS)
    assert restore(store, IDS)[0].position == 700
    assert store.close(WAIT)


def test_an_unforeseen_error_is_counted_too(tmp_path: Path) -> None:
    def failpoint(name: str) -> None:
        raise RuntimeError("unforeseen")

    store = ColdStore(tmp_path, failpoint=failpoint)
    save_turn(store, IDS)
    assert store.report().drops == {"write_failed": 1}
    assert store.report().last_error == "unforeseen"
    assert store.close(WAIT)


ERRORS = [
    OSError(errno.EIO, os.strerror(errno.EIO)),
    OSError(errno.EROFS, os.strerror(errno.EROFS)),
    OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
    OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    StoreError("store_busy"),
    StoreError("line_gone"),
    StoreError("write_budget", "all of it"),
    ValueError("unforeseen"),
    MemoryError(),
    RecursionError("too deep"),
]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_saves_that_fail_are_one_line_a_process_and_counted(
    tmp_path: Path, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def failpoint(name: str) -> None:
        raise error

    store = ColdStore(tmp_path, failpoint=failpoint)
    for seed in range(3):
        save_turn(store, tokens(300, seed))
    (line,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert "answers are not affected" in line
    assert (str(error) or "MemoryError") in line
    counters = store.counters()
    assert sum(counters.drops.values()) == 3
    assert counters.last_error == (str(error) or "MemoryError")
    assert store.close(WAIT)


def test_what_is_given_up_at_the_end_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate("temp_written")
    store = ColdStore(tmp_path, failpoint=gate)
    store.save(save_of(IDS))
    store.save(save_of(tokens(300, seed=1)))
    assert gate.reached.wait(WAIT)
    assert not store.close(0.0)
    store.save(save_of(tokens(300, seed=2)))
    (line,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert "saving at exit" in line
    gate.opened.set()


def test_later_saves_are_written_whatever_fails_between_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a hostile row")

    monkeypatch.setattr("llm_mtplx.coldstore.writer.clear_dead_writers", fail)
    with opened(tmp_path) as store:
        for seed in range(2):
            save_turn(store, tokens(300, seed))
            assert restore(store, tokens(300, seed))[0].position == 300
    assert [r.getMessage() for r in caplog.records if "a hostile row" in r.getMessage()]


@pytest.mark.parametrize("what", ["upkeep", "rebuild"])
def test_work_in_the_background_that_fails_is_one_line(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a hostile row")

    with opened(tmp_path) as store:
        save_turn(store, IDS)
    monkeypatch.setattr("llm_mtplx.coldstore.upkeep.background.UPKEEP_AFTER_S", 0.0)
    monkeypatch.setattr("llm_mtplx.coldstore.upkeep.background.Upkeep.run", fail)
    monkeypatch.setattr("llm_mtplx.coldstore.upkeep.background.rebuild", fail)
    if what == "rebuild":
        for file in store.path.glob("manifest*"):
            file.unlink()
    store = ColdStore(tmp_path, StoreLimits(tidy_every_s=0.0))
    for _ in range(2):
        if what == "rebuild":
            assert restore(store, IDS)[0].position == 0
            assert store.reconciled(WAIT)
        else:
            store.tend()
            store._background.join(WAIT)
    (line,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert "a hostile row" in line
    assert store.counters().last_error == "a hostile row"
    assert store.close(WAIT)


@pytest.mark.parametrize("refusal", [errno.EPERM, errno.ENOTSUP, errno.EMLINK])
def test_a_file_system_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(os, "link", refuse)
    with opened(tmp_path) as store:
        save_turn(store, IDS)
        assert restore(store, IDS)[0].position == 700
        assert not files(tmp_path, ".*")


def test_two_writers_of_the_same_files(tmp_path: Path) -> None:
    """Both have announced and written before either installs: the first stays."""
    first, second = Gate("temp_synced"), Gate("temp_synced")
    one, two = ColdStore(tmp_path, failpoint=first), ColdStore(tmp_path, failpoint=second)
    one.save(save_of(IDS, "one"))
    assert first.reached.wait(WAIT)
    two.save(save_of(IDS, "two"))
    assert second.reached.wait(WAIT)
    first.opened.set()
    assert one.flush(WAIT)
    inodes = {path: path.stat().st_ino for path in files(tmp_path)}
    assert one.report().announced == 4
    second.opened.set()
    assert two.flush(WAIT)
    assert {path: path.stat().st_ino for path in files(tmp_path) if path in inodes} == inodes
    assert one.report().announced == 0
    assert two.report().written_files == 1  # its own entry
    assert restore(two, IDS)[0].position == 700
    assert {c.name for c in two.report().conversations} == {"one", "two"}
    assert one.close(WAIT)
    assert two.close(WAIT)


def test_a_kill_at_any_step_loses_at_most_the_turn_in_flight(tmp_path: Path) -> None:
    steps: list[str] = []
    store = ColdStore(tmp_path / "dry", failpoint=steps.append)
    save_turn(store, IDS[:300])
    del steps[:]
    save_turn(store, IDS)
    assert store.close(WAIT)
    assert set(steps) == set(STEPS)
    for at in range(len(steps)):
        cache_dir = tmp_path / str(at)
        with opened(cache_dir) as before:
            save_turn(before, IDS[:300])

        def child(cache_dir: Path = cache_dir, at: int = at) -> None:
            save_turn(ColdStore(cache_dir, failpoint=killer(at)), IDS)

        assert in_child(child) == -9, steps[at]
        with opened(cache_dir) as after:
            assert restore(after, IDS)[0].position in (300, 700), steps[at]
            assert restore(after, IDS[:300])[0].position == 300
            save_turn(after, IDS)
            assert restore(after, IDS)[0].position == 700
        with opened(cache_dir) as later:
            assert restore(later, IDS)[0].position == 700
            assert [tip.position for tip in later.tips("talk")] == [700, 300]
            assert later.report().announced == 0
        assert not files(cache_dir, ".*"), steps[at]
        assert not list((cache_dir / "sessions-v1" / "writers").iterdir())


def test_a_writer_whose_lock_is_gone_is_dead(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        save_turn(store, IDS)
    with opened(tmp_path) as store:
        store._manifest.announce("block", [bytes(32)], "0" * 32)
        assert store.report().announced == 1
        save_turn(store, tokens(300, seed=1))
    with opened(tmp_path) as store:
        assert store.report().announced == 0


def test_what_was_committed_before_a_kill_is_not_written_again(tmp_path: Path) -> None:
    def child() -> None:
        count = 0

        def failpoint(name: str) -> None:
            nonlocal count
            count += name == "committed"
            if count == 2:
                os.kill(os.getpid(), 9)

        save_turn(ColdStore(tmp_path, failpoint=failpoint), IDS)

    assert in_child(child) == -9
    with opened(tmp_path) as store:
        assert store.missing(Chain(FINGERPRINT, IDS)) == []
        save_turn(store, IDS)
        assert store.report().written_files == 2  # checkpoint and entry


def test_a_file_without_a_row_is_kept_and_not_written_again(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        save_turn(store, IDS)
        store._manifest.remove([row.key for row in store._manifest.blocks()], [], [])
    steps: list[str] = []
    store = ColdStore(tmp_path, failpoint=steps.append)
    save_turn(store, IDS)
    assert steps.count("committed") == 3  # two blocks, and the tip again
    assert "temp_opened" not in steps
    assert restore(store, IDS)[0].position == 700
    assert store.close(WAIT)


def test_a_damaged_entry_is_written_anew(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        save_turn(store, IDS)
    (entry,) = files(tmp_path, "*.json")
    content = entry.read_bytes()
    for damaged in (b"", content[:-1], content[:-1] + bytes([content[-1] ^ 1]), b"{}"):
        entry.write_bytes(damaged)
        with opened(tmp_path) as store:
            save_turn(store, IDS)
        # The time it was made differs: what counts is that it can be read.
        with entry.open("rb") as file:
            read = read_entry(file.fileno(), bytes.fromhex(entry.stem))
        assert (read.conversation, read.position) == ("talk", 700)


def test_a_living_writer_s_announcements_stay(tmp_path: Path) -> None:
    gate = Gate("temp_written")
    one = ColdStore(tmp_path, failpoint=gate)
    one.save(save_of(IDS, "one"))
    assert gate.reached.wait(WAIT)
    with opened(tmp_path) as two:
        save_turn(two, tokens(300, seed=4), "two")
    assert one.report().announced == 4
    assert len(files(tmp_path, ".*.tmp")) == 1
    gate.opened.set()
    assert one.close(WAIT)
    with opened(tmp_path) as again:
        assert restore(again, IDS)[0].position == 700
