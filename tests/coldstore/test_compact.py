"""Compaction: what is idle gets smaller and stays what it is, at any interruption."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from llm_mtplx.coldstore import (
    BLOCK,
    BlockRows,
    CheckpointState,
    ColdStore,
    Header,
    Save,
    Section,
    locks,
)
from llm_mtplx.coldstore.index.ledger import written_last_hour
from llm_mtplx.coldstore.keys import Chain
from llm_mtplx.coldstore.reader import read_head

from .lines import (
    FINGERPRINT,
    WAIT,
    Memory,
    files,
    flip_last,
    in_child,
    killer,
    opened,
    restore,
    save_of,
    tokens,
    write,
)

SYSTEM = tokens(2 * BLOCK)
ONE = [*SYSTEM, *tokens(500, seed=1)]
TWO = [*SYSTEM, *tokens(400, seed=2)]
ALL = -10.0  # seconds of idleness that everything has, whatever the clock's steps


def codecs(cache_dir: Path) -> dict[bytes, str]:
    found = {}
    for path in files(cache_dir, "*.kv"):
        with path.open("rb") as file:
            found[bytes.fromhex(path.stem)] = read_head(file.fileno()).header.codec
    return found


def on_disk(cache_dir: Path) -> int:
    return sum(path.stat().st_size for path in files(cache_dir, "*.[ks][vt]"))


def test_what_is_idle_is_packed_and_comes_back_bit_for_bit(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        write(store, ONE)
        before = on_disk(tmp_path)
        told = store.compact(ALL)
        assert (told.files, told.kept, told.finished) == (3, 0, True)
        assert before - told.freed == on_disk(tmp_path) == store.report().nbytes
        assert set(codecs(tmp_path).values()) == {"planes"}
        assert store.report().announced == 0
        assert not files(tmp_path, ".*")
        assert restore(store, ONE)[0].position == len(ONE)
        assert store.compact(ALL).files == 0
    with opened(tmp_path) as store:
        assert restore(store, ONE)[0].position == len(ONE)
        write(store, [*ONE, *tokens(300)])
        assert restore(store, [*ONE, *tokens(300)])[0].position == len(ONE) + 300


def test_a_packed_block_is_kept_by_a_writer_and_read_by_a_rebuilt_manifest(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        write(store, ONE)
        store.compact(ALL)
    inodes = [path.stat().st_ino for path in files(tmp_path, "*.kv")]
    (tmp_path / "sessions-v1" / "manifest.sqlite").unlink()
    with opened(tmp_path) as store:
        store.save(save_of(ONE))
        assert store.flush(WAIT)
        assert store.reconciled(WAIT)
        assert [path.stat().st_ino for path in files(tmp_path, "*.kv")] == inodes
        assert restore(store, ONE)[0].position == len(ONE)
        told = store.compact(ALL)
        assert (told.files, told.kept, told.finished) == (0, 0, True)
        assert store.report().nbytes == on_disk(tmp_path)


def test_what_a_live_conversation_needs_stays_raw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shared beginnings and a live conversation's older tips as well."""
    clock = 1000.0
    monkeypatch.setattr("time.time", lambda: clock)
    with opened(tmp_path) as store:
        write(store, ONE, "idle")
        write(store, TWO, "live")
        older = tokens(300, seed=5)
        write(store, older, "live")
        clock = 2000.0
        restore(store, TWO)
        assert store.flush(WAIT)
        assert store.compact(500).files == 1
        chain = Chain(FINGERPRINT, ONE)
        packed = {key for key, codec in codecs(tmp_path).items() if codec == "planes"}
        assert packed == {chain.key(3)}
        clock = 3000.0
        assert store.compact(500).files == 4
        clock = 500.0  # a clock that was set back: used in the future is not idle
        write(store, tokens(300, seed=6), "then")
        assert store.compact(100).files == 0


def test_what_would_not_shrink_is_looked_at_once(tmp_path: Path) -> None:
    ids = tokens(BLOCK)
    noise = Section("k", "bfloat16", (BLOCK, 8), [os.urandom(16 * BLOCK)])
    state = Section("state", "float32", (4,), [bytes(16)])
    with opened(tmp_path) as store:
        checkpoint = CheckpointState(BLOCK, [state])
        store.save(Save(Chain(FINGERPRINT, ids), [BlockRows(0, [noise])], checkpoint, "talk"))
        assert store.flush(WAIT)
        inode = files(tmp_path, "*.kv")[0].stat().st_ino
        assert store.compact(ALL).kept == 1
        assert store.compact(ALL).kept == 0
        assert files(tmp_path, "*.kv")[0].stat().st_ino == inode


def test_a_kill_at_any_step_leaves_every_file_whole(tmp_path: Path) -> None:
    original = tmp_path / "original"
    with opened(original) as store:
        write(store, ONE)
    steps: list[str] = []
    shutil.copytree(original, tmp_path / "dry")
    ColdStore(tmp_path / "dry", failpoint=steps.append).compact(ALL)
    assert set(steps) == {
        "announced", "temp_opened", "temp_written", "temp_synced", "installed", "committed"
    }  # fmt: skip
    for at in range(len(steps)):
        copy = tmp_path / str(at)
        shutil.copytree(original, copy)
        child = ColdStore(copy, failpoint=killer(at))
        assert in_child(lambda store=child: store.compact(ALL)) == -9
        with opened(copy) as store:
            assert restore(store, ONE)[0].position == len(ONE), steps[at]
            assert store.compact(ALL).finished
            assert restore(store, ONE)[0].position == len(ONE)
            assert store.report().nbytes == on_disk(copy)
            write(store, TWO)
            assert store.report().announced == 0
        assert list(codecs(copy).values()).count("planes") == 3
        assert not files(copy, ".*"), steps[at]
        assert not list((copy / "sessions-v1" / "writers").iterdir())


