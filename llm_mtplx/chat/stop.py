"""Stop strings in a stream of text."""

from collections.abc import Sequence


class StopScanner:
    """Passes text on up to the first stop string, holding back what may be its beginning.

    The stop string that is complete first wins; of several complete at one character, the
    longest. So the result does not depend on how the text is cut into chunks.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""
        self.emitted = 0  # characters passed on
        self.stopped = False
        self.found: str | None = None  # the stop string that ended the text

    def add(self, text: str) -> str:
        """Returns what may be shown; nothing any more once stopped."""
        if self.stopped:
            return ""
        buffer = self._held + text
        found = [(buffer.find(stop), stop) for stop in self._stops]
        ends = [(start + len(stop), start, stop) for start, stop in found if start >= 0]
        if ends:
            _, start, self.found = min(ends)
            self.stopped = True
            self._held = ""
            return self._pass(buffer[:start])
        hold = self._possible_start(buffer)
        self._held = buffer[len(buffer) - hold :]
        return self._pass(buffer[: len(buffer) - hold])

    def finish(self) -> str:
        """The text ended without a stop string: what was held back."""
        held, self._held = self._held, ""
        return self._pass(held)

    def skip(self, length: int) -> str:
        """Characters in which no stop string is looked for. Returns what was held back."""
        held = self.finish()
        self.emitted += length
        return held

    def _possible_start(self, buffer: str) -> int:
        longest = max((len(stop) - 1 for stop in self._stops), default=0)
        for length in range(min(longest, len(buffer)), 0, -1):
            tail = buffer[len(buffer) - length :]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0

    def _pass(self, text: str) -> str:
        self.emitted += len(text)
        return text
