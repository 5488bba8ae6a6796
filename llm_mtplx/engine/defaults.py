"""What a request leaves open: the model's own files decide, then its family."""

from dataclasses import replace
from typing import Any

from ..catalog.contract import DraftSampler
from ..catalog.families import family_at, runtime_at
from ..catalog.folder import ModelFolder
from ..errors import PromptTooLong, RequestError
from ..protocol import Request
from ..speculative.adaptive import AdaptiveDepth
from ..speculative.copying import Copying
from ..speculative.depth import row_cost, verify_cost
from ..speculative.distributions import Sampling
from ..speculative.penalties import PenaltySettings
from .counts import Counts
from .load import LoadedModel

SAMPLING = ("do_sample", "temperature", "top_k", "top_p", "min_p")


def resolve_drafts(model: LoadedModel, request: Request) -> Counts:
    """How to draft: with the head alone as deep as asked, else with it and by copying, as pays by
    what rounds cost here: measured by ``tune``, or learned in this process."""
    if request.depth is not None:
        return Counts(request.depth if model.head is not None else 0)
    if model.costs is not None:
        rows = model.verify_costs or {2: 1 + row_cost(model.costs)}
        adaptive = AdaptiveDepth(model.costs) if model.head is not None else None
        copying = Copying(lambda count: verify_cost(count, rows))
        return Counts(model.deepest, adaptive=adaptive, copying=copying)
    if model.pace is not None:
        pace = model.pace
        adaptive = AdaptiveDepth(pace.costs) if model.head is not None else None
        copying = Copying(pace.verify_cost)
        return Counts(model.deepest, adaptive=adaptive, pace=pace, copying=copying)
    return Counts(model.depth if model.head is not None else 0, model.break_even)


def sampling_defaults(folder: ModelFolder) -> dict[str, Any]:
    """The pack's own sampler, else generation_config.json, else the family's.

    A generation_config.json that names any setting means what it leaves out to be off.
    """
    runtime = runtime_at(folder.path)
    for key in ("recommended_sampler", "sampler"):
        sampler = runtime.get(key)
        if isinstance(sampler, dict) and sampler:
            return {**folder.generation, "do_sample": True, **sampler}
    if any(name in folder.generation for name in SAMPLING):
        return folder.generation
    return {**folder.generation, **family_at(folder.path).sampling}


def resolve_sampling(request: Request, defaults: dict[str, Any]) -> Sampling:
    """The request's own settings, else the model's.

    Defaults that say ``do_sample: false`` make it greedy unless a temperature is asked for.
    """
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


def resolve_draft_sampling(sampling: Sampling, pack: DraftSampler | None) -> Sampling:
    """How drafts are shaped: as the pack recommends, else as the tokens themselves are."""
    if pack is None or sampling.greedy:
        return sampling
    drafts = replace(sampling, **pack.model_dump(exclude_none=True))
    return sampling if drafts.greedy else drafts


def resolve_penalties(request: Request, defaults: dict[str, Any]) -> PenaltySettings:
    """Only repetition has a place in generation_config.json."""
    repetition = request.repetition_penalty
    if repetition is None:
        repetition = _number(defaults, "repetition_penalty", 1.0)
    return PenaltySettings(
        # Beyond these bounds logits overflow, and no token is more or less likely than before.
        min(max(repetition, 0.01), 100.0),
        request.presence_penalty or 0.0,
        request.frequency_penalty or 0.0,
        tuple((token, bias) for token, bias in sorted(request.logit_bias) if bias),
    )


def check_bias(model: LoadedModel, request: Request) -> None:
    """That every token which is to be likelier or less likely is one."""
    known = len(model.tokenizer.token_bytes)
    for token, _ in request.logit_bias:
        if not 0 <= token < known:
            raise RequestError(
                f"'logit_bias': {token} is not a token of {request.model_id}; its tokens "
                f"are 0 to {known - 1:,}."
            )


def resolve_room(model: LoadedModel, request: Request, prompt_tokens: int) -> int:
    """How many tokens the answer may have."""
    left = model.context_window - prompt_tokens
    if left < 1:
        most = model.context_window - 1
        raise PromptTooLong(
            f"The prompt has {prompt_tokens:,} tokens; {request.model_id} accepts at "
            f"most {most:,}. Shorten it, or start a new conversation.",
            prompt_tokens,
            most,
        )
    limit = request.max_tokens
    if limit is None:
        # As transformers and vLLM read it: what the model's own file says where nobody asks.
        own = model.folder.generation.get("max_new_tokens")
        limit = own if isinstance(own, int) and not isinstance(own, bool) and own > 0 else left
    return min(left, limit)


def _number(values: dict[str, Any], name: str, otherwise: float) -> float:
    value = values.get(name)
    return float(value) if isinstance(value, int | float) else otherwise
