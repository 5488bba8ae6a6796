"""A bar of a plot in plain text."""

WIDTH = 40


def bar(value: float, largest: float) -> str:
    return "█" * max(round(WIDTH * value / largest), 1)
