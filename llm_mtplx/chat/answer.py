"""An answer on its way from tokens to the user."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from .cycles import Cycles
from .decode import AnswerDecoder
from .pieces import Call, Part, Piece, Unread, merged
from .spans import Spans
from .stop import StopScanner
from .toolcalls import Segment, ToolCallScanner


class Answer:
    """Decodes tokens to reasoning, text and tool calls, and ends the text at a stop string.

    Stop strings are looked for in the text, not in reasoning or calls.
    """

    def __init__(
        self,
        decoder: AnswerDecoder,
        stops: Sequence[str] = (),
        tools: Sequence[dict[str, Any]] = (),
        place_tokens: bool = False,
    ) -> None:
        """``place_tokens``: whether the text says which tokens it is made of."""
        self._decoder = decoder
        self._tools = ToolCallScanner(tools) if tools else None
        self._scanner = StopScanner(stops) if stops else None
        self._spans = Spans() if place_tokens else None
        self._decoded = 0  # characters of text and calls decoded, held back or not
        self._ends: deque[int] = deque()  # where the text of each token not yet whole ends
        self.cycles = Cycles()
        self.tokens = 0  # taken
        self.whole_tokens = 0  # leading tokens whose text lies wholly inside the shown text
        self.whole_length = 0  # characters of text and calls those tokens hold
        self.raw = ""  # shown, with calls as the model wrote them
        self.text = ""  # shown
        self.reasoning = ""
        self.calls: list[Call] = []

    @property
    def stopped(self) -> bool:
        return self._scanner is not None and self._scanner.stopped

    @property
    def stop_string(self) -> str | None:
        return self._scanner.found if self._scanner is not None else None

    @property
    def reasoning_tokens(self) -> int:
        return self._decoder.reasoning_tokens

    @property
    def in_reasoning(self) -> bool:
        return self._decoder.thinking.in_reasoning

    @property
    def end_of_thinking(self) -> str:
        """What ends the reasoning here the way templates write its end."""
        return "</think>\n\n" if self._decoder.thinking.at_line_start else "\n</think>\n\n"

    def add(self, tokens: Sequence[int]) -> list[Part]:
        """Take ``tokens`` up to the one that completes a stop string; returns what to show."""
        self.cycles.add(tokens)
        if self._scanner is None and self._spans is None:
            self.tokens += len(tokens)
            self.whole_tokens = self.tokens
            return self._shown(self._read(self._decoder.add(tokens)))
        shown: list[Part] = []
        for token in tokens:
            shown += self._read(self._decode(token))
            self.tokens += 1
            if self._scanner is None:
                self.whole_tokens = self.tokens
                continue
            # A character that is not complete yet is not inside anything.
            self._ends.append(self._decoded + self._decoder.held)
            self._count_whole(self._scanner.emitted)
            if self.stopped:
                break
        return self._shown(merged(shown))

    def _decode(self, token: int) -> list[Part]:
        decoder = self._decoder
        start, before = self._decoded + decoder.thinking.pending, decoder.characters
        parts = decoder.add([token])
        if self._spans is not None:
            text = sum(len(p.text) for p in parts if isinstance(p, Piece) and p.kind == "text")
            end = self._decoded + text + decoder.held
            characters = decoder.characters - before + decoder.incomplete
            self._spans.add(self.tokens, start, end, characters)
        return parts

    def end(self) -> None:
        """Count the token that ended the answer; it has no text."""
        self.tokens += 1

    def finish(self) -> list[Part]:
        """The answer ended; returns what was held back."""
        shown = self._read(self._decoder.finish())
        if self._tools is not None:
            shown += self._pass(self._tools.finish())
        if self._scanner is not None and not self.stopped:
            shown += self._emitted(self._scanner.finish())
            self.whole_tokens = self.tokens
        elif self._scanner is not None:
            # What was held back as a call was text after all, and holds a stop string.
            self._count_whole(self._scanner.emitted)
        return self._shown(merged(shown))

    def _count_whole(self, emitted: int) -> None:
        while self._ends and self._ends[0] <= emitted:
            self.whole_length = self._ends.popleft()
            self.whole_tokens += 1

    def _read(self, parts: Sequence[Part]) -> list[Part]:
        """Text to text and calls, up to a stop string."""
        read: list[Part] = []
        for part in parts:
            if isinstance(part, Piece) and part.kind == "text":
                self._decoded += len(part.text)
                read += self._pass(
                    self._tools.add(part.text) if self._tools else [Segment(part.text, part.text)]
                )
            elif not self.stopped:
                read.append(part)
        return read

    def _pass(self, segments: Sequence[Segment]) -> list[Part]:
        passed: list[Part] = []
        for segment in segments:
            if self.stopped:
                break
            # With stop strings text may be held back that stands before the call.
            if segment.part is not None and self._scanner is None:
                passed.append(segment.part)
            if segment.problem is not None:
                passed.append(Unread(segment.problem))
            if segment.text:
                scanner = self._scanner
                passed += self._emitted(scanner.add(segment.text) if scanner else segment.text)
            elif segment.raw:
                if self._scanner is not None:
                    passed += self._emitted(self._scanner.skip(len(segment.raw)))
                self.raw += segment.raw
                if self._spans is not None:
                    self._spans.hide(len(segment.raw))
            if segment.call is not None:
                passed.append(segment.call)
        return passed

    def _emitted(self, text: str) -> list[Part]:
        if not text:
            return []
        self.raw += text
        return [Piece("text", text, self._spans.show(len(text)) if self._spans else ())]

    def _shown(self, parts: list[Part]) -> list[Part]:
        for part in parts:
            if isinstance(part, Call):
                self.calls.append(part)
            elif isinstance(part, Piece) and part.kind == "text":
                self.text += part.text
            elif isinstance(part, Piece):
                self.reasoning += part.text
        return parts
