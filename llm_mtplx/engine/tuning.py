"""The depth measured to be fastest for a model on this machine, saved and looked up.

A record holds for one set of model files, machine, backend, BLAS and versions; a change of any
of them makes it another key, so no stale record is ever used.
"""

import hashlib
import json
import os
import platform
import statistics
import time
from dataclasses import dataclass

from .. import jsonfile
from ..catalog.folder import ModelFolder
from ..settings import tuning_path
from ..speculative.decoder import Decoder
from ..speculative.distributions import Sampling
from ..speculative.draws import Draws
from .facts import facts
from .load import LoadedModel

DEPTHS = (0, 1, 2, 3, 4)
PROMPTS = (
    "Count from 1 to 40.",
    "Tell me a story.",
    "Write a Python function that adds two numbers, and explain it.",
)


@dataclass(frozen=True)
class Measured:
    depth: int  # the fastest; 0 unless a deeper one beats plain decoding
    tokens_per_s: dict[int, float]  # by depth, medians

    def ratios(self) -> dict[int, float]:
        return {depth: rate / self.tokens_per_s[0] for depth, rate in self.tokens_per_s.items()}


def measure(model: LoadedModel, tokens: int, repeats: int) -> Measured:
    """Decode the prompts greedily at every depth in turn, several times over."""
    tokenizer = model.tokenizer
    prompts = [
        tokenizer.encode(tokenizer.render([{"role": "user", "content": text}], {}))
        for text in PROMPTS
    ]
    rates: dict[int, list[float]] = {depth: [] for depth in DEPTHS}
    for repeat in range(repeats + 1):
        for depth in DEPTHS:
            seconds = sum(_seconds(model, prompt, tokens, depth) for prompt in prompts)
            if repeat:  # the first is a warm-up
                rates[depth].append(len(prompts) * (tokens - 1) / seconds)
    medians = {depth: statistics.median(values) for depth, values in rates.items()}
    return Measured(max(medians, key=lambda depth: medians[depth]), medians)


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


def save(folder: ModelFolder, measured: Measured) -> None:
    records = jsonfile.read_or_empty(tuning_path())
    records[record_key(folder)] = {
        "depth": measured.depth,
        "tokens_per_s": {str(d): round(rate, 2) for d, rate in measured.tokens_per_s.items()},
    }
    jsonfile.write(tuning_path(), records)


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
