"""Shaping: what top-k, top-p and min-p keep, and that the device path finds the same ids."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_mtplx.speculative.distributions import Candidates, Distribution, Sampling, shape

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


logits_rows = st.lists(
    # Few values, so that ties are common.
    st.lists(st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0]), min_size=12, max_size=12),
    min_size=1,
    max_size=3,
)
samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.3, 0.6, 1.0, 1.3]),
    top_k=st.integers(0, 14),
    top_p=st.sampled_from([0.1, 0.5, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.3]),
)


@given(logits_rows, samplings)
def test_candidates_from_the_device_give_the_full_rows_distribution(rows, sampling) -> None:
    logits = mx.array(rows)
    candidates = Candidates(logits, sampling)
    mx.eval(candidates.arrays)
    for row, got in zip(rows, candidates.distributions(), strict=True):
        want = shape(np.arange(len(row)), np.array(row), sampling)
        assert got.ids.tolist() == want.ids.tolist()
        assert got.probs.tolist() == want.probs.tolist()
        assert got.probs.sum() == pytest.approx(1.0)
