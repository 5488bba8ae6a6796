"""What the decode benchmark runs: models, loops, and the cost of their parts."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.generate import generate_step

from llm_mtplx.architectures.gated_delta import Tape
from llm_mtplx.architectures.mtp_head import MTPHead
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.load import LoadedModel, load
from llm_mtplx.speculative.decoder import Decoder
from llm_mtplx.speculative.distributions import Sampling

from .widen import SIZES, widen

CONTEXT = 128  # tokens before the measured forwards


@dataclass
class Counts:
    rounds: int = 0
    tokens: int = 0
    examined: list[int] = field(default_factory=lambda: [0] * 6)
    accepted: list[int] = field(default_factory=lambda: [0] * 6)
    parted: int = 0  # prompts whose ids differ from mlx-lm's

    def report(self) -> dict[str, Any]:
        examined = [n for n in self.examined if n]
        return {
            "tokens_per_round": round(self.tokens / self.rounds, 3) if self.rounds else None,
            "acceptance": [round(a / e, 3) for a, e in zip(self.accepted, examined, strict=False)],
            "parted": self.parted,
        }


def build(name: str) -> LoadedModel:
    model = load(MODEL_DIR, print)
    if name == "demo-bf16":
        return model
    for module in (model.trunk.model, model.head):
        weights = [(n, v.astype(mx.float32)) for n, v in tree_flatten(module.parameters())]
        module.load_weights(weights)
    return widen(model, SIZES[name]) if name in SIZES else model


def weights_mb(model: LoadedModel) -> int:
    modules = (model.trunk.model, model.head)
    return round(sum(v.nbytes for m in modules for _, v in tree_flatten(m.parameters())) / 1e6)


def prompt_ids(model: LoadedModel, text: str) -> list[int]:
    messages = [{"role": "user", "content": text}]
    return model.tokenizer.encode(model.tokenizer.render(messages, {}))


def mlx_lm(model: LoadedModel, prompt: list[int], tokens: int) -> tuple[list[int], float]:
    """Ids and seconds a token.

    A plain loop has its next forward under way when it hands out a token, mlx-lm's and ours; so
    both are timed from their second token on.
    """
    ids = []
    started = 0.0
    for token, _ in generate_step(mx.array(prompt), model.trunk.model, max_tokens=tokens):
        ids.append(int(token))
        if len(ids) == 2:
            started = time.perf_counter()
    return ids, (time.perf_counter() - started) / (tokens - 2)


def ours(
    model: LoadedModel, prompt: list[int], tokens: int, depth: int, counts: Counts
) -> tuple[list[int], float]:
    decoder = Decoder(model.trunk, model.head, Sampling())
    list(decoder.prefill(prompt))
    ids = [decoder.first()]
    if depth == 0:
        ids += decoder.round(0, tokens - 1, _never).tokens
    begun = len(ids)
    started = time.perf_counter()
    while len(ids) < tokens:
        done = decoder.round(depth, tokens - len(ids), _never)
        ids += done.tokens
        counts.rounds += 1
        counts.tokens += len(done.tokens)
        for position in range(min(done.drafted, done.accepted + 1)):
            counts.examined[position] += 1
        for position in range(done.accepted):
            counts.accepted[position] += 1
    return ids, (time.perf_counter() - started) / (tokens - begun)


def costs(
    model: LoadedModel, repeats: int, verifies: Sequence[int] = range(1, 7)
) -> dict[str, Any]:
    """The two forwards alone: a verify of w rows, and one draft step, over one row."""
    trunk, head = model.trunk, model.head
    assert head is not None
    decoder = Decoder(trunk, head, Sampling())
    list(decoder.prefill((prompt_ids(model, "Tell me a story.") * 40)[:CONTEXT]))
    state = decoder.state
    assert state.hidden is not None and state.head_cache is not None

    def verify(rows: int) -> None:
        tape = Tape()
        hidden = trunk.forward(mx.array([[5] * rows]), state.cache, tape if rows > 1 else None)
        mx.eval(mx.argmax(trunk.logits(hidden), axis=-1), [c.state for c in state.cache])
        trunk.trim(state.cache, rows)

    def draft() -> None:
        out = head(state.hidden, trunk.embed(mx.array([[5]])), state.head_cache)
        mx.eval(mx.argmax(trunk.logits(out), axis=-1))
        state.head_cache.trim(1)

    # Interleaved, so that what else the machine does falls on all alike.
    jobs: dict[str, Callable[[], None]] = {str(w): lambda w=w: verify(w) for w in verifies}
    jobs["draft"] = draft
    spent: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(10 * repeats):
        for name, job in jobs.items():
            started = time.perf_counter()
            job()
            spent[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(values) for name, values in spent.items()}
    one = medians["1"]
    return {
        "one_row_ms": round(one * 1000, 3),
        "verify_ratio": {w: round(medians[w] / one, 3) for w in medians if w != "draft"},
        "draft_ratio": round(medians["draft"] / one, 3),
    }


def harden(model: LoadedModel, prompts: Sequence[str], tokens: int) -> tuple[LoadedModel, float]:
    """A copy whose head has noise on ``fc`` so that about 60 % of first drafts are accepted."""
    assert model.head is not None
    fc = model.head.fc.weight
    rng = np.random.default_rng(1)
    noise = mx.array(rng.normal(0, float(fc.astype(mx.float32).std()), fc.shape)).astype(fc.dtype)
    low, high, scale = 0.0, 8.0, 1.0
    head = MTPHead(model.trunk.args)
    head.eval()
    hard = replace(model, head=head)
    for _ in range(14):
        weights = dict(tree_flatten(model.head.parameters()))
        weights["fc.weight"] = fc + scale * noise
        head.load_weights(list(weights.items()))
        counts = Counts()
        for text in prompts:
            ours(hard, prompt_ids(model, text), tokens, 1, counts)
        acceptance = counts.accepted[0] / counts.examined[0]
        if abs(acceptance - 0.60) <= 0.02:
            break
        low, high = (scale, high) if acceptance > 0.60 else (low, scale)
        scale = (low + high) / 2
    return hard, round(scale, 3)


def _never(token: int) -> bool:
    return False
