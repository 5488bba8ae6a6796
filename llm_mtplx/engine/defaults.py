"""What a request leaves open: the model's own files decide, then its family."""

from dataclasses import replace
from typing import Any

from ..catalog.contract import DraftSampler
from ..speculative.distributions import Sampling
from ..speculative.penalties import PenaltySettings
from .load import LoadedModel
from .protocol import Request

# Qwen 3.5's own recommendation, for a folder without a generation_config.json.
FAMILY_SAMPLING = {"temperature": 0.6, "top_p": 0.95, "top_k": 20}


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


def resolve_draft_sampling(sampling: Sampling, pack: DraftSampler | None) -> Sampling:
    """How drafts are drawn: as the pack recommends, else as the tokens themselves are."""
    if pack is None or sampling.greedy or pack.temperature == 0:
        return sampling
    return replace(sampling, **pack.model_dump(exclude_none=True))


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
