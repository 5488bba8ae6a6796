"""What is certain of a call's arguments while the model writes them.

The pieces are, in a row, how ``json.dumps`` of the whole call's arguments begins, whatever comes
after: text arguments as they come, others when they are over. Where a later tag could change what
was read, nothing more is told before the end of the call.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .arguments import typed, types_of
from .calls import _FUNCTION, _PARAMETER, _schema
from .pieces import CallPart

_XML = re.compile(r"<tool_call>\s*")
_JSON = re.compile(r'<tool_call>\s*\{\s*"name"\s*:\s*("[^"\\\n]+")\s*,\s*"arguments"\s*:\s*\{')
_TAG = re.compile(r"</?(?:tool_call|function|parameter)")
_TAG_STARTS = tuple(
    f"<{slash}{name}"[:end]
    for name in ("tool_call", "function", "parameter")
    for slash in ("", "/")
    for end in range(1, len(f"<{slash}{name}") + 1)
)
_LONGEST = max(map(len, _TAG_STARTS))
_END = "</parameter>"
_KEY = re.compile(r'\s*("(?:[^"\\]|\\.)*")\s*:\s*(?=\S)', re.S)
_NEXT = re.compile(r"\s*,")
_MARKS = re.compile(r'\\.|["\[\]{}]', re.S)
_PLAIN = re.compile(r'[^"\\]+')
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_DECODER = json.JSONDecoder(strict=False)


class PartialCall:
    """One call, from its first tag on."""

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        self._tools = tools
        self._name: str | None = None
        self._xml = False
        self._over = False  # nothing more is certain
        self._at = 0  # how much of the text is read
        self._key: str | None = None  # of the argument that is being read
        self._is_text = False
        self._keys: set[str] = set()
        self._began = False
        self._out: list[str] = []
        # Of a value that is told when it is over: how far it is known to go on.
        self._scanned, self._depth, self._quoted = 0, 0, False

    def read(self, markup: str) -> CallPart | None:
        """``markup`` is all of the call so far."""
        if not self._over:
            self._read(markup)
        text, self._out = "".join(self._out), []
        if not text or self._name is None:
            return None
        begins, self._began = not self._began, True
        return CallPart(self._name, text, begins)

    def _read(self, markup: str) -> None:
        if self._name is None and not self._head(markup):
            return
        while not self._over:
            if self._key is None and not (self._xml_key if self._xml else self._json_key)(markup):
                return
            if self._key is not None:
                value = self._xml_value if self._xml else self._json_value
                if not value(markup):
                    return

    def _head(self, markup: str) -> bool:
        begun = _JSON.match(markup)
        if begun:
            self._name, self._at = json.loads(begun.group(1)), begun.end()
            return True
        opener = _XML.match(markup)
        head = _FUNCTION.match(markup, opener.end()) if opener else None
        if head is None or head.end() == len(markup):
            return False
        self._name, self._at, self._xml = head.group(1), head.end(), True
        return True

    def _begin(self, key: str) -> None:
        if key in self._keys:
            self._over = True
            return
        self._out.append(f"{', ' if self._keys else '{'}{json.dumps(key, ensure_ascii=False)}: ")
        self._keys.add(key)
        self._key = key

    # <parameter=key>

    def _xml_key(self, markup: str) -> bool:
        head = _PARAMETER.match(markup, self._at)
        if head is None:
            rest = markup[self._at :].lstrip()
            self._over = not ("<parameter".startswith(rest[:10]) and "\n" not in rest)
            return False
        if head.end() == len(markup):
            return False  # a newline that follows belongs to the tag
        self._begin(head.group(1))
        self._at = head.end() + (markup[head.end()] == "\n")
        assert self._name is not None
        self._is_text = types_of(*_schema(self._name, self._tools)(head.group(1))) == {"string"}
        if self._is_text and self._key is not None:
            self._out.append('"')
        return True

    def _xml_value(self, markup: str) -> bool:
        assert self._name is not None and self._key is not None
        tag = _TAG.search(markup, max(self._at, self._scanned - _LONGEST))
        self._scanned = tag.start() if tag else len(markup)
        end = tag.start() if tag else _before_tag(markup, self._at)
        if markup[self._at : end].endswith("\n"):
            end -= 1
        if self._is_text:
            self._out.append(_escaped(markup[self._at : end]))
            self._at = max(self._at, end)
        if tag is None:
            return False
        if not markup.startswith(_END, tag.start()):
            self._over = not _END.startswith(markup[tag.start() :])
            return False
        # It is the value's end where another parameter follows.
        if _PARAMETER.match(markup, tag.start() + len(_END)) is None:
            rest = markup[tag.start() + len(_END) :].lstrip()
            self._over = not ("<parameter".startswith(rest[:10]) and "\n" not in rest)
            return False
        if self._is_text:
            self._out.append('"')
        else:
            value = typed(markup[self._at : end], *_schema(self._name, self._tools)(self._key))
            self._out.append(json.dumps(value, ensure_ascii=False))
        self._at, self._key = tag.start() + len(_END), None
        return True

    # "key": value

    def _json_key(self, markup: str) -> bool:
        at = self._at
        if self._keys:
            comma = _NEXT.match(markup, at)
            if comma is None:
                self._over = bool(markup[at:].strip())
                return False
            at = comma.end()
        head = _KEY.match(markup, at)
        if head is None:
            return False
        try:
            key = json.loads(head.group(1), strict=False)
        except ValueError:
            key = None
        if key is None or _has_half(key):
            self._over = True
            return False
        self._begin(key)
        self._at, self._is_text = head.end(), markup[head.end()] == '"'
        if self._is_text and self._key is not None:
            self._at += 1
            self._out.append('"')
        return True

    def _json_value(self, markup: str) -> bool:
        return self._json_text(markup) if self._is_text else self._json_other(markup)

    def _json_text(self, markup: str) -> bool:
        while self._at < len(markup):
            if markup[self._at] == '"':
                self._out.append('"')
                self._at, self._key = self._at + 1, None
                return True
            found = _PLAIN.match(markup, self._at)
            if found is None:
                found = _ESCAPE.match(markup, self._at)
                if found is None:
                    return False
                if found.group()[2:4].lower() in ("d8", "d9", "da", "db"):
                    found = re.compile(r"\\u.{4}\\u[0-9a-fA-F]{4}").match(markup, self._at)
                    if found is None:
                        return False
            text = json.loads(f'"{found.group()}"', strict=False)
            if _has_half(text):
                self._over = True
                return False
            self._out.append(_escaped(text))
            self._at = found.end()
        return False

    def _json_other(self, markup: str) -> bool:
        if markup[self._at] in "[{" and not self._closed(markup):
            return False
        try:
            value, end = _DECODER.raw_decode(markup, self._at)
        except (ValueError, RecursionError):
            return False
        # A number may go on.
        if not re.compile(r"\s*[,}]").match(markup, end):
            return False
        self._out.append(json.dumps(value, ensure_ascii=False))
        self._at, self._key = end, None
        return True

    def _closed(self, markup: str) -> bool:
        """Whether the list or object that begins here is over; each character is read once."""
        if self._scanned <= self._at:
            self._scanned, self._depth, self._quoted = self._at, 0, False
        for mark in _MARKS.finditer(markup, self._scanned):
            self._scanned = mark.end()
            if mark.group() == '"':
                self._quoted = not self._quoted
            elif not self._quoted and mark.group() in "[{":
                self._depth += 1
            elif not self._quoted and mark.group() in "]}":
                self._depth -= 1
            if self._depth == 0:
                self._scanned = mark.start()  # looked at again with what follows
                self._depth = 1
                return True
        self._scanned = max(self._scanned, len(markup) - markup.endswith("\\"))
        return False


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _has_half(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _before_tag(markup: str, start: int) -> int:
    """Where a tag may have begun; the end of the text where none has."""
    at = markup.rfind("<", max(start, len(markup) - _LONGEST))
    return at if at >= 0 and markup[at:] in _TAG_STARTS else len(markup)
