"""Found by the fuzzer: what lies behind a link stays as it is, and text is never a key."""

import os
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from llm_mtplx.coldstore.index.manifest import Manifest
from llm_mtplx.coldstore.index.schema import UnreadableManifest, check_schema
from llm_mtplx.coldstore.keys import Chain
from llm_mtplx.coldstore.root import StoreRoot

from .lines import FINGERPRINT, WAIT, files, opened, restore, tokens, write
from .test_hostile import collect

IDS = tokens(600)


def make(cache_dir: Path) -> Path:
    with opened(cache_dir) as store:
        write(store, IDS)
    return cache_dir / "sessions-v1"


def wide(path: Path) -> None:
    for each in (path, *path.rglob("*")):
        each.chmod(0o755 if each.is_dir() else 0o644)


def modes(path: Path) -> dict[str, int]:
    return {str(each): stat.S_IMODE(each.stat().st_mode) for each in (path, *path.rglob("*"))}


@pytest.mark.parametrize("place", ["entries", "blobs", "writers", "shard"])
def test_modes_behind_a_linked_folder_stay(tmp_path: Path, place: str) -> None:
    root = make(tmp_path / "cache")
    outside = tmp_path / "outside"
    folder = files(tmp_path / "cache", "*.kv")[0].parent if place == "shard" else root / place
    shutil.move(folder, outside)
    folder.symlink_to(outside)
    wide(outside)
    before = modes(outside)
    places = [
        (("blobs", path.parent.name), path.name) for path in outside.rglob("*") if path.is_file()
    ]
    StoreRoot(tmp_path / "cache").narrow(places)
    with opened(tmp_path / "cache") as store:
        restore(store, IDS)
    assert modes(outside) == before


@pytest.mark.parametrize("pattern", ["blobs/*/*.kv", "entries/*/*.json", "STORE"])
def test_modes_of_a_hard_link_stay(tmp_path: Path, pattern: str) -> None:
    root = make(tmp_path / "cache")
    path = next(root.glob(pattern))
    other = tmp_path / "other"
    os.link(path, other)
    other.chmod(0o644)
    with opened(tmp_path / "cache") as store:
        restore(store, IDS)
    collect(tmp_path / "cache")
    assert stat.S_IMODE(other.stat().st_mode) == 0o644


def test_text_of_32_bytes_is_not_a_key(tmp_path: Path) -> None:
    """It passed for one, and was found by none: a block that it followed stayed for ever."""
    root = make(tmp_path)
    with closing(sqlite3.connect(root / "manifest.sqlite", isolation_level=None)) as sql:
        ((first,),) = sql.execute("SELECT key FROM blocks WHERE start = 0").fetchall()
        row = (b"\xff" * 32, first, 256, 100)
        columns = "key, parent, start, size"
        sql.execute(f"INSERT INTO blocks ({columns}) VALUES (CAST(? AS TEXT), ?, ?, ?)", row)
    manifest = Manifest(StoreRoot(tmp_path), 1.0)
    assert b"\xff" * 32 not in {row.key for row in manifest.blocks()}
    assert manifest.corrupt
    manifest.close()
    with opened(tmp_path) as store:
        gone = store.forget(everything=True)
    assert (gone.reason, gone.blocks) == (None, 2)
    assert files(tmp_path, "*") == []


def statements_of(root: Path) -> list[str]:
    """What is asked of an index before it is refused."""
    asked: list[str] = []
    with closing(sqlite3.connect(root / "manifest.sqlite", isolation_level=None)) as sql:
        sql.set_trace_callback(asked.append)
        with pytest.raises(UnreadableManifest, match="not those that were made"):
            check_schema(sql)
    return asked


@pytest.mark.parametrize(
    "script",
    [
        "ALTER TABLE migrations RENAME TO t; CREATE VIEW migrations AS SELECT * FROM t",
        "CREATE TRIGGER t BEFORE INSERT ON migrations BEGIN SELECT 1; END;"
        " DELETE FROM migrations WHERE name = '0004-packed'",
        "DROP TABLE migrations; CREATE TABLE migrations (name, applied)",
        "DELETE FROM migrations; CREATE TABLE more (a)",
    ],
)
def test_nothing_is_read_of_tables_that_were_not_made_by_us(tmp_path: Path, script: str) -> None:
    """A view of that name may never end, and what is missing would be done under a trigger."""
    root = make(tmp_path)
    with closing(sqlite3.connect(root / "manifest.sqlite", isolation_level=None)) as sql:
        sql.executescript(script)
    assert not any("FROM migrations" in each for each in statements_of(root))
    with opened(tmp_path) as store:
        store.lookup(FINGERPRINT, IDS)
        assert store.reconciled(WAIT)
        assert restore(store, IDS)[0].position == len(IDS)


def test_migrations_that_lead_nowhere(tmp_path: Path) -> None:
    """All are noted but a column is missing: the index is set aside, not used."""
    root = make(tmp_path)
    with closing(sqlite3.connect(root / "manifest.sqlite", isolation_level=None)) as sql:
        sql.executescript(
            "DELETE FROM migrations WHERE name = '0001-first';"
            " ALTER TABLE blocks DROP COLUMN packed"
        )
    with opened(tmp_path) as store:
        store.lookup(FINGERPRINT, IDS)
        assert store.reconciled(WAIT)
        assert restore(store, IDS)[0].position == len(IDS)
        assert store.missing(Chain(FINGERPRINT, IDS)) == []
        assert store.compact(-1e6).finished
