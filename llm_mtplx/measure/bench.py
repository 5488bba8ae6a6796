"""How fast a model reads, answers and goes on here.

A conversation's second question is answered by turns that read everything, drafting and plain, and
by turns that go on from RAM and from SSD. The store is a temporary one. Its files have just been
written: what is read of them comes from the system's page cache where that still has them.
"""

import statistics
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..coldstore import ColdStore
from ..engine.load import LoadedModel
from ..engine.memory import keeper_apart
from ..engine.turn import Turn
from ..protocol import Finished, Request
from ..sessions.keeper import Keeper

QUESTIONS = ("What is the capital of France?", "And which river runs through it?")
FIRST_TOKENS = 16  # of the first answer, which the prompt of the second has
WAIT_S = 60.0


@dataclass(frozen=True)
class Benched:
    """Medians, at temperature 0."""

    prompt_tokens: int
    tokens: int  # decoded a turn
    repeats: int
    prefill_tokens_per_s: float
    decode_tokens_per_s: dict[str, float]  # by what '-o draft' says
    first_token_s: dict[str, float]  # "cold", "ram", "ssd"
    restored: dict[str, int]  # tokens of the prompt that were not read again
    drafted: list[int]  # by position in the draft, of all repeats: how often it was examined
    accepted: list[int]
    copied: int = 0  # drafts copied from the line with '-o draft auto', and the right ones of them
    copies_accepted: int = 0


def bench(model: LoadedModel, prompt_tokens: int, tokens: int, repeats: int) -> Benched:
    """Runs on the engine's thread; leaves nothing behind."""
    with tempfile.TemporaryDirectory() as directory:
        store = ColdStore(Path(directory))
        try:
            return _Benchmark(model, store, prompt_tokens, tokens).run(repeats)
        finally:
            store.close(WAIT_S)


class _Benchmark:
    def __init__(
        self, model: LoadedModel, store: ColdStore, prompt_tokens: int, tokens: int
    ) -> None:
        # A model that never ends its answer: every turn decodes as many tokens.
        self._model = replace(model, eos_ids=frozenset())
        self._store = store
        self._tokens = tokens
        self._system = _text(model, prompt_tokens)
        self._drafting = 0 if model.head is None else max(model.depth, 1)

    def run(self, repeats: int) -> Benched:
        rounds = [self._round() for _ in range(repeats + 1)][1:]  # the first is a warm-up
        by_way: dict[str, list[Finished]] = defaultdict(list)
        for each in rounds:
            for way, done in each.items():
                by_way[way].append(done)
        cold = by_way["cold"]
        read = [done for way in ("cold", "plain") for done in by_way.get(way, [])]
        names = {"plain": "0", "cold": str(cold[0].depth), "auto": "auto"}
        decode = {names[way]: _decode_rate(by_way[way]) for way in names if way in by_way}
        ways = ("cold", "ram", "ssd")
        return Benched(
            prompt_tokens=cold[0].prompt_tokens,
            tokens=self._tokens,
            repeats=repeats,
            prefill_tokens_per_s=statistics.median(d.prompt_tokens / d.prefill_s for d in read),
            decode_tokens_per_s=decode,
            first_token_s={way: statistics.median(d.ttft_s for d in by_way[way]) for way in ways},
            restored={way: by_way[way][-1].restored for way in ways},
            drafted=[sum(at) for at in zip(*(done.drafted for done in cold), strict=True)],
            accepted=[sum(at) for at in zip(*(done.accepted for done in cold), strict=True)],
            copied=sum(done.copied for done in by_way["auto"]),
            copies_accepted=sum(done.copies_accepted for done in by_way["auto"]),
        )

    def _round(self) -> dict[str, Finished]:
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": self._system},
            {"role": "user", "content": QUESTIONS[0]},
        ]
        warm = keeper_apart(self._model, self._store)
        first = self._turn(warm, messages, FIRST_TOKENS)
        first.run()
        first.keep()
        self._store.flush(WAIT_S)
        messages += [
            {"role": "assistant", "content": first.answer.text},
            {"role": "user", "content": QUESTIONS[1]},
        ]
        ram = self._turn(warm, messages, FIRST_TOKENS)
        done = {"ram": ram.run()}
        done["ssd"] = self._turn(
            keeper_apart(self._model, self._store), messages, FIRST_TOKENS
        ).run()
        # The prompt has the model's own ids for its earlier answer, the others get them too.
        done["cold"] = self._cold(messages, ram.prompt, self._drafting)
        if self._drafting:
            done["plain"] = self._cold(messages, ram.prompt, 0)
        done["auto"] = self._cold(messages, ram.prompt, None)
        return done

    def _cold(
        self, messages: list[dict[str, Any]], prompt: list[int], depth: int | None
    ) -> Finished:
        turn = self._turn(keeper_apart(self._model), messages, self._tokens, depth)
        turn.prompt = prompt
        return turn.run()

    def _turn(
        self,
        keeper: Keeper,
        messages: list[dict[str, Any]],
        tokens: int,
        depth: int | None = None,
    ) -> Turn:
        request = Request(
            "bench",
            self._model.folder.path,
            list(messages),
            conversation="bench",
            temperature=0.0,
            max_tokens=tokens,
            depth=depth,
        )
        return Turn(self._model, request, keeper, lambda event: None, lambda: False)


def _decode_rate(turns: Sequence[Finished]) -> float:
    return statistics.median((done.output_tokens - 1) / done.decode_s for done in turns)


def _text(model: LoadedModel, tokens: int) -> str:
    """About as many tokens of numbered sentences."""
    lines: list[str] = []
    length = 0
    while length < tokens:
        lines.append(f"Note {len(lines) + 1}: answer in short and polite sentences.")
        length += len(model.tokenizer.encode(lines[-1] + "\n"))
    return "\n".join(lines)
