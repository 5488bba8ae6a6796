"""Penalties on tokens that have been seen, and a bias of single tokens, applied to logits on the
device.

Repetition (Keskar et al. 2019, as in transformers): a logit of a token in prompt or answer is
divided by the penalty if positive, else multiplied by it. Presence and frequency (as in OpenAI's
API): minus ``presence`` for a token that is in the answer, minus ``frequency`` for each time.
Bias (as in OpenAI's API): added to a token's logit whatever has been seen, after the penalties.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx


@dataclass(frozen=True)
class PenaltySettings:
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    bias: tuple[tuple[int, float], ...] = ()  # of tokens by their ids, each once

    @property
    def off(self) -> bool:
        return self == PenaltySettings()

    @property
    def counts(self) -> bool:
        """Whether anything depends on what has been seen."""
        return bool(self.repetition != 1 or self.presence or self.frequency)


class Penalties:
    """What a request has seen so far. With all settings off, nothing is counted or changed."""

    def __init__(self, settings: PenaltySettings, prompt: Sequence[int] = ()) -> None:
        self._settings = settings
        self._prompt = sorted(set(prompt))
        # Both [V] once a vocabulary is known: 1.0 where the prompt has the token, and how often
        # the answer has it.
        self._in_prompt: mx.array | None = None
        self._counts: mx.array | None = None
        self._answer: list[int] = []  # until then
        self._bias: mx.array | None = None  # [V], likewise

    @property
    def off(self) -> bool:
        return self._settings.off

    def emitted(self, tokens: Sequence[int]) -> None:
        """``tokens`` are part of the answer now."""
        if not self._settings.counts:
            return
        if self._counts is None:
            self._answer += tokens
        else:
            self._counts = self._counts.at[mx.array(list(tokens))].add(1.0)

    def apply(self, logits: mx.array, drafts: Sequence[mx.array] = ()) -> mx.array:
        """Penalize ``logits`` [T, V] for everything emitted and for the window's ``drafts``.

        The last row has all drafts (each an array [1]) before it, the row above it all but the
        last, and so on.
        """
        if self._settings.off:
            return logits
        penalized = logits.astype(mx.float32)
        if self._settings.counts:
            penalized = self._penalized(penalized, drafts)
        return penalized + self._biases(logits.shape[1]) if self._settings.bias else penalized

    def _penalized(self, penalized: mx.array, drafts: Sequence[mx.array]) -> mx.array:
        rows, vocabulary = penalized.shape
        in_prompt, so_far = self._seen(vocabulary)
        counts = mx.broadcast_to(so_far, (rows, vocabulary))
        for position, draft in enumerate(drafts):
            first = max(rows - len(drafts) + position, 0)
            counts = counts.at[first:, draft].add(1.0)
        repetition = self._settings.repetition
        if repetition != 1:
            seen = (counts + in_prompt) > 0
            scaled = mx.where(penalized > 0, penalized / repetition, penalized * repetition)
            penalized = mx.where(seen, scaled, penalized)
        if self._settings.presence or self._settings.frequency:
            penalized = penalized - self._settings.frequency * counts
            penalized = penalized - self._settings.presence * (counts > 0)
        return penalized

    def _biases(self, vocabulary: int) -> mx.array:
        if self._bias is None:
            values = [0.0] * vocabulary
            for token, value in self._settings.bias:
                values[token] = value
            self._bias = mx.array(values, dtype=mx.float32)
        return self._bias

    def _seen(self, vocabulary: int) -> tuple[mx.array, mx.array]:
        if self._in_prompt is None or self._counts is None:
            self._in_prompt = _counted(self._prompt, vocabulary)
            self._counts = _counted(self._answer, vocabulary)
        return self._in_prompt, self._counts


def _counted(tokens: list[int], vocabulary: int) -> mx.array:
    counts = mx.zeros((vocabulary,), dtype=mx.float32)
    return counts.at[mx.array(tokens)].add(1.0) if tokens else counts
