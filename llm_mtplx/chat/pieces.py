"""What an answer is made of on its way to the user."""

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["text", "reasoning"]


@dataclass(frozen=True)
class Placed:
    """A token that lies wholly in the shown text."""

    index: int  # in the answer
    offset: int  # characters of text before it


@dataclass(frozen=True)
class Piece:
    kind: Kind
    text: str
    tokens: tuple[Placed, ...] = ()  # where asked for: those whose last character it holds


@dataclass(frozen=True)
class Call:
    """A function the model wants called."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class CallPart:
    """A piece of a call's arguments, as JSON, before the call is complete."""

    name: str
    text: str
    begins: bool  # whether it is the first of its call


@dataclass(frozen=True)
class Unread:
    """The text that follows looks like a tool call; why it is none."""

    reason: str


Part = Piece | Call | CallPart | Unread


def merged(parts: list[Part]) -> list[Part]:
    """Neighbours of one kind as one piece."""
    merged: list[Part] = []
    for part in parts:
        last = merged[-1] if merged else None
        if isinstance(part, Piece) and isinstance(last, Piece) and last.kind == part.kind:
            merged[-1] = Piece(part.kind, last.text + part.text, last.tokens + part.tokens)
        else:
            merged.append(part)
    return merged
