"""Where an answer's reasoning begins and ends.

The tags are control tokens, and those decide. A closing tag that is quoted does not: one between
quotation marks, or within a line of a code block. Spelled out in ordinary tokens a closing tag
counts where it has a line of its own. A model that begins a tool call inside its reasoning has
ended the reasoning too. A block opens at the very beginning of an answer only; later a tag is text.
Where a grammar says what follows the reasoning, the control token alone ends it, wherever it comes:
the grammar has the same rule.
"""

from collections.abc import Sequence

import regex

from .pieces import Piece

CLOSING = "</think>"
_QUOTES = {"`": "`", '"': '"', "'": "'", "“": "”", "«": "»"}
_FENCE = "```"


class ThinkingSplitter:
    """Splits decoded text into reasoning and text while it arrives.

    The tags and the newlines next to them belong to the template, not to the parts: reasoning
    loses its outer newlines, text its leading ones after a think block.
    """

    def __init__(
        self, in_reasoning: bool, tool_names: Sequence[str] = (), tag_alone: bool = False
    ) -> None:
        self.in_reasoning = in_reasoning
        self._tag_alone = tag_alone
        self._ends = _NEVER if tag_alone else _end_at_line_start(tool_names)
        self._skip_newlines = in_reasoning
        self._newlines = ""  # that may turn out to be the end of the reasoning
        self._pending = ""  # that may turn out to be a tag
        self._quote: str | None = None  # after a closing tag: what would show that it is quoted
        self._said = False  # whether there is text
        self._line = ""  # beginning of the reasoning's current line
        self._last = ""  # its last character
        self._after_newline = False
        self._in_fence = False

    @property
    def pending(self) -> int:
        """Characters of text that are held back."""
        return 0 if self.in_reasoning else len(self._pending)

    @property
    def at_line_start(self) -> bool:
        """Whether the reasoning so far ends with a newline."""
        return self._after_newline and not self._pending

    def add(self, text: str) -> list[Piece]:
        pieces: list[Piece] = []
        if text and self._quote is not None:
            quoted = text.startswith(self._quote)
            self._quote = None
            if quoted:
                self._reasoning(pieces, CLOSING)
            else:
                self._close()
        self._add(pieces, text)
        return pieces

    def open_tag(self) -> list[Piece]:
        """The control token that begins a block."""
        pieces = self.settle()
        if self.in_reasoning or self._said:
            self._add(pieces, "<think>")
        else:
            self._open()
        return pieces

    def close_tag(self) -> list[Piece]:
        """The control token that ends a block."""
        pieces = self.settle()
        if not self.in_reasoning:
            if self._said:
                self._text(pieces, CLOSING)
            else:
                self._skip_newlines = True
        elif self._tag_alone:
            self._close()
        elif self._in_fence and self._line.strip():
            self._reasoning(pieces, CLOSING)
        elif self._last in _QUOTES:
            self._quote = _QUOTES[self._last]
        else:
            self._close()
        return pieces

    def settle(self) -> list[Piece]:
        """What was held back is what it looks like: nothing follows that could change it."""
        pieces: list[Piece] = []
        if self._quote is not None:
            self._close()
        pending, self._pending = self._pending, ""
        if self.in_reasoning and pending.rstrip(" \t") == CLOSING:
            self._close()
        elif self.in_reasoning:
            self._reasoning(pieces, pending)
        else:
            self._text(pieces, pending)
        return pieces

    def _open(self) -> None:
        self.in_reasoning = self._skip_newlines = True

    def _close(self) -> None:
        self.in_reasoning, self._skip_newlines, self._newlines, self._quote = False, True, "", None

    def _add(self, pieces: list[Piece], text: str) -> None:
        text, self._pending = self._pending + text, ""
        while text and self.in_reasoning:
            text = self._step(pieces, text)
        if text:
            self._begin_text(pieces, text)

    def _step(self, pieces: list[Piece], text: str) -> str:
        """Take a line, or a part of one, of reasoning; returns what is left."""
        if not self._line and not self._in_fence and text[0] == "<":
            end = self._ends.match(text, partial=True)
            if end and end.partial:
                self._pending = text
                return ""
            if end:
                self._close()
                return text if end.group("call") else text[end.end() :]
        line, newline, rest = text.partition("\n")
        self._reasoning(pieces, line + newline)
        return rest

    def _begin_text(self, pieces: list[Piece], text: str) -> None:
        if not self._said:
            opening = _OPEN.match(text, partial=True)
            if opening and opening.partial:
                self._pending = text
                return
            if opening:
                self._open()
                self._add(pieces, text[opening.end() :])
                return
        self._text(pieces, text)

    def _text(self, pieces: list[Piece], text: str) -> None:
        if self._skip_newlines:
            text = text.lstrip("\n")
        if text:
            self._skip_newlines = False
            self._said = self._said or not text.isspace()
            pieces.append(Piece("text", text))

    def _reasoning(self, pieces: list[Piece], text: str) -> None:
        self._follow(text)
        if self._skip_newlines:
            text = text.lstrip("\n")
        if not text:
            return
        self._skip_newlines = False
        text = self._newlines + text
        kept = text.rstrip("\n")
        self._newlines = text[len(kept) :]
        if kept:
            pieces.append(Piece("reasoning", kept))

    def _follow(self, text: str) -> None:
        """Keep track of the line and the code block that the reasoning is in."""
        for part in text.splitlines(keepends=True):
            if len(self._line) < 80:
                self._line += part
            self._last = part[-1]
            self._after_newline = self._last == "\n"
            if self._after_newline:
                self._in_fence ^= self._line.lstrip().startswith(_FENCE)
                self._line = self._last = ""


_NEVER = regex.compile(r"(?!)")
_OPEN = regex.compile(r"<think>[ \t]*\n")


def _end_at_line_start(tool_names: Sequence[str]) -> "regex.Pattern[str]":
    names = "|".join(regex.escape(name) for name in tool_names)
    call = (
        rf'<tool_call>\s*(?:<function=(?:{names})>|\{{\s*"name"\s*:\s*"(?:{names})")'
        if names
        else _NEVER.pattern
    )
    return regex.compile(rf"(?:{CLOSING}[ \t]*\n|(?P<call>{call}))")
