"""What ``-o`` accepts."""

import json
import re
from typing import Annotated, Any, Literal

import llm
from pydantic import AfterValidator, Field, field_validator

MAX_DRAFT = 5
MOST = 2**31 - 1  # of anything that is counted
MOST_STOPS, LONGEST_STOP = 256, 4096  # strings, and characters of one

# What only looks like a JSON list: it begins with a quoted string, or has commas and an end.
_MEANT_AS_LIST = re.compile(r"\s*\[(\s*[\"']|.*,.*\]\s*$|\s*$)", re.DOTALL)


def _bounded(value: int) -> int:
    if value > MOST:
        raise ValueError(f"must be at most {MOST:,}")
    return value


def _seed(value: int) -> int:
    if value >= 2**64:
        raise ValueError("must be less than 2 to the power of 64")
    return value


Count = Annotated[int, AfterValidator(_bounded)]


class MtplxOptions(llm.Options):
    temperature: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="Sampling temperature; 0 always takes the most likely token. Default: the "
        "model's own",
    )
    top_p: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Sample only from the most likely tokens that together reach this probability",
    )
    top_k: Count | None = Field(
        default=None,
        ge=0,
        description="Sample only from this many of the most likely tokens; 0: off",
    )
    min_p: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Minimum probability of a token, relative to the most likely one",
    )
    presence_penalty: float | None = Field(
        default=None,
        ge=-2,
        le=2,
        description="Subtracted from the logit of every token already in the answer",
    )
    frequency_penalty: float | None = Field(
        default=None,
        ge=-2,
        le=2,
        description="Subtracted from a token's logit for each time it occurs in the answer",
    )
    repetition_penalty: float | None = Field(
        default=None,
        ge=0.01,
        le=100,
        description="Divides the logits of tokens in the prompt or answer; 1: off",
    )
    seed: Annotated[int, AfterValidator(_seed)] | None = Field(
        default=None,
        ge=0,
        description="The same seed on the same machine and versions gives the same answer",
    )
    stop: str | list[str] | None = Field(
        default=None,
        description="Stop strings; the answer ends before them. One string, or a JSON list",
    )
    max_tokens: Count | None = Field(
        default=None,
        ge=1,
        description="Maximum tokens in the answer. Default: the model's own (1,024 for the demo), "
        "else the rest of the context window",
    )
    draft: int | Literal["auto"] | None = Field(
        default=None,
        description="Tokens drafted per round with the MTP head: 0 (off) to 5, or auto (default): "
        "as many as pay off, plus tokens copied from the conversation",
    )
    cache: Literal["on", "write-only", "off"] | None = Field(
        default=None,
        description="Prompt cache: on (use and save), write-only (save only), off",
    )
    thinking: Literal["auto", "on", "off"] | None = Field(
        default=None,
        description="Whether the model reasons before it answers; auto: the model's own default",
    )

    reasoning_effort: Literal["low", "medium", "high", "xhigh"] | None = Field(
        default=None,
        description="Reasoning effort, for models whose template has levels; unsupported levels "
        "map to the nearest one",
    )
    thinking_budget: Count | None = Field(
        default=None,
        ge=0,
        description="Maximum reasoning tokens; then the model is forced to answer",
    )

    @field_validator("stop", mode="before")
    @classmethod
    def _check_stop(cls, value: Any) -> Any:
        if isinstance(value, str) and value.lstrip().startswith("["):
            # Other text may begin with a bracket, as [END] does.
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                if _MEANT_AS_LIST.match(value):
                    raise ValueError(
                        'begins like a JSON list but is not one; write e.g. ["END", "STOP"]'
                    ) from None
        if isinstance(value, list) and not all(isinstance(stop, str) for stop in value):
            raise ValueError("must be a string or a list of strings")
        stops = [value] if isinstance(value, str) else value or []
        if "" in stops:
            raise ValueError("must not be empty")
        if isinstance(stops, list) and len(stops) > MOST_STOPS:
            raise ValueError(f"must be at most {MOST_STOPS} strings")
        if any(isinstance(stop, str) and len(stop) > LONGEST_STOP for stop in stops):
            raise ValueError(f"must not be longer than {LONGEST_STOP:,} characters")
        return value

    @field_validator("draft", mode="before")
    @classmethod
    def _check_draft(cls, value: Any) -> Any:
        if value is None or value == "auto":
            return value
        try:
            depth = int(value)
        except (TypeError, ValueError, OverflowError):
            depth = -1
        is_whole = isinstance(value, str) or depth == value
        if isinstance(value, bool) or not is_whole or not 0 <= depth <= MAX_DRAFT:
            raise ValueError(f"must be 0 to {MAX_DRAFT}, or auto")
        return depth


def stop_strings(value: str | list[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)
