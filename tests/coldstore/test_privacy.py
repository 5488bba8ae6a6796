"""What is forgotten can be read nowhere any more, and nothing private goes to a log."""

import logging
import os
import sqlite3
import subprocess
import threading
from pathlib import Path

import pytest

from llm_mtplx.coldstore import BLOCK, ColdStore
from llm_mtplx.coldstore.blobs import Blobs
from llm_mtplx.coldstore.index import connection
from llm_mtplx.coldstore.keys import Chain, pack_ids

from .lines import (
    FINGERPRINT,
    WAIT,
    files,
    flip_last,
    in_child,
    killer,
    opened,
    restore,
    rows_of,
    save_of,
    state_of,
    tokens,
    write,
)
from .test_writer import Gate

SYSTEM = tokens(2 * BLOCK)
ONE = [*SYSTEM, *tokens(700, seed=1)]
TWO = [*SYSTEM, *tokens(400, seed=2)]
NAME = "conversation-of-alice"
EVERYTHING_IDLE = -10.0


def bytes_below(cache_dir: Path) -> dict[str, bytes]:
    """All there is, names included. SQLite's files are read by another process: closing a handle
    of one here would drop its locks."""
    found = {}
    for path in cache_dir.rglob("*"):
        if path.is_file():
            content = subprocess.check_output(["cat", path])
            found[path.name] = path.name.encode() + b"\0" + content
    return found


