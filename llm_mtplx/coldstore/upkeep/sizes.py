"""Whether files are as large as their rows say. Looked at before anything goes for want of room."""

from collections.abc import Iterable

from ..blobs import Blobs
from ..index.graph import Graph
from ..index.manifest import Manifest
from ..index.rows import BlockRow, CheckpointRow
from ..keys import FileKind


def correct_sizes(blobs: Blobs, manifest: Manifest, graph: Graph) -> bool:
    """Whether a row's size was wrong; it is right then. Raises StoreError."""
    kinds: tuple[tuple[FileKind, Iterable[BlockRow | CheckpointRow]], ...] = (
        ("block", graph.blocks.values()),
        ("checkpoint", graph.checkpoints.values()),
    )
    wrong: list[tuple[FileKind, bytes, int, int]] = []
    for kind, rows in kinds:
        for row in rows:
            size = blobs.size(kind, row.key)
            if size is not None and size != row.size:
                wrong.append((kind, row.key, row.size, size))
    if wrong:
        manifest.resize(wrong)
    return bool(wrong)
