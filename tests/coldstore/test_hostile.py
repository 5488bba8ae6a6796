"""Whatever stands in the index or in a file's place: no error, no wrong row, nothing outside the
store touched, and after a turn or a gc it is as it was."""

import os
import shutil
import signal
import socket
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from llm_mtplx.coldstore import Collector, StoreLimits
from llm_mtplx.coldstore.index.heal import find_unsound
from llm_mtplx.coldstore.index.ledger import UNNAMED
from llm_mtplx.coldstore.root import StoreRoot
from llm_mtplx.coldstore.upkeep.schedule import PROGRESS, Upkeep

from .lines import FINGERPRINT, WAIT, files, opened, restore, tokens, write

ONE, TWO = tokens(600), tokens(520, seed=2)
LIMITS = StoreLimits(grace_s=0.0, free_floor_bytes=0)


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    """What waits for a FIFO waits for ever: it is interrupted."""

    def interrupt(*_: object) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def make(cache_dir: Path) -> Path:
    with opened(cache_dir) as store:
        write(store, ONE, "one")
        write(store, TWO, "two")
    return cache_dir / "sessions-v1"


def change(root: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(root / "manifest.sqlite", isolation_level=None)) as sql:
        sql.execute(statement, values)


def turn(cache_dir: Path) -> list[str | None]:
    """One turn of both lines; why they were not found whole."""
    reasons = []
    with opened(cache_dir) as store:
        for ids, name in ((ONE, "one"), (TWO, "two")):
            store.tips(name)
            reasons.append(restore(store, ids)[0].reason)
            write(store, ids, name)
        assert store.reconciled(WAIT)
        assert store.report().reason is None
        assert store.report().drops == {}
    return reasons


def collect(cache_dir: Path) -> None:
    collector = Collector(StoreRoot(cache_dir), LIMITS)
    try:
        collector.apply(collector.plan_gc())
    finally:
        collector.close()


def keep_up(cache_dir: Path) -> None:
    Upkeep(StoreRoot(cache_dir), LIMITS, threading.Event()).run()


def assert_restored(cache_dir: Path) -> None:
    with opened(cache_dir) as store:
        for ids in (ONE, TWO):
            assert restore(store, ids)[0].position == len(ids)


def assert_whole(cache_dir: Path) -> None:
    assert_restored(cache_dir)
    path = cache_dir / "sessions-v1" / "manifest.sqlite"
    with closing(sqlite3.connect(path)) as sql:
        sql.text_factory = bytes
        facts = sql.execute("SELECT name, value FROM facts WHERE name = 'rebuild'").fetchall()
        assert facts == [(b"rebuild", b"done")]
        sql.text_factory = str
        assert find_unsound(sql) == {}


COLUMNS = {
    "blocks": ["key", "parent", "start", "size", "packed"],
    "checkpoints": ["key", "parent", "position", "size", "used"],
    "entries": ["conversation", "fingerprint", "checkpoint", "position", "role", "created"],
}
VALUES = [-1, 1 << 62, float("inf"), -0.5, "../../x", b"\xff", b"", "y" * 5000]
# What a conversation or a fingerprint may be called is up to its owner.
FREE = [b"\xff", "y" * 5000]


@pytest.mark.parametrize("heal", [turn, collect], ids=["turn", "gc"])
@pytest.mark.parametrize(("table", "column"), [(t, c) for t, cs in COLUMNS.items() for c in cs])
def test_a_row_that_holds_what_none_can(
    tmp_path: Path, table: str, column: str, heal: Callable[[Path], object]
) -> None:
    root = make(tmp_path)
    before = {path: path.read_bytes() for path in files(tmp_path)}
    key = "checkpoint" if table == "entries" else "key"
    for value in FREE if column in ("conversation", "fingerprint") else VALUES:
        query = f"UPDATE {table} SET {column} = ? WHERE {key} = (SELECT min({key}) FROM {table})"
        change(root, query, value)
        heal(tmp_path)
        assert_restored(tmp_path)
        collect(tmp_path)  # a turn does not meet every row
        assert_whole(tmp_path)
        assert {path: path.read_bytes() for path in files(tmp_path)} == before


def test_the_reason_is_named(tmp_path: Path) -> None:
    root = make(tmp_path)
    change(root, "UPDATE blocks SET start = -256 WHERE start = 256")
    assert turn(tmp_path)[0] == "corrupt_index"
    change(root, "UPDATE checkpoints SET position = -position")
    with opened(tmp_path) as store:
        assert store.lookup(FINGERPRINT, ONE).reason == "corrupt_index"
        assert store.report().misses == {"corrupt_index": 1}


