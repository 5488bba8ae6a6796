"""One turn: a request to tokens, text and figures."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from ..chat.answer import Answer
from ..chat.decode import AnswerDecoder, Piece
from ..errors import RequestError
from ..speculative.decoder import Decoder, Round
from ..speculative.depth import USELESS_DRAFTS
from ..speculative.distributions import Sampling
from ..speculative.draws import Draws
from ..speculative.penalties import Penalties, PenaltySettings
from .load import LoadedModel
from .protocol import Event, Finished, FinishReason, Notice, Progress, Reasoning, Request, Text

# Qwen 3.5's own recommendation, for a folder without a generation_config.json.
FAMILY_SAMPLING = {"temperature": 0.6, "top_p": 0.95, "top_k": 20}


class Turn:
    """Answers one request. Afterwards ``decoder`` holds the state the answer left."""

    def __init__(
        self,
        model: LoadedModel,
        request: Request,
        emit: Callable[[Event], None],
        cancelled: Callable[[], bool],
    ) -> None:
        self._started = time.perf_counter()
        self._model = model
        self._emit = emit
        self._cancelled = cancelled
        tokenizer = model.tokenizer
        self.prompt = tokenizer.encode(tokenizer.render(request.messages, request.template_args))
        self._room = _room(model, request, len(self.prompt))
        self._stops = bool(request.stop)
        self._counts = _Counts(resolve_depth(model, request))
        self.answer = Answer(
            AnswerDecoder(
                tokenizer.token_bytes,
                tokenizer.think_start,
                tokenizer.think_end,
                tokenizer.starts_in_reasoning(self.prompt),
            ),
            request.stop,
        )
        self.decoder = Decoder(
            model.trunk,
            model.head,
            resolve_sampling(request, model.folder.generation),
            Draws(request.seed),
            Penalties(resolve_penalties(request, model.folder.generation), self.prompt),
        )

    def run(self) -> Finished:
        """Emit the answer as it comes; returns how the turn went."""
        mx.reset_peak_memory()
        finish: FinishReason | None = None
        for done in self.decoder.prefill(self.prompt):
            self._emit(Progress("reading", done, len(self.prompt)))
            if self._cancelled():
                finish = "interrupted"
                break
        prefilled = first_token = time.perf_counter()
        if finish is None:
            new = [self.decoder.first()]
            first_token = time.perf_counter()
            while (finish := self._take(new)) is None:
                new = self._round()
        self._show(self.answer.finish())
        if self.answer.stopped:
            self.decoder.rewind(len(self.prompt) + self.answer.whole_tokens)
        return Finished(
            finish_reason=finish,
            prompt_tokens=len(self.prompt),
            output_tokens=self.answer.tokens,
            reasoning_tokens=self.answer.reasoning_tokens,
            depth=self._counts.depth,
            rounds=self._counts.rounds,
            drafted=self._counts.drafted,
            accepted=self._counts.accepted,
            ttft_s=first_token - self._started,
            prefill_s=prefilled - self._started,
            decode_s=time.perf_counter() - first_token,
            peak_memory=mx.get_peak_memory(),
        )

    def _round(self) -> list[int]:
        counts = self._counts
        if self._stops:
            # A stop string may begin in any token that is not wholly shown yet.
            self.decoder.hold = len(self.prompt) + self.answer.whole_tokens
        depth = 0 if counts.useless else counts.depth
        done = self.decoder.round(
            depth, self._room - self.answer.tokens, self._model.eos_ids.__contains__
        )
        was_useless = counts.useless
        counts.add(done)
        if counts.useless and not was_useless:
            self._emit(
                Notice(
                    f"the last {USELESS_DRAFTS} drafts of the MTP head were all wrong; "
                    "this answer goes on without drafts."
                )
            )
        return done.tokens

    def _take(self, tokens: list[int]) -> FinishReason | None:
        """Show newly emitted tokens; returns why the answer ends here, if it does."""
        ended = tokens[-1] in self._model.eos_ids
        self._show(self.answer.add(tokens[:-1] if ended else tokens))
        if self.answer.stopped:
            return "stop"
        if ended:
            self.answer.end()
            return "eos"
        if self.answer.tokens >= self._room:
            return "length"
        return "interrupted" if self._cancelled() else None

    def _show(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            text = piece.text
            self._emit(Reasoning(text) if piece.kind == "reasoning" else Text(text))


@dataclass
class _Counts:
    depth: int
    rounds: int = 0
    drafted: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    wrong_in_a_row: int = 0

    def __post_init__(self) -> None:
        self.drafted = [0] * self.depth
        self.accepted = [0] * self.depth

    @property
    def useless(self) -> bool:
        return self.wrong_in_a_row >= USELESS_DRAFTS

    def add(self, done: Round) -> None:
        self.rounds += 1
        # A draft is examined only if those before it were accepted.
        for position in range(min(done.drafted, done.accepted + 1)):
            self.drafted[position] += 1
        for position in range(done.accepted):
            self.accepted[position] += 1
        self.wrong_in_a_row = 0 if done.accepted else self.wrong_in_a_row + done.drafted


def _room(model: LoadedModel, request: Request, prompt_tokens: int) -> int:
    """How many tokens the answer may have."""
    left = model.context_window - prompt_tokens
    if left < 1:
        raise RequestError(
            f"The prompt has {prompt_tokens:,} tokens; {request.model_id} takes at most "
            f"{model.context_window - 1:,}. Shorten it, or start a new conversation."
        )
    return left if request.max_tokens is None else min(left, request.max_tokens)


def resolve_depth(model: LoadedModel, request: Request) -> int:
    if model.head is None:
        return 0
    return model.depth if request.depth is None else request.depth


def resolve_sampling(request: Request, generation: dict[str, Any]) -> Sampling:
    """The request's own settings, else those of the model's generation_config.json.

    A file that says ``do_sample: false`` makes the model greedy unless a temperature is asked for.
    """
    defaults = generation if generation else FAMILY_SAMPLING
    greedy = defaults.get("do_sample") is False
    temperature = 0.0 if greedy else _number(defaults, "temperature", 1.0)
    if request.temperature is not None:
        temperature = request.temperature
    return Sampling(
        temperature=temperature,
        top_k=int(_number(defaults, "top_k", 0)) if request.top_k is None else request.top_k,
        top_p=_number(defaults, "top_p", 1.0) if request.top_p is None else request.top_p,
        min_p=_number(defaults, "min_p", 0.0) if request.min_p is None else request.min_p,
    )


def resolve_penalties(request: Request, generation: dict[str, Any]) -> PenaltySettings:
    """Only repetition has a place in generation_config.json."""
    repetition = request.repetition_penalty
    return PenaltySettings(
        _number(generation, "repetition_penalty", 1.0) if repetition is None else repetition,
        request.presence_penalty or 0.0,
        request.frequency_penalty or 0.0,
    )


def _number(values: dict[str, Any], name: str, otherwise: float) -> float:
    value = values.get(name)
    return float(value) if isinstance(value, int | float) else otherwise
