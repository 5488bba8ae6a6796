"""Clients are served in turn, and models make room for each other."""

import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from llm_mtplx.engine.fair import FairQueue


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers())))
def test_nobody_waits_for_more_than_one_turn_of_each_other(items: list[tuple[str, int]]) -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue()
    for client, item in items:
        queue.put((client, item), client)
    assert Counter(queue.waiting()) == Counter(items)
    served = [queue.get() for _ in items]
    for client in "abc":
        own = [item for name, item in served if name == client]
        assert own == [item for name, item in items if name == client]
        turns = [at for at, (name, _) in enumerate(served) if name == client]
        clients = len({name for name, _ in items})
        assert all(b - a <= clients for a, b in itertools.pairwise(turns))
