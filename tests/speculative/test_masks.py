"""Under rules, drafted decoding has the law of the trunk on what the rules allow."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_mtplx.speculative.decoder import Decoder
from llm_mtplx.speculative.distributions import Sampling, shape
from llm_mtplx.speculative.masks import Masks, Until, Without
from llm_mtplx.speculative.penalties import Penalties, PenaltySettings

from . import reference
from .states import assert_equal, named_arrays
from .test_rounds import (
    PROMPT,
    VOCABULARY,
    ScriptedDecoder,
    Tiny,
    generate,
    never,
    prefilled,
)


class Strides:
    """Rules of the tiny model's vocabulary: by turns, different residues may come."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def may(self) -> list[int]:
        return list(range(len(self.taken) % 5, VOCABULARY - 3, 5))

    def allowed(self) -> bytes:
        bits = np.zeros(VOCABULARY, np.uint8)
        bits[self.may()] = 1
        return np.packbits(bits, bitorder="little").tobytes()[: VOCABULARY // 8]

    def take(self, token: int) -> bool:
        if token not in self.may():
            return False
        self.taken.append(token)
        return True

    def back(self, tokens: int) -> None:
        del self.taken[len(self.taken) - tokens :]


SETTINGS = PenaltySettings(repetition=1.2, presence=0.2, frequency=0.3)


def by_hand(tiny: Tiny, sampling: Sampling, seed: int, length: int) -> list[int]:
    """One token at a time from mlx-lm's forward over all ids at once: penalties, the rules, the
    rest of the shaping, noise."""
    rules, ids = Strides(), list(PROMPT)
    for _ in range(length):
        penalties = Penalties(SETTINGS, PROMPT)
        penalties.emitted(ids[len(PROMPT) :])
        logits = np.array(penalties.apply(tiny[0].model(mx.array([ids]))[0, -1:]))
        masked = np.full_like(logits, -np.inf)
        masked[:, rules.may()] = logits[:, rules.may()]
        (token,), (gap,) = reference.chosen(masked, sampling, reference.keys(seed, len(ids)))
        assert gap > 1e-4, "another seed decides nothing by rounding"
        ids.append(int(token))
        assert rules.take(ids[-1])
    return ids[len(PROMPT) :]


@pytest.mark.parametrize(
    "sampling", [Sampling(1.3), Sampling(0.8, top_k=4, top_p=0.97), Sampling(1.0, 0, 0.9, 0.05)]
)
def test_sampled_ids_at_any_depth_are_those_of_masked_plain_decoding(
    tiny: Tiny, sampling: Sampling
) -> None:
    seen = set()
    for seed in (1, 2):
        want = by_hand(tiny, sampling, seed, 14)
        seen.add(tuple(want))
        for depth in (0, 1, 3, 5):
            decoder = Decoder(
                *tiny, sampling, seed, Penalties(SETTINGS, PROMPT), masks=Masks(Strides())
            )
            assert generate(decoder, PROMPT, 14, depth) == want
    assert len(seen) == 2


@pytest.fixture(scope="module")
def masked(tiny: Tiny) -> list[int]:
    """Prompt and masked greedy answer, by mlx-lm's own forward over all ids at once."""
    rules, ids = Strides(), list(PROMPT)
    for _ in range(30):
        logits = np.array(tiny[0].model(mx.array([ids]))[0, -1])
        may = rules.may()
        ids.append(may[int(np.argmax(logits[may]))])
        assert rules.take(ids[-1])
    return ids


LENGTH = 24


@pytest.mark.parametrize("depth", range(5))
def test_greedy_ids_at_any_depth_are_those_of_masked_plain_decoding(
    tiny: Tiny, masked: list[int], depth: int
) -> None:
    decoder = Decoder(*tiny, Sampling(), masks=Masks(Strides()))
    list(decoder.prefill(PROMPT))
    ids = [decoder.first()]
    while len(ids) < LENGTH:
        ids += decoder.round(depth, LENGTH - len(ids), never).tokens
    assert PROMPT + ids == masked[: len(PROMPT) + LENGTH]
    decoder.settle()
    assert_equal(named_arrays(decoder.state), prefilled(tiny, PROMPT + ids))


@pytest.mark.parametrize("wrong_at", [None, 0, 1, 2])
def test_drafts_against_the_rules_are_rejected_and_leave_nothing(
    tiny: Tiny, masked: list[int], wrong_at: int | None
) -> None:
    """The script's wrong draft is one that the rules forbid."""
    decoder = ScriptedDecoder(tiny, masked, wrong_at)
    rules = Strides()
    decoder.masks = Masks(rules)
    list(decoder.prefill(PROMPT))
    ids = [decoder.first()]
    while len(ids) < LENGTH:
        done = decoder.round(3, LENGTH - len(ids), never)
        ids += done.tokens
        assert done.accepted == (done.drafted if wrong_at is None else min(wrong_at, done.drafted))
        assert rules.taken == ids
        assert decoder.state.head_position == decoder.state.position - 1
    assert PROMPT + ids == masked[: len(PROMPT) + LENGTH]
    decoder.settle()
    assert_equal(named_arrays(decoder.state), prefilled(tiny, PROMPT + ids))


@pytest.mark.parametrize("top_k", [0, 1, 20, 63])
def test_top_k_chooses_among_allowed_tokens(top_k: int) -> None:
    """Also where fewer than k are allowed, and in a vocabulary searched by blocks."""
    for vocabulary in (64, 20_000):
        rng = np.random.default_rng(3)
        logits = rng.normal(size=(2, vocabulary)).astype(np.float32)
        may = np.sort(rng.choice(vocabulary, size=5, replace=False))
        masked = np.full_like(logits, -np.inf)
        masked[:, may] = logits[:, may]
        got = reference.device_probs(mx.array(masked), Sampling(1.0, top_k=top_k))
        for row, probs in enumerate(got):
            best = np.sort(may[np.argsort(-logits[row, may])][: top_k or None])
            weights = np.exp(logits[row, best].astype(np.float64))
            assert np.flatnonzero(probs).tolist() == best.tolist()
            np.testing.assert_allclose(probs[best], weights / weights.sum(), rtol=1e-5)


def test_few_allowed_tokens_are_a_whole_nucleus() -> None:
    """Where a mask leaves fewer tokens than top-p looks at, none is asked for twice."""
    logits = mx.full((1, 20_000), -mx.inf)
    logits[0, 7] = 1.0
    shaped = shape(logits, Sampling(1.0, top_p=1 - 1e-7))
    assert shaped.sure is not None and shaped.sure.item()
    assert shaped.ids is not None
    assert shaped.ids[0, mx.argmax(shaped.scores[0])].item() == 7


@pytest.mark.parametrize("tokens", [8, 11])
def test_without_forbids_one_token_alone(tokens: int) -> None:
    rules = Without(9 % tokens, tokens)
    logits = Masks(rules).apply(mx.zeros((1, tokens)))
    forbidden = [token for token in range(tokens) if logits[0, token].item() == -np.inf]
    assert forbidden == [9 % tokens]
    assert [rules.take(token) for token in range(tokens)].count(False) == 1


@given(
    st.lists(st.integers(0, 9) | st.tuples(st.integers(1, 4)), max_size=30),
    st.sampled_from([None, 3]),
)
def test_until_allows_an_end_alone_after_its_token(
    steps: list[int | tuple[int]], opener: int | None
) -> None:
    """7 closes, 3 may have to come first, 8 and 9 are ends; a tuple takes tokens back."""
    rules, taken = Until(7, {8, 9}, 10, opener), list[int]()
    for step in steps:
        if isinstance(step, tuple):
            back = min(step[0], len(taken))
            rules.back(back)
            del taken[len(taken) - back :]
            continue
        counts = taken if opener is None else taken[taken.index(3) :] if 3 in taken else []
        may = range(10) if 7 not in counts else (8, 9)
        bits = np.unpackbits(np.frombuffer(rules.allowed(), np.uint8), bitorder="little")
        assert np.flatnonzero(bits).tolist() == list(may)
        assert rules.take(step) == (step in may)
        taken += [step] * (step in may)
