"""Tool calls in a stream of text.

Two dialects, whichever the model writes: Qwen's ``<function=NAME>`` with ``<parameter=NAME>``
blocks, and a JSON object with ``name`` and ``arguments``, each inside ``<tool_call>``. What cannot
be read as a call stays text, with the reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import regex

from .calls import Malformed, Unfinished, read_call
from .partial import PartialCall
from .pieces import Call, CallPart

# A tag alone is not yet a call: models also talk about tags.
_OPENER = regex.compile(r"<tool_call>\s*(?:<function[=\s]|\{)")
_CLOSER = regex.compile(r"</(?:tool_call|function)>")
_END = "</tool_call>"
_FENCE = regex.compile(r"^[ \t]*```", regex.MULTILINE)


def is_call(text: str) -> bool:
    """Whether ``text`` begins as a call does."""
    return _OPENER.match(text.lstrip()) is not None


@dataclass(frozen=True)
class Segment:
    """A run of the answer: text to show, a call, or newlines that belong to the template."""

    raw: str
    text: str = ""
    call: Call | None = None
    part: CallPart | None = None  # what is certain of a call that goes on
    problem: str | None = None  # why the text that begins here is no call


class ToolCallScanner:
    """Finds calls however the text is cut into chunks.

    Newlines between text and call are the template's, not the text's.
    """

    def __init__(self, tools: Sequence[dict[str, Any]]) -> None:
        self._tools = tools
        self._held = ""  # text that may be the beginning of a call, or is inside one
        self._in_call = False
        self._partial = PartialCall(tools)
        self._searched = 0  # how much of it holds no end of the call
        self._newlines = ""  # at the end of the text so far
        self._after_call = False
        self._line = ""  # the text's current line
        self._in_fence = False

    def add(self, text: str) -> list[Segment]:
        self._held += text
        return self._scan(final=False)

    def finish(self) -> list[Segment]:
        """The answer ended: what was held back."""
        segments = self._scan(final=True)
        if self._newlines:
            newlines, self._newlines = self._newlines, ""
            segments.append(Segment(newlines, "" if self._after_call else newlines))
        return segments

    def _scan(self, final: bool) -> list[Segment]:
        segments: list[Segment] = []
        while self._held:
            if not self._in_call and not self._find_opener(segments, final):
                break
            if self._in_call and not self._find_end(segments, final):
                break
        return segments

    def _find_opener(self, segments: list[Segment], final: bool) -> bool:
        """Pass text on up to a call; returns whether one begins, or there is more to look at."""
        found = _OPENER.search(self._held, partial=not final)
        if found is None:
            self._pass(segments, len(self._held))
            return False
        if self._is_quoted(found.start()):
            self._pass(segments, found.start() + 1)
            return True
        self._pass(segments, found.start())
        if found.partial:
            return False
        self._in_call, self._searched = True, 0
        self._partial = PartialCall(self._tools)
        return True

    def _find_end(self, segments: list[Segment], final: bool) -> bool:
        """Look for the end of the call that begins the held text; returns whether it is over."""
        problem = ""
        while (end := self._held.find(_END, self._searched)) >= 0:
            self._searched = end = end + len(_END)
            try:
                call = read_call(self._held[:end], self._tools)
            except Unfinished:
                continue
            except Malformed as error:
                problem = str(error)
                break
            self._end_call(segments, end, call)
            return True
        self._searched = max(self._searched, len(self._held) - len(_END) + 1)
        if problem or final:
            self._salvage(segments, problem or "it is not closed")
            return True
        part = self._partial.read(self._held)
        if part is not None:
            segments.append(Segment("", part=part))
        return False

    def _salvage(self, segments: list[Segment], problem: str) -> None:
        """The longest way of reading failed: a call that forgot its last tag is still one."""
        found = [closer.end() for closer in _CLOSER.finditer(self._held)]
        ends = list(dict.fromkeys([*found, len(self._held)]))
        whole_first = sorted(ends, key=lambda end: not self._held[:end].endswith(_END))
        tries = [*((end, False) for end in ends), *((end, True) for end in whole_first)]
        for end, final in tries:
            whole = self._held[:end].rstrip()
            try:
                markup = whole if whole.endswith(_END) else whole + _END
                call = read_call(markup, self._tools, final)
            except (Malformed, Unfinished):
                continue
            self._end_call(segments, end, call)
            return
        opener = _OPENER.match(self._held)
        assert opener is not None
        segments.append(Segment("", problem=problem))
        self._in_call = False
        self._pass(segments, opener.end())

    def _end_call(self, segments: list[Segment], end: int, call: Call) -> None:
        self._drop_newlines(segments)
        segments.append(Segment(self._held[:end], call=call))
        self._held = self._held[end:]
        self._in_call, self._after_call = False, True

    def _pass(self, segments: list[Segment], end: int) -> None:
        text, self._held = self._held[:end], self._held[end:]
        self._follow(text)
        text = self._newlines + text
        if self._after_call:
            rest = text.lstrip("\n")
            self._newlines = text[: len(text) - len(rest)]
            if rest:
                self._drop_newlines(segments)
            text = rest
        if text:
            shown = text.rstrip("\n")
            self._newlines = text[len(shown) :]
            if shown:
                self._after_call = False
                segments.append(Segment(shown, shown))

    def _drop_newlines(self, segments: list[Segment]) -> None:
        if self._newlines:
            segments.append(Segment(self._newlines))
            self._newlines = ""

    def _follow(self, text: str) -> None:
        """Keep track of the line and the code block that the text is in."""
        *lines, last = (self._line + text).split("\n")
        for line in lines:
            self._in_fence ^= bool(_FENCE.match(line))
        self._line = last

    def _is_quoted(self, start: int) -> bool:
        """Whether what begins there is in a code block or behind a backtick."""
        before = self._line + self._held[:start]
        in_fence = self._in_fence ^ (len(_FENCE.findall(before[: before.rfind("\n") + 1])) % 2 == 1)
        return in_fence or before.endswith("`")
