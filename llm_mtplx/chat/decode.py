"""Token ids to text and reasoning while they arrive."""

import codecs
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "reasoning"]


@dataclass(frozen=True)
class Piece:
    kind: Kind
    text: str


class TextDecoder:
    """Bytes of tokens to text; a character split over tokens waits for its last byte."""

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        self._token_bytes = token_bytes
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token: int) -> str:
        # Models pad their vocabulary beyond the tokenizer's; such an id has no text.
        raw = self._token_bytes[token] if token < len(self._token_bytes) else b""
        return self._utf8.decode(raw)

    @property
    def incomplete(self) -> bool:
        """Whether the last bytes are the beginning of a character."""
        return bool(self._utf8.getstate()[0])

    def finish(self) -> str:
        return self._utf8.decode(b"", final=True)


class AnswerDecoder:
    """Splits an answer into reasoning and text at its think tokens.

    The tags and the newlines next to them belong to the template, not to the parts: reasoning
    loses its outer newlines, text its leading ones after a think block.
    """

    def __init__(
        self,
        token_bytes: Sequence[bytes],
        think_start: int | None,
        think_end: int | None,
        in_reasoning: bool,
    ) -> None:
        self._decoder = TextDecoder(token_bytes)
        self._think_start = think_start
        self._think_end = think_end
        self._in_reasoning = in_reasoning
        self._skip_newlines = in_reasoning
        self._held = ""  # newlines that may turn out to be the end of the reasoning
        self.reasoning_tokens = 0

    def add(self, tokens: Iterable[int]) -> list[Piece]:
        pieces: list[Piece] = []
        for token in tokens:
            if token == self._think_end and self._in_reasoning:
                self._flush(pieces)
                self._in_reasoning, self._skip_newlines, self._held = False, True, ""
            elif token == self._think_start and not self._in_reasoning:
                self._flush(pieces)
                self._in_reasoning, self._skip_newlines = True, True
            else:
                self.reasoning_tokens += self._in_reasoning
                self._append(pieces, self._decoder.add(token))
        return merged(pieces)

    @property
    def incomplete(self) -> bool:
        """Whether the last token ended inside a character."""
        return self._decoder.incomplete

    def finish(self) -> list[Piece]:
        pieces: list[Piece] = []
        self._flush(pieces)
        return merged(pieces)

    def _flush(self, pieces: list[Piece]) -> None:
        self._append(pieces, self._decoder.finish())

    def _append(self, pieces: list[Piece], text: str) -> None:
        if self._skip_newlines:
            text = text.lstrip("\n")
        if not text:
            return
        self._skip_newlines = False
        if not self._in_reasoning:
            pieces.append(Piece("text", text))
            return
        text = self._held + text
        kept = text.rstrip("\n")
        self._held = text[len(kept) :]
        if kept:
            pieces.append(Piece("reasoning", kept))


def merged(pieces: list[Piece]) -> list[Piece]:
    merged: list[Piece] = []
    for piece in pieces:
        if merged and merged[-1].kind == piece.kind:
            merged[-1] = Piece(piece.kind, merged[-1].text + piece.text)
        else:
            merged.append(piece)
    return merged
