"""The same seed gives the same ids, however they are drafted."""

import mlx.core as mx
import pytest

from llm_mtplx.speculative.decoder import Decoder
from llm_mtplx.speculative.distributions import Sampling

from .same_seed import SHAPING, TEMPERATURES, WAYS, answer, partings, tiny_in
from .test_rounds import PROMPT, Tiny, generate


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


def test_all_ways_are_different() -> None:
    assert len(WAYS) == len(set(WAYS)) == 24
