"""What prompts that begin alike have in common, in tokens. Needs the tokenizer, not MLX."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..protocol import Request

if TYPE_CHECKING:
    from ..catalog.families import Family
    from ..chat.tokenizer import ChatTokenizer


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
