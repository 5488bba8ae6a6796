"""Answers of one seed by every way of drafting.

    uv run python -m tests.speculative.same_seed --prompts 200

Each random prompt is answered plainly at every temperature, with one kind of shaping after the
other, and again at every depth and adaptively with drafts that are right, wrong or either.
"""

import argparse
import itertools
from collections.abc import Iterator

import mlx.core as mx
import numpy as np

from llm_mtplx.speculative.adaptive import AdaptiveDepth
from llm_mtplx.speculative.decoder import Decoder
from llm_mtplx.speculative.distributions import Sampling
from llm_mtplx.speculative.masks import Masks
from llm_mtplx.speculative.penalties import Penalties, PenaltySettings
from llm_mtplx.speculative.step import Steps

from ..tiny import random_trunk_and_head
from .test_masks import Strides
from .test_rounds import VOCABULARY, Tiny, never

LENGTH = 12
TEMPERATURES = (0.0, 0.3, 0.7, 1.0, 1.5)
FILTERS = ({}, {"top_k": 20}, {"top_p": 0.9}, {"min_p": 0.05}, {"top_k": 30, "top_p": 0.95})
# Everything alone, and together: filters, penalties, rules.
SHAPING = [(filters, False, False) for filters in FILTERS]
SHAPING += [({}, True, False), ({"top_k": 9}, True, False), ({"top_p": 0.9}, True, True)]
PENALTIES = PenaltySettings(repetition=1.2, presence=0.3, frequency=0.2)
HEADS = ("own", "right", "wrong", "noisy")
ADAPTIVE = "adaptive"
WAYS = [(depth, head) for depth in range(1, 6) for head in HEADS]
WAYS += [(ADAPTIVE, head) for head in HEADS]


def tiny_in(dtype: mx.Dtype) -> Tiny:
    trunk, head = random_trunk_and_head()
    trunk.model.set_dtype(dtype)
    head.set_dtype(dtype)
    return trunk, head


class Told(Decoder):
    """Whose drafts are known: right, wrong, or either by turns of no pattern."""

    right: list[int]
    head_is = "own"

    def _draft(self, primary: int, depth: int, copied=()) -> Steps[list[mx.array]]:
        drafts = yield from super()._draft(primary, depth, copied)
        if self.head_is == "own":
            return drafts
        out = []
        for at in range(self._next, self._next + len(drafts)):
            good = self.head_is == "right" or (self.head_is == "noisy" and at * at % 7 > 2)
            token = (self.right[at] + (not good)) % VOCABULARY
            out.append(mx.array([token], dtype=mx.uint32))
        return out


def answer(
    tiny: Tiny, prompt: list[int], seed: int, temperature: float, shaping, way=None, right=()
) -> list[int]:
    """``way``: depth and head; None: plain, and without any head."""
    filters, penalized, ruled = shaping
    depth, head = way or (0, "own")
    decoder = Told(
        tiny[0],
        tiny[1] if way else None,
        Sampling(temperature, **filters),
        seed,
        Penalties(PENALTIES, prompt) if penalized else None,
        masks=Masks(Strides()) if ruled else None,
    )
    decoder.head_is, decoder.right = head, [*prompt, *right, *[0] * 8]
    policy = AdaptiveDepth({d: 1 + 0.3 * d for d in range(5)})
    list(decoder.prefill(prompt))
    ids = [decoder.first()]
    while len(ids) < LENGTH:
        at = policy.depth if depth == ADAPTIVE else depth
        done = decoder.round(at, LENGTH - len(ids), never)
        if depth == ADAPTIVE:
            policy.add(len(done.tokens), done.drafted, done.accepted)
        ids += done.tokens
    return ids


def partings(dtype: mx.Dtype, prompts: int, ways: int = len(WAYS)) -> Iterator[str | None]:
    """One for each answer: None where it is the plain one. ``ways``: so many of them a prompt and
    temperature, the next ones at the next."""
    tiny = tiny_in(dtype)
    rng = np.random.default_rng(8)
    shapings, taken = itertools.cycle(SHAPING), itertools.cycle(WAYS)
    for seed in range(prompts):
        prompt = rng.integers(0, VOCABULARY, rng.integers(2, 12)).tolist()
        for temperature in TEMPERATURES:
            shaping = next(shapings)
            plain = answer(tiny, prompt, seed, temperature, shaping)
            for way in itertools.islice(taken, ways):
                got = answer(tiny, prompt, seed, temperature, shaping, way, plain)
                where = f"{dtype} prompt {seed} {temperature=} {shaping} {way}: {plain} {got}"
                yield None if got == plain else where


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--ways", type=int, default=len(WAYS))
    args = parser.parse_args()
    for dtype in (mx.float32, mx.bfloat16):
        found = list(partings(dtype, args.prompts, args.ways))
        parted = [each for each in found if each]
        print(f"{dtype}: {len(found)} answers, {len(parted)} of them other than the plain one")
        print("\n".join(parted[:10]))


if __name__ == "__main__":
    main()
