"""A forked child neither hangs on the parent's store nor does it harm."""

import os
from pathlib import Path

import pytest

from llm_mtplx.coldstore import ColdStore
from llm_mtplx.coldstore.index import forks

from .lines import FINGERPRINT, WAIT, in_child, opened, restore, save_of, tokens, write

# From Python 3.12 on, forking beside other threads warns.
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")

ONE, TWO, THREE = tokens(700), tokens(400, seed=8), tokens(400, seed=9)


def test_a_child_makes_its_own(tmp_path: Path) -> None:
    store = ColdStore(tmp_path)
    write(store, ONE)
    store._writer._changed.acquire()  # as if a thread of the parent held it at the fork

    def child() -> None:
        assert restore(store, ONE)[0].position == 700
        write(store, TWO, "child's")
        assert store.report().drops == {}
        assert store.close(WAIT)

    try:
        assert in_child(child) == 0
    finally:
        store._writer._changed.release()
    assert restore(store, TWO)[0].position == 400
    write(store, THREE, "parent's")
    assert restore(store, THREE)[0].position == 400
    assert store.close(WAIT)


def test_what_a_child_writes_outlives_its_parent_s_store(tmp_path: Path) -> None:
    """The last to close empties the log: it must notice that the child still uses it."""
    store = ColdStore(tmp_path)
    write(store, ONE)
    restore(store, ONE)
    to_parent, to_child = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            write(store, TWO, "two")
            os.write(to_parent[1], b"x")
            os.read(to_child[0], 1)
            write(store, THREE, "three")
        except BaseException:
            os._exit(1)
        os._exit(0)
    os.read(to_parent[0], 1)
    assert store.close(WAIT)
    os.write(to_child[1], b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    for handle in (*to_parent, *to_child):
        os.close(handle)
    with opened(tmp_path) as later:
        for ids in (ONE, TWO, THREE):
            assert restore(later, ids)[0].position == len(ids)


def test_a_fork_in_the_middle_of_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child fails with one clear line, the parent goes on."""
    store = ColdStore(tmp_path)
    write(store, ONE)

    def child() -> None:
        found = store.lookup(FINGERPRINT, ONE)
        assert (found.position, found.reason) == (0, "store_unavailable")
        store.save(save_of(TWO))
        assert store.flush(WAIT)
        assert store.report().drops == {"store_unavailable": 1}
        assert "forked while the store was in use" in store.report().last_error

    with monkeypatch.context() as impatient, store._writer_manifest._use():
        impatient.setattr(forks, "WAIT_S", 0.0)
        assert in_child(child) == 0
    write(store, TWO)
    assert restore(store, TWO)[0].position == 400
    assert in_child(lambda: write(ColdStore(tmp_path), THREE)) == 0
    assert restore(store, THREE)[0].position == 400
    assert store.close(WAIT)
