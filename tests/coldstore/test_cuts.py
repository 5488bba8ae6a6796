"""Which parts of the store go first, and that nothing goes that something else needs."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_mtplx.coldstore import BLOCK, Entry
from llm_mtplx.coldstore.index.graph import Graph
from llm_mtplx.coldstore.index.manifest import BlockRow, CheckpointRow
from llm_mtplx.coldstore.upkeep.evictions import Cut, Cuts

NOW, GRACE = 1_000_000, 600
ROOT = bytes(32)


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def shorter(one: CheckpointRow, other: CheckpointRow) -> bool:
    """As if all were on one line."""
    return one.position < other.position


def entry(name: str, checkpoint: int, position: int, role: str = "tip", created: int = 0) -> Entry:
    return Entry(
        conversation=name,
        fingerprint="f",
        checkpoint=key(checkpoint).hex(),
        position=position,
        role=role,  # type: ignore[arg-type]
        created=created,
    )


@dataclass
class Forest:
    graph: Graph

    def chain(self, checkpoint: bytes) -> set[bytes]:
        return {row.key for row in self.graph.chain_of(self.graph.checkpoints[checkpoint])}


@st.composite
def forests(draw: st.DrawFn) -> Forest:
    blocks: list[BlockRow] = []
    for number in range(draw(st.integers(0, 12))):
        parent = draw(st.sampled_from([None, *blocks]))
        start = 0 if parent is None else parent.start + BLOCK
        before = ROOT if parent is None else parent.key
        blocks.append(BlockRow(key(1000 + number), before, start, draw(st.integers(1, 9))))
    checkpoints: list[CheckpointRow] = []
    for number in range(draw(st.integers(0, 8))):
        parent = draw(st.sampled_from([None, *blocks]))
        start = 0 if parent is None else parent.start + BLOCK
        before = ROOT if parent is None else parent.key
        used = draw(st.integers(NOW - 3 * GRACE, NOW + 2 * GRACE))
        size = draw(st.integers(1, 9))
        checkpoints.append(CheckpointRow(key(2000 + number), before, start + 1, size, used))
    names = st.sampled_from(["a", "b", "c"])
    found: dict[tuple[str, bytes], Entry] = {}
    for _ in range(draw(st.integers(0, 10))):
        number = draw(st.integers(2000, 2009))
        told = entry(
            draw(names),
            number,
            draw(st.integers(1, 3)) * BLOCK,
            draw(st.sampled_from(["tip", "prefix", "ladder"])),
            draw(st.integers(NOW - 3 * GRACE, NOW)),
        )
        found[told.conversation, key(number)] = told
    return Forest(Graph(blocks, checkpoints, list(found.values())))


def check(forest: Forest, cuts: list[Cut], garbage: list[BlockRow]) -> None:
    """Nothing goes twice; what is left of a line is whole; nothing useless is left."""
    graph = forest.graph
    gone_blocks = [row.key for row in garbage] + [row.key for cut in cuts for row in cut.blocks]
    gone = [cut.checkpoint.key for cut in cuts if cut.checkpoint is not None]
    entries = [(e.conversation, e.checkpoint) for cut in cuts for e in cut.entries]
    for things in (gone_blocks, gone, entries):
        assert len(things) == len(set(things))  # type: ignore[arg-type]
    left = graph.checkpoints.keys() - set(gone)
    needed = set().union(*(forest.chain(each) for each in left))
    assert graph.blocks.keys() - set(gone_blocks) == needed
    for each in graph.entries:
        if (each.conversation, each.checkpoint) not in entries:
            assert bytes.fromhex(each.checkpoint) not in gone


@given(forests(), st.integers(0, 60), st.sampled_from([None, "a", "b"]))
def test_whatever_goes_nothing_that_stays_loses_anything(
    forest: Forest, wanted: int, saving: str | None
) -> None:
    cuts = Cuts(forest.graph, NOW, GRACE, shorter)
    garbage = cuts.unreachable(lambda row: False)
    steps = [*cuts.dangling(), *cuts.superseded()]
    freed = cuts.to_free(wanted, saving)
    check(forest, [*steps, *freed], garbage)
    # No step more than was asked for.
    assert sum(cut.nbytes for cut in freed[:-1]) < max(wanted, 1)


@given(forests())
def test_the_conversation_that_is_being_saved_keeps_its_last_tip(forest: Forest) -> None:
    cuts = Cuts(forest.graph, NOW, GRACE, shorter)
    steps = cuts.to_free(10**9, "a")
    gone = {e.checkpoint for cut in steps for e in cut.entries if e.conversation == "a"}
    tips = [e for e in forest.graph.entries if e.conversation == "a" and e.role == "tip"]
    if tips:
        newest = max(tips, key=lambda e: (e.created, e.position))
        others = [e for e in tips if e.created == newest.created and e.position == newest.position]
        assert any(e.checkpoint not in gone for e in others)


@given(forests())
def test_what_was_used_lately_stays(forest: Forest) -> None:
    last_use = forest.graph.last_use()
    cuts = Cuts(forest.graph, NOW, GRACE, shorter)
    for cut in [*cuts.unused_since(NOW), *cuts.to_free(10**9)]:
        for each in cut.entries:
            assert abs(NOW - last_use[each.conversation]) >= GRACE
        assert cut.checkpoint is None or abs(NOW - cut.checkpoint.used) >= GRACE


@given(forests(), st.integers(0, 12))
def test_blocks_that_a_save_builds_on_stay(forest: Forest, number: int) -> None:
    rows = list(forest.graph.blocks.values())[:number]
    held = set()
    for row in rows[-1:]:
        end = CheckpointRow(key(1), row.key, 0, 0, 0)
        held = {block.key for block in forest.graph.chain_of(end)}
    cuts = Cuts(forest.graph, NOW, GRACE, shorter, held)
    gone = {row.key for row in cuts.unreachable(lambda row: False)}
    gone |= {row.key for cut in cuts.to_free(10**9) for row in cut.blocks}
    assert not gone & held


def line(number: int, blocks: int, used: int) -> tuple[list[BlockRow], CheckpointRow]:
    """A line of its own with a checkpoint at its end; every file is ten bytes."""
    keys = [ROOT, *(key(number * 100 + i) for i in range(blocks))]
    rows = [BlockRow(keys[i + 1], keys[i], i * BLOCK, 10) for i in range(blocks)]
    end = CheckpointRow(key(number), keys[-1], blocks * BLOCK + 1, 10, used)
    return rows, end


def test_the_least_recently_used_goes_first_and_its_ladder_before_its_tip() -> None:
    old, new = line(1, 3, NOW - 9000), line(2, 3, NOW - 3000)
    rung = CheckpointRow(key(3), old[0][0].key, BLOCK, 10, NOW - 9000)
    prefix = CheckpointRow(key(4), old[0][1].key, 2 * BLOCK, 10, NOW - 9000)
    entries = [
        entry("old", 1, 3 * BLOCK + 1, created=5),
        entry("old", 4, 2 * BLOCK, "prefix", created=4),
        entry("old", 3, BLOCK, "ladder", created=3),
        entry("new", 2, 3 * BLOCK + 1, created=6),
    ]
    graph = Graph([*old[0], *new[0]], [old[1], new[1], rung, prefix], entries)

    def steps(nbytes: int) -> list[tuple[str | None, bytes, int]]:
        cuts = Cuts(graph, NOW, GRACE, shorter).to_free(nbytes)
        return [(c.conversation, c.checkpoint.key, len(c.blocks)) for c in cuts if c.checkpoint]

    assert steps(0) == []
    assert steps(10) == [("old", key(3), 0)]
    assert steps(20) == [("old", key(3), 0), ("old", key(4), 0)]
    assert steps(21)[2:] == [("old", key(1), 3)]
    assert steps(61)[3:] == [("new", key(2), 3)]


def sharing(role: str, used: int) -> Graph:
    """Two conversations, the first one older, with one beginning, last used by anybody."""
    shared = line(9, 1, used)
    tips = [line(1, 1, NOW - 9000), line(2, 1, NOW - 3000)]
    entries = [
        entry("new", 2, BLOCK + 1, created=NOW - 3000),
        entry("new", 9, BLOCK, role, created=NOW - 3000),
        entry("old", 1, BLOCK + 1, created=NOW - 9000),
        entry("old", 9, BLOCK, role, created=NOW - 9000),
    ]
    blocks = [*shared[0], *tips[0][0], *tips[1][0]]
    return Graph(blocks, [shared[1], tips[0][1], tips[1][1]], entries)


@pytest.mark.parametrize("role", ["prefix", "ladder"])
def test_what_two_share_does_not_make_both_look_used(role: str) -> None:
    graph = sharing(role, NOW)
    assert graph.last_use() == {"old": NOW - 9000, "new": NOW - 3000}
    (name, own), *rest = [
        (cut.conversation, cut.checkpoint)
        for cut in Cuts(graph, NOW, GRACE, shorter).unused_since(NOW)
    ]
    assert (name, own) == ("old", None)  # the other needs it
    # What somebody reads stays, and the name of the last one that has it.
    assert rest == [("old", graph.checkpoints[key(1)]), ("new", graph.checkpoints[key(2)])]
    assert Cuts(graph, NOW, GRACE, shorter).to_free(10**9) == Cuts(
        graph, NOW, GRACE, shorter
    ).unused_since(NOW)


def test_what_one_alone_has_tells_when_it_was_used() -> None:
    """One that is gone on with from its beginning only."""
    graph = sharing("prefix", NOW)
    alone = Graph(graph.blocks.values(), graph.checkpoints.values(), graph.entries[2:])
    assert alone.last_use() == {"old": NOW}


def test_tips_are_superseded_ten_minutes_after_two_went_on_from_them() -> None:
    one, two, three = (line(n, n, 0) for n in (1, 2, 3))
    rows = [*one[0], *two[0], *three[0]]
    for age, want in ((GRACE, [key(1)]), (GRACE - 1, [])):
        entries = [
            entry("a", number, number * BLOCK + 1, created=created)
            for number, created in ((3, NOW - age), (2, NOW - 2000), (1, NOW - 3000))
        ]
        graph = Graph(rows, [one[1], two[1], three[1]], entries)
        cuts = Cuts(graph, NOW, GRACE, shorter).superseded()
        assert [cut.checkpoint.key for cut in cuts if cut.checkpoint] == want
        # As many as there are of one name: what does not go on from a tip takes nothing from it.
        assert Cuts(graph, NOW, GRACE, lambda one, other: False).superseded() == []
        only_the_newest = Cuts(graph, NOW, GRACE, lambda one, other: other.key == key(3))
        assert only_the_newest.superseded() == []


def test_a_clock_that_was_set_back_protects_nothing_for_ever() -> None:
    ahead = line(1, 1, NOW + 100_000)
    graph = Graph(ahead[0], [ahead[1]], [entry("a", 1, 1, created=NOW + 100_000)])
    assert len(Cuts(graph, NOW, GRACE, shorter).to_free(1)) == 1


def test_rungs_that_a_line_has_outgrown_go() -> None:
    old = NOW - 2 * GRACE
    rungs = [1024, 2048, 3072]
    rows = [CheckpointRow(key(number), ROOT, at, 1, old) for number, at in enumerate(rungs)]
    rows.append(CheckpointRow(key(9), ROOT, 40_000, 1, old))
    named = [entry("a", number, at, "ladder", old) for number, at in enumerate(rungs)]

    def outgrown(length: int) -> list[int]:
        tip = entry("a", 9, length, "tip", old)
        cuts = Cuts(Graph([], rows, [*named, tip]), NOW, GRACE, shorter)
        return [e.position for cut in cuts.superseded() for e in cut.entries]

    assert outgrown(4_200) == [1024]
    rows[0] = CheckpointRow(key(0), ROOT, 1024, 1, NOW)
    assert outgrown(4_200) == []
    rows[0] = CheckpointRow(key(0), ROOT, 1024, 1, old)
    # The deepest one still serves every rung of the longer line.
    assert outgrown(40_000) == [1024, 2048]


def test_rungs_of_one_chat_outlive_a_short_one_of_the_same_name() -> None:
    old = NOW - 2 * GRACE
    rows = [CheckpointRow(key(n), ROOT, at, 1, old) for n, at in enumerate([1024, 2048, 3072])]
    tips = [CheckpointRow(key(8), ROOT, 4_200, 1, old), CheckpointRow(key(9), ROOT, 50, 1, old)]
    entries = [entry("a", n, row.position, "ladder", old) for n, row in enumerate(rows)]
    entries += [entry("a", 8, 4_200, created=old), entry("a", 9, 50, created=old + 1)]
    cuts = Cuts(Graph([], [*rows, *tips], entries), NOW, GRACE, shorter).superseded()
    assert [e.position for cut in cuts for e in cut.entries] == [1024]
