"""What needs what: checkpoints hang on chains of blocks, conversations on checkpoints."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..entries import Entry
from .manifest import Manifest
from .rows import BlockRow, CheckpointRow


@dataclass(frozen=True)
class ForgetPlan:
    """What goes with some conversations, and what of theirs stays for others."""

    conversations: frozenset[str]
    entries: tuple[Entry, ...]
    checkpoints: tuple[CheckpointRow, ...]
    blocks: tuple[BlockRow, ...]
    shared_checkpoints: tuple[CheckpointRow, ...]
    shared_blocks: tuple[BlockRow, ...]


def total_size(rows: Iterable[BlockRow | CheckpointRow]) -> int:
    """Bytes on disk."""
    return sum(row.size for row in rows)


class Graph:
    """A snapshot of the manifest. Plain values; no thread owns it."""

    def __init__(
        self,
        blocks: Iterable[BlockRow],
        checkpoints: Iterable[CheckpointRow],
        entries: Sequence[Entry],
    ) -> None:
        self.blocks = {row.key: row for row in blocks}
        self.checkpoints = {row.key: row for row in checkpoints}
        self.entries = entries

    @classmethod
    def read(cls, manifest: Manifest) -> "Graph":
        """Raises StoreError."""
        return cls(manifest.blocks(), manifest.checkpoints(), manifest.entries())

    def chain_of(self, checkpoint: CheckpointRow) -> list[BlockRow]:
        """The blocks before a checkpoint, the last first, as far as they are stored."""
        chain: list[BlockRow] = []
        row = self.blocks.get(checkpoint.parent)
        # Rows that were damaged since may name each other in a circle.
        while row is not None and (not chain or row.start < chain[-1].start):
            chain.append(row)
            row = self.blocks.get(row.parent)
        return chain

    def unnamed(self) -> list[CheckpointRow]:
        """States that belong to no conversation: those of API clients that give no name, and of
        warmed beginnings."""
        named = {bytes.fromhex(entry.checkpoint) for entry in self.entries}
        return [row for key, row in self.checkpoints.items() if key not in named]

    def last_use(self) -> dict[str, int]:
        """By conversation, when one of its checkpoints was last used, seconds since the epoch.

        Of a system prompt or a rung that several share nobody knows who used it.
        """
        named = Counter(entry.checkpoint for entry in self.entries)
        used: dict[str, int] = {}
        for entry in self.entries:
            row = self.checkpoints.get(bytes.fromhex(entry.checkpoint))
            tells = entry.role == "tip" or named[entry.checkpoint] == 1
            when = row.used if row is not None and tells else entry.created
            used[entry.conversation] = max(when, used.get(entry.conversation, 0))
        return used

    def plan_forget(self, conversations: frozenset[str]) -> ForgetPlan:
        """Everything that only these conversations need, half-written branches included."""
        going = [e for e in self.entries if e.conversation in conversations]
        own = {bytes.fromhex(e.checkpoint) for e in going} & self.checkpoints.keys()
        others = {
            bytes.fromhex(e.checkpoint) for e in self.entries if e.conversation not in conversations
        }
        own |= self._after_tips(going, others)
        going_checkpoints = own - others
        needed = self.chains(self.checkpoints.keys() - going_checkpoints)
        theirs = self.chains(own)
        return ForgetPlan(
            conversations=conversations,
            entries=tuple(going),
            checkpoints=tuple(self.checkpoints[key] for key in going_checkpoints),
            blocks=tuple(self.blocks[key] for key in self._with_branches(theirs) - needed),
            shared_checkpoints=tuple(self.checkpoints[key] for key in own & others),
            shared_blocks=tuple(self.blocks[key] for key in theirs & needed),
        )

    def _after_tips(self, going: Iterable[Entry], others: set[bytes]) -> set[bytes]:
        """Checkpoints that no entry names and that go on from one of these tips, as those of a
        killed turn do: they hold all the conversation's ids."""
        tips = {bytes.fromhex(e.checkpoint) for e in going if e.role == "tip"} - others
        ends = {self.checkpoints[key].parent for key in tips & self.checkpoints.keys()}
        after = self._with_branches(ends & self.blocks.keys())
        named = {bytes.fromhex(entry.checkpoint) for entry in self.entries}
        return {
            key for key, row in self.checkpoints.items() if key not in named and row.parent in after
        }

    def chains(self, checkpoints: Iterable[bytes]) -> set[bytes]:
        """Keys of the blocks before these checkpoints."""
        reached: set[bytes] = set()
        for checkpoint in checkpoints:
            key = self.checkpoints[checkpoint].parent
            while key in self.blocks and key not in reached:
                reached.add(key)
                key = self.blocks[key].parent
        return reached

    def _with_branches(self, keys: set[bytes]) -> set[bytes]:
        """``keys`` and every block that follows one of them."""
        children: dict[bytes, list[bytes]] = {}
        for row in self.blocks.values():
            children.setdefault(row.parent, []).append(row.key)
        reached = set(keys)
        waiting = list(keys)
        while waiting:
            for key in children.get(waiting.pop(), ()):
                if key not in reached:
                    reached.add(key)
                    waiting.append(key)
        return reached
