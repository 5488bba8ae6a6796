"""Which checkpoints and blocks may go, in which order, so that nothing else loses what it needs.

Pure: works on a snapshot of the manifest and decides, removes nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from .. import ladder
from ..entries import Entry
from ..index.graph import Graph, total_size
from ..index.rows import BlockRow, CheckpointRow

KEPT_TIPS = 2  # of a line: to go on, and to go back one turn
Begins = Callable[[CheckpointRow, CheckpointRow], bool]

_ORDER = {"ladder": 0, "prefix": 1, "tip": 2}


@dataclass(frozen=True)
class Cut:
    """One step: entries that go, then the checkpoint and the blocks that nobody needs any more.

    A checkpoint that others name stays, and so do its blocks; then only entries go.
    """

    conversation: str | None  # None: a checkpoint without a conversation
    entries: tuple[Entry, ...]
    checkpoint: CheckpointRow | None
    blocks: tuple[BlockRow, ...]  # those that follow others first

    @property
    def nbytes(self) -> int:
        return total_size(self.blocks) + (self.checkpoint.size if self.checkpoint else 0)


class Cuts:
    """Takes a graph apart step by step. Every step is final: the next ones build on it."""

    def __init__(
        self,
        graph: Graph,
        now: float,
        grace_s: float,
        begins: Begins,
        held: Iterable[bytes] = (),
    ) -> None:
        """``begins(one, other)``: whether the line that ends at one checkpoint is the beginning of
        the other's. ``held`` are blocks that a line about to be written goes on from."""
        self._graph = graph
        self._begins = begins
        self._now = now
        self._grace_s = grace_s
        self._needed = Counter(row.parent for row in graph.blocks.values())
        self._needed.update(row.parent for row in graph.checkpoints.values())
        self._needed.update(held)
        self._named = Counter(bytes.fromhex(entry.checkpoint) for entry in graph.entries)
        self._gone: set[tuple[str, str]] = set()
        self._gone_checkpoints: set[bytes] = set()

    def unreachable(self, is_young: Callable[[BlockRow], bool]) -> list[BlockRow]:
        """Blocks that no checkpoint needs, those that follow others first.

        The checkpoint of a young one may be about to come.
        """
        ends = [row for row in self._graph.blocks.values() if not self._needed[row.key]]
        return [row for end in ends if not is_young(end) for row in self._blocks_up_from(end)]

    def dangling(self) -> list[Cut]:
        """Entries whose checkpoint is gone for longer than a save takes."""
        return [
            self._cut(entry)
            for entry in self._graph.entries
            if bytes.fromhex(entry.checkpoint) not in self._graph.checkpoints
            and not self._is_recent(entry.created)
        ]

    def superseded(self) -> list[Cut]:
        """Tips that have had two successors for longer than the grace, and rungs that their lines
        have outgrown.

        A conversation's name only says where to look: several chats may bear one name, and one
        chat may have forked. A state succeeds another only where it goes on from it.
        """
        found = []
        for entries in self._by_conversation().values():
            tips = _newest_first(entry for entry in entries if entry.role == "tip")
            rungs = [entry for entry in entries if entry.role == "ladder"]
            found += [self._cut(rung) for rung in rungs if self._is_outgrown(rung, rungs, tips)]
            for at, tip in enumerate(tips):
                row = self._graph.checkpoints.get(bytes.fromhex(tip.checkpoint))
                if row is None or at < KEPT_TIPS:
                    continue
                successors = [later for later in tips[:at] if self._goes_on(tip, later)]
                if len(successors) < KEPT_TIPS:
                    continue
                # The one before the first successor is still kept, to go back one turn.
                last_needed = successors[-KEPT_TIPS].created
                if not self._is_recent(max(last_needed, row.used)):
                    found.append(self._cut(tip))
        return found

    def _is_outgrown(self, rung: Entry, rungs: list[Entry], tips: list[Entry]) -> bool:
        """Whether the rung is on some line and no line's ladder has it any more."""
        if self._is_read(rung):
            return False
        lines = [tip for tip in tips if self._goes_on(rung, tip)]
        for tip in lines:
            positions = [other.position for other in rungs if self._goes_on(other, tip)]
            if rung.position in ladder.kept(positions, tip.position):
                return False
        return bool(lines) and not self._is_recent(lines[0].created)

    def _goes_on(self, entry: Entry, later: Entry) -> bool:
        """Whether the line that ends at ``later`` goes on from the one that ends at ``entry``."""
        rows = self._graph.checkpoints
        row = rows.get(bytes.fromhex(entry.checkpoint))
        later_row = rows.get(bytes.fromhex(later.checkpoint))
        if row is None or later_row is None or entry.fingerprint != later.fingerprint:
            return False
        return self._begins(row, later_row)

    def unused_since(self, before: float) -> list[Cut]:
        """Everything of conversations, and checkpoints without one, last used before then."""
        return [
            self._cut(unit)
            for used, units in self._by_use()
            if used < before and not self._is_recent(used)
            for unit in units
            if not self._is_read(unit)
        ]

    def to_free(self, nbytes: int, saving: str | None = None) -> list[Cut]:
        """Steps that free ``nbytes``, or fewer where all that is left is in use.

        Whole conversations, the least recently used first; of each, ladder and prefix before the
        tips. The conversation that is being saved comes last and keeps its newest tip; the rest of
        it may go however lately it was used.
        """
        others = (
            unit
            for used, units in self._by_use(without=saving)
            if not self._is_recent(used)
            for unit in units
            if not self._is_read(unit)
        )
        own = [] if saving is None else self._units(self._by_conversation().get(saving, []))[:-1]
        steps: list[Cut] = []
        waiting = chain(others, own)
        while nbytes > 0 and (unit := next(waiting, None)) is not None:
            steps.append(self._cut(unit))
            nbytes -= steps[-1].nbytes
        return steps

    def _by_use(
        self, without: str | None = None
    ) -> list[tuple[float, Sequence[Entry | CheckpointRow]]]:
        """When each conversation was last used, and what may go of it; the least recent first."""
        last_use = self._graph.last_use()
        found: list[tuple[float, Sequence[Entry | CheckpointRow]]] = [
            (last_use[name], self._units(entries))
            for name, entries in self._by_conversation().items()
            if name != without
        ]
        nameless = [
            row
            for row in self._graph.checkpoints.values()
            if not self._named[row.key] and row.key not in self._gone_checkpoints
        ]
        found += [(row.used, [row]) for row in nameless]
        return sorted(found, key=lambda each: each[0])

    def _by_conversation(self) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = defaultdict(list)
        for entry in self._graph.entries:
            if (entry.conversation, entry.checkpoint) not in self._gone:
                found[entry.conversation].append(entry)
        return found

    def _units(self, entries: list[Entry]) -> list[Entry]:
        """In the order in which they may go."""
        oldest_first = reversed(_newest_first(entries))
        return sorted(oldest_first, key=lambda entry: _ORDER[entry.role])

    def _is_read(self, unit: Entry | CheckpointRow) -> bool:
        """Whether what goes with this unit was used lately, by whomever."""
        if isinstance(unit, Entry):
            row = self._graph.checkpoints.get(bytes.fromhex(unit.checkpoint))
            return row is not None and self._named[row.key] == 1 and self._is_recent(row.used)
        return self._is_recent(unit.used)

    def _cut(self, unit: Entry | CheckpointRow) -> Cut:
        if isinstance(unit, CheckpointRow):
            return Cut(None, (), unit, tuple(self._blocks_without(unit)))
        key = bytes.fromhex(unit.checkpoint)
        self._gone.add((unit.conversation, unit.checkpoint))
        self._named[key] -= 1
        row = self._graph.checkpoints.get(key)
        if row is None or self._named[key]:
            return Cut(unit.conversation, (unit,), None, ())
        return Cut(unit.conversation, (unit,), row, tuple(self._blocks_without(row)))

    def _blocks_without(self, row: CheckpointRow) -> Iterator[BlockRow]:
        self._gone_checkpoints.add(row.key)
        self._needed[row.parent] -= 1
        yield from self._blocks_up_from(self._graph.blocks.get(row.parent))

    def _blocks_up_from(self, row: BlockRow | None) -> Iterator[BlockRow]:
        while row is not None and not self._needed[row.key]:
            yield row
            self._needed[row.parent] -= 1
            row = self._graph.blocks.get(row.parent)

    def _is_recent(self, when: float) -> bool:
        # Times that lie ahead come from a clock that was set back: they say nothing.
        return abs(self._now - when) < self._grace_s


def _newest_first(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: (entry.created, entry.position), reverse=True)
