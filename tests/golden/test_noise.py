"""Noise has the recorded bits, on this backend and in numpy."""

from pathlib import Path

import mlx.core as mx
import numpy as np

from llm_mtplx.speculative.noise import Noise, gumbel, random_bits

from ..speculative import reference

GOLDEN = np.load(Path(__file__).parent / "noise.npz")
WHERE = [
    (at, int(seed), place, int(position))
    for at, seed in enumerate(GOLDEN["seeds"])
    for place, position in enumerate(GOLDEN["positions"])
]


def test_the_bits_are_those_recorded() -> None:
    tokens = mx.array(GOLDEN["tokens"].astype(np.uint32))
    for at, seed, place, position in WHERE:
        keys = Noise(seed).keys(position, 1)
        assert np.array_equal(np.array(random_bits(keys, tokens))[0], GOLDEN["bits"][at, place])
        assert np.array_equal(np.array(gumbel(keys, tokens))[0], GOLDEN["noise"][at, place])
        plain = reference.noise(reference.keys(seed, position), GOLDEN["tokens"])
        assert np.array_equal(plain[0], GOLDEN["noise"][at, place])


def test_rows_and_candidates_change_nothing() -> None:
    tokens = GOLDEN["tokens"].astype(np.uint32)
    for at, seed, place, position in WHERE:
        rows = Noise(seed).keys(position - min(position, 2), 4)
        row = min(position, 2)
        got = np.array(gumbel(rows, mx.array(np.stack([tokens[::-1]] * 4))))
        assert np.array_equal(got[row, ::-1], GOLDEN["noise"][at, place])
