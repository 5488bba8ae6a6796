"""What choosing a token costs, and what sampling costs an answer beside greedy decoding.

    uv run python -m benchmarks.sampling --out benchmarks/results/sampling.json

*Rows*: one row of 248,320 random logits, with every kind of filter. *Answers*: the demo model
widened to 320 MB decodes the same prompts at temperature 0 and 0.7 at depths 0 to 3, in turn in one
process; at 0.7 with the model's own filters, and the head then drafts what the trunk chooses at
either temperature alike, so that both accept every draft. Figures are medians.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import mlx.core as mx

from llm_mtplx.architectures.blas import preload
from llm_mtplx.speculative.distributions import Sampling, choose
from llm_mtplx.speculative.noise import Noise

from .decode import PROMPTS, machine

VOCABULARY = 248_320
KINDS = {
    "greedy": Sampling(),
    "top-k 20": Sampling(0.7, top_k=20),
    "top-k 20, top-p 0.95": Sampling(0.7, top_k=20, top_p=0.95),
    "top-p 0.95": Sampling(0.7, top_p=0.95),
    "min-p 0.05": Sampling(0.7, min_p=0.05),
    "nothing": Sampling(0.7),
}
DEPTHS = (0, 1, 2, 3)
WARM = Sampling(0.7, top_k=20, top_p=0.95)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--model", default="320MB")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=5, help="Of all answers")
    args = parser.parse_args()
    preload()
    report: dict[str, Any] = {"machine": machine(), "rows": rows(args.repeats)}
    print(json.dumps(report["rows"], indent=1))
    report["answers"] = answers(args.model, args.tokens, args.rounds)
    print(json.dumps(report["answers"], indent=1))
    if args.out:
        from llm_mtplx.architectures.runtime import facts

        told = facts()
        report |= {"versions": told["versions"], "blas": told["blas"]}
        args.out.write_text(json.dumps(report, indent=1) + "\n")


def rows(repeats: int) -> dict[str, Any]:
    mx.random.seed(0)
    fine = mx.random.normal((1, VOCABULARY)) * 3
    # So coarse that many values tie.
    kinds = {"float32": fine, "bfloat16": fine.astype(mx.bfloat16)}
    noise = Noise(0)
    spent: dict[str, dict[str, list[float]]] = {
        dtype: {name: [] for name in KINDS} for dtype in kinds
    }
    for repeat in range(repeats):
        for dtype, logits in kinds.items():
            for name, sampling in KINDS.items():
                row = logits + 0  # just computed, as after lm_head
                mx.eval(row)
                started = time.perf_counter()
                choice = choose(row, sampling, noise.keys(repeat, 1))
                mx.eval(choice.arrays)
                if choice.sure is not None and not choice.sure.item():
                    mx.eval(choose(row, sampling, noise.keys(repeat, 1), whole=True).arrays)
                spent[dtype][name].append((time.perf_counter() - started) * 1000)
    medians = {
        dtype: {name: round(statistics.median(taken), 3) for name, taken in each.items()}
        for dtype, each in spent.items()
    }
    ratios = {
        dtype: {name: round(ms / each["greedy"], 2) for name, ms in each.items()}
        for dtype, each in medians.items()
    }
    return {"ms_per_row": medians, "ratio_to_greedy": ratios}


def answers(name: str, tokens: int, rounds: int) -> dict[str, Any]:
    from . import contenders

    model = contenders.build(name)
    prompts = [contenders.prompt_ids(model, text) for text in PROMPTS]
    kinds = {"0": Sampling(), "0.7": WARM}
    # What is decoded plainly first: then both temperatures draft these, all of them right.
    scripts = {
        (kind, at): decode(model, prompt, sampling, tokens + max(DEPTHS) + 1, 0, [])[0]
        for kind, sampling in kinds.items()
        for at, prompt in enumerate(prompts)
    }
    spent: dict[tuple[int, str], list[float]] = {(d, kind): [] for d in DEPTHS for kind in kinds}
    parted, ratios = 0, {depth: list[float]() for depth in DEPTHS}
    for repeat in range(rounds + 1):  # the first is a warm-up
        for depth in DEPTHS:
            order = [*kinds] if repeat % 2 else [*kinds][::-1]
            seconds = dict.fromkeys(kinds, 0.0)
            for at, prompt in enumerate(prompts):
                for kind in order:
                    script = scripts[kind, at]
                    ids, taken = decode(model, prompt, kinds[kind], tokens, depth, script)
                    parted += ids != script[: len(ids)]
                    seconds[kind] += taken
            if repeat:
                ratios[depth].append(seconds["0"] / seconds["0.7"])
                for kind in kinds:
                    spent[depth, kind].append(seconds[kind])
    made = len(prompts) * (tokens - 1)
    return {
        "model": name,
        "tokens_per_s": {
            kind: {str(d): round(made / statistics.median(spent[d, kind]), 2) for d in DEPTHS}
            for kind in kinds
        },
        # Of each pair of neighbours in time.
        "sampled_to_greedy": {str(d): round(statistics.median(ratios[d]), 3) for d in DEPTHS},
        "parted": parted,
    }


def decode(
    model: Any, prompt: list[int], sampling: Sampling, tokens: int, depth: int, script: list[int]
) -> tuple[list[int], float]:
    """Ids, and seconds after the first of them. With a ``script``, drafts are its ids: the head is
    run all the same, and what it chooses thrown away."""
    from llm_mtplx.speculative.decoder import Decoder

    class Scripted(Decoder):
        def _draft(self, primary: int, depth: int) -> list[mx.array]:
            drafts = super()._draft(primary, depth)
            if not script:
                return drafts
            mx.eval(drafts)
            at = self._next - len(prompt)
            right = script[at : at + depth]
            return [mx.array([token], dtype=mx.uint32) for token in right]

    decoder = Scripted(model.trunk, model.head, sampling, 1)
    list(decoder.prefill(prompt))
    ids = [decoder.first()]
    started = time.perf_counter()
    while len(ids) < tokens:
        ids += decoder.round(depth, tokens - len(ids), lambda token: False).tokens
    return ids, time.perf_counter() - started


if __name__ == "__main__":
    main()
