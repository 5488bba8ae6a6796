"""Token ids to text and reasoning while they arrive."""

import codecs
from collections.abc import Iterable, Sequence

from .pieces import Part, Piece, merged
from .thinking import ThinkingSplitter


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
    """Tokens to reasoning and text."""

    def __init__(
        self,
        token_bytes: Sequence[bytes],
        think_start: int | None,
        think_end: int | None,
        in_reasoning: bool,
        tool_names: Sequence[str] = (),
        tag_alone: bool = False,
    ) -> None:
        self._decoder = TextDecoder(token_bytes)
        self._token_bytes = token_bytes
        self._think_start = think_start
        self._think_end = think_end
        self.thinking = ThinkingSplitter(in_reasoning, tool_names, tag_alone)
        self.reasoning_tokens = 0
        self.characters = 0  # decoded, whatever they are part of

    def add(self, tokens: Iterable[int]) -> list[Part]:
        parts: list[Part] = []
        for token in tokens:
            if token == self._think_end:
                self.characters += len(self._token_bytes[token])
                parts += self._flush() + self.thinking.close_tag()
            elif token == self._think_start:
                self.characters += len(self._token_bytes[token])
                parts += self._flush() + self.thinking.open_tag()
            else:
                self.reasoning_tokens += self.thinking.in_reasoning
                text = self._decoder.add(token)
                self.characters += len(text)
                parts += self.thinking.add(text)
        return merged(parts)

    @property
    def incomplete(self) -> bool:
        """Whether the tokens taken end within a character."""
        return self._decoder.incomplete

    @property
    def held(self) -> int:
        """Characters of text that the tokens taken have begun or hold, and that are not out."""
        if self.thinking.in_reasoning:
            return 0
        return self.thinking.pending + self._decoder.incomplete

    def finish(self) -> list[Part]:
        return merged([*self._flush(), *self.thinking.settle()])

    def _flush(self) -> list[Piece]:
        return self.thinking.add(self._decoder.finish())
