"""Several processes at once, and a manifest with any byte of it changed."""

import contextlib
import json
import os
import random
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_mtplx.coldstore import BLOCK, ColdStore, Collector, StoreLimits, store_root
from llm_mtplx.coldstore.keys import Chain
from llm_mtplx.coldstore.reader import OpenFile, read_head
from llm_mtplx.coldstore.reasons import StoreError
from llm_mtplx.coldstore.upkeep.schedule import Upkeep

from .lines import WAIT, files, opened, restore, save_of, tokens, write

SYSTEM = tokens(BLOCK + 30)
PATIENT = StoreLimits(busy_s=WAIT)  # however slow the machine


def work(cache_dir: Path, number: int) -> None:
    """A conversation of its own and one that all share, turn by turn, in fresh stores."""
    for turn in range(1, 5):
        store = ColdStore(cache_dir, PATIENT)
        for name, seed in ((f"talk {number}", number), ("shared", 99)):
            ids = [*SYSTEM, *tokens(turn * 170, seed)]
            restore(store, ids)
            write(store, ids, name)
            assert restore(store, ids)[0].position == len(ids)
        assert store.report().drops == {}
        assert store.close(WAIT)


def test_processes_that_begin_a_store_and_go_on_at_once(tmp_path: Path) -> None:
    children = []
    for number in range(4):
        pid = os.fork()
        if pid == 0:
            try:
                work(tmp_path, number)
            except BaseException:
                os._exit(1)
            os._exit(0)
        children.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0] * 4
    with opened(tmp_path) as store:
        for seed in (0, 1, 2, 3, 99):
            ids = [*SYSTEM, *tokens(4 * 170, seed)]
            assert restore(store, ids)[0].position == len(ids)
        assert len(store.report().conversations) == 5
        assert store.report().announced == 0
    assert not files(tmp_path, ".*")


def go_on(cache_dir: Path, number: int, counted: Path) -> None:
    """Conversations that go on, begin and are forgotten; what was reported saved is there."""
    draw = random.Random(number)
    lines: dict[str, list[int]] = {}
    for turn in range(6):
        store = ColdStore(cache_dir, PATIENT)
        store.tend()
        name = f"talk {number} {draw.randrange(2)}"
        seed = 1000 * number + 10 * turn
        ids = [*lines.get(name, SYSTEM), *tokens(draw.randrange(30, 400), seed)]
        restore(store, ids)
        missing = store.missing(Chain("model-a", ids))
        assert store.save(save_of(ids, name, missing)) is None
        assert store.flush(WAIT)
        drops = store.report().drops
        if not drops:
            lines[name] = ids
        # What it built on may be forgotten between asking and writing; it is said so.
        assert drops.keys() <= {"line_gone"}, drops
        if draw.random() < 0.3 and lines:
            gone = draw.choice(sorted(lines))
            assert store.forget(gone).reason is None
            del lines[gone]
        for each in lines.values():
            assert restore(store, each)[0].position == len(each)
        assert store.close(WAIT)
    counted.write_text(json.dumps(list(lines.values())))


def clean(cache_dir: Path, until: Path) -> None:
    """Collect and reconcile as if nothing were ever young, until all others have ended."""
    eager = StoreLimits(write_busy_s=WAIT, grace_s=0.0, duty=1.0, reconcile_every_s=0.0)
    deadline = time.monotonic() + 10 * WAIT  # whoever was to end it may have failed
    while not until.exists():
        assert time.monotonic() < deadline
        with contextlib.suppress(StoreError):  # there is no store yet
            collector = Collector(store_root(cache_dir), eager)
            collector.apply(collector.plan_gc(), lambda held: True)
            collector.close()
        Upkeep(store_root(cache_dir), eager, threading.Event()).run()


