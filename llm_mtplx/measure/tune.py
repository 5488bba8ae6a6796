"""One sample of how fast a model decodes at one depth. Runs on the engine's thread."""

import time

from ..engine.load import LoadedModel
from ..engine.tuned import record_key
from ..speculative.decoder import Decoder
from ..speculative.distributions import Sampling
from .depths import Sample

PROMPTS = (
    "Count from 1 to 40.",
    "Tell me a story.",
    "Write a Python function that adds two numbers, and explain it.",
)


def sample(model: LoadedModel, depth: int, tokens: int) -> Sample:
    """Decode the prompts greedily, once to warm up and once by the clock."""
    tokenizer = model.tokenizer
    prompts = [
        tokenizer.encode(tokenizer.render([{"role": "user", "content": text}], {}))
        for text in PROMPTS
    ]
    for _ in range(2):
        decoded = [_decode(model, prompt, tokens, depth) for prompt in prompts]
    rounds, made, seconds = (sum(each) for each in zip(*decoded, strict=True))
    return Sample(record_key(model.folder), made / seconds, made / rounds)


def _decode(
    model: LoadedModel, prompt: list[int], tokens: int, depth: int
) -> tuple[int, int, float]:
    """Rounds, their tokens and seconds. Whole rounds: one that the limit cuts short costs less."""
    decoder = Decoder(model.trunk, model.head, Sampling())
    for _ in decoder.prefill(prompt):
        pass
    decoder.first()
    rounds, left = 0, tokens - 1
    started = time.perf_counter()
    while left > depth:
        left -= len(decoder.round(depth, left, lambda token: False).tokens)
        rounds += 1
    return rounds, tokens - 1 - left, time.perf_counter() - started
