"""What a family's chat templates are told: how hard to think, and whether to show old reasoning."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import RequestError
from .latesystem import in_place

if TYPE_CHECKING:
    from ..catalog.families import Family
    from ..protocol import Request
    from .tokenizer import ChatTokenizer

LEVELS = ("low", "medium", "high", "xhigh")


def as_the_family(
    request: "Request", tokenizer: "ChatTokenizer", family: "Family"
) -> tuple["Request", str | None]:
    """``request`` with what it leaves open to its model's family, and a line if there is one."""
    if family.keeps_reasoning:
        # Templates that know no such word ignore it.
        told = {"preserve_thinking": True, **request.template_args}
        request = replace(request, template_args=told)
    request = replace(request, messages=in_place(request.messages, tokenizer))
    return with_effort(request, tokenizer, family)


def with_effort(
    request: "Request", tokenizer: "ChatTokenizer", family: "Family"
) -> tuple["Request", str | None]:
    """``request`` with a level the template and the family know, and a line if there is none."""
    asked = request.reasoning_effort
    if asked is None and request.template_args.get("enable_thinking") is not False:
        asked = family.default_effort
    if asked is None:
        return request, None
    declared = [
        level for level in declared_levels(tokenizer) if level in (family.efforts or LEVELS)
    ]
    if not declared:
        if request.reasoning_effort is None:
            return request, None
        return request, "this model does not support reasoning_effort; ignoring it."
    level = nearest(asked, declared)
    return replace(
        request, template_args={**request.template_args, "reasoning_effort": level}
    ), None


def nearest(level: str, declared: Sequence[str]) -> str:
    """The declared level nearest to ``level``; of two as near the higher."""
    wanted = LEVELS.index(level)
    return min(declared, key=lambda d: (abs(LEVELS.index(d) - wanted), -LEVELS.index(d)))


def declared_levels(tokenizer: "ChatTokenizer") -> list[str]:
    """The levels that the template takes: it refuses others, or makes no difference of any."""
    asked = [{"role": "user", "content": "x"}]
    thinking = {"enable_thinking": True}
    rendered = {"": tokenizer.render(asked, thinking)}
    for level in LEVELS:
        try:
            rendered[level] = tokenizer.render(asked, {**thinking, "reasoning_effort": level})
        except RequestError:
            continue
    differs = len(rendered) < 1 + len(LEVELS) or len(set(rendered.values())) > 1
    return [level for level in LEVELS if level in rendered] if differs else []
