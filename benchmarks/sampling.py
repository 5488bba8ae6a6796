"""What sampling costs a row of a large vocabulary, against a full argpartition and logsumexp.

    uv run python -m benchmarks.sampling --out benchmarks/results/sampling.json

One row of 248,320 random logits, temperature 0.6, top-k 20, top-p 0.95. All contenders run in
turn in one process; figures are medians.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx

from llm_mtplx.engine.facts import facts
from llm_mtplx.speculative.distributions import Candidates, Sampling

from .decode import machine

VOCABULARY = 248_320
SAMPLING = Sampling(temperature=0.6, top_k=20, top_p=0.95)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=60)
    args = parser.parse_args()
    mx.random.seed(0)
    logits = mx.random.normal((1, VOCABULARY)) * 3
    coarse = logits.astype(mx.bfloat16)  # so coarse that the k-th value is tied
    mx.eval(logits, coarse)
    draws = 0

    def ours(row: mx.array) -> None:
        candidates = row
        mx.eval(candidates.arrays)
        draws.pick(candidates.distributions()[0])

    contenders: dict[str, Callable[[mx.array], object]] = {
        "shape and draw": ours,
        "the same with ties": lambda row: ours(coarse),
        "argpartition alone": lambda row: mx.eval(mx.argpartition(-row, 19, axis=-1)),
        "logsumexp alone": lambda row: mx.eval(mx.logsumexp(row, axis=-1)),
    }
    spent: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(args.repeats):
        for name, run in contenders.items():
            row = logits + 0  # just computed, as after lm_head
            mx.eval(row)
            started = time.perf_counter()
            run(row)
            spent[name].append((time.perf_counter() - started) * 1000)
    medians = {name: round(statistics.median(values), 3) for name, values in spent.items()}
    print("milliseconds a row:", medians)
    if args.out:
        report = {"machine": machine(), "versions": facts()["versions"], "ms_per_row": medians}
        args.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
