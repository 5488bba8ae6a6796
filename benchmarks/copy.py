"""Drafts copied from the line beside drafts of the head alone, on edits and on fresh text.

    uv run python -m benchmarks.copy --out benchmarks/results/copy.json

A model of three million parameters cannot edit code, so answers are dictated: what the trunk
chooses at each place is given, and every forward is real. *Edits* repeat a text of the prompt with
small changes: a function of 60 lines renamed, a paragraph's typos put right, one value of a JSON
document changed. *Fresh* texts have nothing to do with their prompt. The head's drafts are *right*,
or *noisy*: wrong in two of five places. Both contenders choose lengths by the same measured costs
and take turns on each task; figures are medians over the tasks of the ratio of their tokens a
second, without prefill. Plain decoding and fixed lengths of copies are run for their ids, which
must be the same.
"""

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llm_mtplx.architectures.blas import preload

from .decode import BLAS, machine

HEADS = ("right", "noisy")
VERIFIES = (1, 2, 3, 4, 5, 8, 16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--blas", choices=BLAS, default="openblas-1")
    parser.add_argument("--model", default="320MB")
    parser.add_argument("--tasks", type=int, default=20, help="Of each kind")
    parser.add_argument("--tokens", type=int, default=160, help="Of an answer, at most")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        preload()
        print(json.dumps(measure(args)))
        return
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    command = [sys.executable, "-m", "benchmarks.copy", "--measure", "--model", args.model]
    command += ["--tasks", str(args.tasks), "--tokens", str(args.tokens)]
    done = subprocess.run(
        command, env=environment | BLAS[args.blas], stdout=subprocess.PIPE, check=True
    )
    report = {"machine": machine(), **json.loads(done.stdout)}
    print(json.dumps(report, indent=1))
    if args.out:
        args.out.write_text(json.dumps(report, indent=1) + "\n")


def measure(args: argparse.Namespace) -> dict[str, Any]:
    from llm_mtplx.architectures.runtime import facts

    from . import contenders

    model = contenders.build(args.model)
    costs, rows = measured(model)
    told = facts()
    report: dict[str, Any] = {"model": args.model, "blas": told["blas"]}
    report |= {"versions": told["versions"], "tasks": args.tasks, "tokens": args.tokens}
    report |= {"costs": _rounded(costs), "verify": _rounded(rows), "index": index_costs()}
    kinds = {"edits": edits(args.tasks), "fresh": fresh(args.tasks)}
    for head in HEADS:
        report[head] = {
            kind: compare(model, tasks, head, costs, rows, args.tokens)
            for kind, tasks in kinds.items()
        }
    return report


def _rounded(costs: dict[int, float]) -> dict[str, float]:
    return {str(key): round(cost, 3) for key, cost in costs.items()}


def measured(model: Any) -> tuple[dict[int, float], dict[int, float]]:
    """Costs of rounds by depth and of verifies by rows, in plain rounds; as ``tune`` records."""
    from . import contenders

    told = contenders.costs(model, 2, VERIFIES)
    rows = {int(count): cost for count, cost in told["verify_ratio"].items()}
    return {d: rows[d + 1] + d * told["draft_ratio"] for d in range(5)}, rows


def edits(count: int) -> list[tuple[str, str]]:
    """Prompts and answers, of three kinds in turn."""
    return [(_rename, _typos, _value)[at % 3](random.Random(at)) for at in range(count)]


WORDS = re.findall(
    r"\w+",
    """
    river stone garden window letter market bridge winter summer morning evening paper music
    forest mountain village harbor kitchen teacher doctor farmer painter sailor baker driver
    story answer question reason number circle square shadow silver golden quiet loud narrow
    early late often never always carry follow gather build open close measure listen travel
    """,
)


def _rename(rng: random.Random) -> tuple[str, str]:
    old, new = rng.sample(WORDS, 2)
    lines = [f"def {old}_all(items):"]
    for at in range(59):
        a, b, c = rng.sample(WORDS, 3)
        call = f"{old}_all({b})" if at % 9 == 4 else f"{b}.{c}({rng.randrange(99)})"
        lines.append(f"    {a} = {call}")
    code = "\n".join(lines)
    return f"Rename {old}_all to {new}_all:\n{code}", code.replace(f"{old}_all", f"{new}_all")


def _typos(rng: random.Random) -> tuple[str, str]:
    words = [rng.choice(WORDS) for _ in range(110)]
    wrong = list(words)
    for at in rng.sample(range(len(words)), 6):
        wrong[at] = words[at][:-2] + words[at][-1] + words[at][-2]
    return f"Put the typos right: {' '.join(wrong)}.", f"{' '.join(words)}."


def _value(rng: random.Random) -> tuple[str, str]:
    document = [
        {"id": at, "name": rng.choice(WORDS), "kind": rng.choice(WORDS), "size": rng.randrange(999)}
        for at in range(16)
    ]
    before = json.dumps(document, indent=1)
    at = rng.randrange(4, 8)
    document[at]["size"] = 1000
    return f"Set the size of {at} to 1000:\n{before}", json.dumps(document, indent=1)


def fresh(count: int) -> list[tuple[str, str]]:
    tasks = []
    for at in range(count):
        rng = random.Random(1000 + at)
        said = " ".join(
            " ".join(rng.choice(WORDS) for _ in range(rng.randrange(5, 12))) + "."
            for _ in range(14)
        )
        tasks.append((f"Tell me about a {rng.choice(WORDS)}.", said))
    return tasks


def compare(
    model: Any,
    tasks: list[tuple[str, str]],
    head: str,
    costs: dict[int, float],
    rows: dict[int, float],
    tokens: int,
) -> dict[str, Any]:
    from llm_mtplx.engine.counts import Counts
    from llm_mtplx.speculative.adaptive import AdaptiveDepth
    from llm_mtplx.speculative.copying import Copying
    from llm_mtplx.speculative.depth import verify_cost

    contestants: dict[str, Callable[[], Counts]] = {
        "head": lambda: Counts(4, adaptive=AdaptiveDepth(costs)),
        "both": lambda: Counts(
            4,
            adaptive=AdaptiveDepth(costs),
            copying=Copying(lambda count: verify_cost(count, rows)),
        ),
    }
    ratios, copied, accepted = [], 0, 0
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    parted = 0
    for at, (asked, said) in enumerate(tasks):
        prompt, answer = encoded(model, asked, said, tokens)
        order = [*contestants] if at % 2 else [*contestants][::-1]
        for name in order:
            counts = contestants[name]()
            ids, seconds = decode(model, prompt, answer, head, counts)
            rates[name].append((len(answer) - 1) / seconds)
            parted += ids != answer
            if name == "both":
                copied, accepted = copied + counts.copied, accepted + counts.copies_accepted
        ratios.append(rates["both"][-1] / rates["head"][-1])
    return {
        "tokens_per_s": {name: round(statistics.median(r), 1) for name, r in rates.items()},
        "both_to_head": round(statistics.median(ratios), 3),
        "least": round(min(ratios), 3),
        "most": round(max(ratios), 3),
        "copied": copied,
        "copies_accepted": accepted,
        "parted": parted,
    }


def encoded(model: Any, asked: str, said: str, tokens: int) -> tuple[list[int], list[int]]:
    tokenizer = model.tokenizer
    prompt = tokenizer.encode(tokenizer.render([{"role": "user", "content": asked}], {}))
    return prompt, tokenizer.encode(said)[:tokens]


def decode(
    model: Any, prompt: list[int], answer: list[int], head: str, counts: Any
) -> tuple[list[int], float]:
    """Ids, and seconds after the first of them."""
    from .dictated import Dictated

    decoder = Dictated(model, [*prompt, *answer, *[0] * 32], head)
    list(decoder.prefill(prompt))
    ids = [decoder.first()]
    began = time.perf_counter()
    while len(ids) < len(answer):
        room = 1 if counts.plain_once else len(answer) - len(ids)
        before = time.perf_counter()
        done = decoder.round(counts.next_depth, room, _never, counts.copies_in(1))
        counts.add(done, time.perf_counter() - before)
        ids += done.tokens
    return ids, time.perf_counter() - began


def index_costs() -> dict[str, float]:
    """Bytes and microseconds a token of the index, over 100,000 of them."""
    import tracemalloc

    from llm_mtplx.speculative.copying import CopyIndex

    rng = random.Random(7)
    ids = [rng.randrange(248_320) for _ in range(100_000)]
    one, began = CopyIndex(), time.perf_counter()
    one.extend(ids)
    at_once = time.perf_counter() - began
    other, began = CopyIndex(), time.perf_counter()
    line: list[int] = []
    for token in ids:
        line.append(token)
        other.extend(line)
    each = time.perf_counter() - began
    tracemalloc.start()
    kept = CopyIndex()
    kept.extend(ids)
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return {
        "bytes": size,
        "us_a_token_at_once": round(1e6 * at_once / len(ids), 2),
        "us_a_token_one_by_one": round(1e6 * each / len(ids), 2),
    }


def _never(token: int) -> bool:
    return False


if __name__ == "__main__":
    main()