def test_a_reader_in_the_middle_goes_on(tmp_path: Path) -> None:
    """It has the file open that is replaced, and others to open yet."""
    with opened(tmp_path, readers=1) as store:
        write(store, ONE)
        memory = Memory.of(len(ONE))
        told = []

        def place(header: Header) -> list[memoryview]:
            if header.kind == "block" and not told:
                told.append(store.compact(ALL))
            return memory.place(header)

        restored = store.read(store.lookup(FINGERPRINT, ONE), place)
        assert (restored.position, restored.misses) == (len(ONE), ())
        assert told[0].files == 3
        again, expected = restore(store, ONE)
        assert again.position == len(ONE)
        assert (memory.k, memory.v, memory.state) == (expected.k, expected.v, expected.state)


class Once:
    """A failpoint that does something the first time a step is reached."""

    def __init__(self, step: str, action: Callable[[], object]) -> None:
        self._step = step
        self._action = action

    def __call__(self, name: str) -> None:
        if name == self._step:
            self._step = ""
            self._action()


def test_what_is_forgotten_meanwhile_does_not_come_back(tmp_path: Path) -> None:
    with opened(tmp_path) as other:
        write(other, ONE)
        packing = ColdStore(
            tmp_path, failpoint=Once("temp_synced", lambda: other.forget(everything=True))
        )
        told = packing.compact(ALL)
        assert (told.files, told.finished) == (0, True)
        assert files(tmp_path, "*") == []
        assert other.report().blocks == 0
        assert packing.close(WAIT)


def test_a_file_that_was_replaced_meanwhile_stays(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        write(store, ONE)
    first = next(p for p in files(tmp_path, "*.kv") if b'"start":0,' in p.read_bytes())

    def heal() -> None:
        content = first.read_bytes()
        first.rename(first.with_suffix(".old"))
        first.write_bytes(content)

    store = ColdStore(tmp_path, failpoint=Once("temp_synced", heal))
    assert store.compact(ALL).files == 2
    assert codecs(tmp_path)[bytes.fromhex(first.stem)] == "raw"
    assert store.compact(ALL).files == 1
    assert restore(store, ONE)[0].position == len(ONE)
    assert store.close(WAIT)


def test_a_damaged_block_is_dropped_not_packed(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        write(store, ONE)
        bad = files(tmp_path, "*.kv")[1]
        flip_last(bad)
        assert store.compact(ALL).files == 2
        assert not bad.exists()
        write(store, ONE)
        assert restore(store, ONE)[0].position == len(ONE)


def test_a_full_disk_ends_it_and_costs_nothing(tmp_path: Path) -> None:
    def full() -> None:
        raise OSError(28, "No space left on device")

    with opened(tmp_path) as store:
        write(store, ONE)
    store = ColdStore(tmp_path, failpoint=Once("temp_written", full))
    assert not store.compact(ALL).finished
    assert store.report().announced == 0
    assert not files(tmp_path, ".*")
    assert restore(store, ONE)[0].position == len(ONE)
    assert store.compact(ALL).files == 3
    assert store.close(WAIT)


def test_the_time_it_may_take_is_bounded(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        write(store, ONE)
        told = store.compact(ALL, seconds=0.0)
        assert (told.files, told.finished) == (0, False)


def test_upkeep_packs_in_the_background_until_it_is_told_to_stop(tmp_path: Path) -> None:
    limits = {"idle_s": ALL, "duty": 1.0}
    with opened(tmp_path) as store:
        write(store, ONE)
    with opened(tmp_path, **limits) as store:
        store._stop.set()
        store._background.tend()
        store._background.join(WAIT)
        assert set(codecs(tmp_path).values()) == {"raw"}
    with opened(tmp_path, **limits, tidy_every_s=0.0) as store:
        write(store, TWO)  # as any turn does
        store._background.join(WAIT)
        store._background.tend()
        store._background.join(WAIT)
        assert set(codecs(tmp_path).values()) == {"planes"}
        assert restore(store, ONE)[0].position == len(ONE)


def test_where_the_disk_is_short_less_idleness_is_enough(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        write(store, ONE)
    for floor, codec in ((0, "raw"), (1 << 60, "planes")):
        limits = {"short_idle_s": ALL, "free_floor_bytes": floor, "reconcile_every_s": 0.0}
        with opened(tmp_path, **limits, duty=1.0) as store:
            store._background.tend()
            store._background.join(WAIT)
            assert set(codecs(tmp_path).values()) == {codec}


def test_it_takes_no_more_than_half_of_the_bytes_an_hour(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        write(store, ONE)
        written = written_last_hour(store._manifest)
    with opened(tmp_path, write_budget_bytes=2 * (written + 15_000)) as store:
        told = store.compact(ALL)
        assert (told.files, told.finished) == (2, False)
        assert written_last_hour(store._manifest) == written + told.nbytes


def test_a_forked_child_holds_no_lock_of_its_parent(tmp_path: Path) -> None:
    """Else a parent that died would count as alive for as long as the child is."""
    with opened(tmp_path) as store:
        write(store, ONE)
        handle = store._writer._lock_handle
        assert handle is not None

        def child() -> None:
            with pytest.raises(OSError):
                os.fstat(handle)

        assert in_child(child) == 0
        assert not locks.is_dead(store._root, store._writer._uuid)
