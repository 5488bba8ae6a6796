"""Which tokens may come at each row of a window, by rules such as a grammar.

A mask forbids tokens by setting their logits to minus infinity: after the penalties, before
temperature, top-k and the rest of the shaping, so that those choose among allowed tokens and what
is drawn follows the trunk's own law on them. Trunk and head go through the same masks: row n of a
window is masked by what may follow the first n drafts. Masks go to the device packed, one bit a
token; no logits come back for them.
"""

import math
from collections.abc import Collection, Sequence
from typing import Protocol, cast

import mlx.core as mx
import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint8]

_BITS = [1 << bit for bit in range(8)]


class Rules(Protocol):
    """What may follow an answer so far. Knows nothing of logits or drafts."""

    def allowed(self) -> bytes:
        """One bit a token, lowest bit first; tokens beyond the last bit are forbidden."""

    def take(self, token: int) -> bool:
        """Go on by ``token``; False, and nothing changes, where it is forbidden."""

    def back(self, tokens: int) -> None:
        """Take back the last ``tokens``."""


class Without:
    """Rules by which any token may come but one."""

    def __init__(self, token: int, tokens: int) -> None:
        self._token = token
        bits = _all(tokens)
        bits[token // 8] &= ~(1 << token % 8)
        self._bits = bytes(bits)

    def allowed(self) -> bytes:
        return self._bits

    def take(self, token: int) -> bool:
        return token != self._token

    def back(self, tokens: int) -> None:
        """Nothing depends on what came before."""


class Until:
    """Rules by which any token may come, and after one of them only an end.

    ``opener``: the token before which it does not count; None where it counts at once.
    """

    def __init__(self, token: int, ends: Collection[int], tokens: int, opener: int | None) -> None:
        self._token, self._opener = token, opener
        self._ends = ends
        self._anything = bytes(_all(tokens))
        only = bytearray(len(self._anything))
        for end in ends:
            only[end // 8] |= 1 << end % 8
        self._only_ends = bytes(only)
        self._taken = 0
        self._opened = 0 if opener is None else math.inf  # how many had been taken by then
        self._closed = math.inf

    def allowed(self) -> bytes:
        return self._anything if self._taken < self._closed else self._only_ends

    def take(self, token: int) -> bool:
        if self._taken >= self._closed and token not in self._ends:
            return False
        self._taken += 1
        if token == self._token and self._opened < self._taken < self._closed:
            self._closed = self._taken
        if token == self._opener and self._taken < self._opened:
            self._opened = self._taken
        return True

    def back(self, tokens: int) -> None:
        self._taken -= tokens
        if self._taken < self._closed:
            self._closed = math.inf
        if self._opener is not None and self._taken < self._opened:
            self._opened = math.inf


def _all(tokens: int) -> bytearray:
    return bytearray(b"\xff" * (tokens // 8) + bytes([(1 << tokens % 8) - 1]))


class Masks:
    """The rules of one answer, run ahead along the drafts and taken back for rejected ones."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._ahead: list[int] = []  # drafts the rules have taken
        self._rows: list[Bits] = []  # row n: what may follow the first n of them

    def apply(self, logits: mx.array, drafts: Sequence[mx.array] = ()) -> mx.array:
        """Forbid tokens in ``logits`` [T, V]: the last row has all ``drafts`` (each an array [1])
        before it, the row above it all but the last, and so on.
        """
        # The device computes them while the rules are asked.
        mx.async_eval(logits)  # type: ignore[no-untyped-call]
        rows, vocabulary = logits.shape
        tokens = [cast(int, draft.item()) for draft in drafts]
        width = -(-vocabulary // 8)
        packed = np.zeros((rows, width), np.uint8)
        for row, known in zip(packed, self._window(tokens)[-rows:], strict=True):
            row[: len(known)] = known[:width]
        bits = mx.array(packed)[..., None] & mx.array(_BITS, dtype=mx.uint8)
        allowed = (bits != 0).reshape(rows, -1)[:, :vocabulary]
        return mx.where(allowed, logits, -mx.inf)

    def emitted(self, tokens: Sequence[int]) -> None:
        """``tokens`` are part of the answer now, and no draft is."""
        self._return_to(_common(self._ahead, tokens))
        for token in tokens[len(self._ahead) :]:
            taken = self._rules.take(token)
            assert taken, f"token {token} was emitted against the rules"
        self._ahead, self._rows = [], []

    def _window(self, drafts: list[int]) -> list[Bits]:
        """A row after each number of drafts, from none to all."""
        self._return_to(_common(self._ahead, drafts))
        while len(self._rows) <= len(drafts):
            if len(self._rows) > len(self._ahead):
                draft = drafts[len(self._ahead)]
                if not self._rules.take(draft):
                    break
                self._ahead.append(draft)
            self._rows.append(np.frombuffer(self._rules.allowed(), np.uint8))
        # What follows a forbidden draft is never read: the draft is not accepted.
        anything = np.full_like(self._rows[0], 255)
        return self._rows + [anything] * (len(drafts) + 1 - len(self._rows))

    def _return_to(self, drafts: int) -> None:
        self._rules.back(len(self._ahead) - drafts)
        del self._ahead[drafts:], self._rows[drafts + 1 :]


def _common(some: Sequence[int], others: Sequence[int]) -> int:
    length = 0
    while length < min(len(some), len(others)) and some[length] == others[length]:
        length += 1
    return length
