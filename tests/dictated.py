"""A small random model with the bundled tokenizer that can be told what to say."""

from dataclasses import replace

import mlx.core as mx

from llm_mtplx.architectures.state import State
from llm_mtplx.catalog.folder import inspect
from llm_mtplx.chat.tokenizer import ChatTokenizer
from llm_mtplx.coldstore import ColdStore
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.load import LoadedModel
from llm_mtplx.sessions.bank import Bank
from llm_mtplx.sessions.budgets import BankLimits
from llm_mtplx.sessions.keeper import Keeper, Persistence
from llm_mtplx.speculative.decoder import Ahead, Decoder
from llm_mtplx.speculative.distributions import Sampling
from llm_mtplx.speculative.step import Steps

from .tiny import random_trunk_and_head

LIMITS = BankLimits(2**30, 2**30, entries=4, idle_s=0)


def small_model() -> LoadedModel:
    tokenizer = ChatTokenizer(MODEL_DIR)
    trunk, head = random_trunk_and_head(vocab_size=len(tokenizer.token_bytes), hidden_size=32)
    eos = frozenset([tokenizer.message_end])
    return LoadedModel(
        inspect(MODEL_DIR), trunk, head, tokenizer, eos, 4096, depth=1, break_even=0.75, key="small"
    )


def keeper(model: LoadedModel, bank: Bank, store: ColdStore | None = None) -> Keeper:
    """Remembers in RAM, and in ``store`` where there is one."""
    persistence = Persistence(store, lambda: "tiny", min_tokens=8) if store else None
    tokenizer = model.tokenizer
    return Keeper(bank, model.key, tokenizer.decode, tokenizer.message_start, persistence)


def ram_only(model: LoadedModel) -> Keeper:
    return keeper(model, Bank(LIMITS, lambda: 0.0))


class DictatedDecoder(Decoder):
    """Emits given ids; drafts them, wrong at one position of each draft (or nowhere)."""

    def __init__(
        self,
        model: LoadedModel,
        prompt: list[int],
        dictated: list[int],
        wrong_at: int | None = None,
        state: State | None = None,
    ) -> None:
        super().__init__(model.trunk, model.head, Sampling(), state=state)
        self.script = prompt + dictated + [7] * 8
        self.wrong_at = wrong_at

    def _draft(self, primary: int, depth: int, copied=()) -> Steps[list[mx.array]]:
        drafts = yield from super()._draft(primary, depth, copied)
        at = self.state.position + 1
        ids = self.script[at : at + len(drafts)]
        if self.wrong_at is not None and self.wrong_at < len(ids):
            ids[self.wrong_at] += 1
        return [mx.array([token], dtype=mx.uint32) for token in ids]

    def _judge(self, drafts, logits) -> Steps[tuple[list[int], list[int]]]:
        drafted, _ = yield from super()._judge(drafts, logits)
        return drafted, self.script[self._next : self._next + len(drafted) + 1]

    def _launch(self, token, position, unread=()) -> Ahead:
        ahead = super()._launch(token, position, unread)
        dictated = mx.array([self.script[position]], dtype=mx.uint32)
        return replace(ahead, choice=replace(ahead.choice, tokens=dictated))
