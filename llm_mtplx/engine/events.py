"""The parts of an answer as the events that a turn emits. Imports no MLX."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..chat.pieces import Call, CallPart, Part, Placed, Unread
from ..protocol import Event, Likely, Notice, Reasoning, Text, Token, ToolCall, ToolCallPart

if TYPE_CHECKING:
    from ..speculative.logprobs import Logprobs


def events_of(
    parts: Iterable[Part],
    emitted: Sequence[int],
    logprobs: "Logprobs | None",
    token_bytes: Sequence[bytes],
) -> Iterator[Event]:
    """``emitted``: the ids of the answer, to which the places of a part's tokens refer."""

    def spelled(token: int) -> list[int]:
        return list(token_bytes[token] if token < len(token_bytes) else b"")

    def chosen(placed: Iterable[Placed]) -> Iterator[Token]:
        """What the trunk gave the tokens that were its own choice."""
        for at in placed:
            assert logprobs is not None
            found = logprobs.emitted[at.index]
            if found is not None:
                top = [Likely(spelled(token), logprob) for token, logprob in found.top]
                yield Token(spelled(emitted[at.index]), found.logprob, at.offset, top)

    for part in parts:
        if isinstance(part, Call):
            yield ToolCall(part.name, part.arguments)
        elif isinstance(part, CallPart):
            yield ToolCallPart(part.name, part.text, part.begins)
        elif isinstance(part, Unread):
            yield Notice(f"a tool call could not be parsed and is kept as text: {part.reason}.")
        elif part.kind == "reasoning":
            yield Reasoning(part.text)
        else:
            yield Text(part.text, [*chosen(part.tokens)])
