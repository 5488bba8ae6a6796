"""Several processes at once, and a manifest with any byte of it changed."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_mtplx.coldstore import BLOCK, ColdStore, StoreLimits

from .lines import WAIT, files, opened, restore, tokens, write

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
                store.missing("model-a", tokens(700))
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
