"""What tools and reasoning cost while decoding, and how much a tool chain reads again.

    uv run python -m benchmarks.features --out benchmarks/results/features.json

Decoding: the demo model emits the same number of given tokens after prompts of the same length, as
plain text, with tools declared (one long call), and as reasoning. Contenders run in turn in one
process; figures are medians, ratios are to plain text; those of CPU time, prefill included, do not
depend on what else the machine does. The parser's share is the time that the same
tokens take through decoder, reasoning splitter and call parser alone.

Chain: ten rounds of calls and results, then the next question; restored tokens of those that the
prompt shares with the line before.
"""

import argparse
import json
import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llm_mtplx.architectures.runtime import facts
from llm_mtplx.chat.answer import Answer
from llm_mtplx.chat.decode import AnswerDecoder
from llm_mtplx.chat.tools import declare, names_of
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.load import LoadedModel, load
from llm_mtplx.engine.turn import Turn
from llm_mtplx.protocol import Request
from llm_mtplx.sessions.bank import Bank
from tests.dictated import LIMITS, DictatedDecoder, ram_only
from tests.sessions.talk import Clock, Talk

from .decode import machine

TOKENS = 256
ROUNDS = 10
STORY = "The fox went into the woods and met a bear. They talked about the weather. "
TEXT = {"type": "object", "properties": {"path": {"type": "string"}, "text": {"type": "string"}}}
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}}
TOOLS = [declare("edit", "Write a file", TEXT), declare("find", "Find a number", NUMBER)]


@dataclass(frozen=True)
class Contender:
    """Another feature to measure is another line in CONTENDERS."""

    answer: str
    template_args: dict[str, Any]


CONTENDERS = {
    "text": Contender(STORY * 40, {}),
    "tools": Contender(
        "<tool_call>\n<function=edit>\n<parameter=path>\na\n</parameter>\n<parameter=text>\n"
        + STORY.replace(". ", ".\n") * 40,
        {"tools": TOOLS},
    ),
    "reasoning": Contender(STORY.replace(". ", ".\n") * 40, {"enable_thinking": True}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    model = load(MODEL_DIR, print)
    report = {
        "machine": machine(),
        "versions": facts()["versions"],
        "model": "demo-bf16",
        "tokens": TOKENS,
        "decode": {f"draft {depth}": decode(model, depth, args.repeats) for depth in (0, 3)},
        "chain": {
            name: chain(model, {"tools": TOOLS, "preserve_thinking": preserve})
            for name, preserve in (("keeps reasoning", True), ("drops old reasoning", False))
        },
    }
    print(json.dumps(report, indent=1))
    if args.out:
        args.out.write_text(json.dumps(report, indent=1) + "\n")


def decode(model: LoadedModel, depth: int, repeats: int) -> dict[str, Any]:
    endless = replace(model, eos_ids=frozenset())
    longest = max(len(turn(endless, c, "", depth).prompt) for c in CONTENDERS.values())
    padding = {name: "" for name in CONTENDERS}
    for name, contender in CONTENDERS.items():
        while len(turn(endless, contender, padding[name], depth).prompt) < longest:
            padding[name] += " so"
    seconds: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    cpu_seconds: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for _ in range(repeats):
        for name, contender in CONTENDERS.items():
            one = turn(endless, contender, padding[name], depth)
            cpu = time.process_time()
            seconds[name].append(one.run().decode_s)
            cpu_seconds[name].append(time.process_time() - cpu)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    cpu = {name: statistics.median(values) for name, values in cpu_seconds.items()}
    return {
        name: {
            "tokens_per_s": round((TOKENS - 1) / medians[name], 1),
            "ratio_to_text": round(medians["text"] / medians[name], 3),
            "cpu_ratio_to_text": round(cpu["text"] / cpu[name], 3),
            "parser_share": round(parsing(endless, CONTENDERS[name]) / medians[name], 5),
        }
        for name in CONTENDERS
    }


def turn(model: LoadedModel, contender: Contender, padding: str, depth: int) -> Turn:
    messages = [{"role": "user", "content": f"Tell me a story.{padding}"}]
    request = Request(
        "demo", MODEL_DIR, messages, contender.template_args, temperature=0, depth=depth,
        max_tokens=TOKENS, cache="off",
    )  # fmt: skip
    made = Turn(model, request, ram_only(model), lambda event: None, lambda: False)
    ids = model.tokenizer.encode(contender.answer)[:TOKENS]
    made.decoder = DictatedDecoder(model, made.prompt, ids)
    return made


def parsing(model: LoadedModel, contender: Contender) -> float:
    """Seconds for the answer's tokens, taken one by one."""
    tokenizer, tools = model.tokenizer, contender.template_args.get("tools", [])
    ids = tokenizer.encode(contender.answer)[:TOKENS]
    spent = []
    for _ in range(20):
        answer = Answer(
            AnswerDecoder(
                tokenizer.token_bytes, tokenizer.think_start, tokenizer.think_end,
                "enable_thinking" in contender.template_args, names_of(tools),
            ),
            (), tools,
        )  # fmt: skip
        started = time.perf_counter()
        for token in ids:
            answer.add([token])
        answer.finish()
        spent.append(time.perf_counter() - started)
    return statistics.median(spent)


def chain(model: LoadedModel, template: dict[str, Any]) -> dict[str, Any]:
    """Restored and reusable tokens over the rounds and the question after them."""
    talk = Talk(model, Bank(LIMITS, Clock()), template=template,
                messages=[{"role": "system", "content": STORY * 5}])  # fmt: skip
    restored, reusable = [], []

    def count(before: list[int], done: Any) -> None:
        now = talk.turn.prompt
        pairs = zip(before, now, strict=False)
        differ = next((at for at, (a, b) in enumerate(pairs) if a != b), None)
        reusable.append(min(len(before), len(now)) if differ is None else differ)
        restored.append(done.restored)

    def call(number: int) -> list[int]:
        markup = (
            f"<tool_call>\n<function=find>\n<parameter=n>\n{number}\n</parameter>\n"
            "</function>\n</tool_call>"
        )
        return model.tokenizer.encode(f"{markup}<|im_end|>")

    talk.say("Find ten numbers, one after the other.", dictated=call(0), max_tokens=99)
    for number in range(1, ROUNDS + 1):
        before = talk.turn.decoder.state.ids
        dictated = call(number) if number < ROUNDS else None
        count(before, talk.results(f"found {number * 37}", dictated=dictated, max_tokens=99))
    count(talk.turn.decoder.state.ids, talk.say("What is the capital of France?"))
    return {
        "rounds": {"restored": sum(restored[:-1]), "reusable": sum(reusable[:-1])},
        "next question": {"restored": restored[-1], "reusable": reusable[-1]},
        "share": round(sum(restored) / sum(reusable), 4),
    }


if __name__ == "__main__":
    main()