def test_values_that_can_be_and_contradict_the_line(tmp_path: Path) -> None:
    """As one flipped bit makes them: within all bounds."""
    root = make(tmp_path)
    for statement in (
        "UPDATE blocks SET start = 0 WHERE start = 256",
        "UPDATE blocks SET start = 1024 WHERE start = 0",
        "UPDATE blocks SET parent = key",
        "UPDATE blocks SET parent = (SELECT min(key) FROM blocks) WHERE start = 0",
        "UPDATE blocks SET parent = zeroblob(32)",
        "UPDATE checkpoints SET parent = zeroblob(32)",
        "UPDATE checkpoints SET position = position + 1",
        "UPDATE checkpoints SET position = position + 1024",
    ):
        change(root, statement)
        turn(tmp_path)
        turn(tmp_path)
        assert_whole(tmp_path)


@pytest.mark.parametrize("table", ["blocks", "checkpoints"])
def test_a_size_that_its_file_does_not_have_drives_nothing_out(tmp_path: Path, table: str) -> None:
    root = make(tmp_path)
    before = files(tmp_path)
    for heal in (lambda: save_another(tmp_path), lambda: collect(tmp_path)):
        change(root, f"UPDATE {table} SET size = size + (1 << 43)")
        heal()
        assert set(before) <= set(files(tmp_path))
        assert_whole(tmp_path)


def save_another(cache_dir: Path) -> None:
    with opened(cache_dir, grace_s=0.0, free_floor_bytes=0, max_bytes=1 << 30) as store:
        write(store, tokens(300, seed=11), "another")
        assert store.report().drops == {}


@pytest.mark.parametrize("name", ["../../outside", "{tmp}/outside", "../writers/../../outside"])
def test_a_writer_s_name_leads_nowhere(tmp_path: Path, name: str) -> None:
    root = make(tmp_path)
    outside = tmp_path / "outside.lock"
    outside.write_text("do not belong to the store")
    query = "INSERT INTO writing VALUES (zeroblob(32), ?, 'block', 0)"
    change(root, query, name.format(tmp=tmp_path))
    turn(tmp_path)
    collect(tmp_path)
    with opened(tmp_path) as store:
        store.compact(0.0)
        store.forget(everything=True)
    assert outside.read_text() == "do not belong to the store"
    assert not list(tmp_path.rglob("*.tmp"))
    with closing(sqlite3.connect(root / "manifest.sqlite")) as sql:
        assert sql.execute("SELECT * FROM writing").fetchall() == []


NOTES = [
    '{"bytes": "many"}',
    '{"bytes": 1e999}',
    '{"bytes": -1}',
    '{"bytes": ' + "9" * 400 + "}",
    '{"bytes": {}, "at": [], "tidied": "x", "walked": null, "packed": NaN}',
    '{"tidied": ' + "9" * 400 + ', "at": -1, "beside": -5}',
    "[" * 3000,
    "7",
    b"\xff",
    "x" * 100_000,
]


@pytest.mark.parametrize("name", [UNNAMED, PROGRESS, "rebuild"])
def test_facts_that_are_none(tmp_path: Path, name: str) -> None:
    root = make(tmp_path)
    for value in NOTES:
        change(root, "INSERT OR REPLACE INTO facts VALUES (?, ?)", name, value)
        with opened(tmp_path) as store:
            assert store.report().reason is None
        keep_up(tmp_path)
        turn(tmp_path)
        collect(tmp_path)
        assert_whole(tmp_path)


def test_facts_that_are_gone(tmp_path: Path) -> None:
    root = make(tmp_path)
    change(root, "DELETE FROM facts")
    turn(tmp_path)
    assert_whole(tmp_path)


def test_bytes_written_that_nobody_can_have_written(tmp_path: Path) -> None:
    root = make(tmp_path)
    for value in ("x", 1 << 62, -(1 << 62), float("inf"), b"\xff"):
        change(root, "UPDATE written SET bytes = ?", value)
        turn(tmp_path)
        collect(tmp_path)
        assert_whole(tmp_path)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER t BEFORE INSERT ON blocks BEGIN SELECT RAISE(ABORT, 'no'); END",
        "CREATE TRIGGER t BEFORE UPDATE ON checkpoints BEGIN SELECT RAISE(IGNORE); END",
        "CREATE VIEW v AS SELECT * FROM blocks",
        "CREATE UNIQUE INDEX u ON blocks (packed, start)",
        "ALTER TABLE blocks ADD COLUMN more",
    ],
)
def test_tables_that_were_not_made_by_us(tmp_path: Path, statement: str) -> None:
    root = make(tmp_path)
    if "UNIQUE" in statement:
        change(root, "DELETE FROM blocks")
    change(root, statement)
    with opened(tmp_path) as store:
        store.lookup(FINGERPRINT, ONE)
        assert store.reconciled(WAIT)
    turn(tmp_path)
    save_another(tmp_path)
    assert_whole(tmp_path)


