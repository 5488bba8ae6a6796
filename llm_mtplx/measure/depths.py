"""How fast a model decodes at every depth: samples, what follows from them, and their record.

Every sample is a process of its own, and the depths take turns over the rounds, so that a machine
that slows down slows all of them. Loading a model again for every sample is the price: a process
that stayed for all samples of its depth would hold a copy of the weights beside the others'.
Imports no MLX.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from .. import jsonfile
from ..errors import EngineError
from ..settings import tuning_path

DEPTHS = (0, 1, 2, 3, 4)  # engine/tuned.py reads no deeper ones
NOISE = 0.03  # relative; medians of the same depth differ by as much


@dataclass(frozen=True)
class Sample:
    key: str  # of the model's files, the machine and the versions: see engine/tuned.py
    tokens_per_s: float
    tokens_per_round: float
    verify_s: dict[int, float]  # seconds of a verify of so many rows; of plain samples alone


@dataclass(frozen=True)
class Measured:
    samples: dict[int, list[float]]  # tokens/s by depth, plain decoding first
    tokens_per_round: dict[int, float]
    verify_s: list[dict[int, float]] = field(default_factory=list)  # a sample each

    @property
    def rows(self) -> dict[int, float]:
        """Verifies of so many rows, in those of one row: the median over the samples."""
        counts = [rows for rows in self.verify_s[0] if rows > 1] if self.verify_s else []
        return {n: statistics.median(each[n] / each[1] for each in self.verify_s) for n in counts}

    @property
    def tokens_per_s(self) -> dict[int, float]:
        return {depth: statistics.median(rates) for depth, rates in self.samples.items()}

    @property
    def depth(self) -> int:
        """The lowest that is as good as the fastest: a gain within NOISE is none, and every draft
        more is one more that a harder prompt may waste."""
        rates = self.tokens_per_s
        enough = max(rates.values()) * (1 - NOISE)
        return min(depth for depth, rate in rates.items() if rate >= enough)

    @property
    def costs(self) -> dict[int, float]:
        """A round at each depth, in rounds of plain decoding, of the fastest samples: what else
        the machine does only ever slows a sample down."""
        rates = {depth: max(taken) for depth, taken in self.samples.items()}
        return {d: self.tokens_per_round[d] * rates[0] / rate for d, rate in rates.items()}

    def ratios(self) -> dict[int, float]:
        rates = self.tokens_per_s
        return {depth: rate / rates[0] for depth, rate in rates.items()}


def measure(
    model: str,
    depths: Iterable[int],
    tokens: int,
    repeats: int,
    beginning: Callable[[int, int], None] = lambda round_, depth: None,
) -> Measured:
    """Sample plain decoding and ``depths`` in turn, ``repeats`` times over, and save the result.

    ``beginning`` gets the round and the depth before each sample.
    """
    in_turn = sorted({0, *depths})
    samples: dict[int, list[float]] = {depth: [] for depth in in_turn}
    tokens_per_round: dict[int, float] = {}
    verify_s: list[dict[int, float]] = []
    keys = set()
    for round_ in range(repeats):
        for depth in in_turn:
            beginning(round_, depth)
            taken = _sample(model, depth, tokens)
            samples[depth].append(taken.tokens_per_s)
            tokens_per_round[depth] = taken.tokens_per_round
            if taken.verify_s:
                verify_s.append(taken.verify_s)
            keys.add(taken.key)
    if len(keys) > 1:
        raise EngineError(f"{model} or this installation changed while it was measured. Try again.")
    measured = Measured(samples, tokens_per_round, verify_s)
    save(keys.pop(), measured)
    return measured


def _sample(model: str, depth: int, tokens: int) -> Sample:
    command = [sys.executable, "-m", "llm", "mtplx", "tune", model]
    command += ["--sample", str(depth), "--tokens", str(tokens)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise EngineError(f"Depth {depth} of {model} could not be measured.")
    told = json.loads(done.stdout)
    told["verify_s"] = {int(rows): seconds for rows, seconds in told["verify_s"].items()}
    return Sample(**told)


def save(key: str, measured: Measured) -> None:
    rates = measured.tokens_per_s
    record: dict[str, Any] = {
        "depth": measured.depth,
        "tokens_per_s": {str(depth): round(rate, 2) for depth, rate in rates.items()},
        "costs": {str(depth): round(cost, 3) for depth, cost in measured.costs.items()},
        **(
            {"rows": {str(n): round(cost, 3) for n, cost in measured.rows.items()}}
            if measured.rows
            else {}
        ),
    }
    path = tuning_path()
    with jsonfile.locked(path):
        jsonfile.write(path, {**jsonfile.read_or_empty(path), key: record})
