"""The depth measured to be fastest for a model on this machine: one sample of it, and its look-up.

A record holds for one set of model files, machine, backend, BLAS and versions; a change of any
of them makes it another key, so no stale record is ever used.
"""

import hashlib
import json
import os
import platform
import time

from .. import jsonfile
from ..catalog.folder import ModelFolder
from ..settings import tuning_path
from ..speculative.decoder import Decoder
from ..speculative.distributions import Sampling
from ..speculative.draws import Draws
from .depths import DEPTHS, Sample
from .facts import facts
from .load import LoadedModel

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
    seconds = 0.0
    for _ in range(2):
        seconds = sum(_seconds(model, prompt, tokens, depth) for prompt in prompts)
    return Sample(record_key(model.folder), len(prompts) * (tokens - 1) / seconds)


def _seconds(model: LoadedModel, prompt: list[int], tokens: int, depth: int) -> float:
    decoder = Decoder(model.trunk, model.head, Sampling(), Draws(0))
    for _ in decoder.prefill(prompt):
        pass
    decoder.first()
    started = time.perf_counter()
    left = tokens - 1
    while left:
        left -= len(decoder.round(depth, left, lambda token: False).tokens)
    return time.perf_counter() - started


def recorded_depth(folder: ModelFolder) -> int | None:
    record = jsonfile.read_or_empty(tuning_path()).get(record_key(folder))
    depth = record.get("depth") if isinstance(record, dict) else None
    return depth if isinstance(depth, int) and depth in DEPTHS else None


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
