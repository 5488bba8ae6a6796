"""What a request asks for that is left out: named to its client, and once a kind in the log."""

import re

from ..terminal import notice

HEADER = "x-mtplx-ignored"
MAX_HEADER = 1024  # characters
MAX_LOGGED = 256  # kinds: clients choose the names

_UNSAFE = re.compile(r"[^A-Za-z0-9_.:/@\[\]-]")
_logged: set[str] = set()


class Ignored:
    """Of one request."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    def add(self, name: str, *, logged: bool = True) -> None:
        """``logged`` is False for what would change nothing here, and so needs no line."""
        name = _UNSAFE.sub("?", name)[:80] or "?"  # an empty name is one, too
        self._names[name] = None
        if logged:
            _log(name)

    @property
    def names(self) -> list[str]:
        return list(self._names)

    @property
    def header(self) -> str:
        """The names, as many as a header may hold."""
        told = ", ".join(self._names)
        if len(told) <= MAX_HEADER:
            return told
        return told[:MAX_HEADER].rpartition(", ")[0] + ", ..."


def _log(name: str) -> None:
    if name in _logged or len(_logged) >= MAX_LOGGED:
        return
    _logged.add(name)
    notice(f"a client asked for {name}, which is not supported here; ignoring it.")
