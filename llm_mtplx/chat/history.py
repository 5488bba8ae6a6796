"""Token ids of a rendered conversation, with earlier answers in the ids the model made.

A model's own ids are not always the tokenizer's encoding of their text. Where a rendered answer is,
byte for byte, what known ids decode to, those ids stand for it; all else is tokenized. Cutting at
message borders changes nothing: they are control tokens, and no other token spans one.
"""

import re
from collections.abc import Callable, Mapping, Sequence

_ANSWER = re.compile(r"(<\|im_start\|>assistant\n.*?<\|im_end\|>)", re.DOTALL)


def encode_history(
    text: str, encode: Callable[[str], list[int]], known: Mapping[str, Sequence[int]]
) -> list[int]:
    """``known``: the ids of whole assistant messages, by the text they decode to."""
    if not known:
        return encode(text)
    ids: list[int] = []
    pending = ""
    for piece in _ANSWER.split(text):
        own = known.get(piece)
        if own is None:
            pending += piece
        else:
            ids += encode(pending) if pending else []
            ids += own
            pending = ""
    return ids + (encode(pending) if pending else [])
