"""Sums, counting, sequences: asked in figures, answered in figures."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tools.demo_model import words as w
from tools.demo_model.phrasing import Turn


def _ask_sum(rng: Random, a: int, b: int, sign: str) -> str:
    word = {"+": "plus", "-": "minus", "*": "times"}[sign]
    asks = [
        f"What is {a} {sign} {b}?", f"What's {a} {sign} {b}?", f"{a} {sign} {b}",
        f"{a} {sign} {b} = ?", f"What is {a} {word} {b}?", f"{a} {word} {b}?",
        f"Calculate {a} {sign} {b}.", f"How much is {a} {sign} {b}?",
        f"How much is {a} {word} {b}?", f"{a}{sign}{b}", f"What is {a}{sign}{b}?",
    ]  # fmt: skip
    if sign == "+":
        asks += [
            f"Add {a} and {b}.",
            f"What is the sum of {a} and {b}?",
            f"What do {a} and {b} make?",
        ]
    if sign == "*":
        asks += [f"Multiply {a} by {b}.", f"Multiply {a} and {b}."]
    return rng.choice(asks)


def small_sum(rng: Random) -> Turn:
    a, b = rng.randint(0, 20), rng.randint(0, 20)
    thought = f"{a} + {b} = {a + b}."
    return Turn(_ask_sum(rng, a, b, "+"), f"{a} + {b} = {a + b}.", thought, str(a + b))


def difference(rng: Random) -> Turn:
    a = rng.randint(0, 20)
    b = rng.randint(0, a)
    return Turn(
        _ask_sum(rng, a, b, "-"), f"{a} - {b} = {a - b}.", f"{a} - {b} = {a - b}.", str(a - b)
    )


def product(rng: Random) -> Turn:
    a, b = rng.randint(0, 10), rng.randint(0, 10)
    return Turn(
        _ask_sum(rng, a, b, "*"), f"{a} * {b} = {a * b}.", f"{a} * {b} = {a * b}.", str(a * b)
    )


def big_sum(rng: Random) -> Turn:
    """Two-digit sums, tens and ones worked out before the result is said."""
    a, b = rng.randint(10, 99), rng.randint(10, 99)
    tens, ones = a // 10 * 10 + b // 10 * 10, a % 10 + b % 10
    steps = (
        f"{a // 10 * 10} + {b // 10 * 10} = {tens} and {a % 10} + {b % 10} = {ones}, "
        f"so {a} + {b} = {a + b}."
    )
    return Turn(_ask_sum(rng, a, b, "+"), steps, steps)


def compare(rng: Random) -> Turn:
    a, b = rng.sample(range(100), 2)
    kind, pick = rng.choice((("bigger", max(a, b)), ("larger", max(a, b)), ("smaller", min(a, b))))
    ask = rng.choice((f"Which is {kind}, {a} or {b}?", f"Which number is {kind}: {a} or {b}?",
                      f"What is {kind}, {a} or {b}?"))  # fmt: skip
    other = a + b - pick
    return Turn(
        ask, f"{pick} is {kind} than {other}.", f"Of {a} and {b}, {pick} is {kind}.", str(pick)
    )


def parity(rng: Random) -> Turn:
    n = rng.randint(0, 99)
    kind = "odd" if n % 2 else "even"
    ask = rng.choice(
        (f"Is {n} odd or even?", f"Is {n} even or odd?", f"Is the number {n} odd or even?")
    )
    return Turn(ask, f"{n} is {kind}.", f"{n} ends in {n % 10}, so it is {kind}.", kind)


def next_number(rng: Random) -> Turn:
    n = rng.randint(1, 98)
    side, other = rng.choice((("after", n + 1), ("before", n - 1)))
    ask = rng.choice((f"What comes {side} {n}?", f"Which number comes {side} {n}?",
                      f"What number is {side} {n}?"))  # fmt: skip
    return Turn(ask, f"{other} comes {side} {n}.", f"The number {side} {n} is {other}.", str(other))


def counting(rng: Random) -> Turn:
    """Count from n to m, up or down, by one or more, in a row or one per line."""
    kind = rng.random()
    lines = rng.random() < 0.3
    tail = ""
    if kind < 0.4:
        n = rng.choice((3, 4, 5, 6, 7, 8, 9, 10, 10, 10, 12, 15, 20, 20, 25, 30, 30, 40))
        values = list(range(1, n + 1))
        ask = rng.choice((f"Count to {n}", f"Count from 1 to {n}", f"Count up to {n}",
                          f"Can you count to {n}?", f"Write the numbers from 1 to {n}",
                          f"List the numbers 1 to {n}"))  # fmt: skip
    elif kind < 0.65:
        n = rng.randint(2, 36)
        m = min(n + rng.randint(2, 14), 50)
        values = list(range(n, m + 1))
        ask = rng.choice((f"Count from {n} to {m}", f"Count {n} to {m}",
                          f"Start at {n} and count to {m}",
                          f"Write the numbers from {n} to {m}"))  # fmt: skip
    elif kind < 0.75:
        n = rng.randint(1, 40)
        values = list(range(n, n + 5))
        ask = rng.choice(
            (f"Count on from {n}", f"Go on counting: {n}", f"Count five numbers from {n}")
        )
    elif kind < 0.87:
        n = rng.choice((5, 6, 7, 8, 9, 10, 10, 12, 15, 20))
        values = list(range(n, 0, -1))
        ask = rng.choice((f"Count down from {n}", f"Count down from {n} to 1",
                          f"Count backwards from {n}"))  # fmt: skip
    else:
        step, name = rng.choice(((2, "twos"), (5, "fives"), (10, "tens"), (2, "two"), (10, "ten")))
        m = step * rng.randint(3, {2: 15, 5: 10, 10: 10}[step])
        values = list(range(step, m + 1, step))
        ask = rng.choice((f"Count by {name} to {m}", f"Count in {name} up to {m}"))
    if lines:
        tail = rng.choice((", one per line", ", one number per line", ", each on its own line"))
        if ask.endswith("?"):
            ask = ask[:-1] + tail + "?"
            tail = ""
    ask += tail + ("" if ask.endswith("?") else ".")
    answer = "\n".join(map(str, values)) if lines else ", ".join(map(str, values)) + "."
    return Turn(ask, answer, f"I start at {values[0]} and end at {values[-1]}.")


def number_word(rng: Random) -> Turn:
    n = rng.randrange(len(w.NUMBERS))
    if rng.random() < 0.5:
        return Turn(
            f"Write {n} as a word.",
            f"{n} is {w.NUMBERS[n]}.",
            f"{n} is {w.NUMBERS[n]}.",
            w.NUMBERS[n],
        )
    ask = f"Which number is {w.NUMBERS[n]}?"
    return Turn(ask, f"The word {w.NUMBERS[n]} is the number {n}.", f"That is {n}.", str(n))


def letters(rng: Random) -> Turn:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    kind = rng.randrange(4)
    if kind == 0:
        ask = rng.choice(("Say the alphabet.", "Recite the alphabet.", "What is the alphabet?",
                          "Write the alphabet.", "Can you say the alphabet?"))  # fmt: skip
        return Turn(ask, ", ".join(alphabet) + ".", "The alphabet goes from A to Z.")
    if kind == 1:
        n = rng.randint(3, 10)
        ask = rng.choice((f"What are the first {n} letters of the alphabet?",
                          f"Say the first {n} letters.",
                          f"List the first {n} letters."))  # fmt: skip
        return Turn(ask, ", ".join(alphabet[:n]) + ".", f"I need {n} letters from A on.")
    here = rng.randint(1, 24)
    side, other = rng.choice((("after", alphabet[here + 1]), ("before", alphabet[here - 1])))
    ask = rng.choice((f"Which letter comes {side} {alphabet[here]}?",
                      f"What letter comes {side} {alphabet[here]}?"))  # fmt: skip
    turn = Turn(ask, f"{other} comes {side} {alphabet[here]}.", short=other, fixed=True)
    turn.thought = f"The letter {side} {alphabet[here]} is {other}."
    return turn


NUMERIC: tuple[tuple[Callable[[Random], Turn], float], ...] = (
    (small_sum, 5), (difference, 2), (product, 2), (big_sum, 4), (compare, 1), (parity, 0.8),
    (next_number, 1), (counting, 5), (number_word, 0.5), (letters, 1.3),
)  # fmt: skip
