"""The whole loop, drawn many times, has the law of the trunk."""

from collections import Counter
from collections.abc import Iterator

import mlx.core as mx
import pytest

from llm_mtplx.speculative.decoder import Decoder
from llm_mtplx.speculative.distributions import Candidates, Sampling
from llm_mtplx.speculative.draws import Draws
from llm_mtplx.speculative.head import MTPHead
from llm_mtplx.speculative.penalties import Penalties, PenaltySettings
from llm_mtplx.speculative.trunk import Trunk

from ..tiny import random_trunk_and_head
from .test_rounds import never

PROMPT = [1, 2]
LENGTH = 3
VOCABULARY = 6
SETTINGS = PenaltySettings(repetition=1.2, presence=0.2, frequency=0.3)
Law = dict[tuple[int, ...], float]


@pytest.fixture(scope="module")
def model() -> tuple[Trunk, MTPHead]:
    return random_trunk_and_head(
        seed=4, vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, head_dim=16
    )


def sampling(temperature: float) -> Sampling:
    return Sampling(temperature, top_k=5, top_p=0.97, min_p=0.01)


def exact_law(trunk: Trunk, temperature: float) -> Law:
    """The product of the shaped distributions along every sequence."""

    def walk(answer: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], float]]:
        if len(answer) == LENGTH:
            yield answer, 1.0
            return
        penalties = Penalties(SETTINGS, PROMPT)
        penalties.emitted(answer)
        logits = trunk.model(mx.array([[*PROMPT, *answer]]))[0, -1:]
        (distribution,) = Candidates(penalties.apply(logits), sampling(temperature)).distributions()
        for token, probability in zip(distribution.ids, distribution.probs, strict=True):
            for sequence, rest in walk((*answer, int(token))):
                yield sequence, float(probability) * rest

    return dict(walk(()))


def drawn(
    model: tuple[Trunk, MTPHead], temperature: float, samples: int, drafts: Sampling | None
) -> list[tuple[int, ...]]:
    """Sequences of the real loop at depth 2; the prompt is prefilled once."""
    trunk, head = model
    draws = Draws(11)
    sequences = []
    for _ in range(samples):
        penalties = Penalties(SETTINGS, PROMPT)
        decoder = Decoder(
            trunk, head, sampling(temperature), draws, penalties, draft_sampling=drafts
        )
        list(decoder.prefill(PROMPT))
        ids = [decoder.first()]
        while len(ids) < LENGTH:
            ids += decoder.round(2, LENGTH - len(ids) + 2, never).tokens
        sequences.append(tuple(ids[:LENGTH]))
    return sequences


@pytest.mark.parametrize(
    ("temperature", "drafts"), [(0.6, None), (1.3, Sampling(0.5, top_k=3, top_p=0.9))]
)
def test_drawn_sequences_follow_the_exact_law(
    model: tuple[Trunk, MTPHead], temperature: float, drafts: Sampling | None
) -> None:
    """Also where drafts are drawn otherwise than tokens."""
    law = exact_law(model[0], temperature)
    assert sum(law.values()) == pytest.approx(1.0)
    samples = drawn(model, temperature, 1200, drafts)
    counts = Counter(samples)
    assert set(counts) <= set(law), "a sequence that shaping forbids"

    # Cells expected fewer than 5 times are one cell, as the chi-square test wants.
    expected = {sequence: p * len(samples) for sequence, p in law.items()}
    large = [sequence for sequence, count in expected.items() if count >= 5]
    observed = [counts[sequence] for sequence in large]
    wanted = [expected[sequence] for sequence in large]
    observed.append(len(samples) - sum(observed))
    wanted.append(len(samples) - sum(wanted))
    chi_square = sum((o - e) ** 2 / e for o, e in zip(observed, wanted, strict=True) if e > 0)
    freedom = len(wanted) - 1
    assert freedom > 8
    # Mean and standard deviation of chi-square: n and sqrt(2 n). The seed is fixed.
    assert chi_square < freedom + 4 * (2 * freedom) ** 0.5

    def distance(first: int) -> float:
        some = Counter(samples[:first])
        return 0.5 * sum(abs(some[s] / first - p) for s, p in law.items())

    assert distance(1200) < distance(200) < distance(30)
