"""The manifest can be lost, garbled, held or from the future: nothing but time is lost."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from llm_mtplx.coldstore import ColdStore, StoreLimits
from llm_mtplx.coldstore.index.manifest import Manifest
from llm_mtplx.coldstore.index.schema import MIGRATIONS, check_schema, migrate
from llm_mtplx.coldstore.keys import Chain
from llm_mtplx.coldstore.root import StoreRoot

from .lines import FINGERPRINT, WAIT, files, opened, restore, save_of, tokens, write

ONE, TWO = tokens(700), tokens(600, seed=2)


def make(cache_dir: Path) -> Path:
    with opened(cache_dir) as store:
        write(store, ONE[:300], "one")
        write(store, ONE, "one")
        write(store, TWO, "two")
    return cache_dir / "sessions-v1" / "manifest.sqlite"


def delete(path: Path) -> None:
    path.unlink()


def garble(path: Path) -> None:
    path.write_bytes(os.urandom(path.stat().st_size))


def garble_pages(path: Path) -> None:
    """The first page stays, so that the damage shows only when tables are read."""
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))


def truncate(path: Path) -> None:
    os.truncate(path, 4096)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def from_the_future(path: Path) -> None:
    with sqlite3.connect(path) as sql:
        sql.execute("INSERT INTO migrations VALUES ('9999-later', 0)")
    sql.close()


def of_no_version(path: Path) -> None:
    """As one damaged byte makes it."""
    with sqlite3.connect(path) as sql:
        sql.execute("UPDATE migrations SET name = NULL")
    sql.close()


def of_another_program(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as sql:
        sql.execute("CREATE TABLE notes (text)")
    sql.close()


def half_made(path: Path) -> None:
    """By a process that was killed; its damaged version number says that it is read-only."""
    path.unlink()
    with sqlite3.connect(path) as sql:
        sql.execute("VACUUM")
    sql.close()
    with path.open("r+b") as file:
        file.seek(18)
        file.write(b"\3")


LOSSES = [
    delete,
    garble,
    garble_pages,
    truncate,
    empty,
    from_the_future,
    of_no_version,
    of_another_program,
    half_made,
]


@pytest.mark.parametrize("loss", LOSSES)
def test_a_lost_manifest_is_rebuilt_and_nothing_is_wiped(
    tmp_path: Path, loss: Callable[[Path], None]
) -> None:
    path = make(tmp_path)
    before = {p: p.read_bytes() for p in files(tmp_path)}
    loss(path)
    with opened(tmp_path) as store:
        # The first look may be the one that finds the damage.
        first, second = store.lookup(FINGERPRINT, ONE), store.lookup(FINGERPRINT, ONE)
        assert first.position == 700 or first.reason in ("rebuilding", "store_unavailable")
        assert second.position == 700 or second.reason == "rebuilding"
        assert store.reconciled(WAIT)
        assert restore(store, ONE)[0].position == 700
        assert restore(store, TWO)[0].position == 600
        assert [tip.position for tip in store.tips("one")] == [700, 300]
        assert store.report().set_aside == (0 if loss in (delete, empty) else 1)
        assert not store.report().rebuilding
    assert {p: p.read_bytes() for p in files(tmp_path)} == before


def test_a_save_finds_out_that_an_index_of_the_manifest_is_damaged(tmp_path: Path) -> None:
    """The rows are right, and one of them is not found any more."""
    path = make(tmp_path)
    sql = sqlite3.connect(path)
    query = "SELECT rootpage, page_size FROM sqlite_master, pragma_page_size WHERE name = ?"
    page, size = sql.execute(query, ("checkpoints_of",)).fetchone()
    sql.close()
    data = bytearray(path.read_bytes())
    at = data.index(Chain(FINGERPRINT, ONE).key(2), (page - 1) * size, page * size)
    data[at] ^= 1
    path.write_bytes(data)
    with opened(tmp_path) as store:
        assert store.lookup(FINGERPRINT, ONE).position == 300
        store.save(save_of(ONE, "one", []))
        assert store.flush(WAIT)
        assert store.report().drops == {"store_unavailable": 1}
        store.lookup(FINGERPRINT, ONE)
        assert store.reconciled(WAIT)
        assert restore(store, ONE)[0].position == 700
        assert store.report().set_aside == 1


def test_a_rebuild_takes_no_file_at_its_name(tmp_path: Path) -> None:
    """Files that contradict their names, and names that are none, make no rows."""
    path = make(tmp_path)
    tip, other = files(tmp_path, "*.st")[:2]
    shutil.copyfile(other, tip)
    entry, other_entry = files(tmp_path, "*.json")[:2]
    shutil.copyfile(other_entry, entry)
    (tip.parent / "notes.st").write_text("x")
    (tip.parent / f"{'0' * 64}.st").write_bytes(tip.read_bytes())
    path.unlink()
    with opened(tmp_path) as store:
        store.lookup(FINGERPRINT, ONE)
        assert store.reconciled(WAIT)
        assert store.report().checkpoints == 2
        assert store.report().blocks == 4
        assert len(store._manifest.entries()) == 2


def test_a_rebuild_that_was_interrupted_is_begun_again(tmp_path: Path) -> None:
    path = make(tmp_path)
    path.unlink()
    store = ColdStore(tmp_path)
    store._stop.set()
    store.lookup(FINGERPRINT, ONE)
    store.close(WAIT)
    with opened(tmp_path) as store:
        assert store.lookup(FINGERPRINT, ONE).reason == "rebuilding"
        assert store.reconciled(WAIT)
        assert restore(store, ONE)[0].position == 700


def test_a_manifest_lost_under_an_open_store(tmp_path: Path) -> None:
    path = make(tmp_path)
    with opened(tmp_path) as store:
        assert store.lookup(FINGERPRINT, ONE).position == 700
        path.unlink()
        assert store.lookup(FINGERPRINT, ONE).position in (0, 700)
        assert store.reconciled(WAIT)
        assert store.lookup(FINGERPRINT, ONE).position == 700
        write(store, tokens(300, seed=5), "three")
        assert restore(store, tokens(300, seed=5))[0].position == 300


def test_a_lost_manifest_s_journal_is_not_replayed(tmp_path: Path) -> None:
    path = make(tmp_path)
    stale = path.with_name("manifest.sqlite-wal")
    path.unlink()
    stale.write_bytes(b"stale")
    with opened(tmp_path) as store:
        store.lookup(FINGERPRINT, ONE)
        assert store.reconciled(WAIT)
        assert restore(store, ONE)[0].position == 700
    assert b"stale" in [p.read_bytes() for p in path.parent.glob("*.set-aside-*-wal")]


def test_a_manifest_held_by_another_process_is_a_miss(tmp_path: Path) -> None:
    path = make(tmp_path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    holder.execute("DELETE FROM writing")
    try:
        with opened(tmp_path, busy_s=0.0, write_busy_s=0.0) as store:
            found = store.lookup(FINGERPRINT, ONE)
            assert (found.position, found.reason) == (0, "store_busy")
            assert store.missing(Chain(FINGERPRINT, ONE)) == [0, 256]
            store.save(save_of(ONE))
            assert store.flush(WAIT)
            assert store.report().drops == {"store_busy": 1}
            assert store.report().reason == "store_busy"
            assert store.forget("one").reason == "store_busy"
            holder.close()
            assert restore(store, ONE)[0].position == 700
    finally:
        holder.close()


def test_who_waits_to_write_looks_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where much is removed, the moments between two transactions are short."""
    holder = sqlite3.connect(make(tmp_path), isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    manifest = Manifest(StoreRoot(tmp_path), WAIT)
    manifest.entries()
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 20:
            holder.execute("ROLLBACK")

    with monkeypatch.context() as patched:
        patched.setattr("time.sleep", sleep)
        manifest.touch(bytes(32), 1)
    assert looks == [0.001] * 20
    with manifest.using() as sql:  # readers wait as SQLite does
        assert sql.execute("PRAGMA busy_timeout").fetchone() == (1000 * WAIT,)
    manifest.close()
    holder.close()


class WithoutWal(sqlite3.Connection):
    """As on a file system that has no memory to share: SQLite says which mode it stays in."""

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        if statement == "PRAGMA journal_mode = wal":
            statement = "PRAGMA journal_mode"
        return super().execute(statement, *values)


class FailingWal(sqlite3.Connection):
    """Where trying it is an error."""

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        if statement == "PRAGMA journal_mode = wal":
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error
        return super().execute(statement, *values)


@pytest.mark.parametrize("factory", [WithoutWal, FailingWal])
def test_a_file_system_without_wal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factory: type[sqlite3.Connection]
) -> None:
    monkeypatch.setattr("sqlite3.connect", partial(sqlite3.connect, factory=factory))
    with opened(tmp_path) as store:
        write(store, ONE, "one")
        assert not (store.path / "manifest.sqlite-wal").exists()
        with opened(tmp_path) as other:
            write(other, TWO, "two")
        assert restore(store, ONE)[0].position == 700
        assert restore(store, TWO)[0].position == 600
        assert store.forget("one").wal_truncated
        assert restore(store, TWO)[0].position == 600


