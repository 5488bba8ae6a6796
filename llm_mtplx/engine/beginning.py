"""Positions in a prompt, and what prompts that begin alike have in common, in tokens. Needs the
tokenizer, not MLX."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..protocol import Request

if TYPE_CHECKING:
    from ..catalog.families import Family
    from ..chat.tokenizer import ChatTokenizer


def system_end(tokenizer: "ChatTokenizer", request: Request, text: str) -> int:
    """Where the system prompt and the tools of a rendered prompt end, and what differs between
    conversations begins; 0 where there are none."""
    first_user = 0 if request.prompt else text.find("<|im_start|>user")
    return len(tokenizer.encode(text[:first_user])) if first_user > 0 else 0


def answer_header(
    tokenizer: "ChatTokenizer", request: Request, text: str, prompt_tokens: int
) -> int:
    """Where the history ends, before anything of the generation prompt."""
    if request.prompt:
        return prompt_tokens
    history = tokenizer.render(request.messages, request.template_args, generation_prompt=False)
    if not text.startswith(history):
        return prompt_tokens
    return prompt_tokens - len(tokenizer.encode(text[len(history) :]))


def beginning_of(
    tokenizer: "ChatTokenizer", family: "Family", requests: Sequence[Request]
) -> tuple[int, list[int]]:
    """Where the system prompt ends, and the ids that all ``requests`` begin with."""
    from ..chat.effort import as_the_family

    texts = []
    for request in requests:
        request, _ = as_the_family(request, tokenizer, family)
        texts.append(
            tokenizer.render(request.messages, request.template_args, generation_prompt=False)
        )
    lines = [tokenizer.encode(text) for text in texts]
    shared = lines[0]
    for line in lines[1:]:
        shared = shared[: _common_length(shared, line)]
    system = len(tokenizer.encode(texts[0][: max(texts[0].find("<|im_start|>user"), 0)]))
    opening = tokenizer.encode("<|im_start|>user\n")
    # A system prompt alone ends where every turn with it leaves a checkpoint.
    return system, shared[:system] if len(shared) <= system + len(opening) else shared


def _common_length(one: Sequence[int], other: Sequence[int]) -> int:
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return min(len(one), len(other))
