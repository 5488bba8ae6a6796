"""Forgetting removes the files, the rows and their traces, and nothing that others need."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from llm_mtplx.coldstore import BLOCK, ColdStore
from llm_mtplx.coldstore.keys import Chain

from .lines import (
    FINGERPRINT,
    WAIT,
    files,
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
SECRET = "conversation-of-alice"


def traces(store: ColdStore, ids: list[int], name: str) -> list[str]:
    """Files of the manifest in which a line's keys or a conversation's name can be read."""
    chain = Chain(FINGERPRINT, ids)
    needles = [name.encode(), chain.checkpoint(len(ids)), chain.key(len(ids) // BLOCK)]
    # Read by another process: closing a handle here would drop SQLite's locks.
    contents = {p: subprocess.check_output(["cat", p]) for p in store.path.glob("manifest*")}
    return [p.name for p, data in contents.items() if any(needle in data for needle in needles)]


def test_nothing_of_a_conversation_stays_and_nothing_else_goes(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        write(store, ONE[:600], SECRET)
        write(store, ONE, SECRET)
        others = set(files(tmp_path))
        write(store, TWO, "two")
        others = set(files(tmp_path)) - others
        assert traces(store, ONE, SECRET)
        gone = store.forget(SECRET)
        assert (gone.conversations, gone.checkpoints, gone.blocks) == (1, 2, 1)
        assert (gone.shared_blocks, gone.shared_checkpoints) == (2, 0)
        assert gone.wal_truncated
        assert gone.nbytes > 0
        assert traces(store, ONE, SECRET) == []
        chain = Chain(FINGERPRINT, TWO)
        shared = {p for p in files(tmp_path) if p.stem in (chain.key(1).hex(), chain.key(2).hex())}
        assert set(files(tmp_path)) == others | shared
        assert restore(store, ONE)[0].position == 0
        assert restore(store, TWO)[0].position == len(TWO)
        assert [c.name for c in store.report().conversations] == ["two"]
        assert store.forget(SECRET).conversations == 0


def test_a_line_two_conversations_end_at_stays_for_the_other(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        write(store, ONE, "one")
        write(store, ONE, "copy")
        gone = store.forget("one")
        assert (gone.blocks, gone.checkpoints) == (0, 0)
        assert (gone.shared_blocks, gone.shared_checkpoints) == (len(ONE) // BLOCK, 1)
        assert restore(store, ONE)[0].position == len(ONE)
        assert len(files(tmp_path, "*.json")) == 1
        assert store.forget("copy").blocks == len(ONE) // BLOCK
        assert files(tmp_path) == []


def test_a_branch_that_never_got_a_checkpoint_goes_too(tmp_path: Path) -> None:
    """Blocks of a turn that was interrupted hang on the conversation's line."""
    with opened(tmp_path) as store:
        write(store, SYSTEM, "one")
        store.save(save_of(ONE, blocks=[2 * BLOCK], checkpoint=False))
        assert store.flush(WAIT)
        assert store.forget("one").blocks == 3
        assert files(tmp_path) == []


