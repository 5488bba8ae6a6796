"""What `status` shows of the store."""

from ..index.graph import Graph, total_size
from ..index.ledger import stored_now, written_last_hour
from ..index.manifest import Manifest
from ..index.set_aside import count_set_aside
from ..records import Conversation, Report, StoreLimits
from ..root import StoreRoot
from .limits import room_now


def conversations(graph: Graph) -> tuple[Conversation, ...]:
    """Every conversation with its newest tip that is still there, last used first."""
    sizes = _chain_sizes(graph)
    used = graph.last_use()
    told: dict[str, Conversation] = {}
    for entry in graph.entries:  # newest first
        row = graph.checkpoints.get(bytes.fromhex(entry.checkpoint))
        if row is None or entry.role != "tip" or entry.conversation in told:
            continue
        told[entry.conversation] = Conversation(
            name=entry.conversation,
            fingerprint=entry.fingerprint,
            checkpoint=entry.checkpoint,
            position=entry.position,
            nbytes=row.size + sizes.get(row.parent, 0),
            used=used[entry.conversation],
        )
    return tuple(sorted(told.values(), key=lambda c: c.used, reverse=True))


def holdings(root: StoreRoot, manifest: Manifest, limits: StoreLimits) -> Report:
    """What the disk tells. Raises StoreError."""
    graph = Graph.read(manifest)
    kept = conversations(graph)
    nbytes = total_size(graph.blocks.values()) + total_size(graph.checkpoints.values())
    stored = stored_now(manifest)
    room = room_now(root, limits, stored, max((each.nbytes for each in kept), default=0))
    return Report(
        path=str(root.path),
        reason=None,
        conversations=kept,
        blocks=len(graph.blocks),
        checkpoints=len(graph.checkpoints),
        unnamed_states=len(graph.unnamed()),
        nbytes=nbytes,
        other_bytes=stored - nbytes,
        max_bytes=room.configured,
        cap_bytes=room.cap,
        free_bytes=room.free,
        disk_state=room.state,
        largest_bytes=room.largest,
        written_last_hour=written_last_hour(manifest),
        announced=len(manifest.announced()),
        set_aside=count_set_aside(root),
        rebuilding=manifest.rebuild_pending,
    )


def _chain_sizes(graph: Graph) -> dict[bytes, int]:
    """Bytes of each block and all before it."""
    sizes: dict[bytes, int] = {}
    for row in sorted(graph.blocks.values(), key=lambda row: row.start):
        sizes[row.key] = row.size + sizes.get(row.parent, 0)
    return sizes
