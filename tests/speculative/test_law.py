"""What is emitted, over many seeds, has the law of the trunk; and it is what the loop emits."""

import itertools

import mlx.core as mx
import numpy as np
import pytest

from llm_mtplx.architectures.mtp_head import MTPHead
from llm_mtplx.architectures.trunk import Trunk
from llm_mtplx.speculative.decoder import Decoder
from llm_mtplx.speculative.distributions import Sampling, choose
from llm_mtplx.speculative.noise import Noise
from llm_mtplx.speculative.penalties import Penalties, PenaltySettings

from ..tiny import random_trunk_and_head
from . import reference

PROMPT = [1, 2]
LENGTH = 2
VOCABULARY = 8
SEEDS = 200_000
PENALTIES = PenaltySettings(repetition=1.2, presence=0.2, frequency=0.3)

CASES = [
    (Sampling(1.0), PenaltySettings()),
    (Sampling(0.7, top_k=5), PENALTIES),
    (Sampling(1.3, top_p=0.9), PENALTIES),
    (Sampling(1.6, top_k=6, top_p=0.97, min_p=0.02), PENALTIES),
]


@pytest.fixture(scope="module")
def model() -> tuple[Trunk, MTPHead]:
    return random_trunk_and_head(
        seed=4, vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, head_dim=16
    )


@pytest.fixture(scope="module")
def keys() -> list[mx.array]:
    """Of every seed, at the places of the first and the second token: [SEEDS, 2] each."""
    noises = [Noise(seed) for seed in range(SEEDS)]
    return [
        mx.concatenate([noise.keys(len(PROMPT) + at, 1) for noise in noises])
        for at in range(LENGTH)
    ]


def penalized(trunk: Trunk, settings: PenaltySettings, answer: list[int]) -> mx.array:
    penalties = Penalties(settings, PROMPT)
    penalties.emitted(answer)
    return penalties.apply(trunk.model(mx.array([[*PROMPT, *answer]]))[0, -1:])


def emitted(
    trunk: Trunk, sampling: Sampling, settings: PenaltySettings, keys: list[mx.array]
) -> np.ndarray:
    """The answer [SEEDS, 2] of every seed, by the function that the decoder chooses with."""
    logits = mx.broadcast_to(penalized(trunk, settings, []), (SEEDS, VOCABULARY))
    first = np.array(choose(logits, sampling, keys[0]).tokens)
    after = mx.concatenate([penalized(trunk, settings, [token]) for token in range(VOCABULARY)])
    second = choose(after[mx.array(first)], sampling, keys[1])
    assert second.sure is None or second.sure.all().item()
    return np.stack([first, np.array(second.tokens)], axis=1)


def exact_law(trunk: Trunk, sampling: Sampling, settings: PenaltySettings) -> np.ndarray:
    """Probabilities [V, V] of all answers, in float64."""

    def probs(answer: list[int]) -> np.ndarray:
        logits = np.array(penalized(trunk, settings, answer)).astype(np.float64)
        return np.exp(reference.scores(logits, sampling)[0])

    return probs([])[:, None] * np.stack([probs([token]) for token in range(VOCABULARY)])


@pytest.mark.parametrize(("sampling", "settings"), CASES)
def test_all_seeds_together_have_the_exact_joint_law(
    model: tuple[Trunk, MTPHead], keys: list[mx.array], sampling: Sampling, settings
) -> None:
    law = exact_law(model[0], sampling, settings)
    assert law.sum() == pytest.approx(1.0)
    answers = emitted(model[0], sampling, settings, keys)
    counts = np.zeros((VOCABULARY, VOCABULARY), int)
    np.add.at(counts, tuple(answers.T), 1)
    assert counts[law == 0].sum() == 0, "an answer that shaping forbids"
    assert chi_square_is_plausible(counts.ravel(), law.ravel())
    # The test can tell: a law that is one part in fifty off is refused.
    wrong = law * (1 + 0.02 * np.where(np.arange(VOCABULARY) % 2, 1, -1))
    assert not chi_square_is_plausible(counts.ravel(), (wrong / wrong.sum()).ravel())


def chi_square_is_plausible(counts: np.ndarray, law: np.ndarray) -> bool:
    expected = law * counts.sum()
    # Cells expected fewer than 5 times are one cell, as the chi-square test wants.
    large = expected >= 5
    observed = [*counts[large], counts[~large].sum()]
    wanted = [*expected[large], expected[~large].sum()]
    terms = [(o - e) ** 2 / e for o, e in zip(observed, wanted, strict=True) if e > 0]
    freedom = len(terms) - 1
    assert freedom > 8
    # Mean and standard deviation of chi-square: n and sqrt(2 n). The seeds are fixed.
    return bool(sum(terms) < freedom + 4 * (2 * freedom) ** 0.5)


@pytest.mark.parametrize(("sampling", "settings"), CASES)
def test_the_loop_emits_these_answers_at_any_depth(
    model: tuple[Trunk, MTPHead], keys: list[mx.array], sampling: Sampling, settings
) -> None:
    """So that its law is theirs, also where drafts are shaped otherwise than tokens."""
    answers = emitted(model[0], sampling, settings, keys)
    drafts = [None, Sampling(0.5, top_k=3, top_p=0.9)]
    for seed, depth, draft in itertools.product(range(0, 200, 29), (0, 1, 2), drafts):
        penalties = Penalties(settings, PROMPT)
        decoder = Decoder(*model, sampling, seed, penalties, draft_sampling=draft)
        list(decoder.prefill(PROMPT))
        ids = [decoder.first()]
        ids += decoder.round(depth, 3, lambda token: False).tokens
        assert ids[:LENGTH] == answers[seed].tolist()


def test_places_and_seeds_share_no_noise(keys: list[mx.array]) -> None:
    both = np.concatenate([np.array(each) for each in keys]).astype(np.uint64)
    assert len(np.unique(both[:, 0] << np.uint64(32) | both[:, 1])) == 2 * SEEDS
