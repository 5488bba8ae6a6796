"""How many tokens a prompt has. Needs the tokenizer, not MLX, and may run on any thread."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..catalog.places import folder_identity
from ..protocol import Request

if TYPE_CHECKING:
    from ..chat.tokenizer import ChatTokenizer


def count_tokens(request: Request) -> int:
    """Everything the model would read: history, tools, the template's own tokens."""
    from ..catalog.families import family_at
    from ..chat.effort import as_the_family

    tokenizer = _tokenizer(request.folder, folder_identity(request.folder))
    request, _ = as_the_family(request, tokenizer, family_at(request.folder))
    return len(tokenizer.encode(tokenizer.render(request.messages, request.template_args)))


def count_beginning(requests: Sequence[Request]) -> int:
    """What all ``requests`` begin with: as many tokens as ``warm`` keeps."""
    from ..catalog.families import family_at
    from .beginning import beginning_of

    folder = requests[0].folder
    tokenizer = _tokenizer(folder, folder_identity(folder))
    return len(beginning_of(tokenizer, family_at(folder), requests)[1])


@lru_cache(maxsize=4)
def _tokenizer(folder: Path, identity: str) -> "ChatTokenizer":
    from ..chat.tokenizer import ChatTokenizer

    return ChatTokenizer(folder)
