"""Answers of JSON schemas: whether every one is valid, and what the grammar costs a round.

    uv run python -m benchmarks.schema valid --out benchmarks/results/schema-valid.json
    uv run python -m benchmarks.schema cost --out benchmarks/results/schema-cost.json

*valid* asks the demo model for JSON of five schemas at temperature 1.3, many seeds each, and checks
every answer with ``jsonschema``. *cost* decodes the same ids with and without a schema, in turn in
one process: prompts for which the demo model writes the very JSON by itself. It also times one mask
of a vocabulary as large as Qwen's, made of random words. Figures are medians.
"""

import argparse
import json
import random
import statistics
import string
import time
from pathlib import Path
from typing import Any

from .schemas import SCHEMAS

RESULTS = Path(__file__).parent / "results"
MAX_TOKENS = 2000
DEPTHS = (0, 1, 2, 3)
VOCABULARY = 248_320
KEYS = {"name": "string", "age": "integer", "city": "string", "job": "string", "colour": "string"}
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {key: {"type": kind} for key, kind in KEYS.items()},
    "required": list(KEYS),
}
ANSWER = '{"name": "Tamsin", "age": 31, "city": "Paris", "job": "baker", "colour": "red"}'
ASKED = (
    "Reply as JSON with keys name, age, city, job and colour: "
    "Tamsin is 31 years old, lives in Paris, works as a baker and likes red.",
    "Reply as JSON with keys name, age, city, job and colour: "
    "Bob is 47 years old, lives in Rome, works as a teacher and likes green.",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["valid", "cost"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--models", nargs="+", default=["demo-bf16", "320MB"])
    parser.add_argument("--repeats", type=int, default=15)
    args = parser.parse_args()
    if args.what == "valid":
        report: dict[str, Any] = {"schemas": valid(args.seeds)}
    else:
        from llm_mtplx.architectures.blas import preload

        preload()
        from llm_mtplx.architectures.runtime import facts

        from .decode import machine

        report = {"machine": machine(), "versions": facts()["versions"], "blas": facts()["blas"]}
        report["models"] = {name: cost(name, args.repeats) for name in args.models}
        report["large_vocabulary"] = masks(args.repeats)
    if args.out:
        args.out.write_text(json.dumps(report, indent=1) + "\n")


def valid(seeds: int) -> dict[str, Any]:
    """Per schema: how many of the answers are valid, and the longest in tokens."""
    import llm
    from jsonschema import Draft202012Validator

    model = llm.get_model("mtplx-demo")
    report: dict[str, Any] = {}
    for name, (schema, ask) in SCHEMAS.items():
        validator = Draft202012Validator(schema)
        lengths, texts, good = [], set(), 0
        for seed in range(seeds):
            options = {"temperature": 1.3, "seed": seed, "max_tokens": MAX_TOKENS, "draft": 2}
            response = model.prompt(ask, schema=schema, cache="off", **options)
            texts.add(response.text())
            lengths.append(response.output_tokens)
            good += validator.is_valid(json.loads(response.text()))
        report[name] = {
            "answers": seeds,
            "valid": good,
            "different": len(texts),
            "longest": max(lengths),
            "max_tokens": MAX_TOKENS,
        }
        print(name, report[name], flush=True)
    return report


def cost(name: str, repeats: int) -> dict[str, Any]:
    """Milliseconds a round without and with the schema, by depth, and their ratio."""
    from . import contenders

    model = contenders.build(name)
    prompts = [contenders.prompt_ids(model, text) for text in ASKED]
    report: dict[str, Any] = {}
    for depth in DEPTHS:
        spent: dict[str, list[float]] = {"free": [], "schema": []}
        for _ in range(repeats + 1):  # the first is a warm-up
            for prompt in prompts:
                free, free_ms = _decode(model, prompt, None, depth)
                bound, bound_ms = _decode(model, prompt, PERSON, depth)
                assert free == bound, "the model does not write this JSON by itself"
                spent["free"].append(free_ms)
                spent["schema"].append(bound_ms)
        free_ms, bound_ms = (statistics.median(x[len(prompts) :]) for x in spent.values())
        report[str(depth)] = {
            "round_ms": round(free_ms, 3),
            "with_schema_ms": round(bound_ms, 3),
            "ratio": round(bound_ms / free_ms, 3),
        }
        print(name, "depth", depth, report[str(depth)], flush=True)
    return report


def _decode(
    model: Any, prompt: list[int], schema: dict[str, Any] | None, depth: int
) -> tuple[list[int], float]:
    """The answer's ids, and milliseconds a round."""
    from llm_mtplx.chat.grammar import SchemaRules
    from llm_mtplx.speculative.decoder import Decoder
    from llm_mtplx.speculative.distributions import Sampling
    from llm_mtplx.speculative.masks import Masks

    masks = None
    if schema is not None:
        masks = Masks(SchemaRules(schema, model.tokenizer, model.eos_ids, thinking=False))
    decoder = Decoder(model.trunk, model.head, Sampling(), masks=masks)
    list(decoder.prefill(prompt))
    ids = [decoder.first()]
    if depth == 0:
        # A plain loop has its next forward under way when it hands out a token.
        ids += decoder.round(0, MAX_TOKENS, model.eos_ids.__contains__).tokens
    rounds = 0
    started = time.perf_counter()
    while ids[-1] not in model.eos_ids:
        ids += decoder.round(depth, MAX_TOKENS, model.eos_ids.__contains__).tokens
        rounds += 1
    return ids, (time.perf_counter() - started) * 1000 / rounds


def masks(repeats: int) -> dict[str, Any]:
    """Microseconds to know what may come next, and to apply it, along one answer."""
    import mlx.core as mx

    from llm_mtplx.chat.grammar import SchemaRules
    from llm_mtplx.chat.tokenizer import ChatTokenizer
    from llm_mtplx.demo import MODEL_DIR
    from llm_mtplx.speculative.masks import Masks

    tokenizer = ChatTokenizer(MODEL_DIR)
    rng = random.Random(0)
    words = set(tokenizer.token_bytes)
    while len(words) < VOCABULARY:
        letters = rng.choices(string.ascii_lowercase, k=rng.randint(3, 9))
        words.add(rng.choice(("", " ")).encode() + "".join(letters).encode())
    extra = sorted(words - set(tokenizer.token_bytes))
    tokenizer.token_bytes = [*tokenizer.token_bytes, *extra][:VOCABULARY]
    assert tokenizer.message_end is not None
    ends = frozenset([tokenizer.message_end])
    logits = mx.random.normal((1, VOCABULARY)).astype(mx.bfloat16)
    mx.eval(logits)
    spent: dict[str, list[float]] = {"know": [], "know_and_apply": []}
    for _ in range(repeats + 1):
        rules = SchemaRules(PERSON, tokenizer, ends, thinking=False)
        applied = Masks(SchemaRules(PERSON, tokenizer, ends, thinking=False))
        for token in tokenizer.encode(ANSWER):
            started = time.perf_counter()
            rules.allowed()
            known = time.perf_counter()
            mx.eval(applied.apply(logits))
            spent["know"].append(1e6 * (known - started))
            spent["know_and_apply"].append(1e6 * (time.perf_counter() - known))
            rules.take(token)
            applied.emitted([token])
    return {
        "tokens": VOCABULARY,
        **{f"{name}_us": round(statistics.median(values)) for name, values in spent.items()},
        "know_worst_us": round(max(spent["know"])),
    }


def summary() -> str:
    """The committed results in words and a table."""
    checked = json.loads((RESULTS / "schema-valid.json").read_text())["schemas"].values()
    told = json.loads((RESULTS / "schema-cost.json").read_text())
    answers, good = (sum(schema[key] for schema in checked) for key in ("answers", "valid"))
    lines = [
        f"The demo model gave {answers} answers to {len(checked)} schemas at temperature 1.3; "
        f"{good} of them are valid. Milliseconds per round for the same token ids, without and "
        f"with a schema ({told['machine']['cpu']}, {told['machine']['cores']} cores, BLAS: "
        f"{told['blas']}):\n",
        "| model | `draft` | no schema | schema | ratio |\n| --- | --- | --- | --- | --- |",
    ]
    for name, depths in told["models"].items():
        for depth, cell in depths.items():
            without, bound = cell["round_ms"], cell["with_schema_ms"]
            lines.append(f"| {name} | {depth} | {without} | {bound} | {cell['ratio']:.2f}x |")
    large = told["large_vocabulary"]
    lines.append(
        f"\nWith a vocabulary of {large['tokens']:,} tokens, computing the mask of allowed tokens "
        f"takes {large['know_us']} µs, which overlaps with the forward pass. Computing it and "
        f"applying it to a row of logits on this CPU takes {large['know_and_apply_us']} µs.\n"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
