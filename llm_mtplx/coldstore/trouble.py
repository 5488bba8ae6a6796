"""What went wrong with a store in one process: the last error, and lines for the user."""

import logging
import threading

from .reasons import DropReason, StoreError

log = logging.getLogger(__name__)

NEEDS_THE_USER: tuple[DropReason, ...] = ("disk_full", "low_disk", "write_budget", "no_room")


class Trouble:
    """Any thread may call. A line is printed once a process, however often its cause returns."""

    def __init__(self) -> None:
        self.last_error = ""
        self._lines: set[str] = set()
        self._guard = threading.Lock()

    def note(self, error: Exception) -> None:
        """An error that costs no save: `last_error` alone has it."""
        self.last_error = str(error) or type(error).__name__

    def warn(self, line: str, error: Exception) -> None:
        """As `note`, and say so once."""
        self.note(error)
        if self._first(line):
            log.warning("%s: %s", line, words(error))

    def not_saved(self, reason: DropReason, error: Exception) -> None:
        """One line for the first save that fails, and one for each thing that only the user can
        change."""
        self.note(error)
        if reason in NEEDS_THE_USER:
            if self._first(reason):
                self._first("not saved")
                log.warning(
                    "nothing is being saved to disk; answers are not affected: %s", words(error)
                )
        elif self._first("not saved"):
            log.warning("a turn was not saved to disk; answers are not affected: %s", words(error))

    def _first(self, line: str) -> bool:
        with self._guard:
            if line in self._lines:
                return False
            self._lines.add(line)
            return True


def words(error: Exception) -> str:
    """The error's text; its type too where the text alone says too little."""
    if isinstance(error, (OSError, StoreError)) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
