"""One round of several conversations: what each wants of the device, done for all at once.

A round is written as if its conversation were alone: a generator that yields what it wants of the
device and is sent the result. ``step`` runs the rounds of a batch side by side and serves equal
wants with one forward. Who drafts less waits at its verify for those who draft more.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import mlx.core as mx

from ..architectures.gated_delta import Tape
from ..architectures.mlx_lm_compat import KVCache
from ..architectures.mtp_head import MTPHead
from ..architectures.pieces import Piece, join, split
from ..architectures.trunk import Cache, Trunk


@dataclass(frozen=True)
class Draft:
    """Rows for the head. Sent back: its last hidden row [1, 1, H], and its logits [1, V]."""

    hidden: mx.array  # [1, T, H]
    tokens: mx.array  # [1, T], the ones after these rows
    cache: KVCache


@dataclass(frozen=True)
class Verify:
    """Tokens for the trunk. Sent back: hidden rows [1, T, H] and logits [T, V]."""

    tokens: mx.array  # [1, T]
    cache: Cache
    tape: Tape | None


@dataclass(frozen=True)
class Read:
    """Arrays that the host reads next. Sent back: nothing, once they are computed."""

    arrays: Sequence[mx.array]


Want: TypeAlias = Draft | Verify | Read
T = TypeVar("T")
Steps: TypeAlias = Generator[Want, Any, T]


def alone(trunk: Trunk, head: MTPHead | None, steps: Steps[T]) -> T:
    """Run one conversation's steps; what they raise is raised here."""
    (result,) = step(trunk, head, [steps])
    if isinstance(result, Exception):
        raise result
    return result


def step(trunk: Trunk, head: MTPHead | None, batch: Sequence[Steps[T]]) -> list[T | Exception]:
    """Run all steps side by side. What one of them raises is its result, and ends it alone.

    Raises what a forward of several conversations failed with; nobody's steps have ended then.
    """
    results: dict[int, T | Exception] = {}
    wants: dict[int, Want] = {}

    def go_on(at: int, sent: Any) -> None:
        try:
            wants[at] = batch[at].send(sent)
        except StopIteration as end:
            wants.pop(at, None)
            results[at] = end.value
        except Exception as error:
            wants.pop(at, None)
            results[at] = error

    for at in range(len(batch)):
        go_on(at, None)
    while wants:
        drafts = {at: want for at, want in wants.items() if isinstance(want, Draft)}
        verifies = {at: want for at, want in wants.items() if isinstance(want, Verify)}
        served: dict[int, Any]
        if drafts:
            assert head is not None
            served = dict(zip(drafts, _draft(trunk, head, [*drafts.values()]), strict=True))
        elif verifies:
            served = dict(zip(verifies, _verify(trunk, [*verifies.values()]), strict=True))
        else:
            mx.eval([want.arrays for want in wants.values() if isinstance(want, Read)])
            served = dict.fromkeys(wants)
        for at, result in served.items():
            go_on(at, result)
    return [results[at] for at in range(len(batch))]


def _draft(trunk: Trunk, head: MTPHead, wants: Sequence[Draft]) -> list[tuple[mx.array, mx.array]]:
    pieces = [Piece(want.hidden.shape[1]) for want in wants]
    hidden = join([want.hidden for want in wants])
    embeddings = trunk.embed(join([want.tokens for want in wants]))
    caches = [want.cache for want in wants]
    rows = split(head.forward_all(hidden, embeddings, pieces, caches), pieces)
    last = [row[:, -1:] for row in rows]
    logits = head.logits(join(last), trunk)[0]
    return [(row, logits[at : at + 1]) for at, row in enumerate(last)]


def _verify(trunk: Trunk, wants: Sequence[Verify]) -> list[tuple[mx.array, mx.array]]:
    hidden = trunk.forward_all(
        [want.tokens for want in wants], [w.cache for w in wants], [w.tape for w in wants]
    )
    pieces = [Piece(rows.shape[1]) for rows in hidden]
    logits = split(trunk.logits(join(hidden)), pieces)
    return [(rows, each[0]) for rows, each in zip(hidden, logits, strict=True)]
