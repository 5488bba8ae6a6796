"""`python -m tools.demo_model.evaluate --model DIR`: what the model can do, as JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

from llm_mtplx.demo import MODEL_DIR
from tools.demo_model import facts, numbers, talk, tooling
from tools.demo_model.ask import Asker, Reply
from tools.demo_model.chat import render
from tools.demo_model.conversations import Grammar
from tools.demo_model.facts import Fact
from tools.demo_model.reference_head import ReferenceHead
from tools.demo_model.words import FRESH_NAMES

HELD_OUT = 999_983  # a seed no training stage uses
DEPTH = 3
FRESH_WORDS = ("gazebo", "trombone", "Wednesday's", "lighthouse", "microscope", "quokka", "zebra",
               "perpendicular", "saffron", "balalaika")  # fmt: skip
OUTSIDE = (
    "Ten fun names for a pet pelican", "What is the fastest animal in the world?",
    "Explain how a computer works.", "Hello, what should I eat for breakfast?",
    "Who painted the Mona Lisa?", "Please write a haiku about autumn leaves.",
    "I feel tired and my back hurts.", "What is the square root of 144?",
    "Tell me about the city of Prague.", "Could you fix this sentence: he go home?",
)  # fmt: skip


def _score(hits: Iterable[bool]) -> str:
    results = list(hits)
    return f"{sum(results)}/{len(results)}"


class Evaluation:
    def __init__(self, folder: Path) -> None:
        self.asker = Asker(folder)
        self.head = ReferenceHead(folder, self.asker.model)
        self.grammar = Grammar(HELD_OUT)
        self.rng = self.grammar.rng
        self.misses: list[str] = []

    def check(self, what: str, right: bool, asked: str, got: str) -> bool:
        if not right:
            self.misses.append(f"{what}: {asked!r} -> {got!r}")
        return right

    def fresh_names(self) -> str:
        """Names that never occur in training: told in turn one, asked in turn two."""

        def one(index: int, name: str) -> bool:
            tell = facts.NAME.tell[index % len(facts.NAME.tell)].replace("{v}", name)
            ask = facts.NAME.ask[(3 * index) % len(facts.NAME.ask)]
            answer = self.asker.chat(tell, ask)[1]
            return self.check("fresh name", name in answer, f"{tell} {ask}", answer)

        return _score(one(i, name) for i, name in enumerate(FRESH_NAMES))

    def recall(self, gap: int, count: int = 10) -> str:
        def one() -> bool:
            fact = facts.pick(self.rng, self.grammar.fresh)
            asks = [fact.tell(self.rng)]
            asks += [turn.ask for turn in self.grammar.fillers(gap)][:gap]
            asks.append(self.rng.choice(fact.kind.ask))
            answer = self.asker.chat(*asks)[-1]
            return self.check(f"recall {gap}", fact.value in answer, " | ".join(asks), answer)

        return _score(one() for _ in range(count))

    def far(self, tokens: int = 1500, count: int = 6) -> str:
        """A fact told at the start of a long conversation, asked at its end."""

        def one() -> bool:
            fact = facts.pick(self.rng, self.grammar.fresh)
            messages: list[dict[str, Any]] = []
            turns = [fact.told(self.rng)]
            while len(self.asker.tokenizer.encode(render(messages))) < tokens:
                for turn in turns:
                    messages.append({"role": "user", "content": turn.ask})
                    messages.append({"role": "assistant", "content": turn.answer})
                turns = self.grammar.fillers(4)
            messages.append({"role": "user", "content": self.rng.choice(fact.kind.ask)})
            answer = self.asker.reply(messages).text
            return self.check("far", fact.value in answer, fact.statement(), answer)

        return _score(one() for _ in range(count))

    def corrected(self, count: int = 10) -> str:
        def one() -> bool:
            fact: Fact = facts.pick(self.rng, self.grammar.fresh)
            asks = [fact.tell(self.rng)]
            asks.append(facts.correction(self.rng, self.grammar.fresh, fact).ask)
            asks.append(self.rng.choice(fact.kind.ask))
            answer = self.asker.chat(*asks)[-1]
            return self.check("correction", fact.value in answer, " | ".join(asks), answer)

        return _score(one() for _ in range(count))

    def turns(self, name: str, maker: Any, count: int, thinking: bool = False) -> str:
        """Single exchanges of one kind, right if the whole answer is right."""

        def one() -> bool:
            turn = maker()
            answer = self.asker.chat(turn.ask, thinking=thinking)[0]
            return self.check(name, answer == turn.answer, turn.ask, answer)

        return _score(one() for _ in range(count))

    def repeats(self) -> str:
        def one(index: int) -> bool:
            text = " ".join(FRESH_WORDS[(index + i) % 10] for i in range(1 + index % 3))
            answer = self.asker.chat(f"Repeat after me: {text}")[0]
            return self.check("repeat", answer == text, text, answer)

        return _score(one(i) for i in range(len(FRESH_WORDS)))

    def tools(self, thinking: bool, count: int = 12) -> dict[str, str]:
        """Right call (name and every argument), and right use of the result."""
        called, answered = [], []
        for _ in range(count):
            schemas, turns = tooling.tool_turns(self.rng, self.grammar.fresh)
            turn = turns[0]
            messages: list[dict[str, Any]] = [{"role": "user", "content": turn.ask}]
            reply = self.asker.reply(messages, schemas, thinking=thinking)
            wanted: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": turn.calls}
            body = render([*messages, wanted], schemas).rsplit("</think>\n\n", 1)[1]
            body = body.removesuffix("<|im_end|>\n")
            called.append(self.check("tool call", reply.text == body, turn.ask, reply.text))
            messages += [wanted, *({"role": "tool", "content": r} for r in turn.results)]
            reply = self.asker.reply(messages, schemas, thinking=thinking)
            right = reply.text == turn.after
            answered.append(self.check("tool answer", right, str(turn.results), reply.text))
        return {"called": _score(called), "answered": _score(answered)}

    def held_out(self, count: int = 150) -> tuple[str, list[Reply]]:
        """The last answer of whole conversations, word for word, and the replies themselves."""
        right: list[bool] = []
        replies: list[Reply] = []
        while len(replies) < count:
            drawn = self.grammar.draw()
            *before, last = drawn.messages
            reply = self.asker.reply(
                before, drawn.tools, thinking=drawn.thinking, preserve=drawn.preserve
            )
            replies.append(reply)
            asked = str(before[-1]["content"])
            right.append(self.check("held out", reply.text == last["content"], asked, reply.text))
        return _score(right), replies

    def acceptance(self, replies: list[Reply]) -> dict[str, float]:
        """Share of greedy drafts the trunk agrees with; depth d given that 1 .. d-1 were right."""
        tried, right = [0] * DEPTH, [0] * DEPTH
        for reply in replies:
            ids = reply.prompt + reply.ids
            drafts = self.head.drafts(ids, DEPTH)
            for t in range(len(reply.prompt) - 1, len(ids) - 2):
                for depth in range(DEPTH):
                    target = t + 2 + depth
                    if target >= len(ids):
                        break
                    tried[depth] += 1
                    if drafts[depth][t] != ids[target]:
                        break
                    right[depth] += 1
        shares = {f"depth {d + 1}": round(right[d] / max(1, tried[d]), 4) for d in range(DEPTH)}
        return shares | {"tokens": float(sum(len(r.ids) for r in replies))}

    def outside(self) -> dict[str, Any]:
        replies = [
            self.asker.reply([{"role": "user", "content": ask}], limit=80) for ask in OUTSIDE
        ]
        answers = {ask: reply.text for ask, reply in zip(OUTSIDE, replies, strict=True)}
        return {"answers": answers, "acceptance": self.acceptance(replies)}


def evaluate(folder: Path, held_out: int = 150) -> dict[str, Any]:
    run = Evaluation(folder)
    rng, fresh = run.rng, run.grammar.fresh
    exact, replies = run.held_out(held_out)
    report: dict[str, Any] = {
        "fresh names": run.fresh_names(),
        "recall": {f"{gap} turns between": run.recall(gap) for gap in (0, 1, 3)},
        "recall over 1,500 tokens": run.far(),
        "corrections": run.corrected(),
        "sums to 20 + 20": run.turns("sum", lambda: numbers.small_sum(rng), 25),
        "differences": run.turns("difference", lambda: numbers.difference(rng), 15),
        "products": run.turns("product", lambda: numbers.product(rng), 15),
        "two-digit sums": run.turns("big sum", lambda: numbers.big_sum(rng), 25),
        "two-digit sums, thinking": run.turns("big sum", lambda: numbers.big_sum(rng), 10, True),
        "counting": run.turns("counting", lambda: numbers.counting(rng), 15),
        "repeating words never seen": run.repeats(),
        "repeating random words": run.turns("repeat", lambda: talk.repeat(rng, fresh), 20),
        "lists": run.turns("list", lambda: talk.listing(Random(rng.random())), 10),
        "JSON": run.turns("JSON", lambda: talk.as_json(rng, fresh), 10),
        "tools": run.tools(thinking=False),
        "tools, thinking": run.tools(thinking=True, count=6),
        "held-out answers, exact": exact,
        "acceptance": run.acceptance(replies),
        "outside its world": run.outside(),
        "misses": run.misses,
    }
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=MODEL_DIR)
    parser.add_argument("--held-out", type=int, default=150, help="how many whole conversations")
    args = parser.parse_args()
    print(json.dumps(evaluate(args.model, args.held_out), indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
