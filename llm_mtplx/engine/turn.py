"""One turn: a request to tokens, text and figures."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from ..chat.decode import AnswerDecoder, Piece
from ..errors import RequestError
from ..speculative.decoder import MAX_DEPTH, Decoder, Round
from ..speculative.distributions import Sampling
from ..speculative.draws import Draws
from .load import LoadedModel
from .protocol import Event, Finished, FinishReason, Reasoning, Request, Text

DEFAULT_DEPTH = 3

# Qwen 3.5's own recommendation, for a folder without a generation_config.json.
FAMILY_SAMPLING = {"temperature": 0.6, "top_p": 0.95, "top_k": 20}


def run_turn(
    model: LoadedModel,
    request: Request,
    emit: Callable[[Event], None],
    cancelled: Callable[[], bool],
) -> Finished:
    """Answer ``request``, emitting its text as it comes; returns how the turn went."""
    started = time.perf_counter()
    tokenizer = model.tokenizer
    prompt = tokenizer.encode(tokenizer.render(request.messages, request.template_args))
    room = _room(model, request, len(prompt))
    decoder = Decoder(
        model.trunk,
        model.head,
        resolve_sampling(request, model.folder.generation),
        Draws(request.seed),
    )
    answer = AnswerDecoder(
        tokenizer.token_bytes,
        tokenizer.think_start,
        tokenizer.think_end,
        tokenizer.starts_in_reasoning(prompt),
    )
    mx.reset_peak_memory()
    counts = _Counts(resolve_depth(model, request))
    output: list[int] = []
    finish: FinishReason | None = None

    for _ in decoder.prefill(prompt):
        if cancelled():
            finish = "interrupted"
            break
    prefilled = first_token = time.perf_counter()
    if finish is None:
        new = [decoder.first()]
        first_token = time.perf_counter()
        while True:
            output += new
            ended = new[-1] in model.eos_ids
            _emit(emit, answer.add(new[:-1] if ended else new))
            finish = _finish_reason(ended, len(output) >= room, cancelled())
            if finish is not None:
                break
            done = decoder.round(counts.depth, room - len(output), model.eos_ids.__contains__)
            counts.add(done)
            new = done.tokens
    _emit(emit, answer.finish())
    return Finished(
        finish_reason=finish,
        prompt_tokens=len(prompt),
        output_tokens=len(output),
        reasoning_tokens=answer.reasoning_tokens,
        depth=counts.depth,
        rounds=counts.rounds,
        drafted=counts.drafted,
        accepted=counts.accepted,
        ttft_s=first_token - started,
        prefill_s=prefilled - started,
        decode_s=time.perf_counter() - first_token,
        peak_memory=mx.get_peak_memory(),
    )


@dataclass
class _Counts:
    depth: int
    rounds: int = 0
    drafted: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.drafted = [0] * self.depth
        self.accepted = [0] * self.depth

    def add(self, done: Round) -> None:
        self.rounds += 1
        # A draft is examined only if those before it were accepted.
        for position in range(min(done.drafted, done.accepted + 1)):
            self.drafted[position] += 1
        for position in range(done.accepted):
            self.accepted[position] += 1


def _finish_reason(ended: bool, full: bool, cancelled: bool) -> FinishReason | None:
    if ended:
        return "eos"
    if full:
        return "length"
    return "interrupted" if cancelled else None


def _emit(emit: Callable[[Event], None], pieces: Iterable[Piece]) -> None:
    for piece in pieces:
        emit(Reasoning(piece.text) if piece.kind == "reasoning" else Text(piece.text))


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
    return DEFAULT_DEPTH if request.depth is None else min(request.depth, MAX_DEPTH)


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


def _number(values: dict[str, Any], name: str, otherwise: float) -> float:
    value = values.get(name)
    return float(value) if isinstance(value, int | float) else otherwise
