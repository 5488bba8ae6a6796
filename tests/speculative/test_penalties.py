"""Penalties: what counts, and that each row of a window sees the drafts before it."""

import mlx.core as mx
import numpy as np
import pytest

from llm_mtplx.architectures.mtp_head import MTPHead
from llm_mtplx.architectures.trunk import Trunk
from llm_mtplx.speculative.decoder import Decoder
from llm_mtplx.speculative.distributions import Sampling
from llm_mtplx.speculative.penalties import Penalties, PenaltySettings

from .test_rounds import PROMPT, generate

Tiny = tuple[Trunk, MTPHead]

LOGITS = np.array([[2.0, -2.0, 1.0, 0.5], [2.0, -2.0, 1.0, 0.5], [2.0, -2.0, 1.0, 0.5]])


def by_hand(
    logits: np.ndarray, settings: PenaltySettings, prompt: list[int], answer: list[int]
) -> np.ndarray:
    out = logits.copy()
    for token in set(prompt) | set(answer):
        scale = 1 / settings.repetition if out[token] > 0 else settings.repetition
        out[token] *= scale
    for token in set(answer):
        out[token] -= settings.presence + settings.frequency * answer.count(token)
    for token, bias in settings.bias:
        out[token] += bias
    return out


ALL = PenaltySettings(repetition=1.5, presence=0.4, frequency=0.3)
BIAS = ((1, -100.0), (3, 2.5))


@pytest.mark.parametrize(
    "settings",
    [
        ALL,
        PenaltySettings(1.5),
        PenaltySettings(presence=0.4),
        PenaltySettings(frequency=-0.3),
        PenaltySettings(bias=BIAS),
        PenaltySettings(1.5, 0.4, 0.3, BIAS),
    ],
)
@pytest.mark.parametrize("late", [True, False])
def test_rows_see_the_drafts_before_them(settings: PenaltySettings, late: bool) -> None:
    penalties = Penalties(settings, prompt=[3])
    if late:  # the vocabulary is known before the first token is emitted
        penalties.apply(mx.array(LOGITS))
    penalties.emitted([1])
    penalties.emitted([1])
    drafts = [mx.array([2]), mx.array([0])]
    got = np.array(penalties.apply(mx.array(LOGITS), drafts))
    for row, seen in enumerate([[1, 1], [1, 1, 2], [1, 1, 2, 0]]):
        assert got[row] == pytest.approx(by_hand(LOGITS[row], settings, [3], seen), abs=1e-6)
    # A draft step's one row comes after all drafts so far.
    (one,) = np.array(penalties.apply(mx.array(LOGITS[:1]), drafts))
    assert one == pytest.approx(by_hand(LOGITS[0], settings, [3], [1, 1, 2, 0]), abs=1e-6)


def test_the_prompt_counts_for_repetition_only() -> None:
    got = Penalties(PenaltySettings(1.0, 0.5, 0.5), prompt=[0, 1]).apply(mx.array(LOGITS))
    assert np.array_equal(np.array(got), LOGITS)


def test_off_changes_and_counts_nothing() -> None:
    logits = mx.array(LOGITS)
    assert Penalties(PenaltySettings()).apply(logits) is logits


LIKELIER = tuple((token, 1.0 + token % 3) for token in range(0, 64, 2))


@pytest.mark.parametrize(
    "settings",
    [
        ALL,
        PenaltySettings(frequency=1.5),
        PenaltySettings(1.3),
        PenaltySettings(bias=LIKELIER),
        PenaltySettings(1.5, 0.4, 0.3, LIKELIER),
    ],
)
def test_drafting_gives_the_ids_of_plain_decoding(tiny: Tiny, settings: PenaltySettings) -> None:
    def ids(depth: int) -> list[int]:
        penalties = Penalties(settings, PROMPT)
        decoder = Decoder(*tiny, Sampling(), penalties=penalties)
        return generate(decoder, PROMPT, 24, depth)

    plain = ids(0)
    unpenalized = generate(Decoder(*tiny, Sampling()), PROMPT, 24, depth=0)
    assert plain != unpenalized
    for depth in (1, 3, 5):
        assert ids(depth) == plain


def reference(trunk: Trunk, settings: PenaltySettings, length: int) -> list[int]:
    """Greedy with penalties, written down as plainly as it goes."""
    answer: list[int] = []
    while len(answer) < length:
        logits = trunk.model(mx.array([PROMPT + answer]))[0, -1]
        penalized = by_hand(np.array(logits).astype(np.float64), settings, PROMPT, answer)
        answer.append(int(penalized.argmax()))
    return answer


@pytest.mark.parametrize("settings", [ALL, PenaltySettings(1.5, 0.4, 0.3, LIKELIER)])
def test_plain_decoding_with_penalties_is_the_written_rule(
    tiny: Tiny, settings: PenaltySettings
) -> None:
    decoder = Decoder(*tiny, Sampling(), penalties=Penalties(settings, PROMPT))
    assert generate(decoder, PROMPT, 16, depth=0) == reference(tiny[0], settings, 16)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0)])
@pytest.mark.parametrize("depth", [0, 3])
def test_a_token_is_forced_or_ruled_out(tiny: Tiny, sampling: Sampling, depth: int) -> None:
    def ids(bias: tuple[tuple[int, float], ...]) -> list[int]:
        penalties = Penalties(PenaltySettings(bias=bias), PROMPT)
        return generate(Decoder(*tiny, sampling, penalties=penalties), PROMPT, 12, depth)

    assert ids(((7, 100.0),)) == [7] * 12
    free = ids(())
    banned = tuple((token, -100.0) for token in sorted(set(free)))
    assert not set(ids(banned)) & set(free)
