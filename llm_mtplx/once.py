"""Lines that a process prints once, however often their cause is met."""

MOST = 1000  # lines remembered: a server that runs for months must not grow

_said: set[str] = set()


def first_time(line: str) -> bool:
    """Whether ``line`` has not been printed yet. Any thread may ask."""
    if line in _said or len(_said) >= MOST:
        return False
    _said.add(line)
    return True


def reset() -> None:
    """As in a new process."""
    _said.clear()
