"""Decoding speed: plain, depths 1-5 and mlx-lm's own loop, side by side on the same weights.

    uv run python -m benchmarks.decode --out benchmarks/results/decode.json

Every contender decodes the same prompts greedily in turn, several times over, in one process;
figures are medians over the repeats. A process is started for each BLAS (it cannot change in a
running one). Prompts are *easy* (the head nearly always right) or *hard* (noise on ``mtp.fc``
until depth-1 acceptance is about 60 %). Rates are of decoding alone, without prefill.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from llm_mtplx.architectures.blas import preload

BLAS = {
    "wheel": {"LLM_MTPLX_BLAS": "off"},
    "openblas-1": {"LLM_MTPLX_BLAS": "libopenblas.so.0", "OPENBLAS_NUM_THREADS": "1"},
    "openblas-2": {"LLM_MTPLX_BLAS": "libopenblas.so.0", "OPENBLAS_NUM_THREADS": "2"},
}
MODELS = ("demo-bf16", "demo-f32", "320MB", "540MB")
DEPTHS = (0, 1, 2, 3, 4, 5)
PROMPTS = ("Count from 1 to 40.", "Tell me a story.")
# With the wheel's BLAS a large float32 model makes a few tokens a second: fewer of them do.
SHORT_TOKENS = 24


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--blas", nargs="+", choices=BLAS, default=list(BLAS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        preload()
        print(json.dumps([measure(name, args.tokens, args.repeats) for name in args.models]))
        return
    report: dict[str, Any] = {"machine": machine(), "tokens": args.tokens, "runs": {}}
    for blas in args.blas:
        report["runs"][blas] = in_own_process(blas, args)
        for run in report["runs"][blas]:
            report["versions"] = run.pop("versions")
        if args.out:
            args.out.write_text(json.dumps(report, indent=1) + "\n")


def in_own_process(blas: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    # Where set, this forces a kernel that need not suit the processor.
    kept = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    runs: list[dict[str, Any]] = []
    for model in args.models:
        tokens = SHORT_TOKENS if blas == "wheel" and model in ("320MB", "540MB") else args.tokens
        command = [sys.executable, "-m", "benchmarks.decode", "--measure", "--models", model]
        command += ["--tokens", str(tokens), "--repeats", str(args.repeats)]
        environment = {**kept, **BLAS[blas]}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        runs += json.loads(done.stdout)
        show(blas, runs[-1:])
    return runs


def machine() -> dict[str, Any]:
    cpu = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [x.split(":", 1)[1] for x in cpuinfo.read_text().splitlines() if "model name" in x]
        cpu = models[0].strip() if models else cpu
    return {"cpu": cpu, "cores": os.cpu_count(), "os": f"{platform.system()} {platform.release()}"}


def measure(name: str, tokens: int, repeats: int) -> dict[str, Any]:
    from llm_mtplx.architectures.runtime import facts

    from . import contenders

    model = contenders.build(name)
    told = facts()
    run: dict[str, Any] = {
        "model": name,
        "blas": told["blas"],
        "weights_mb": contenders.weights_mb(model),
        "costs": contenders.costs(model, repeats),
        "easy": compare(model, tokens, repeats),
        "versions": told["versions"],
    }
    hard, noise = contenders.harden(model, PROMPTS, tokens)
    run["hard"] = {**compare(hard, tokens, repeats), "noise": noise}
    add_shares(run)
    return run


def add_shares(run: dict[str, Any]) -> None:
    """The share of a round's time that its forwards, timed alone, do not explain."""
    for kind in ("easy", "hard"):
        got, costs = run[kind], run["costs"]
        for depth in DEPTHS[1:]:
            told = got["rounds"][str(depth)]
            round_ms = 1000 * told["tokens_per_round"] / got["tokens_per_s"][str(depth)]
            rows = costs["verify_ratio"][str(depth + 1)] + depth * costs["draft_ratio"]
            told["outside_forwards"] = round(1 - rows * costs["one_row_ms"] / round_ms, 3)


def compare(model: Any, tokens: int, repeats: int) -> dict[str, Any]:
    """Median tokens per second of every contender, interleaved, and what the rounds did."""
    from . import contenders

    rates: dict[str, list[float]] = {"mlx-lm": [], **{str(depth): [] for depth in DEPTHS}}
    rounds: dict[str, dict[str, Any]] = {}
    prompts = [contenders.prompt_ids(model, text) for text in PROMPTS]
    outputs: dict[int, list[int]] = {}
    for _ in range(repeats + 1):  # the first is a warm-up
        seconds = dict.fromkeys(rates, 0.0)  # a token, summed over the prompts
        counts = {str(depth): contenders.Counts() for depth in DEPTHS}
        for at, prompt in enumerate(prompts):
            ids, spent = contenders.mlx_lm(model, prompt, tokens)
            outputs[at] = ids
            seconds["mlx-lm"] += spent
            for depth in DEPTHS:
                got, spent = contenders.ours(model, prompt, tokens, depth, counts[str(depth)])
                if got != ids:
                    counts[str(depth)].parted += 1
                seconds[str(depth)] += spent
        for contender, spent in seconds.items():
            rates[contender].append(len(prompts) / spent)
        rounds = {depth: counted.report() for depth, counted in counts.items()}
    medians = {name: statistics.median(values[1:]) for name, values in rates.items()}
    return {
        "tokens_per_s": {name: round(rate, 1) for name, rate in medians.items()},
        "ratio_to_plain": {name: round(rate / medians["0"], 3) for name, rate in medians.items()},
        "rounds": rounds,
    }


def show(blas: str, runs: list[dict[str, Any]]) -> None:
    for run in runs:
        print(f"\n{run['model']} ({run['weights_mb']} MB), {blas}")
        costs = run["costs"]
        print(
            "  verify of w rows / one row:", costs["verify_ratio"], "draft:", costs["draft_ratio"]
        )
        for kind in ("easy", "hard"):
            got = run[kind]
            print(f"  {kind}: tokens/s", got["tokens_per_s"])
            print(f"  {kind}: ratio   ", got["ratio_to_plain"])
            for depth in DEPTHS[1:]:
                told = got["rounds"][str(depth)]
                share = limit_share(got, costs, depth)
                print(
                    f"    depth {depth}: {told['tokens_per_round']} tokens a round, accepted "
                    f"{told['acceptance']}, {share:.0%} of the limit, parted {told['parted']}"
                )


def limit_share(got: dict[str, Any], costs: dict[str, Any], depth: int) -> float:
    """Measured ratio over tokens per round / (verify cost + depth x draft cost)."""
    cost = costs["verify_ratio"][str(depth + 1)] + depth * costs["draft_ratio"]
    limit = got["rounds"][str(depth)]["tokens_per_round"] / cost
    return float(got["ratio_to_plain"][str(depth)] / limit)


if __name__ == "__main__":
    main()