def test_everything(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        write(store, ONE, SECRET)
        write(store, TWO, "two")
        write(store, tokens(300, seed=3), None)
        store._manifest.drop("block", bytes.fromhex(files(tmp_path, "*.kv")[0].stem))
        (store.path / "manifest.sqlite.set-aside-0000").write_text(SECRET)
        assert store.forget(everything=True).conversations == 2
        assert files(tmp_path) == []
        assert traces(store, ONE, SECRET) == []
        assert (store.report().blocks, store.report().checkpoints) == (0, 0)
        write(store, ONE, "new")
        assert restore(store, ONE)[0].position == len(ONE)


def test_by_age_of_last_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def at(seconds: int) -> Callable[[], float]:
        return lambda: float(seconds)

    with opened(tmp_path) as store:
        monkeypatch.setattr("time.time", at(1000))
        write(store, ONE, "old")
        write(store, TWO, "used again")
        monkeypatch.setattr("time.time", at(2000))
        restore(store, TWO)
        assert store.flush(WAIT)
        monkeypatch.setattr("time.time", at(2500))
        assert store.forget(older_than=1600).conversations == 0
        assert store.forget(older_than=600).conversations == 1
        assert [c.name for c in store.report().conversations] == ["used again"]


def test_while_the_manifest_is_still_being_rebuilt(tmp_path: Path) -> None:
    """Half an index does not know what is shared: it is completed first."""
    with opened(tmp_path) as store:
        write(store, ONE, "one")
        write(store, TWO, "two")
    (tmp_path / "sessions-v1" / "manifest.sqlite").unlink()
    with opened(tmp_path) as store:
        gone = store.forget("one")
        assert (gone.conversations, gone.shared_blocks) == (1, 2)
        assert restore(store, TWO)[0].position == len(TWO)


def test_what_could_not_be_removed_is_not_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError("not yours")

    with opened(tmp_path) as store:
        write(store, ONE, "one")
        for arguments in ({"conversation": "one"}, {"everything": True}):
            with monkeypatch.context() as patched:
                patched.setattr("os.unlink", refuse)
                gone = store.forget(**arguments)
            assert (gone.conversations, gone.reason) == (0, "store_unavailable")
            assert [c.name for c in store.report().conversations] == ["one"]
        assert store.forget("one").conversations == 1
        assert files(tmp_path) == []


def test_one_must_say_what(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for arguments in ({}, {"conversation": "a", "everything": True}):
            with pytest.raises(ValueError):
                store.forget(**arguments)


def test_report_counts_what_there_is(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        write(store, ONE[:600], "one")
        write(store, ONE, "one")
        write(store, TWO, "two")
        report = store.report()
        on_disk = sum(path.stat().st_size for path in files(tmp_path, "*.[ks][vt]"))
        assert report.nbytes == on_disk
        assert (report.blocks, report.checkpoints) == (4, 3)
        assert {c.name: c.position for c in report.conversations} == {"one": 1012, "two": 912}
        chain = Chain(FINGERPRINT, ONE)
        line = [chain.key(i).hex() for i in (1, 2, 3)] + [chain.checkpoint(len(ONE)).hex()]
        (one,) = (c for c in report.conversations if c.name == "one")
        assert one.nbytes == sum(p.stat().st_size for p in files(tmp_path) if p.stem in line)
        assert one.checkpoint == line[-1]


def written(cache_dir: Path) -> list[Path]:
    """All files with ids in them, finished or not."""
    return [path for path in files(cache_dir, "*") if path.is_file()]


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("index_lost", [False, True])
def test_nothing_of_a_killed_turn_stays(tmp_path: Path, everything: bool, index_lost: bool) -> None:
    """Whatever it was writing when it was killed."""
    steps = 0
    while True:
        cache_dir = tmp_path / str(steps)
        with opened(cache_dir) as store:
            write(store, SYSTEM, "one")

        def write_and_die(cache_dir: Path = cache_dir, at: int = steps) -> None:
            store = ColdStore(cache_dir, failpoint=killer(at))
            store.save(save_of(ONE, "one", blocks=[2 * BLOCK]))
            store.flush(WAIT)

        killed = in_child(write_and_die) != 0
        if index_lost:
            for path in (cache_dir / "sessions-v1").glob("manifest.sqlite*"):
                path.unlink()
        with opened(cache_dir) as store:
            gone = store.forget(everything=True) if everything else store.forget("one")
            assert gone.reason is None
            assert gone.conversations == (0 if index_lost and everything else 1)
        assert written(cache_dir) == []
        if not killed:
            break
        steps += 1
    assert steps > 8


def test_a_turn_killed_before_it_had_a_name(tmp_path: Path) -> None:
    """It belongs to no conversation yet: forgetting any takes it along."""
    with opened(tmp_path) as store:
        write(store, TWO, "two")

    def write_and_die() -> None:
        store = ColdStore(tmp_path, failpoint=killer(9))
        store.save(save_of(tokens(600, seed=7), "first"))
        store.flush(WAIT)

    kept = set(written(tmp_path))
    assert in_child(write_and_die) < 0
    assert set(written(tmp_path)) > kept
    with opened(tmp_path) as store:
        store.forget("first")
        assert set(written(tmp_path)) == kept
        assert restore(store, TWO)[0].position == len(TWO)


@pytest.mark.parametrize("arguments", [{"conversation": "one"}, {"everything": True}])
def test_others_save_while_it_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, object]
) -> None:
    """Between two slices the index is free; what is saved then stays."""
    new = tokens(600, seed=9)
    saved: list[float] = []
    with opened(tmp_path) as store, opened(tmp_path, write_busy_s=0.0) as other:
        for end in (600, 800, 1000):
            write(store, ONE[:end], "one")

        def sleep(seconds: float) -> None:
            if not saved:
                saved.append(seconds)
                write(other, new, "new")

        monkeypatch.setattr("llm_mtplx.coldstore.upkeep.forget.HOLD_S", 0.0)
        with monkeypatch.context() as patched:
            patched.setattr("llm_mtplx.coldstore.upkeep.forget.time.sleep", sleep)
            gone = store.forget(**arguments)
        assert (gone.conversations, gone.reason) == (1, None)
        assert saved
        assert other.report().drops == {}
        assert restore(other, new)[0].position == len(new)
        assert restore(store, ONE)[0].position == 0
