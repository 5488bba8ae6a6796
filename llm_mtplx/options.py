"""What ``-o`` accepts."""

import contextlib
import json
from typing import Any, Literal

import llm
from pydantic import Field, field_validator

MAX_DRAFT = 5


class MtplxOptions(llm.Options):
    temperature: float | None = Field(
        default=None,
        ge=0,
        description="How freely tokens are drawn; 0 always takes the likeliest. Default: the "
        "model's own",
    )
    top_p: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Draw only from the likeliest tokens that together reach this probability",
    )
    top_k: int | None = Field(
        default=None, ge=0, description="Draw only from this many likeliest tokens; 0 is off"
    )
    min_p: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Draw only tokens at least this likely relative to the likeliest",
    )
    presence_penalty: float | None = Field(
        default=None,
        ge=-2,
        le=2,
        description="Subtracted from the logits of tokens that are in the answer already",
    )
    frequency_penalty: float | None = Field(
        default=None,
        ge=-2,
        le=2,
        description="Subtracted from a token's logit for each time it is in the answer already",
    )
    repetition_penalty: float | None = Field(
        default=None,
        gt=0,
        description="Divides the logits of tokens in prompt or answer; 1 is off",
    )
    seed: int | None = Field(
        default=None, ge=0, description="Same seed, same machine, same versions: same answer"
    )
    stop: str | list[str] | None = Field(
        default=None,
        description="Text that ends the answer and is not part of it: one string, or a JSON list",
    )
    max_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Longest answer in tokens. Default: the model's own (1,024 for the demo), "
        "else what the context holds",
    )
    draft: int | Literal["auto"] | None = Field(
        default=None,
        description="Tokens drafted a round with the model's MTP head: 0 (off) to 5, or auto",
    )
    cache: Literal["on", "write-only", "off"] | None = Field(
        default=None,
        description="Whether kept state is used and kept: on; write-only keeps but does not use; "
        "off does neither",
    )
    thinking: Literal["auto", "on", "off"] | None = Field(
        default=None,
        description="Whether the model reasons before it answers; auto is the model's own default",
    )

    reasoning_effort: Literal["low", "medium", "high", "xhigh"] | None = Field(
        default=None,
        description="How hard the model thinks, for models whose template knows levels; one that "
        "it does not know means the nearest it does",
    )
    thinking_budget: int | None = Field(
        default=None,
        ge=0,
        description="Longest reasoning in tokens; then the model is made to answer",
    )

    @field_validator("stop", mode="before")
    @classmethod
    def _check_stop(cls, value: Any) -> Any:
        if isinstance(value, str) and value.lstrip().startswith("["):
            # What is no JSON is a string that happens to start with a bracket.
            with contextlib.suppress(ValueError):
                value = json.loads(value)
        if isinstance(value, list) and not all(isinstance(stop, str) for stop in value):
            raise ValueError("must be a string or a list of strings")
        if "" in ([value] if isinstance(value, str) else value or []):
            raise ValueError("must not be empty")
        return value

    @field_validator("draft", mode="before")
    @classmethod
    def _check_draft(cls, value: Any) -> Any:
        if value is None or value == "auto":
            return value
        try:
            depth = int(value)
        except (TypeError, ValueError):
            depth = -1
        if not 0 <= depth <= MAX_DRAFT:
            raise ValueError(f"must be 0 to {MAX_DRAFT}, or auto")
        return depth


def stop_strings(value: str | list[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)
