"""Removing conversations: the files first, then the rows, then every trace of them in SQLite.

What is needed is decided, and removed, while no other process can write to the manifest. A file
that a living writer has announced stays: it is part of a save that comes after the removal.
"""

from collections.abc import Callable, Set
from dataclasses import replace

from . import locks
from .blobs import Blobs
from .connection import SET_ASIDE
from .graph import ForgetPlan, Graph, total_size
from .manifest import Manifest
from .records import Forgotten
from .root import StoreRoot


def forget(
    root: StoreRoot, blobs: Blobs, manifest: Manifest, choose: Callable[[Graph], frozenset[str]]
) -> Forgotten:
    """Remove what only the conversations that ``choose`` names need. Raises StoreError.

    Killed half-way it can be repeated: a conversation's entries go last.
    """
    with manifest.transaction():
        graph = Graph.read(manifest)
        plan = _without(graph.plan_forget(choose(graph)), _announced(root, manifest))
        if not plan.entries:
            return Forgotten()
        for checkpoint in plan.checkpoints:
            blobs.unlink("checkpoint", checkpoint.key)
        for block in plan.blocks:
            blobs.unlink("block", block.key)
        for entry in plan.entries:
            blobs.unlink("entry", entry.key)
        manifest.remove(
            [row.key for row in plan.blocks], [row.key for row in plan.checkpoints], plan.entries
        )
    _remove_set_aside(root)
    return _told(plan, manifest.truncate_wal())


def forget_everything(root: StoreRoot, blobs: Blobs, manifest: Manifest) -> Forgotten:
    """Remove every file and row, what nothing reaches included. Raises StoreError."""
    with manifest.transaction():
        graph = Graph.read(manifest)
        announced = _announced(root, manifest)
        for kind, key in blobs.names():
            if key not in announced:
                blobs.unlink(kind, key)
        manifest.remove(
            graph.blocks.keys() - announced, graph.checkpoints.keys() - announced, graph.entries
        )
    _remove_set_aside(root)
    plan = ForgetPlan(
        conversations=frozenset(entry.conversation for entry in graph.entries),
        entries=tuple(graph.entries),
        checkpoints=tuple(graph.checkpoints.values()),
        blocks=tuple(graph.blocks.values()),
        shared_checkpoints=(),
        shared_blocks=(),
    )
    return _told(plan, manifest.truncate_wal())


def set_aside_names(root: StoreRoot) -> list[str]:
    """Unreadable manifests, and journals of lost ones, that were kept."""
    return [name for name in root.listdir() if name.startswith(SET_ASIDE)]


def _announced(root: StoreRoot, manifest: Manifest) -> set[bytes]:
    """Keys of the files that living writers are about to write. (Packing looks for the row before
    it puts a file in place, so it brings nothing back.)"""
    announced = manifest.announced(packing=False)
    dead = {w for w in {writer for _, writer in announced} if locks.is_dead(root, w)}
    return {key for key, writer in announced if writer not in dead}


def _without(plan: ForgetPlan, keys: Set[bytes]) -> ForgetPlan:
    """The plan without the files of these keys."""
    return replace(
        plan,
        checkpoints=tuple(row for row in plan.checkpoints if row.key not in keys),
        blocks=tuple(row for row in plan.blocks if row.key not in keys),
    )


def _remove_set_aside(root: StoreRoot) -> None:
    # They name conversations too; what they knew was rebuilt from the files.
    for name in set_aside_names(root):
        (root.path / name).unlink(missing_ok=True)


def _told(plan: ForgetPlan, wal_truncated: bool) -> Forgotten:
    return Forgotten(
        conversations=len(plan.conversations),
        blocks=len(plan.blocks),
        checkpoints=len(plan.checkpoints),
        nbytes=total_size(plan.blocks) + total_size(plan.checkpoints),
        shared_blocks=len(plan.shared_blocks),
        shared_checkpoints=len(plan.shared_checkpoints),
        shared_nbytes=total_size(plan.shared_blocks) + total_size(plan.shared_checkpoints),
        wal_truncated=wal_truncated,
    )