# Something else in the place of a file.


def fifo(path: Path) -> None:
    os.mkfifo(path)


def socket_of(path: Path) -> None:
    # A socket's name is short; its place may be long.
    here = os.open(path.parent, os.O_RDONLY)
    before = os.open(".", os.O_RDONLY)
    os.fchdir(here)
    try:
        with closing(socket.socket(socket.AF_UNIX)) as bound:
            bound.bind(path.name)
    finally:
        os.fchdir(before)
        os.close(here)
        os.close(before)


def directory(path: Path) -> None:
    path.mkdir()


def full_directory(path: Path) -> None:
    path.mkdir()
    (path / "within").write_text("somebody's")


def link(path: Path) -> None:
    root = next(parent for parent in path.parents if parent.name == "sessions-v1")
    target = root.parent / "outside"
    target.write_text("do not belong to the store")
    path.symlink_to(target)


OTHERS = [fifo, socket_of, directory, full_directory, link]
PLACES = [
    "manifest.sqlite",
    "manifest.sqlite-wal",
    "manifest.sqlite-shm",
    "manifest.sqlite-journal",
    "manifest.lock",
    "upkeep.lock",
    "CACHEDIR.TAG",
    f"writers/{'ab' * 16}.lock",
    "blobs/*/*.kv",
    "blobs/*/*.st",
    "entries/*/*.json",
]


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: other.__name__)
@pytest.mark.parametrize("place", PLACES)
def test_something_else_in_a_file_s_place(
    tmp_path: Path, place: str, other: Callable[[Path], None]
) -> None:
    root = make(tmp_path)
    path = next(iter(sorted(root.glob(place))), root / place)
    path.unlink(missing_ok=True)
    other(path)
    if place == "manifest.lock":  # which is held where an index is made
        (root / "manifest.sqlite").unlink()
    with opened(tmp_path) as store:
        store.report()
        restore(store, ONE)
        restore(store, TWO)
    keep_up(tmp_path)
    turn(tmp_path)
    collect(tmp_path)
    turn(tmp_path)
    assert_whole(tmp_path)
    if place != "CACHEDIR.TAG" and not place.startswith("writers"):
        assert not path.exists() or stat.S_ISREG(path.lstat().st_mode)
    if other is link:
        assert (tmp_path / "outside").read_text() == "do not belong to the store"
    if other is full_directory:
        assert [each.read_text() for each in root.rglob("within")] == ["somebody's"]
    with opened(tmp_path) as store:
        gone = store.forget("one")
        assert (gone.conversations, gone.reason) == (1, None)
        assert store.forget(everything=True).reason is None


def regular(path: Path) -> None:
    path.write_text("somebody's")


@pytest.mark.parametrize("other", [fifo, socket_of, regular], ids=lambda other: other.__name__)
@pytest.mark.parametrize("place", ["blobs", "entries", "writers", "blobs/*", "entries/*"])
def test_something_else_in_a_folder_s_place(
    tmp_path: Path, place: str, other: Callable[[Path], None]
) -> None:
    root = make(tmp_path)
    path = next(iter(sorted(root.glob(place))))
    shutil.rmtree(path)
    other(path)
    turn(tmp_path)
    collect(tmp_path)
    turn(tmp_path)
    collect(tmp_path)
    assert_whole(tmp_path)
    assert path.is_dir()


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: other.__name__)
def test_something_else_in_the_marker_s_place(
    tmp_path: Path, other: Callable[[Path], None]
) -> None:
    """Without it this is not known to be a store: it is left alone, and it is said why."""
    root = make(tmp_path)
    (root / "STORE").unlink()
    other(root / "STORE")
    with opened(tmp_path) as store:
        assert store.lookup(FINGERPRINT, ONE).reason == "not_a_store"
        assert store.report().reason == "not_a_store"
        assert str(root / "STORE") in store.report().detail
        assert store.forget(everything=True).reason == "not_a_store"
    assert len(files(tmp_path, "*.kv")) == 4


def test_wide_modes_are_narrowed(tmp_path: Path) -> None:
    """As a backup that was restored without them."""
    root = make(tmp_path)
    for path in (root, *root.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    with opened(tmp_path) as store:
        restore(store, ONE)
    assert stat.S_IMODE(root.stat().st_mode) == 0o700  # nobody else gets further
    assert modes(root, "manifest.sqlite*") == {0o600}
    collect(tmp_path)
    assert modes(root, "**/*") == {0o700, 0o600}


def modes(root: Path, pattern: str) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in root.glob(pattern)}
