"""Adaptive depth beside every fixed depth, with the costs that ``llm mtplx tune`` measures.

    uv run python -m benchmarks.adaptive --blas wheel

The costs are measured first, as ``tune`` does, on its own prompts. Then every contender decodes the
same prompts greedily in turn, several times over, in one process. *Adaptive* knows these costs;
*learned* begins as a process does whose model was never tuned, and finds them while it decodes.
Figures are medians, and those beside the best fixed depth are of pairs from the same repeat.
Prompts are *easy* (the head nearly always right), *hard* (noise on ``mtp.fc`` until depth-1
acceptance is about 60 %) or *mixed*: easy and hard in turns of 32 tokens within each answer.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from llm_mtplx.architectures.blas import preload

from .decode import BLAS, PROMPTS, machine

RESULTS = Path(__file__).parent / "results"
DEPTHS = (0, 1, 2, 3, 4)
LEARNERS = ("adaptive", "learned")
KINDS = ("easy", "hard", "mixed")
STRETCH = 32  # tokens of a kind in mixed answers
# A round of a large float32 model takes long, with the wheel's BLAS very long.
TOKENS = {
    ("demo-bf16", "wheel"): 128,
    ("demo-bf16", "openblas"): 128,
    ("320MB", "wheel"): 24,
    ("320MB", "openblas"): 96,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blas", choices=BLAS, required=True)
    parser.add_argument("--models", nargs="+", default=["demo-bf16", "320MB"])
    parser.add_argument("--repeats", type=int, nargs="+", default=[5, 2], help="By model")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        preload()
        model, tokens, repeats = args.measure
        print(json.dumps(measure(model, int(tokens), int(repeats))))
        return
    if len(args.models) != len(args.repeats):
        parser.error("give --repeats for each of --models")
    file = RESULTS / f"adaptive-{args.blas}.json"
    report: dict[str, Any] = {"machine": machine(), "runs": []}
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    environment |= BLAS[args.blas]
    for model, repeats in zip(args.models, args.repeats, strict=True):
        tokens = TOKENS[model, args.blas.split("-")[0]]
        command = [sys.executable, "-m", "benchmarks.adaptive", "--blas", args.blas]
        command += ["--measure", model, str(tokens), str(repeats)]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        run = json.loads(done.stdout)
        report["versions"] = run.pop("versions")
        report["runs"].append(run)
        file.write_text(json.dumps(report, indent=1) + "\n")
        for kind in KINDS:
            print(args.blas, model, kind, run[kind], flush=True)


def measure(name: str, tokens: int, repeats: int) -> dict[str, Any]:
    from llm_mtplx.architectures.runtime import facts

    from . import contenders

    model = contenders.build(name)
    costs = tune(model, min(tokens, 48))
    hard, noise = contenders.harden(model, PROMPTS, tokens)
    told = facts()
    return {
        "model": name,
        "blas": told["blas"],
        "versions": told["versions"],
        "tokens": tokens,
        "repeats": repeats,
        "costs": {str(depth): round(cost, 3) for depth, cost in costs.items()},
        "noise": noise,
        "easy": compare(model, costs, tokens, repeats),
        "hard": compare(hard, costs, tokens, repeats),
        "mixed": compare(mixed(model, hard), costs, tokens, repeats),
    }


def tune(model: Any, tokens: int) -> dict[int, float]:
    """The costs that ``llm mtplx tune`` would save, here in one process."""
    from llm_mtplx.measure.depths import Measured
    from llm_mtplx.measure.tune import sample

    taken = [{depth: sample(model, depth, tokens) for depth in DEPTHS} for _ in range(3)]
    rates = {depth: [each[depth].tokens_per_s for each in taken] for depth in DEPTHS}
    return Measured(rates, {depth: taken[0][depth].tokens_per_round for depth in DEPTHS}).costs


def mixed(easy: Any, hard: Any) -> Any:
    """A model whose head is now the one, now the other."""
    from llm_mtplx.architectures.mtp_head import MTPHead

    class Mixed(MTPHead):
        def forward_all(self, hidden: Any, embeddings: Any, pieces: Any, caches: Any) -> Any:
            head = hard.head if caches[0].offset // STRETCH % 2 else easy.head
            return head.forward_all(hidden, embeddings, pieces, caches)

    return replace(easy, head=Mixed(easy.trunk.args))


def compare(model: Any, costs: Mapping[int, float], tokens: int, repeats: int) -> dict[str, Any]:
    """Tokens per second of every contender, interleaved."""
    from llm_mtplx.engine.counts import Counts
    from llm_mtplx.speculative.adaptive import AdaptiveDepth
    from llm_mtplx.speculative.depth import BREAK_EVEN
    from llm_mtplx.speculative.pace import Pace

    from . import contenders

    pace = Pace({depth: 1 + BREAK_EVEN["cpu"] * depth for depth in DEPTHS})
    contestants = {str(depth): lambda depth=depth: Counts(depth) for depth in DEPTHS}
    contestants["adaptive"] = lambda: Counts(max(costs), adaptive=AdaptiveDepth(costs))
    contestants["learned"] = lambda: Counts(
        max(DEPTHS), adaptive=AdaptiveDepth(pace.costs), pace=pace
    )
    spent: dict[str, list[float]] = {name: [] for name in contestants}
    taken: dict[str, Counter[str]] = {name: Counter() for name in contestants}
    parted = 0
    for repeat in range(repeats):
        for each in spent.values():
            each.append(0.0)
        for text in PROMPTS:
            prompt = contenders.prompt_ids(model, text)
            outputs = {}
            # Each begins in turn, so that none always follows the same one.
            names = [*contestants][repeat % len(contestants) :]
            names += [name for name in contestants if name not in names]
            for name in names:
                outputs[name], seconds, depths = decode(model, prompt, tokens, contestants[name]())
                spent[name][-1] += seconds
                if not repeat:
                    taken[name].update(depths)
            parted += sum(ids != outputs["0"] for ids in outputs.values())
    made = len(PROMPTS) * (tokens - 1)
    rates = {name: made / statistics.median(each) for name, each in spent.items()}
    best = max(DEPTHS, key=lambda depth: rates[str(depth)])
    return {
        "tokens_per_s": {name: round(rate, 2) for name, rate in rates.items()},
        "best_fixed": best,
        **{f"{name}_to_best": _paired(spent[str(best)], spent[name]) for name in LEARNERS},
        "rounds_by_depth": {name: dict(sorted(each.items())) for name, each in taken.items()},
        "parted": parted,
    }


def _paired(best: list[float], other: list[float]) -> float:
    return round(statistics.median(b / o for b, o in zip(best, other, strict=True)), 3)


def decode(
    model: Any, prompt: list[int], tokens: int, counts: Any
) -> tuple[list[int], float, Counter[str]]:
    """Ids, seconds after the first of them, and how often each depth was taken; as a turn does."""
    from llm_mtplx.speculative.decoder import Decoder
    from llm_mtplx.speculative.distributions import Sampling

    decoder = Decoder(model.trunk, model.head, Sampling())
    list(decoder.prefill(prompt))
    ids = [decoder.first()]
    taken: Counter[str] = Counter()
    started = time.perf_counter()
    while len(ids) < tokens:
        room = 1 if counts.plain_once else tokens - len(ids)
        before = time.perf_counter()
        done = decoder.round(counts.next_depth, room, lambda token: False)
        counts.add(done, time.perf_counter() - before)
        taken[str(done.drafted)] += 1
        ids += done.tokens
    return ids, time.perf_counter() - started, taken


if __name__ == "__main__":
    main()
