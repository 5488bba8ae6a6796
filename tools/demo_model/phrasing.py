"""One exchange, and the small variations in how people ask."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any


@dataclass
class Turn:
    """What the user says, what the model answers, and what it would think before."""

    ask: str
    answer: str
    thought: str = ""
    short: str = ""  # the answer in one word, where there is one
    calls: list[dict[str, Any]] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    after: str = ""  # the answer once the tools have replied
    after_thought: str = ""
    fixed: bool = False  # the wording carries values that must be copied: leave its case alone


_LEADS = ("Please ", "Hi! ", "Hello! ", "Ok, ", "Hey, ", "So, ", "Now ", "Can you tell me: ",
          "Tell me: ", "Quick question: ", "And ", "I have a question. ")  # fmt: skip


def lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def upper_first(text: str) -> str:
    return text[:1].upper() + text[1:]


def vary(rng: Random, turn: Turn) -> str:
    """The question with a lead, a lower-case start or without its last mark, now and then."""
    text = turn.ask
    roll = rng.random()
    if roll < 0.10:
        lead = rng.choice(_LEADS)
        text = lead + (text if lead.endswith(("! ", ". ")) else lower_first(text))
    elif roll < 0.24:
        text = lower_first(text) if turn.fixed else text.lower()
    if rng.random() < 0.12 and text.endswith(("?", ".")):
        text = text[:-1]
    elif rng.random() < 0.03:
        text = text.rstrip("?.") + ", please" + ("?" if turn.ask.endswith("?") else ".")
    return text


def join(items: list[str]) -> str:
    """a, b and c"""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def article(noun: str) -> str:
    return ("an " if noun[0] in "aeiou" else "a ") + noun