def test_a_manifest_that_seems_read_only_is_replaced(tmp_path: Path) -> None:
    """Its damaged version number says so; the file itself can be written."""
    path = make(tmp_path)
    with path.open("r+b") as file:
        file.seek(18)
        file.write(b"\3")
    with opened(tmp_path) as store:
        assert restore(store, ONE)[0].position == 700
        write(store, tokens(300, seed=5), "three")
        store.missing(Chain(FINGERPRINT, ONE))
        assert store.reconciled(WAIT)
        write(store, tokens(300, seed=5), "three")
        for ids in (ONE, TWO, tokens(300, seed=5)):
            assert restore(store, ids)[0].position == len(ids)
        assert store.report().set_aside == 1


def test_a_manifest_half_made_by_another_process_is_not_damaged(tmp_path: Path) -> None:
    """What it is told about one moment must not be mixed with the next."""
    path = tmp_path / "manifest.sqlite"
    maker = sqlite3.connect(path, isolation_level=None)
    maker.execute("PRAGMA journal_mode = wal")
    looker = sqlite3.connect(path, isolation_level=None)

    def make_meanwhile(statement: str) -> None:
        if "sqlite_master" in statement:
            looker.set_trace_callback(None)
            migrate(maker)

    looker.set_trace_callback(make_meanwhile)
    assert check_schema(looker) is False
    assert check_schema(looker) is True
    maker.close()
    looker.close()


