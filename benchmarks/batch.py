"""Several conversations decoded in one forward, beside mlx-lm's batch and beside one by one.

    uv run python -m benchmarks.batch --out benchmarks/results/batch.json

Every contender decodes the same prompts greedily in turn, several times over, in one process for
each number of threads. *Batch* decodes them in one forward at a fixed depth, or at the depth that
is chosen by the load; *alone* decodes one after the other; *mlx-lm* is its ``BatchGenerator`` on
the same weights. Figures are tokens a second of all conversations together, from the moment each
has its first token, medians over the repeats; ratios are of pairs from the same repeat. Prompts
are *easy* or *hard* as in ``benchmarks.decode``.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llm_mtplx.architectures.blas import preload

from .decode import BLAS, PROMPTS, machine

RUNS = ("openblas-1", "openblas-2")
DEPTHS = (0, 1, 3)
CONVERSATIONS = (4, 8)
QUESTIONS = (
    "Count from 1 to 40.",
    "Tell me a story.",
    "Count from 2 to 50.",
    "Tell me a joke.",
    "Count from 5 to 60.",
    "What is the capital of Italy?",
    "Count from 7 to 70.",
    "What is 12 plus 30?",
)
Ids = list[list[int]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--blas", nargs="+", choices=BLAS, default=list(RUNS))
    parser.add_argument("--model", default="320MB")
    parser.add_argument("--conversations", type=int, nargs="+", default=list(CONVERSATIONS))
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        preload()
        print(json.dumps(measure(args)))
        return
    report: dict[str, Any] = {"machine": machine(), "model": args.model, "tokens": args.tokens}
    report |= {"repeats": args.repeats, "runs": {}}
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    for blas in args.blas:
        command = [sys.executable, "-m", "benchmarks.batch", "--measure", "--model", args.model]
        command += ["--tokens", str(args.tokens), "--repeats", str(args.repeats)]
        command += ["--conversations", *map(str, args.conversations)]
        done = subprocess.run(
            command, env=environment | BLAS[blas], stdout=subprocess.PIPE, check=True
        )
        run = json.loads(done.stdout)
        report["versions"] = run.pop("versions")
        report["runs"][blas] = run
        print(blas, json.dumps(run, indent=1), flush=True)
        if args.out:
            args.out.write_text(json.dumps(report, indent=1) + "\n")


def measure(args: argparse.Namespace) -> dict[str, Any]:
    from llm_mtplx.architectures.runtime import facts

    from . import contenders

    model = contenders.build(args.model)
    hard, noise = contenders.harden(model, PROMPTS, args.tokens)
    told = facts()
    run: dict[str, Any] = {"blas": told["blas"], "versions": told["versions"], "noise": noise}
    for kind, each in (("easy", model), ("hard", hard)):
        run[kind] = {
            str(count): compare(each, count, args.tokens, args.repeats)
            for count in args.conversations
        }
    return run


def compare(model: Any, count: int, tokens: int, repeats: int) -> dict[str, Any]:
    from llm_mtplx.speculative.adaptive import AdaptiveDepth

    from . import contenders

    prompts = [contenders.prompt_ids(model, QUESTIONS[at % len(QUESTIONS)]) for at in range(count)]
    # What rounds alone cost on this machine; as ``tune`` would have recorded it.
    spent = contenders.costs(model, 1)
    costs = {
        depth: spent["verify_ratio"][str(depth + 1)] + depth * spent["draft_ratio"]
        for depth in range(5)
    }
    jobs: dict[str, Callable[[], tuple[Ids, float]]] = {
        "mlx-lm": lambda: mlx_lm(model, prompts, tokens),
        **{f"alone {d}": lambda d=d: alone(model, prompts, tokens, d) for d in DEPTHS},
        **{
            f"batch {d}": lambda d=d: batch(model, prompts, tokens, lambda: Fixed(d))
            for d in DEPTHS
        },
        "batch by load": lambda: batch(model, prompts, tokens, lambda: AdaptiveDepth(costs)),
    }
    rates: dict[str, list[float]] = {name: [] for name in jobs}
    parted: dict[str, int] = dict.fromkeys(jobs, 0)
    for repeat in range(repeats + 1):  # the first is a warm-up
        names = [*jobs][repeat % len(jobs) :] + [*jobs][: repeat % len(jobs)]
        outputs: dict[str, Ids] = {}
        for name in names:
            outputs[name], rate = jobs[name]()
            if repeat:
                rates[name].append(rate)
        for name, ids in outputs.items():
            parted[name] += sum(a != b for a, b in zip(ids, outputs["alone 0"], strict=True))
    return {
        "tokens_per_s": {name: round(statistics.median(r), 1) for name, r in rates.items()},
        "to_mlx_lm": {name: _paired(r, rates["mlx-lm"]) for name, r in rates.items()},
        "parted": {name: n for name, n in parted.items() if n},
    }


def _paired(one: list[float], other: list[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(one, other, strict=True)), 2)


class Fixed:
    """A depth that neither drafts nor the load change."""

    def __init__(self, depth: int) -> None:
        self._depth = depth

    def depth_in(self, company: int) -> int:
        return self._depth

    def add(self, tokens: int, drafted: int, accepted: int) -> None: ...


def batch(model: Any, prompts: Ids, tokens: int, policy: Callable[[], Any]) -> tuple[Ids, float]:
    """Ids, and tokens a second after the first of each."""
    from llm_mtplx.speculative.batch import Plan, advance
    from llm_mtplx.speculative.decoder import Decoder, Round
    from llm_mtplx.speculative.distributions import Sampling

    decoders = [Decoder(model.trunk, model.head, Sampling()) for _ in prompts]
    ids: Ids = []
    for decoder, prompt in zip(decoders, prompts, strict=True):
        list(decoder.prefill(prompt))
        ids.append([decoder.first()])
    policies = [policy() for _ in prompts]
    began = time.perf_counter()
    while going := [at for at, said in enumerate(ids) if len(said) < tokens]:
        plans = [
            (decoders[at], Plan(policies[at].depth_in(len(going)), tokens - len(ids[at]), _never))
            for at in going
        ]
        for at, done in zip(going, advance(plans), strict=True):
            assert isinstance(done, Round)
            ids[at] += done.tokens
            policies[at].add(len(done.tokens), done.drafted, done.accepted)
    return ids, len(prompts) * (tokens - 1) / (time.perf_counter() - began)


def alone(model: Any, prompts: Ids, tokens: int, depth: int) -> tuple[Ids, float]:
    from . import contenders

    ids, seconds = [], 0.0
    for prompt in prompts:
        said, spent = contenders.ours(model, prompt, tokens, depth, contenders.Counts())
        ids.append(said)
        seconds += spent  # a token
    return ids, len(prompts) / seconds


def mlx_lm(model: Any, prompts: Ids, tokens: int) -> tuple[Ids, float]:
    from mlx_lm.generate import BatchGenerator

    generator = BatchGenerator(model.trunk.model, max_tokens=tokens)
    places = {uid: at for at, uid in enumerate(generator.insert([list(p) for p in prompts]))}
    ids: Ids = [[] for _ in prompts]
    began, before = 0.0, 0
    while any(len(said) < tokens for said in ids):
        for response in generator.next_generated():
            ids[places[response.uid]].append(int(response.token))
        if not began and all(ids):
            began, before = time.perf_counter(), sum(map(len, ids))
    seconds = time.perf_counter() - began
    generator.close()
    return ids, (sum(map(len, ids)) - before) / seconds


def _never(token: int) -> bool:
    return False


if __name__ == "__main__":
    main()
