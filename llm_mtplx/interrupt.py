"""Ctrl-C inside ``llm chat`` ends the answer, not the chat."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import click


def in_chat() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and context.info_name == "chat"


@contextlib.contextmanager
def first_interrupt_in_chat(stop: Callable[[], None]) -> Iterator[None]:
    """Inside ``llm chat`` the first Ctrl-C calls ``stop``, the second does what it always did.

    Elsewhere nothing changes: ``llm prompt`` aborts, as it does with every model.
    """
    if not in_chat() or threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        stop()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
