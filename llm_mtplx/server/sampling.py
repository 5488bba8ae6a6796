"""What all APIs call alike, and what llm's options add to them."""

from typing import Annotated, Any, Literal

from pydantic import Field

from .body import Body


class Sampling(Body):
    """Fields of every API, and those that ``-o`` has besides."""

    model: str
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    stream: bool = False
    top_k: int | None = Field(None, ge=0)
    min_p: float | None = Field(None, ge=0, le=1)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    repetition_penalty: float | None = Field(None, ge=0.01, le=100)
    seed: int | None = Field(None, ge=0, lt=2**63)

    def sampling(self) -> dict[str, Any]:
        """As a Request takes them."""
        return {name: getattr(self, name) for name in SHAPING}


SHAPING = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
)


class StreamOptions(Body):
    include_usage: bool = False
    include_obfuscation: bool = False  # nothing is obfuscated


Stops = Annotated[str, Field(min_length=1)] | list[Annotated[str, Field(min_length=1)]] | None
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None


def stops(value: Stops) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


def template_thinking(effort: Effort) -> dict[str, Any]:
    """What templates are told of it: whether to think at all."""
    return {"enable_thinking": False} if effort == "none" else {}


def level(effort: Effort) -> str | None:
    """What a Request is told of it."""
    return None if effort == "none" else "low" if effort == "minimal" else effort
