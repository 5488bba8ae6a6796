"""The threads beside the writer: rebuilding a lost manifest, and upkeep."""

import logging
import math
import threading
import time
from collections.abc import Callable

from ..blobs import Blobs
from ..index.manifest import Manifest
from ..records import StoreLimits
from ..root import StoreRoot
from ..trouble import Trouble
from .reconcile import rebuild
from .schedule import Upkeep

log = logging.getLogger(__name__)

UPKEEP_AFTER_S = 0.3
RETRY_S = 30.0


class Background:
    """Starts each when it is wanted, one of a kind at a time. Any thread may call."""

    def __init__(
        self,
        root: StoreRoot,
        blobs: Blobs,
        limits: StoreLimits,
        stop: threading.Event,
        trouble: Trouble,
    ) -> None:
        self._root = root
        self._blobs = blobs
        self._limits = limits
        self._stop = stop
        self._trouble = trouble
        self._guard = threading.Lock()
        self._rebuilder: threading.Thread | None = None
        self._upkeep: threading.Thread | None = None
        self._tended = -math.inf
        self._failed = -math.inf

    def rebuild(self, manifest: Manifest, at_once: bool = False) -> None:
        """Fill a manifest that was made anew, if ``manifest`` is one.

        One that failed is not tried again with every lookup, unless ``at_once``.
        """
        with self._guard:
            failed_lately = time.monotonic() - self._failed < RETRY_S and not at_once
            if manifest.rebuild_pending and not failed_lately and not _runs(self._rebuilder):
                self._rebuilder = self._start("mtplx-rebuild", lambda: self._rebuild(manifest))

    def rebuilt(self, timeout: float) -> bool:
        """Wait for a rebuild that is under way; False after ``timeout`` seconds."""
        if self._rebuilder is not None:
            self._rebuilder.join(timeout)
        return not _runs(self._rebuilder)

    def tend(self) -> None:
        """Upkeep, unless it is under way or was begun lately."""
        with self._guard:
            now = time.monotonic()
            if now - self._tended >= self._limits.tidy_every_s and not _runs(self._upkeep):
                self._tended = now
                self._upkeep = self._start("mtplx-upkeep", self._tend)

    def _tend(self) -> None:
        # The request that brought this about is still being looked up.
        if not self._stop.wait(UPKEEP_AFTER_S):
            try:
                Upkeep(self._root, self._limits, self._stop).run()
            except Exception as error:
                self._trouble.warn("store maintenance failed", error)

    def join(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        for thread in (self._rebuilder, self._upkeep):
            if thread is not None:
                thread.join(max(deadline - time.monotonic(), 0.0))

    def _rebuild(self, pending: Manifest) -> None:
        manifest = Manifest(self._root, self._limits.write_busy_s)
        try:
            found = rebuild(self._blobs, manifest, self._stop)
            log.info("rebuilt the manifest: %s", found)
            if not self._stop.is_set():
                pending.rebuild_pending = False
        except Exception as error:
            self._failed = time.monotonic()
            self._trouble.warn("the index of the store could not be rebuilt", error)
        finally:
            manifest.close()

    def _start(self, name: str, run: Callable[[], None]) -> threading.Thread | None:
        """A running thread; None at the end of the process, when the next one has to do it."""
        thread = threading.Thread(target=run, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._trouble.note(error)
            return None
        return thread


def _runs(thread: threading.Thread | None) -> bool:
    return thread is not None and thread.is_alive()