def needles(ids: list[int], start: int) -> dict[str, bytes]:
    """What would give positions from ``start`` away: ids in any spelling, keys, rows, state."""
    chain, some = Chain(FINGERPRINT, ids), ids[start + 5 : start + 9]
    keys = [chain.key(i + 1) for i in range(start // BLOCK, len(ids) // BLOCK)]
    keys.append(chain.checkpoint(len(ids)))
    return {
        "name": NAME.encode(),
        "ids": ",".join(map(str, some)).encode(),
        "ids in the tail": ",".join(map(str, ids[-4:])).encode(),
        "packed ids": pack_ids(some),
        "row": rows_of(ids)[start + 120][:8],
        "state": state_of(ids),
        **{f"key {i}": key for i, key in enumerate(keys)},
        **{f"hex key {i}": key.hex().encode() for i, key in enumerate(keys)},
    }


def traces(cache_dir: Path, ids: list[int], start: int) -> set[str]:
    everything = b"\0".join(bytes_below(cache_dir).values())
    return {what for what, needle in needles(ids, start).items() if needle in everything}


@pytest.fixture
def careless_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    """As most SQLites are, and some are not: what is deleted stays readable unless it is told."""
    opened_before = connection._sqlite

    def careless(uri: str, busy_s: float) -> sqlite3.Connection:
        sql = opened_before(uri, busy_s)
        sql.execute("PRAGMA secure_delete = OFF")
        return sql

    monkeypatch.setattr(connection, "_sqlite", careless)


@pytest.mark.usefixtures("careless_sqlite")
@pytest.mark.parametrize("packed", [False, True])
def test_no_byte_of_what_is_forgotten_stays(tmp_path: Path, packed: bool) -> None:
    with opened(tmp_path) as store:
        write(store, ONE[:600], NAME)
        write(store, ONE, NAME)
        write(store, TWO, "two")
        if packed:
            assert store.compact(EVERYTHING_IDLE).files == 5
        there = {"packed ids", *(["row"] if packed else [])}  # ids are spelled in decimal
        assert traces(tmp_path, ONE, len(SYSTEM)) == needles(ONE, len(SYSTEM)).keys() - there
        gone = store.forget(NAME)
        assert gone.wal_truncated
        assert (gone.blocks, gone.shared_blocks) == (2, 2)
        assert traces(tmp_path, ONE, len(SYSTEM)) == set()
        assert restore(store, TWO)[0].position == len(TWO)
        store.forget(everything=True)
        assert traces(tmp_path, TWO, 0) == set()


def test_what_a_killed_writer_left_half_written_goes_too(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        write(store, ONE[:600], NAME)

    def child() -> None:
        write(ColdStore(tmp_path, failpoint=killer(3)), ONE, NAME)

    assert in_child(child) == -9
    assert files(tmp_path, ".*.tmp")
    with opened(tmp_path) as store:
        assert store.forget(NAME).conversations == 1
        assert not files(tmp_path, "*")
        assert traces(tmp_path, ONE, 0) == set()


def test_what_another_saves_meanwhile_is_kept_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second conversation ends at the same place just as the first one's files go."""
    unlink = Blobs.unlink
    with opened(tmp_path) as store, opened(tmp_path) as other:
        write(store, ONE, NAME)
        saved = threading.Event()

        def save() -> None:
            other.save(save_of(ONE, "two"))
            assert other.flush(WAIT)
            saved.set()

        saver = threading.Thread(target=save)

        def unlink_and_save(*arguments: object) -> None:
            if saver.ident is None:
                saver.start()
                # It must wait; where it does not, it says it is done before the rows go.
                saved.wait(0.3)
            unlink(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(Blobs, "unlink", unlink_and_save)
        assert store.forget(NAME).conversations == 1
        saver.join(WAIT)
        assert other.report().drops == {}
        assert restore(other, ONE)[0].position == len(ONE)
        assert [c.name for c in other.report().conversations] == ["two"]


def test_a_file_announced_by_a_living_writer_is_left_to_it(tmp_path: Path) -> None:
    """It is about to be said to be saved, by another, and may be in place already."""
    reached, go = threading.Event(), threading.Event()

    def failpoint(name: str) -> None:
        if name == "installed" and not go.is_set():
            reached.set()
            assert go.wait(WAIT)

    with opened(tmp_path) as store:
        write(store, SYSTEM, NAME)
        other = ColdStore(tmp_path, failpoint=failpoint)
        other.save(save_of(TWO, "two", [2 * BLOCK]))
        assert reached.wait(WAIT)  # before its row is there
        assert store.forget(everything=True).conversations == 1
        go.set()
        assert other.flush(WAIT)
        # Its own file is whole; the beginning, which it had found stored, is missing again.
        assert [path.stem for path in files(tmp_path, "*.kv")] == [
            Chain(FINGERPRINT, TWO).key(3).hex()
        ]
        assert other.missing(Chain(FINGERPRINT, TWO)) == [0, BLOCK]
        write(other, TWO, "two")
        assert restore(other, TWO)[0].position == len(TWO)
        assert other.close(WAIT)


def test_what_another_is_about_to_save_too_is_left_to_it(tmp_path: Path) -> None:
    """Both found it missing: one had saved it, and forgets it, before the other was done."""
    gate = Gate("installed")
    other = ColdStore(tmp_path, failpoint=gate)
    other.save(save_of(ONE, "two"))
    assert gate.reached.wait(WAIT)
    with opened(tmp_path) as store:
        write(store, ONE, NAME)
        assert store.forget(NAME).conversations == 1
    gate.opened.set()
    assert other.flush(WAIT)
    assert other.report().drops == {}
    assert restore(other, ONE)[0].position == len(ONE)
    assert other.close(WAIT)


def test_no_log_tells_ids(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever goes wrong with the files."""
    caplog.set_level(logging.DEBUG)
    with opened(tmp_path) as store:
        write(store, ONE[:600], NAME)
        write(store, ONE, NAME)
        for path in files(tmp_path, "*.st"):
            flip_last(path)
        restore(store, ONE)
        for path in files(tmp_path, "*.kv"):
            path.write_bytes(path.read_bytes()[:100])
        restore(store, ONE, needs_checkpoint=False)
        store.save(save_of(ONE, NAME))
        assert store.flush(WAIT)
        store.compact(EVERYTHING_IDLE)
        os.unlink(files(tmp_path, "*.st")[0])
        restore(store, ONE)
        for path in store.path.glob("manifest.sqlite"):
            path.unlink()
        restore(store, ONE)
        assert store.reconciled(WAIT)
    told = [record.getMessage() for record in caplog.records]
    assert any("corrupt" in line for line in told)
    spelled = {str(token) for token in ONE if token >= 10_000}
    for line in told:
        words = line.replace(",", " ").replace("[", " ").replace("]", " ").split()
        assert not spelled & set(words), line
        assert NAME not in line
