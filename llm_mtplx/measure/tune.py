"""One sample of how fast a model decodes at one depth. Runs on the engine's thread."""

import time

import mlx.core as mx

from ..architectures.gated_delta import Tape
from ..engine.load import LoadedModel
from ..engine.tuned import record_key
from ..speculative.decoder import Decoder
from ..speculative.distributions import Sampling
from .depths import Sample

ROWS = (8, 16)  # of the long verifies that are measured, for copied drafts
REPEATS = 5
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
    rows = {} if depth else _verifies(model, prompts[0])
    return Sample(record_key(model.folder), made / seconds, made / rounds, rows)


def _verifies(model: LoadedModel, prompt: list[int]) -> dict[int, float]:
    """Seconds of a verify of each number of ROWS, and of one: the least of several."""
    decoder = Decoder(model.trunk, model.head, Sampling())
    for _ in decoder.prefill(prompt):
        pass
    trunk, state = model.trunk, decoder.state
    spent: dict[int, list[float]] = {rows: [] for rows in (1, *ROWS)}
    for _ in range(REPEATS):
        for rows, taken in spent.items():
            mark, tape = state.mark(), Tape()
            started = time.perf_counter()
            hidden = trunk.forward(mx.array([[prompt[0]] * rows]), state.cache, tape)
            mx.eval(mx.argmax(trunk.logits(hidden), axis=-1))
            taken.append(time.perf_counter() - started)
            state.go_back(mark)
    return {rows: min(taken) for rows, taken in spent.items()}


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
