"""Token ids of a rendered conversation, with earlier answers in the ids the model made.

A model's own ids are not always the tokenizer's encoding of their text. Where a rendered answer is,
byte for byte, what known ids decode to, those ids stand for it; all else is tokenized. Cutting at
message borders changes nothing: they are control tokens, and no other token spans one.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

_ANSWER = re.compile(r"(<\|im_start\|>assistant\n.*?<\|im_end\|>)", re.DOTALL)


@dataclass(frozen=True)
class OwnIds:
    """An earlier answer in the ids the model made."""

    message: str
    ids: tuple[int, ...]
    start: int  # in the ids of the whole


def encode_history(
    text: str,
    encode: Callable[[str], list[int]],
    known: Mapping[str, Sequence[int]],
    used: "list[OwnIds] | None" = None,
) -> list[int]:
    """``known``: the ids of assistant messages, by the text they decode to. One that was cut
    short, whose text has no end, stands for the beginning of its message. ``used`` gets what of
    them is in the result.
    """
    if not known:
        return encode(text)
    cut_short = {said: ids for said, ids in known.items() if not said.endswith("<|im_end|>")}
    ids: list[int] = []
    pending = ""
    for piece in _ANSWER.split(text):
        own = known.get(piece)
        begun = next((said for said in cut_short if piece.startswith(said)), None)
        if own is None and begun is not None and _ANSWER.fullmatch(piece):
            own = [*cut_short[begun], *encode(piece[len(begun) :])]
        if own is None:
            pending += piece
        else:
            ids += encode(pending) if pending else []
            if used is not None:
                used.append(OwnIds(piece, tuple(own), len(ids)))
            ids += own
            pending = ""
    return ids + (encode(pending) if pending else [])


def common_length(one: str, other: str) -> int:
    """How many leading characters are equal."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low
