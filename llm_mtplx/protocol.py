"""What goes into the engine and what comes out of it. Plain values; imports no MLX."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

FinishReason = Literal["eos", "stop", "length", "tool_calls", "interrupted"]


@dataclass(frozen=True)
class Request:
    """One turn. ``None`` leaves a choice to the model's own defaults."""

    model_id: str
    folder: Path
    messages: list[dict[str, Any]]  # as the chat template takes them
    template_args: dict[str, Any] = field(default_factory=dict)
    prompt: str | None = None  # text to go on from as it stands, in the place of messages
    # Where to look first; never what decides.
    conversation: str | None = None
    pointer: str | None = None  # the latest earlier answer's Finished.pointer
    cache: Literal["on", "write-only", "off"] = "on"
    persist: bool = True  # False where llm does not log: then nothing reaches the SSD
    salt: str = ""  # states made under one are used under no other
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token, what is added to its logit)
    seed: int | None = None
    stop: tuple[str, ...] = ()
    calls: bool = True  # whether the tools that are declared may be called
    one_call: bool = False  # whether they may be called once at most
    must_call: tuple[str, ...] = ()  # functions; the answer is one call of one of them
    max_tokens: int | None = None
    depth: int | None = None
    reasoning_effort: str | None = None
    thinking_budget: int | None = None  # tokens
    schema: dict[str, Any] | None = None  # what the answer's JSON must conform to
    logprobs: int | None = None  # tell each token's, beside those of so many of the likeliest

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The declared functions, as the chat template takes them."""
        tools: list[dict[str, Any]] = self.template_args.get("tools", [])
        return tools


@dataclass(frozen=True)
class Likely:
    """A token that could come, and its log-probability by the trunk's own logits."""

    raw: list[int]  # its bytes
    logprob: float


@dataclass(frozen=True)
class Token(Likely):
    """A token that came."""

    offset: int  # characters of text before it
    top: list[Likely]  # likeliest first


@dataclass(frozen=True)
class Text:
    text: str
    tokens: list[Token] = field(default_factory=list)  # those that end here, where asked for


@dataclass(frozen=True)
class Reasoning:
    text: str


@dataclass(frozen=True)
class ToolCall:
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class ToolCallPart:
    """A piece of the arguments of a call that is being written: those of one call are, in a row,
    how ``json.dumps`` of its arguments begins. Its ToolCall comes at the end, unless the answer
    ends before, or what the model wrote turns out to be none."""

    name: str
    text: str
    begins: bool  # whether it is the first of its call


@dataclass(frozen=True)
class Progress:
    """How far a turn is before its first token: ``total`` 0 where that is not known."""

    phase: Literal["waiting", "loading", "reading"]
    done: int = 0
    total: int = 0


@dataclass(frozen=True)
class Restored:
    """What of the prompt need not be read again, told before the rest is read."""

    tokens: int
    prompt_tokens: int
    source: Literal["ram", "ssd"] | None
    miss_reason: str | None
    seconds: float


@dataclass(frozen=True)
class Notice:
    """One line for stderr."""

    line: str


@dataclass(frozen=True)
class Finished:
    """The end of a turn and what it cost."""

    finish_reason: FinishReason
    prompt_tokens: int
    output_tokens: int
    reasoning_tokens: int
    depth: int
    rounds: int
    drafted: list[int]  # by position in the draft: how often it was examined
    accepted: list[int]  # by position in the draft: how often it was accepted
    pointer: str | None  # what the state after this turn will be called on the SSD
    restored: int  # tokens of the prompt that were not read again
    source: Literal["ram", "ssd"] | None  # where they came from
    miss_reason: str | None  # why not more, from sessions/reasons.py
    restore_s: float
    ttft_s: float
    prefill_s: float
    decode_s: float
    peak_memory: int  # bytes
    stop_string: str | None = None  # the one that ended the answer
    seed: int | None = None  # the one given, else the one drawn: with it the answer comes again
    copied: int = 0  # drafts copied from the line that were examined
    copies_accepted: int = 0


@dataclass(frozen=True)
class Failed:
    error: Exception


Event = (
    Text | Reasoning | ToolCall | ToolCallPart | Restored | Progress | Notice | Finished | Failed
)