def test_eight_processes_go_on_begin_and_forget_while_others_clean(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("stays")
    until = tmp_path / "until"
    cleaners = [fork(lambda: clean(tmp_path, until)) for _ in range(2)]
    workers = [fork(lambda n=n: go_on(tmp_path, n, tmp_path / f"{n}.json")) for n in range(8)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in workers]
    until.touch()
    codes += [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in cleaners]
    assert codes == [0] * 10
    with opened(tmp_path) as store:
        for number in range(8):
            for ids in json.loads((tmp_path / f"{number}.json").read_text()):
                assert restore(store, ids)[0].position == len(ids)
        assert store.report().announced == 0
    assert (outside / "file").read_text() == "stays"
    assert not files(tmp_path, ".*")


def keep_saving(cache_dir: Path, number: int, turn: int, told: int) -> None:
    """Turn after turn of one conversation; a byte for each that was saved."""
    store = ColdStore(cache_dir, PATIENT)
    while True:
        ids = line_of(number, turn)
        restore(store, ids)
        write(store, ids, f"talk {number}")
        assert store.report().drops == {}
        os.write(told, b"x")
        turn += 1


def line_of(number: int, turns: int) -> list[int]:
    return [*SYSTEM, *tokens(90 * turns, number)]


def test_processes_killed_at_any_time_under_load_lose_the_turn_in_flight(tmp_path: Path) -> None:
    draw = random.Random(1)
    saved = [0] * 4
    for _ in range(6):
        living = []
        for number, turns in enumerate(saved):
            told, telling = os.pipe()
            pid = fork(lambda n=number, t=turns, w=telling: keep_saving(tmp_path, n, t + 1, w))
            os.close(telling)
            living.append((number, pid, told))
        pace = living[0][2]
        try:
            while living:
                number, pid, told = living[-1]
                saved[number] += len(os.read(told, 1))
                # Killed wherever it is when another, at a pace of its own, has come so far.
                for _ in range(draw.randrange(6)):
                    saved[0] += len(os.read(pace, 1))
                os.kill(pid, signal.SIGKILL)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                living.pop()
                assert code == -signal.SIGKILL
                while more := os.read(told, 4096):
                    saved[number] += len(more)
                os.close(told)
        finally:
            for _, pid, _ in living:
                os.kill(pid, signal.SIGKILL)
        for path in files(tmp_path, "*.[ks][vt]"):
            with path.open("rb") as file:
                OpenFile(file.fileno(), read_head(file.fileno()), 0).verify()
        with opened(tmp_path) as store:
            for number, turns in enumerate(saved):
                ids = line_of(number, turns)
                assert restore(store, ids)[0].position == len(ids)
            assert not any(store.report().misses)
    with opened(tmp_path) as store:
        write(store, tokens(300), "after")
        assert store.flush(WAIT)
    with opened(tmp_path) as store:
        assert store.report().announced == 0
    assert not files(tmp_path, ".*")


def fork(action: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            action()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return pid


def spoil(name: str) -> Callable[[Path, Path], None]:
    def fault(path: Path, other: Path) -> None:
        data = bytearray(path.read_bytes())
        if name == "flipped" and data:
            data[len(data) // 2] ^= 1
        elif name == "truncated":
            data = data[: len(data) // 2]
        elif name == "zeroed":
            data = bytearray(len(data))
        elif name == "replaced":
            data = bytearray(other.read_bytes())
        path.write_bytes(data)
        if name == "deleted":
            path.unlink()

    return fault


@pytest.mark.parametrize("name", ["flipped", "truncated", "zeroed", "replaced", "deleted"])
def test_every_file_of_a_store_spoiled_one_by_one(saved: Path, name: str) -> None:
    """Those that are no blobs included: never a wrong state, never an error, and a save heals."""
    held = ColdStore(saved)
    restore(held, tokens(700))  # so that the manifest's journal is there too
    original = saved.with_name("original")
    shutil.copytree(saved, original)
    held.close(WAIT)
    paths = sorted(p.relative_to(original) for p in original.rglob("*") if p.is_file())
    assert len(paths) > 12
    for at, path in enumerate(paths):
        copy = saved.with_name("spoiled")
        shutil.copytree(original, copy)
        spoil(name)(copy / path, original / paths[at - 1])
        with opened(copy) as store:
            restored = restore(store, tokens(700))[0]
            store.tips("talk")
            store.report()
            assert store.reconciled(WAIT)
            assert restored.position or restored.reason not in (None, "not_found")
            if restored.reason in ("store_absent", "not_a_store", "other_version"):
                assert path.name == "STORE", path
            else:
                save_and_check(store)
        shutil.rmtree(copy)
    shutil.rmtree(original)


def save_and_check(store: ColdStore) -> None:
    """One save may be lost in finding a damaged manifest out."""
    for _ in range(2):
        store.save(save_of(tokens(700), "talk", store.missing(Chain("model-a", tokens(700)))))
        assert store.flush(WAIT)
        assert store.reconciled(WAIT)
    assert restore(store, tokens(700))[0].position == 700


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cache_dir = tmp_path_factory.mktemp("saved")
    with opened(cache_dir) as store:
        write(store, tokens(300), "talk")
        write(store, tokens(700), "talk")
        write(store, tokens(400, seed=1), "other")
    return cache_dir


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**20), st.integers(1, 255)), min_size=1, max_size=40))
def test_no_byte_of_the_manifest_can_do_harm(saved: Path, changes: list[tuple[int, int]]) -> None:
    """What is restored is right, nothing is raised; one save may be lost in finding out."""
    copy = saved.with_name("copy")
    shutil.copytree(saved, copy)
    try:
        path = copy / "sessions-v1" / "manifest.sqlite"
        data = bytearray(path.read_bytes())
        used = [at for at in range(len(data)) if data[at]]
        for where, value in changes:
            data[used[where % len(used)]] ^= value
        path.write_bytes(data)
        before = {p: p.read_bytes() for p in files(copy)}
        for _ in range(2):
            with opened(copy) as store:
                restore(store, tokens(700))
                restore(store, tokens(700), needs_checkpoint=False)
                store.tips("talk")
                store.report()
                store.missing(Chain("model-a", tokens(700)))
                assert store.reconciled(WAIT)
                assert {p: p.read_bytes() for p in files(copy)} == before
        with opened(copy) as store:
            write(store, tokens(700), "talk")
            restore(store, tokens(700))
            assert store.reconciled(WAIT)
        with opened(copy) as store:
            write(store, tokens(700), "talk")
            assert restore(store, tokens(700))[0].position == 700
            assert store.report().drops == {}
    finally:
        shutil.rmtree(copy)
