"""What is saved comes back bit for bit, at the deepest position there is."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_mtplx.coldstore import BLOCK, BlockRows, CheckpointState, Save, Section
from llm_mtplx.coldstore.keys import Chain

from .lines import FINGERPRINT, Memory, files, opened, restore, save_of, tokens, write

EDGES = sorted({k * BLOCK + d for k in (0, 1, 2) for d in (-1, 0, 1)} - {-1, 0})


@pytest.mark.parametrize("count", [*EDGES, 17, 700])
def test_a_line_comes_back_in_another_process(tmp_path: Path, count: int) -> None:
    with opened(tmp_path) as store:
        write(store, tokens(count))
    with opened(tmp_path) as store:
        restored, _ = restore(store, [*tokens(count), 1, 2, 3])
        assert restored.position == count
        assert restored.reason == "not_found"
        assert restore(store, tokens(count))[0].reason is None


@pytest.mark.parametrize("count", EDGES)
@pytest.mark.parametrize("shared", [BLOCK - 1, BLOCK, BLOCK + 1])
def test_a_line_that_parts_from_a_stored_one(tmp_path: Path, count: int, shared: int) -> None:
    """Recurrent state exists only where it was kept; rows are good up to any whole block."""
    ids = tokens(count)
    other = [*ids[:shared], *tokens(300, seed=1)]
    common = min(shared, count)
    with opened(tmp_path) as store:
        write(store, ids)
        restored, _ = restore(store, other)
        assert restored.position == (count if count <= shared else 0)
        rows_only, _ = restore(store, other, needs_checkpoint=False)
        blocks = min(common, len(ids)) // BLOCK * BLOCK
        assert rows_only.position == max(blocks, restored.position)
        if count > shared >= BLOCK:
            assert restored.reason == "no_checkpoint"


def test_a_line_grows_turn_by_turn(tmp_path: Path) -> None:
    ids = tokens(1000)
    for count in (100, 250, 256, 511, 640, 1000):
        with opened(tmp_path) as store:
            write(store, ids[:count])
        with opened(tmp_path) as store:
            assert restore(store, ids)[0].position == count


def test_an_edit_restarts_at_the_checkpoint_before_it(tmp_path: Path) -> None:
    ids = tokens(900)
    with opened(tmp_path) as store:
        for count in (300, 600, 900):
            write(store, ids[:count])
        for edited, expected in [(899, 600), (600, 600), (599, 300), (300, 300), (299, 0)]:
            line = list(ids)
            line[edited] += 1
            assert restore(store, line)[0].position == expected


def test_another_fingerprint_finds_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        write(store, tokens(300))
        found = store.lookup("model-b", tokens(300), needs_checkpoint=False)
        assert (found.position, found.reason) == (0, "not_found")


def test_only_what_is_new_is_written(tmp_path: Path) -> None:
    ids = tokens(5 * BLOCK)
    with opened(tmp_path) as store:
        write(store, ids[: 4 * BLOCK + 9], "one")
        before = {path: path.stat().st_ino for path in files(tmp_path)}
        write(store, [*ids[: 4 * BLOCK], *tokens(20, seed=3)], "two")
        write(store, ids[: 4 * BLOCK + 9], "three")
        after = files(tmp_path)
        assert len(files(tmp_path, "*.kv")) == 4
        assert len(files(tmp_path, "*.st")) == 2
        assert len(files(tmp_path, "*.json")) == 3
        assert all(path.stat().st_ino == inode for path, inode in before.items())
        assert set(before) < set(after)


def test_a_stored_block_is_not_asked_for_again_while_it_waits(tmp_path: Path) -> None:
    ids = tokens(3 * BLOCK)
    with opened(tmp_path) as store:
        assert store.missing(Chain(FINGERPRINT, ids)) == [0, BLOCK, 2 * BLOCK]
        store.save(save_of(ids, blocks=[BLOCK], checkpoint=False))
        assert store.missing(Chain(FINGERPRINT, ids)) == [0, 2 * BLOCK]
        store.flush(10)
        assert store.missing(Chain(FINGERPRINT, ids)) == [0, 2 * BLOCK]


def test_deeper_than_asks_for_more_than_there_is_in_ram(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        write(store, tokens(300))
        for floor, expected in [(299, 300), (300, 0), (301, 0)]:
            found = store.lookup(FINGERPRINT, tokens(400), deeper_than=floor)
            assert found.position == expected


def test_the_ids_of_a_conversation_can_be_told(tmp_path: Path) -> None:
    ids = tokens(2 * BLOCK + 40)
    with opened(tmp_path) as store:
        for count in (5, BLOCK, len(ids)):
            write(store, ids[:count])
        told = [store.ids(FINGERPRINT, tip.checkpoint) for tip in store.tips("talk")]
        assert sorted(told, key=len) == [ids[:5], ids[:BLOCK], ids]
        tip = store.tips("talk")[0].checkpoint
        assert Chain(FINGERPRINT, told := store.ids(FINGERPRINT, tip)).pointer(len(told)) == tip
        assert store.ids("model-b", tip) == "not_found"
        assert store.ids(FINGERPRINT, "../" * 4) == "not_found"
        assert store.tips("nobody") == []


@pytest.mark.parametrize(
    "kind, suffix, reason",
    [("checkpoint", "*.st", "corrupt_checkpoint"), ("block", "*.kv", "corrupt_block")],
)
def test_a_file_that_tells_no_ids_is_dropped(
    tmp_path: Path, kind: str, suffix: str, reason: str
) -> None:
    ids = tokens(BLOCK + 40)
    with opened(tmp_path) as store:
        write(store, ids)
        tip = store.tips("talk")[0].checkpoint
        damaged = files(tmp_path, suffix)[0]
        damaged.chmod(0o600)
        damaged.write_bytes(b"\0" * damaged.stat().st_size)
        assert store.ids(FINGERPRINT, tip) == reason
        store.tend()
        assert not damaged.exists()
        expected = "not_found" if kind == "checkpoint" else "file_gone"
        assert store.ids(FINGERPRINT, tip) == expected
        write(store, ids)
        assert store.ids(FINGERPRINT, tip) == ids


def test_a_block_of_many_small_buffers(tmp_path: Path) -> None:
    """More buffers than one system call takes, empty ones among them."""
    ids = tokens(BLOCK)
    pieces = [bytes([i % 256]) * (i % 3) for i in range(3000)]
    nbytes = sum(map(len, pieces))
    rows = Section("k", "uint8", (nbytes,), pieces)
    state = Section("s", "uint8", (0,), [])
    with opened(tmp_path) as store:
        store.save(
            Save(
                Chain(FINGERPRINT, ids),
                [BlockRows(0, [rows])],
                CheckpointState(BLOCK, [state]),
                "c",
            )
        )
        assert store.flush(10)
        target = [bytearray(len(piece)) for piece in pieces]
        found = store.lookup(FINGERPRINT, ids)
        restored = store.read(found, lambda h: target if h.kind == "block" else [])
        assert restored.position == BLOCK
        assert b"".join(target) == b"".join(pieces)


def test_a_caller_that_contradicts_itself_is_told(tmp_path: Path) -> None:
    short = Section("k", "float32", (4,), [bytes(15)])
    fine = Section("k", "float32", (4,), [bytes(16)])
    ids = tokens(BLOCK + 1)
    with opened(tmp_path) as store:
        for save in [
            Save(Chain("m", ids), [BlockRows(0, [short])]),
            Save(Chain("m", ids), [BlockRows(1, [fine])]),
            Save(Chain("m", ids), [BlockRows(BLOCK, [fine])]),
            Save(Chain("m", ids), (), CheckpointState(len(ids) + 1, [fine])),
        ]:
            with pytest.raises(ValueError):
                store.save(save)
        write(store, ids)
        with pytest.raises(ValueError):
            store.read(store.lookup(FINGERPRINT, ids), lambda header: [bytearray(3)])


def test_a_layout_the_caller_has_no_place_for_is_a_miss(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        write(store, tokens(300))
        restored = store.read(store.lookup(FINGERPRINT, tokens(300)), lambda header: None)
        assert (restored.position, restored.reason) == (0, "layout_refused")
        assert restore(store, tokens(300))[0].position == 300


turns = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 700), st.integers(1, 400)), min_size=1, max_size=6
)


@settings(max_examples=25, deadline=None)
@given(turns)
def test_any_tree_of_lines(tmp_path_factory: pytest.TempPathFactory, turns: list[tuple]) -> None:  # type: ignore[type-arg]
    """Each turn goes on from some cut of an earlier line; all stay restorable, stored once."""
    cache_dir = tmp_path_factory.mktemp("tree")
    lines: list[list[int]] = [[]]
    with opened(cache_dir) as store:
        for number, (base, cut, length) in enumerate(turns):
            ids = [*lines[base % len(lines)][:cut], *tokens(length, seed=number + 1)]
            lines.append(ids)
            write(store, ids, f"talk {number}")
        for ids in lines[1:]:
            assert restore(store, [*ids, 9])[0].position >= len(ids)
        prefixes = {
            tuple(ids[: end * BLOCK]) for ids in lines for end in range(1, len(ids) // BLOCK + 1)
        }
        assert len(files(cache_dir, "*.kv")) == len(prefixes)
        assert len(files(cache_dir, "*.st")) == len({tuple(ids) for ids in lines[1:]})


def test_memory_beyond_the_result_is_the_only_thing_that_may_change(tmp_path: Path) -> None:
    ids = tokens(300)
    with opened(tmp_path) as store:
        write(store, ids)
        memory = Memory.of(400)
        store.read(store.lookup(FINGERPRINT, ids), memory.place)
        assert not any(memory.k[300 * 8 :])
        assert not any(memory.v[300 * 8 :])
