"""Shaping: what top-k, top-p and min-p keep, and that the device path finds the same ids."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_mtplx.speculative.distributions import BLOCK, Candidates, Distribution, Sampling, shape

PROBS = np.array([0.4, 0.05, 0.3, 0.2, 0.05])


def shaped(sampling: Sampling, probs: np.ndarray = PROBS) -> Distribution:
    return shape(np.arange(len(probs)), np.log(probs), sampling)


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        (Sampling(1.0), [0, 1, 2, 3, 4]),
        (Sampling(1.0, top_k=2), [0, 2]),
        (Sampling(1.0, top_k=4), [0, 1, 2, 3]),  # a tie at the cut: the lower id stays
        (Sampling(1.0, top_k=99), [0, 1, 2, 3, 4]),
        (Sampling(1.0, top_p=0.3), [0]),
        (Sampling(1.0, top_p=0.6), [0, 2]),
        (Sampling(1.0, min_p=0.5), [0, 2, 3]),
        # top-p is measured on what top-k left: 0.4 / 0.7 = 0.57
        (Sampling(1.0, top_k=2, top_p=0.5), [0]),
        # min-p is relative to the likeliest that is left
        (Sampling(1.0, top_k=4, min_p=0.6), [0, 2]),
    ],
)
def test_what_is_kept(sampling: Sampling, kept: list[int]) -> None:
    distribution = shaped(sampling)
    assert distribution.ids.tolist() == kept
    assert distribution.probs == pytest.approx(PROBS[kept] / PROBS[kept].sum(), abs=1e-15)


def test_temperature() -> None:
    want = PROBS**2 / (PROBS**2).sum()
    assert shaped(Sampling(0.5)).probs == pytest.approx(want, abs=1e-15)


def test_prob_of_any_token() -> None:
    distribution = shaped(Sampling(1.0, top_k=2))
    assert distribution.prob(2) == pytest.approx(0.3 / 0.7)
    assert [distribution.prob(t) for t in (1, 3, 4, 99)] == [0.0] * 4


# So few values that whole crowds tie, some that tie by twos and threes, nearly none that tie.
DISTINCT = (4, 300, 10**6)
samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.3, 0.6, 1.0, 1.3]),
    top_k=st.integers(0, 14),
    top_p=st.sampled_from([0.1, 0.5, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.3]),
)


@pytest.mark.parametrize("vocabulary", [12, 200, 20_000])
@given(seed=st.integers(0, 2**32), distinct=st.sampled_from(DISTINCT), sampling=samplings)
@settings(deadline=None, max_examples=60)
def test_candidates_from_the_device_give_the_full_rows_distribution(
    vocabulary: int, seed: int, distinct: int, sampling: Sampling
) -> None:
    whole = np.random.default_rng(seed).integers(0, distinct, (2, vocabulary))
    rows = (whole * (8 / distinct)).astype(np.float32)
    candidates = Candidates(mx.array(rows), sampling)
    mx.eval(candidates.arrays)
    for row, got in zip(rows, candidates.distributions(), strict=True):
        want = shape(np.arange(len(row)), row.astype(np.float64), sampling)
        assert got.ids.tolist() == want.ids.tolist()
        assert got.probs.tolist() == want.probs.tolist()
        assert got.probs.sum() == pytest.approx(1.0)


def test_a_tie_with_one_id_in_each_of_many_blocks() -> None:
    row = np.zeros(BLOCK * 400, np.float32)
    row[BLOCK - 1 :: BLOCK] = 5.0
    row[-2:] = 9.0  # a search by partition now takes blocks from anywhere
    candidates = Candidates(mx.array(row[None]), Sampling(1.0, top_k=3))
    (got,) = candidates.distributions()
    assert got.ids.tolist() == [BLOCK - 1, len(row) - 2, len(row) - 1]
