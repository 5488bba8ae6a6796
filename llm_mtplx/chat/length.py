"""Whether a text can fit a context window, without encoding all of it.

A tokenizer takes seconds and hundreds of bytes of RAM for each token of a text that cannot fit
anyway.
"""

from collections.abc import Callable, Sequence

PLAIN_BYTES = 8  # a token: text with no more than these in the window is encoded as a whole
SMALL = 1 << 20  # bytes; text up to here always is, so that its tokens can be named exactly
SLICE = 1 << 16  # characters


def least_tokens(
    text: str, encode: Callable[[str], Sequence[int]], longest: int, limit: int
) -> int:
    """A lower bound of the tokens of ``text``, which is looked at until it is above ``limit``.

    ``longest``: bytes that a token stands for at most.
    """
    size = len(text.encode(errors="replace"))
    by_size = -(-size // longest)
    if size <= max(PLAIN_BYTES * limit, SMALL) or by_size > limit:
        return by_size
    counted = 0
    for start in range(0, len(text), SLICE):
        # A cut costs tokens that are none in the whole text, no more than it has bytes to move.
        counted += max(len(encode(text[start : start + SLICE])) - longest, 0)
        if counted > limit:
            break
    return max(counted, by_size)
