"""The same seed gives the same ids, however they are drafted."""

import mlx.core as mx
import numpy as np
import pytest

from llm_mtplx.speculative import distributions
from llm_mtplx.speculative.decoder import Decoder
from llm_mtplx.speculative.distributions import Sampling, choose
from llm_mtplx.speculative.noise import Noise

from ..tiny import random_trunk_and_head
from . import reference
from .same_seed import SHAPING, TEMPERATURES, WAYS, answer, partings, tiny_in
from .states import assert_equal, named_arrays
from .test_rounds import PROMPT, Tiny, generate, prefilled


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=str)
def test_every_way_of_drafting_gives_the_plain_ids(dtype: mx.Dtype) -> None:
    """A part of what ``same_seed`` runs as a command."""
    found = list(partings(dtype, prompts=6, ways=2))
    assert len(found) == 6 * len(TEMPERATURES) * 2
    assert [each for each in found if each] == []


def test_seeds_and_only_seeds_change_a_sampled_answer() -> None:
    tiny = tiny_in(mx.float32)
    seeds = (0, 1, 2**64, 2**64 + 1, 10**30)
    answers = [tuple(answer(tiny, PROMPT, seed, 1.0, SHAPING[0])) for seed in seeds]
    assert len(set(answers)) == len(seeds)
    cold = {tuple(answer(tiny, PROMPT, seed, 0.0, SHAPING[0])) for seed in seeds}
    assert len(cold) == 1


def test_a_place_has_its_noise_however_it_is_reached(tiny: Tiny) -> None:
    """After an answer's first part, going on is as if it had never stopped."""

    def answered(prompt: list[int], length: int, depth: int) -> list[int]:
        return generate(Decoder(*tiny, Sampling(1.2, top_k=30), 7), prompt, length, depth)

    whole = answered(PROMPT, 20, 2)
    for cut in (1, 7, 12):
        assert answered(PROMPT + whole[:cut], 20 - cut, 3) == whole[cut:]


def test_a_nucleus_of_thousands_is_found_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Top-p keeps more tokens than the device first looks at, and a forward has begun after the
    one it took among those."""
    monkeypatch.setattr(distributions, "NUCLEUS", 1024)
    tiny = random_trunk_and_head(vocab_size=3000)
    sampling = Sampling(40.0, top_p=0.95)
    ids, taken_back = list(PROMPT), 0
    while len(ids) < len(PROMPT) + 10:
        logits = tiny[0].model(mx.array([ids]))[0, -1:]
        keys = Noise(5).keys(len(ids), 1)
        choice = choose(logits, sampling, keys)
        assert choice.sure is not None and not choice.sure.item()
        (token,), (gap,) = reference.chosen(np.array(logits), sampling, reference.keys(5, len(ids)))
        assert gap > 1e-4
        taken_back += token != choice.tokens.item()
        ids.append(int(token))
    assert taken_back > 3
    for depth in (0, 2):
        got = Decoder(*tiny, sampling, 5)
        assert generate(got, PROMPT, 10, depth) == ids[len(PROMPT) :]
        got.settle()
        assert_equal(named_arrays(got.state), prefilled(tiny, ids))


def test_all_ways_are_different() -> None:
    assert len(WAYS) == len(set(WAYS)) == 24
