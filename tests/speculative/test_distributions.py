"""Shaping and choosing: what the device keeps and takes is what numpy keeps and takes."""

import math
from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_mtplx.speculative.distributions import (
    BLOCK,
    COLDEST,
    NUCLEUS,
    Choice,
    Sampling,
    choose,
    shape,
)
from llm_mtplx.speculative.noise import Noise

from . import reference
from .reference import device_probs

PROBS = np.array([0.4, 0.05, 0.3, 0.2, 0.05])


def shaped(sampling: Sampling) -> np.ndarray:
    return device_probs(mx.array(np.log(PROBS)[None].astype(np.float32)), sampling)[0]


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        (Sampling(1.0), [0, 1, 2, 3, 4]),
        (Sampling(1.0, top_k=2), [0, 2]),
        (Sampling(1.0, top_k=4), [0, 1, 2, 3]),  # a tie at the cut: the lower id stays
        (Sampling(1.0, top_k=99), [0, 1, 2, 3, 4]),
        (Sampling(1.0, top_k=-1), [0, 1, 2, 3, 4]),
        (Sampling(1.0, top_p=0.3), [0]),
        (Sampling(1.0, top_p=0.6), [0, 2]),
        (Sampling(1.0, top_p=0.0), [0]),
        (Sampling(1.0, top_p=1e-300), [0]),
        (Sampling(1.0, min_p=0.45), [0, 2, 3]),
        (Sampling(1.0, min_p=1.0), [0]),
        (Sampling(1.0, min_p=3.0), [0]),
        (Sampling(1.0, min_p=5e-324), [0, 1, 2, 3, 4]),
        # top-p is measured on what top-k left: 0.4 / 0.7 = 0.57
        (Sampling(1.0, top_k=2, top_p=0.5), [0]),
        # min-p is relative to the likeliest that is left
        (Sampling(1.0, top_k=4, min_p=0.6), [0, 2]),
    ],
)
def test_what_is_kept(sampling: Sampling, kept: list[int]) -> None:
    probs = shaped(sampling)
    assert np.flatnonzero(probs).tolist() == kept
    assert probs[kept] == pytest.approx(PROBS[kept] / PROBS[kept].sum(), abs=1e-7)


def test_temperature() -> None:
    assert shaped(Sampling(0.5)) == pytest.approx(PROBS**2 / (PROBS**2).sum(), abs=1e-7)


@pytest.mark.parametrize("top_k", [0, 3])
@pytest.mark.parametrize("temperature", [1e-308, 5e-324, 1e-40, 1e-9, 1e-5, 0.0, -1.0, math.nan])
def test_the_coldest_takes_the_likeliest(temperature: float, top_k: int) -> None:
    sampling = Sampling(temperature, top_k, 0.9, 0.1)
    assert sampling.greedy
    logits = mx.array([[-3.4e38, 80.0, 90.0, 3.3e38, -np.inf]])
    assert taken(choose(logits, sampling, Noise(3).keys(0, 1))) == [3]


@pytest.mark.parametrize("temperature", [COLDEST, 1e-3, 1e5, 1e300, math.inf])
@pytest.mark.parametrize("top_k", [0, 3])
def test_no_temperature_overflows(temperature: float, top_k: int) -> None:
    """Nor lets a forbidden token through."""
    sampling = Sampling(temperature, top_k)
    logits = mx.array([[-np.inf, 80.0, 90.0, -60.0, -np.inf]])
    probs = device_probs(logits, sampling)[0]
    assert np.isfinite(probs).all() and probs[0] == probs[4] == 0
    if temperature > 1e4:
        assert probs[1:4] == pytest.approx([1 / 3] * 3, rel=1e-2)
    else:
        assert probs[2] == 1
    keys = mx.concatenate([Noise(seed).keys(0, 1) for seed in range(200)])
    found = set(taken(choose(mx.broadcast_to(logits, (200, 5)), sampling, keys)))
    assert found == ({1, 2, 3} if temperature > 1e4 else {2})


def taken(choice: Choice) -> list[int]:
    assert choice.sure is None or bool(choice.sure.all())
    return np.array(choice.tokens).tolist()


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
def test_the_device_keeps_what_numpy_keeps(
    vocabulary: int, seed: int, distinct: int, sampling: Sampling
) -> None:
    whole = np.random.default_rng(seed).integers(0, distinct, (2, vocabulary))
    rows = (whole * (8 / distinct)).astype(np.float32)
    want = np.exp(reference.scores(rows.astype(np.float64), sampling))
    kept = np.count_nonzero(want, axis=-1)
    # Sums of many float32 drift, so that a last token or two of thousands may fall either way.
    near = reference.edges(rows.astype(np.float64), sampling) < 1e-6 + 1e-7 * kept
    sure = shape(mx.array(rows), sampling).sure
    for all_in_order in (False, True):
        got = device_probs(mx.array(rows), sampling, all_in_order)
        for row in range(2):
            if sure is not None and not sure[row].item() and not all_in_order:
                # What min-p leaves out was in the nucleus all the same.
                nucleus = reference.scores(rows.astype(np.float64), replace(sampling, min_p=0.0))
                assert np.count_nonzero(np.exp(nucleus[row])) >= NUCLEUS
                continue
            if near[row]:
                assert abs(np.count_nonzero(got[row]) - kept[row]) <= 1 + kept[row] // 1000
                continue
            np.testing.assert_array_equal(np.flatnonzero(got[row]), np.flatnonzero(want[row]))
            np.testing.assert_allclose(got[row], want[row], rtol=1e-4)


