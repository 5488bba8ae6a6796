"""An answer on its way from tokens to the user."""

from collections import deque
from collections.abc import Sequence

from .decode import AnswerDecoder, Piece, merged
from .stop import StopScanner


class Answer:
    """Decodes tokens to reasoning and text, and ends the text at a stop string.

    Stop strings are looked for in the text, not in the reasoning.
    """

    def __init__(self, decoder: AnswerDecoder, stops: Sequence[str]) -> None:
        self._decoder = decoder
        self._scanner = StopScanner(stops) if stops else None
        self._text_length = 0  # characters of text decoded, held back or not
        self._ends: deque[int] = deque()  # where the text of each token not yet whole ends
        self.tokens = 0  # taken
        self.whole_tokens = 0  # leading tokens whose text lies wholly inside the shown text
        self.whole_length = 0  # characters of text those tokens hold
        self.text = ""  # shown
        self.reasoning = ""

    @property
    def stopped(self) -> bool:
        return self._scanner is not None and self._scanner.stopped

    @property
    def reasoning_tokens(self) -> int:
        return self._decoder.reasoning_tokens

    def add(self, tokens: Sequence[int]) -> list[Piece]:
        """Take ``tokens`` up to the one that completes a stop string; returns what to show."""
        if self._scanner is None:
            self.tokens += len(tokens)
            self.whole_tokens = self.tokens
            return self._shown(self._decoder.add(tokens))
        shown: list[Piece] = []
        for token in tokens:
            shown += self._scan(self._decoder.add([token]))
            self.tokens += 1
            # A character that is not complete yet is not inside anything.
            self._ends.append(self._text_length + self._decoder.incomplete)
            while self._ends and self._ends[0] <= self._scanner.emitted:
                self.whole_length = self._ends.popleft()
                self.whole_tokens += 1
            if self.stopped:
                break
        return self._shown(merged(shown))

    def end(self) -> None:
        """Count the token that ended the answer; it has no text."""
        self.tokens += 1

    def finish(self) -> list[Piece]:
        """The answer ended; returns what was held back."""
        pieces = self._decoder.finish()
        if self._scanner is None:
            return self._shown(pieces)
        shown = self._scan(pieces)
        if not self.stopped:
            rest = self._scanner.finish()
            shown += [Piece("text", rest)] if rest else []
            self.whole_tokens = self.tokens
        return self._shown(merged(shown))

    def _shown(self, pieces: list[Piece]) -> list[Piece]:
        for piece in pieces:
            if piece.kind == "text":
                self.text += piece.text
            else:
                self.reasoning += piece.text
        return pieces

    def _scan(self, pieces: Sequence[Piece]) -> list[Piece]:
        assert self._scanner is not None
        shown = []
        for piece in pieces:
            if piece.kind == "text":
                self._text_length += len(piece.text)
                text = self._scanner.add(piece.text)
                shown += [Piece("text", text)] if text else []
            elif not self.stopped:
                shown.append(piece)
        return shown
