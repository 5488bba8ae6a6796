"""Where the engine's thread waits for the end of the process.

While Python shuts down, a thread that asks for the interpreter's lock is ended where it stands
(until 3.13). The engine's thread must not be: what MLX keeps for it would be destroyed with it,
which ends the process with "terminate called without an active exception". So it waits inside the
kernel, and who shuts down knows that it does.
"""

import logging
import os
import select
import signal
import sys

_MORE_THAN_A_PIPE_HOLDS = 16 << 20


class Parking:
    """Room for one thread, which never comes back."""

    def __init__(self) -> None:
        self._exit, self._entrance = os.pipe()

    def enter(self) -> None:
        """Wait for ever, without the interpreter's lock."""
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        # One call of the system both says that it has begun and never ends: nobody reads.
        os.write(self._entrance, bytes(_MORE_THAN_A_PIPE_HOLDS))

    def wait(self, timeout: float) -> bool:
        """Whether the thread is inside; waits ``timeout`` seconds for it."""
        poll = select.poll()
        poll.register(self._exit, select.POLLIN)
        return bool(poll.poll(timeout * 1000))


def leave() -> None:
    """End the process at once, as what was interrupted: a thread that cannot be parked would crash
    it. Nothing that is registered to be run at the end runs any more."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue  # closed, or nobody reads
    os._exit(1)
