"""A bad file is a miss with a reason, the next position is used, and the next write heals it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from llm_mtplx.coldstore import BLOCK
from llm_mtplx.coldstore.keys import Chain
from llm_mtplx.coldstore.reasons import StoreError

from .lines import FINGERPRINT, Memory, files, flip_last, opened, restore, save_of, tokens, write

TURNS = (300, 2 * BLOCK, 700, 800)  # 3 whole blocks, 4 checkpoints
IDS = tokens(TURNS[-1])


def flip_header(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def replace_by_another(path: Path) -> None:
    others = [p for p in path.parents[1].glob(f"*/*{path.suffix}") if p != path]
    shutil.copyfile(others[0], path)


def replace_by_link(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


def replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


FAULTS = [
    flip_last,
    flip_header,
    truncate,
    empty,
    zero,
    lengthen,
    replace_by_another,
    replace_by_link,
]


def make(cache_dir: Path) -> None:
    with opened(cache_dir) as store:
        for count in TURNS:
            write(store, IDS[:count])


def end_of(path: Path) -> int:
    """The position up to which a line needs this file; found in its own header."""
    text = path.read_bytes()
    return int(text.split(b'"end":')[1].split(b",")[0])


def expected_without(kind: str, end: int) -> int:
    """The deepest turn that does not need the file."""
    if kind == ".st":
        return max(turn for turn in (0, *TURNS) if turn != end)
    return max(turn for turn in (0, *TURNS) if turn // BLOCK * BLOCK < end)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_file_damaged_one_by_one(tmp_path: Path, fault: Callable[[Path], None]) -> None:
    original = tmp_path / "original"
    make(original)
    names = [path.relative_to(original) for path in files(original, "*.[ks][vt]")]
    assert len(names) == 7
    for name in names:
        copy = tmp_path / "copy"
        shutil.copytree(original, copy)
        kind, end = name.suffix, end_of(copy / name)
        fault(copy / name)
        with opened(copy) as store:
            restored, _ = restore(store, IDS)
            needed = kind == ".kv" or end == TURNS[-1]
            assert restored.position == (expected_without(kind, end) if needed else TURNS[-1])
            if needed:
                reason = "corrupt_block" if kind == ".kv" else "corrupt_checkpoint"
                assert [miss.reason for miss in restored.misses][:1] == [reason]
                assert restored.reason == reason
                assert not os.path.lexists(copy / name)
                assert store.report().misses == {reason: 1}
                assert store.lookup(FINGERPRINT, IDS).position == restored.position
                write(store, IDS)
                assert (copy / name).read_bytes() == (original / name).read_bytes()
            restored, _ = restore(store, IDS)
            assert (restored.position, restored.misses) == (TURNS[-1], ())
        shutil.rmtree(copy)


def test_every_file_deleted_one_by_one(tmp_path: Path) -> None:
    make(tmp_path)
    for path in files(tmp_path, "*.[ks][vt]"):
        kind, end, content = path.suffix, end_of(path), path.read_bytes()
        needed = kind == ".kv" or end == TURNS[-1]
        path.unlink()
        with opened(tmp_path) as store:
            restored, _ = restore(store, IDS)
            assert restored.position == (expected_without(kind, end) if needed else TURNS[-1])
            if needed:
                assert restored.reason == "file_gone"
            write(store, IDS)
            if kind == ".st":
                store.save(save_of(IDS[:end], blocks=[]))
                store.flush(10)
        with opened(tmp_path) as store:
            assert restore(store, IDS)[0].position == TURNS[-1]
        assert not needed or path.read_bytes() == content
        path.write_bytes(content)


def test_several_bad_files_at_once(tmp_path: Path) -> None:
    make(tmp_path)
    for path in files(tmp_path, "*.st"):
        if end_of(path) > TURNS[0]:
            flip_last(path)
    with opened(tmp_path) as store:
        restored, _ = restore(store, IDS)
        assert restored.position == TURNS[0]
        assert [miss.position for miss in restored.misses] == [800, 700, 512]


def test_a_good_block_is_read_once_however_many_positions_are_tried(tmp_path: Path) -> None:
    make(tmp_path)
    for path in files(tmp_path, "*.st"):
        if end_of(path) > TURNS[0]:
            flip_last(path)
    with opened(tmp_path) as store:
        _, memory = restore(store, IDS)
        placed = [header.key for header in memory.headers if header.kind == "block"]
        assert len(placed) == len(set(placed))


def test_a_file_that_vanishes_and_returns_is_used(tmp_path: Path) -> None:
    """A reader that finds a file gone looks up once more."""
    make(tmp_path)
    (path,) = (p for p in files(tmp_path, "*.st") if end_of(p) == 800)
    content = path.read_bytes()
    with opened(tmp_path) as store:
        found = store.lookup(FINGERPRINT, IDS)
        path.unlink()
        find_again = store._find

        def find(*arguments):  # type: ignore[no-untyped-def]
            path.write_bytes(content)
            return find_again(*arguments)

        store._find = find  # type: ignore[method-assign]
        restored = store.read(found, Memory.of(len(IDS)).place)
        assert (restored.position, restored.misses) == (800, ())


def test_a_file_replaced_by_a_good_one_is_not_unlinked(tmp_path: Path) -> None:
    """What was found bad is dropped, not what somebody has healed meanwhile."""
    make(tmp_path)
    (path,) = (p for p in files(tmp_path, "*.st") if end_of(p) == 800)
    content = path.read_bytes()
    flip_last(path)
    with opened(tmp_path) as store:
        drop = store._manifest.drop

        def heal_first(*arguments):  # type: ignore[no-untyped-def]
            path.rename(path.with_suffix(".old"))
            path.write_bytes(content)
            return drop(*arguments)

        store._manifest.drop = heal_first  # type: ignore[method-assign]
        assert restore(store, IDS)[0].position == 700
        assert path.read_bytes() == content


def test_a_bad_file_that_has_no_row_is_replaced_by_the_writer(tmp_path: Path) -> None:
    """An orphan is kept if it verifies, and never trusted for being there."""
    make(tmp_path)
    with opened(tmp_path) as store:
        store._manifest.remove([row.key for row in store._manifest.blocks()], [], [])
        block, *others = files(tmp_path, "*.kv")
        kept = [path.stat().st_ino for path in others]
        flip_last(block)
        write(store, IDS)
        assert [path.stat().st_ino for path in others] == kept
        assert restore(store, IDS)[0].position == 800


def test_a_bad_file_whose_row_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is passed over, offered for writing, and used again once it is written."""
    make(tmp_path)
    second = next(p for p in files(tmp_path, "*.kv") if end_of(p) == 2 * BLOCK)
    flip_last(second)

    def busy(*arguments: object) -> None:
        raise StoreError("store_busy")

    with opened(tmp_path) as store:
        monkeypatch.setattr(store._manifest, "drop", busy)
        assert restore(store, IDS)[0].position == 300
        assert store.lookup(FINGERPRINT, IDS).position == 300
        assert store.missing(Chain(FINGERPRINT, IDS)) == [BLOCK]
        write(store, IDS)
        assert restore(store, IDS)[0].position == 800
        assert store.missing(Chain(FINGERPRINT, IDS)) == []


def test_a_directory_or_a_link_in_place_of_a_folder(tmp_path: Path) -> None:
    """Below the root no link is followed: what lies behind it is neither read nor removed."""
    make(tmp_path)
    block = files(tmp_path, "*.kv")[0]
    elsewhere = tmp_path / "elsewhere"
    block.parent.rename(elsewhere)
    block.parent.symlink_to(elsewhere)
    with opened(tmp_path) as store:
        assert restore(store, IDS)[0].position < 800
        store.save(save_of(IDS))
        store.flush(10)
    assert sorted(elsewhere.iterdir()) == [elsewhere / block.name]


def test_a_file_that_is_a_directory(tmp_path: Path) -> None:
    make(tmp_path)
    (path,) = (p for p in files(tmp_path, "*.st") if end_of(p) == 800)
    replace_by_directory(path)
    with opened(tmp_path) as store:
        restored, _ = restore(store, IDS)
        assert (restored.position, restored.reason) == (700, "corrupt_checkpoint")