def test_migrations_may_run_again(tmp_path: Path) -> None:
    path = make(tmp_path)
    sql = sqlite3.connect(path, isolation_level=None)
    sql.execute("DELETE FROM migrations")
    migrate(sql)
    migrate(sql)
    assert [name for (name,) in sql.execute("SELECT name FROM migrations")] == list(MIGRATIONS)
    sql.close()
    with opened(tmp_path) as store:
        assert restore(store, ONE)[0].position == 700


def test_a_manifest_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    path = make(tmp_path)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with opened(tmp_path) as store:
        assert store.lookup(FINGERPRINT, ONE).reason == "store_unavailable"


def test_opening_touches_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        assert store.lookup(FINGERPRINT, ONE).reason == "store_absent"
        assert store.report().reason == "store_absent"
        assert store.forget("one").reason == "store_absent"
        assert not store.path.exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"notes.txt": "x"}, "not_a_store"),
        ({"STORE": "a shop"}, "not_a_store"),
        ({"STORE": '{"store": "llm-mtplx", "format": 2}'}, "other_version"),
    ],
)
def test_a_directory_that_is_not_this_store_is_left_alone(
    tmp_path: Path, content: dict[str, str], reason: str
) -> None:
    root = tmp_path / "sessions-v1"
    root.mkdir()
    for name, text in content.items():
        (root / name).write_text(text)
    with opened(tmp_path) as store:
        assert store.lookup(FINGERPRINT, ONE).reason == reason
        assert store.missing(Chain(FINGERPRINT, ONE)) == []
        store.save(save_of(ONE))
        assert store.flush(WAIT)
        assert store.report().drops == {reason: 1}
        assert store.forget(everything=True).reason == reason
    assert {p.name: p.read_text() for p in root.iterdir()} == content


def test_the_root_may_be_a_link(tmp_path: Path) -> None:
    disk = tmp_path / "other disk é"
    disk.mkdir()
    cache_dir = tmp_path / "cache"
    cache_dir.mkdir()
    (cache_dir / "sessions-v1").symlink_to(disk)
    with opened(cache_dir) as store:
        write(store, ONE)
        assert restore(store, ONE)[0].position == 700
    assert (disk / "STORE").exists()
    assert StoreRoot(cache_dir).path == disk
    assert StoreLimits().busy_s <= 0.05