def test_a_tie_with_one_id_in_each_of_many_blocks() -> None:
    row = np.zeros(BLOCK * 400, np.float32)
    row[BLOCK - 1 :: BLOCK] = 5.0
    row[-2:] = 9.0  # a search by partition now takes blocks from anywhere
    (got,) = device_probs(mx.array(row[None]), Sampling(1.0, top_k=3))
    assert np.flatnonzero(got).tolist() == [BLOCK - 1, len(row) - 2, len(row) - 1]


def test_zeros_of_either_sign_tie() -> None:
    (got,) = device_probs(mx.array([[-0.0, -1.0, 0.0, -0.0, 0.0]]), Sampling(1.0, top_k=2))
    assert np.flatnonzero(got).tolist() == [0, 2]


def test_a_crowd_that_top_p_keeps_is_found_by_asking_again() -> None:
    """With nearly equal logits 0.9 of the probability is more tokens than are looked at first."""
    rng = np.random.default_rng(5)
    row = rng.normal(0, 0.1, (1, 20_000)).astype(np.float32)
    sampling = Sampling(1.0, top_p=0.9)
    assert not shape(mx.array(row), sampling).sure.item()
    for seed in range(20):
        keys = Noise(seed).keys(0, 1)
        got = choose(mx.array(row), sampling, keys, whole=True)
        want, gap = reference.chosen(row, sampling, reference.keys(seed, 0))
        assert gap[0] > 1e-5
        assert taken(got) == want.tolist()


@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(1.0), Sampling(1.0, 3), Sampling(1, 0, 0.9)]
)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_logit_that_is_not_finite_shows(sampling: Sampling, bad: float) -> None:
    for at in (0, 77, 19_999):
        logits = np.zeros((1, 20_000), np.float32)
        logits[0, at] = bad
        choice = choose(mx.array(logits), sampling, Noise(0).keys(0, 1))
        assert not math.isfinite(choice.top.item())


FILTERS = [
    Sampling(0.7),
    Sampling(1.0, top_k=20),
    Sampling(1.3, top_k=5, top_p=0.9),
    Sampling(0.8, top_p=0.95),
    Sampling(1.5, min_p=0.02),
    Sampling(1.0, top_k=40, top_p=0.97, min_p=0.01),
    Sampling(0.3, top_p=0.8, min_p=0.05),
    Sampling(0.0),
]


def test_the_devices_choice_is_numpys_on_100_000_rows() -> None:
    rows, vocabulary, chunk = 12_500, 160, 2500
    close = wrong = 0
    for at, sampling in enumerate(FILTERS):
        rng = np.random.default_rng(at)
        for start in range(0, rows, chunk):
            logits = rng.normal(0, 3, (chunk, vocabulary)).astype(np.float32)
            keys = Noise(at).keys(start, chunk)
            got = np.array(choose(mx.array(logits), sampling, keys).tokens)
            where = [(int(a), int(b)) for a, b in np.array(keys)]
            want, gap = reference.chosen(logits, sampling, where)
            near = (gap < 1e-5) | (reference.edges(logits.astype(np.float64), sampling) < 1e-6)
            close += near.sum()
            wrong += ((got != want) & ~near).sum()
    assert wrong == 0
    assert close < 200  # of 100,000


def test_a_large_vocabulary() -> None:
    rng = np.random.default_rng(2)
    for sampling in FILTERS:
        for spread in (3, 1):
            coarse = mx.array(rng.normal(0, spread, (3, 248_320))).astype(mx.bfloat16)
            choice = choose(coarse, sampling, Noise(9).keys(40, 3))
            rows = np.array(coarse.astype(mx.float32))
            want, gap = reference.chosen(rows, sampling, reference.keys(9, 40, 3))
            for row in range(3):
                if choice.sure is None or choice.sure[row].item():
                    assert gap[row] < 1e-4 or choice.tokens[row].item() == want[row]


def test_rows_alone_and_together_choose_alike() -> None:
    rng = np.random.default_rng(3)
    logits = mx.array(rng.normal(0, 2, (6, 20_000))).astype(mx.bfloat16)
    for sampling in FILTERS:
        keys = Noise(1).keys(5, 6)
        together = np.array(choose(logits, sampling, keys).tokens).tolist()
        alone = [
            choose(logits[row : row + 1], sampling, Noise(1).keys(5 + row, 1)).tokens.item()
            for row in range(6)
        ]
        assert together == alone
