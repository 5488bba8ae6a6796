"""Finding the deepest restorable position of a line: a walk over its keys, nothing else."""

from collections.abc import Container, Iterator

from ..keys import BLOCK, Chain
from ..reader import Wanted
from ..reasons import MissReason
from ..records import Found
from .manifest import Manifest
from .rows import BlockRow

_FIRST, _STEP = 8, 128  # blocks asked for at once: few where the line may be unknown


def find(
    manifest: Manifest,
    chain: Chain,
    needs_checkpoint: bool,
    refused: Container[bytes],
    deeper_than: int,
) -> Found:
    """The deepest position of ``chain`` beyond ``deeper_than`` that can be restored.

    ``refused`` are keys of files known to be bad. Raises StoreError.
    """
    sizes = _stored_blocks(manifest, chain, refused)
    blocks, position, checkpoint, nbytes = 0, 0, None, 0
    for parent, end, key, size in _checkpoints(manifest, chain, len(sizes), refused):
        if not needs_checkpoint and parent < len(sizes):
            break  # the last whole block ends deeper
        blocks, position, checkpoint, nbytes = parent, end, key, size
        break
    if not needs_checkpoint and checkpoint is None:
        blocks, position = len(sizes), len(sizes) * BLOCK
    if position <= deeper_than:
        blocks, position, checkpoint, nbytes = 0, 0, None, 0
    return Found(
        chain=chain,
        position=position,
        blocks=blocks,
        checkpoint=checkpoint,
        nbytes=nbytes + sum(sizes[:blocks]),
        reason=_why_not_deeper(chain, position, len(sizes)),
        needs_checkpoint=needs_checkpoint,
        deeper_than=deeper_than,
    )


def stored_keys(manifest: Manifest, chain: Chain, blocks: int) -> set[bytes]:
    """Keys of those of the first ``blocks`` blocks that are stored. Raises StoreError."""
    rows = manifest.blocks_named([chain.key(i + 1) for i in range(blocks)])
    return {
        chain.key(i + 1)
        for i in range(blocks)
        if chain.key(i + 1) in rows and _is_block(manifest, rows[chain.key(i + 1)], chain, i)
    }


def wanted_block(chain: Chain, index: int) -> Wanted:
    start = index * BLOCK
    ids = chain.packed(start, start + BLOCK)
    return Wanted("block", chain.key(index + 1), chain.key(index), start, start + BLOCK, ids)


def wanted_checkpoint(chain: Chain, position: int) -> Wanted:
    blocks = position // BLOCK
    start = blocks * BLOCK
    ids = chain.packed(start, position)
    return Wanted("checkpoint", chain.checkpoint(position), chain.key(blocks), start, position, ids)


def _stored_blocks(manifest: Manifest, chain: Chain, refused: Container[bytes]) -> list[int]:
    """Sizes of the blocks that are stored without a gap from position 0."""
    sizes: list[int] = []
    step = _FIRST
    while len(sizes) < chain.whole_blocks:
        end = min(len(sizes) + step, chain.whole_blocks)
        keys = [chain.key(i + 1) for i in range(len(sizes), end)]
        known = manifest.blocks_named(keys)
        for key in keys:
            row = known.get(key)
            if row is None or key in refused or not _is_block(manifest, row, chain, len(sizes)):
                return sizes
            sizes.append(row.size)
        step = _STEP
    return sizes


def _is_block(manifest: Manifest, row: BlockRow, chain: Chain, index: int) -> bool:
    """Whether a row says what it must of this block of the line."""
    fits = (row.parent, row.start) == (chain.key(index), index * BLOCK)
    if not fits:
        manifest.doubt_block(row.key)
    return fits


def _checkpoints(
    manifest: Manifest, chain: Chain, blocks: int, refused: Container[bytes]
) -> Iterator[tuple[int, int, bytes, int]]:
    """Stored checkpoints of the line, deepest first: whole blocks, position, key, size."""
    step = _FIRST
    while blocks >= 0:
        parents = range(blocks, max(blocks - step, -1), -1)
        after = manifest.positions_after([chain.key(i) for i in parents])
        for parent in parents:
            ends = sorted(after.get(chain.key(parent), ()), reverse=True)
            for end in ends:
                if end // BLOCK != parent:
                    manifest.doubt_position(chain.key(parent), end)
            keys = {
                end: chain.checkpoint(end)
                for end in ends
                if end <= len(chain) and end // BLOCK == parent
            }
            rows = manifest.checkpoints_named(list(keys.values())) if keys else {}
            for end, key in keys.items():
                if key in rows and key not in refused:
                    yield parent, end, key, rows[key].size
        blocks -= len(parents)
        step = _STEP


def _why_not_deeper(chain: Chain, position: int, stored: int) -> MissReason | None:
    if len(chain) == 0:
        return "too_short"
    if position == len(chain):
        return None
    return "no_checkpoint" if stored * BLOCK > position else "not_found"
