"""Does this machine answer the same however the prompt's state came about?

One follow-up question is answered by a cold turn, by turns that go on from RAM and from SSD, and
without drafts. Equal ids are what this plugin promises; where a backend's kernels round otherwise
for other shapes, ids may part at a near-tie, so the gap between the two best logits is told too.
"""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from ..coldstore import ColdStore
from ..engine.load import LoadedModel
from ..engine.memory import keeper_apart
from ..engine.turn import Turn
from ..protocol import Request
from ..sessions.keeper import Keeper
from ..speculative.decoder import Decoder
from ..speculative.distributions import Sampling

SYSTEM = "You are a helpful assistant. You answer in short and polite sentences."
QUESTIONS = ("What is the capital of France?", "And which river runs through it?")
TOKENS = 32
ROWS = 4  # verified at once: a draft of 3
NEAR_TIE = 1e-3  # a top-2 gap under this may fall either way
WAIT_S = 60.0


@dataclass(frozen=True)
class Way:
    """One way to the answer, beside the cold turn's."""

    name: str
    restored: int
    ids: list[int]
    first_difference: int | None = None  # index in the answer
    gap: float | None = None  # between the cold turn's two best logits there

    @property
    def holds(self) -> bool:
        return self.gap is None or self.gap < NEAR_TIE


@dataclass(frozen=True)
class Verified:
    prompt_tokens: int
    cold: list[int]  # the answer's ids
    ways: list[Way]
    rows_equal: bool  # logits of ROWS rows at once are those of one by one, bit for bit
    rows_difference: float  # the largest, relative to the largest logit

    @property
    def holds(self) -> bool:
        return all(way.holds for way in self.ways)


def verify(model: LoadedModel) -> Verified:
    """Runs on the engine's thread; leaves nothing behind."""
    with tempfile.TemporaryDirectory() as directory:
        return _Verification(model, Path(directory)).run()


class _Verification:
    def __init__(self, model: LoadedModel, directory: Path) -> None:
        self._model = model
        self._directory = directory
        self._messages: list[dict[str, Any]] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": QUESTIONS[0]},
        ]

    def run(self) -> Verified:
        store = ColdStore(self._directory)
        warm = keeper_apart(self._model, store)
        first = self._turn(warm, self._model)
        first.run()
        first.keep()
        store.flush(WAIT_S)
        self._messages += [
            {"role": "assistant", "content": first.answer.text},
            {"role": "user", "content": QUESTIONS[1]},
        ]
        # An answer that ends early would compare little.
        endless = replace(self._model, eos_ids=frozenset())
        ram = self._turn(warm, endless)
        # The prompt has the model's own ids for its earlier answer, the others get them too.
        prompt = ram.prompt
        cold = self._turn(keeper_apart(self._model), endless, prompt)
        cold.run()
        ways = [
            self._way("from RAM", ram, cold),
            self._way("from SSD", self._turn(keeper_apart(self._model, store), endless), cold),
        ]
        if self._model.head is not None:
            plain = self._turn(keeper_apart(self._model), endless, prompt, depth=0)
            ways.append(self._way("without drafts", plain, cold))
        store.close(WAIT_S)
        equal, difference = self._rows(prompt)
        return Verified(len(prompt), cold.emitted, ways, equal, difference)

    def _turn(
        self,
        keeper: Keeper,
        model: LoadedModel,
        prompt: list[int] | None = None,
        depth: int | None = None,
    ) -> Turn:
        if depth is None and self._model.head is not None:
            depth = max(self._model.depth, 1)
        request = Request(
            "verify",
            self._model.folder.path,
            list(self._messages),
            conversation="verify",
            temperature=0.0,
            max_tokens=TOKENS,
            depth=depth,
        )
        turn = Turn(model, request, keeper, lambda event: None, lambda: False)
        if prompt is not None:
            turn.prompt = prompt
        return turn

    def _way(self, name: str, turn: Turn, cold: Turn) -> Way:
        restored = turn.run().restored
        ids, wanted = turn.emitted, cold.emitted
        parted = [at for at, (a, b) in enumerate(zip(ids, wanted, strict=True)) if a != b]
        if not parted:
            return Way(name, restored, ids)
        return Way(name, restored, ids, parted[0], self._gap(cold.prompt + wanted[: parted[0]]))

    def _gap(self, ids: list[int]) -> float:
        decoder = self._prefilled(ids)
        assert decoder.state.hidden is not None
        logits = self._model.trunk.logits(decoder.state.hidden)[0, 0].astype(mx.float32)
        second, first = np.sort(np.array(logits))[-2:]
        return float(first - second)

    def _rows(self, prompt: list[int]) -> tuple[bool, float]:
        at_once = self._logits(prompt, [prompt[:ROWS]])
        one_by_one = self._logits(prompt, [[token] for token in prompt[:ROWS]])
        equal = bool((at_once == one_by_one).all())
        return equal, float(np.abs(at_once - one_by_one).max() / np.abs(one_by_one).max())

    def _logits(self, prompt: list[int], steps: list[list[int]]) -> np.ndarray:
        """Logits [ROWS, V] of known tokens after the prompt, forwarded in ``steps``."""
        state = self._prefilled(prompt).state
        trunk = self._model.trunk
        rows = []
        for ids in steps:
            logits = trunk.logits(trunk.forward(mx.array([ids]), state.cache))[0]
            rows.append(np.array(logits.astype(mx.float32)))
        return np.concatenate(rows)

    def _prefilled(self, ids: list[int]) -> Decoder:
        decoder = Decoder(self._model.trunk, self._model.head, Sampling())
        for _ in decoder.prefill(ids):
            pass
        return decoder
