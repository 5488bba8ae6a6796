"""What was measured of drafting with a model on this machine: one sample of it, and its look-up.

A record holds for one set of model files, machine, backend, BLAS and versions; a change of any
of them makes it another key, so no stale record is ever used.
"""

import hashlib
import json
import os
import platform
import time
from typing import Annotated

from pydantic import BaseModel, Field, PositiveFloat, ValidationError

from .. import jsonfile
from ..catalog.folder import ModelFolder
from ..settings import tuning_path
from ..speculative.decoder import Decoder
from ..speculative.distributions import Sampling
from .depths import DEPTHS, Sample
from .facts import facts
from .load import LoadedModel

PROMPTS = (
    "Count from 1 to 40.",
    "Tell me a story.",
    "Write a Python function that adds two numbers, and explain it.",
)

Depth = Annotated[int, Field(ge=0, le=DEPTHS[-1])]


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


class Record(BaseModel):
    """What ``depths.save`` writes."""

    depth: Depth  # taken where there are no costs
    costs: Annotated[dict[Depth, PositiveFloat], Field(min_length=1)] | None = None


def recorded(folder: ModelFolder) -> Record | None:
    record = jsonfile.read_or_empty(tuning_path()).get(record_key(folder))
    try:
        return Record.model_validate(record)
    except ValidationError:
        return None


def record_key(folder: ModelFolder) -> str:
    head = [file for file, _, _ in folder.head.tensors.values()] if folder.head else []
    files = sorted({*folder.trunk_headers, *head, folder.path / "config.json"})
    told = facts()
    identity = {
        "files": [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files],
        "machine": [platform.machine(), platform.processor(), os.cpu_count(), told["device"]],
        "threads": os.environ.get("OPENBLAS_NUM_THREADS"),
        **{name: told[name] for name in ("backend", "blas", "versions", "memory_bytes")},
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
