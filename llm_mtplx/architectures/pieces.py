"""Pieces: the rows of several conversations in one forward, laid end to end.

Whatever works row by row (norms, projections, MLP, experts) runs once on the rows of all pieces,
[1, sum of T_i, H]. Rope, attention, convolution and recurrence run on each conversation's own
state. So nothing is padded, a conversation joins and leaves without a copy, and its numbers are
those of a forward of its own wherever a matmul gives a row the same bits beside any others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import mlx.core as mx

if TYPE_CHECKING:
    from .gated_delta import Tape


@dataclass(frozen=True)
class Piece:
    """One conversation's part of a forward."""

    rows: int
    tape: Tape | None = None
    chunked_from: int | None = None  # see gated_delta_net


def split(packed: mx.array, pieces: Sequence[Piece]) -> list[mx.array]:
    """[1, sum of T_i, ...] -> [1, T_i, ...] for each piece."""
    if len(pieces) == 1:
        return [packed]
    ends = [pieces[0].rows]
    for piece in pieces[1:-1]:
        ends.append(ends[-1] + piece.rows)
    parts: list[mx.array] = mx.split(packed, ends, axis=1)  # type: ignore[assignment]
    return parts


def join(parts: Sequence[mx.array]) -> mx.array:
    """[1, T_i, ...] of each piece -> [1, sum of T_i, ...]."""
    return parts[0] if len(parts) == 1 else mx.concatenate(list(parts), axis=1)
