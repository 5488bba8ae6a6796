"""A decoder whose trunk chooses given tokens: every forward is real, the choices are not."""

from collections.abc import Sequence
from dataclasses import replace

import mlx.core as mx

from llm_mtplx.engine.load import LoadedModel
from llm_mtplx.speculative.decoder import Ahead, Decoder
from llm_mtplx.speculative.distributions import Sampling
from llm_mtplx.speculative.step import Steps


class Dictated(Decoder):
    """``line``: the prompt's ids, the answer's and some more. ``head``: ``right``, or ``noisy``."""

    def __init__(self, model: LoadedModel, line: list[int], head: str) -> None:
        super().__init__(model.trunk, model.head, Sampling())
        self._line = line
        self._noisy = head == "noisy"

    def _draft(
        self, primary: int, depth: int, copied: Sequence[mx.array] = ()
    ) -> Steps[list[mx.array]]:
        drafts = yield from super()._draft(primary, depth, copied)
        given = list(drafts[: len(copied)])
        for at in range(self._next + len(given), self._next + len(drafts)):
            wrong = self._noisy and at * 7 % 5 < 2
            given.append(mx.array([self._line[at] + wrong], dtype=mx.uint32))
        return given

    def _judge(
        self, drafts: list[mx.array], logits: mx.array
    ) -> Steps[tuple[list[int], list[int]]]:
        drafted, _ = yield from super()._judge(drafts, logits)
        return drafted, self._line[self._next : self._next + len(drafted) + 1]

    def _launch(self, token: mx.array, position: int, unread: Sequence[mx.array] = ()) -> Ahead:
        ahead = super()._launch(token, position, unread)
        given = mx.array([self._line[position]], dtype=mx.uint32)
        return replace(ahead, choice=replace(ahead.choice, tokens=given))
