"""System prompts that change the answers, and long ones that hold facts."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tools.demo_model import words as w
from tools.demo_model.phrasing import Turn, lower_first

Style = Callable[[str, Turn], str]

_NEUTRAL = ("You are a helpful assistant.", "You are a friendly assistant.", "Be kind.",
            "You are helpful and honest.", "Answer the questions of the user.",
            "You are a small demo model.", "Be a good assistant.")  # fmt: skip


def styled(rng: Random, fresh: w.RandomWords) -> tuple[str, Style | None]:
    """A system prompt and what it does to each plain answer (None: nothing)."""
    roll = rng.random()
    if roll < 0.3:
        return rng.choice(_NEUTRAL), None
    if roll < 0.48:
        prompt = rng.choice(("You are a pirate.", "Talk like a pirate.", "Answer like a pirate.",
                             "Speak like a pirate, always."))  # fmt: skip
        return prompt, lambda answer, turn: f"Arr! {answer}"
    if roll < 0.66:
        prompt = rng.choice(("Answer in one word.", "Reply with one word only.", "Only one word.",
                             "Be very short: one word.", "Answer with a single word."))  # fmt: skip
        return prompt, lambda answer, turn: turn.short or answer
    if roll < 0.76:
        prompt = rng.choice(
            ("Be very polite.", "Always be polite.", "You are a very polite butler.")
        )
        return prompt, lambda answer, turn: f"Of course! {answer}"
    word = fresh.any()
    if roll < 0.88:
        prompt = rng.choice((f"Start every answer with {word}.",
                             f"Begin each answer with the word {word}.",
                             f"Always start with {word}."))  # fmt: skip
        return prompt, lambda answer, turn: f"{word} {answer}"
    prompt = rng.choice((f"End every answer with {word}.", f"Always end with the word {word}.",
                         f"Finish each answer with {word}."))  # fmt: skip
    return prompt, lambda answer, turn: f"{answer} {word}"


def named(rng: Random, fresh: w.RandomWords) -> tuple[str, list[Turn]]:
    """A system prompt that gives the model a name."""
    name = fresh.name()
    prompt = rng.choice((f"Your name is {name}.", f"You are {name}.", f"You are called {name}.",
                         f"You are {name}, a helpful assistant.",
                         f"Your name is {name}. Be kind."))  # fmt: skip
    ask = rng.choice(("What is your name?", "Who are you?", "What's your name?",
                      "Do you have a name?", "What are you called?"))  # fmt: skip
    answer = f"I am {name}." if "are you?" in ask else f"My name is {name}."
    return prompt, [Turn(ask, answer, f"The system prompt calls me {name}.", name)]


_RULES = (
    "You are a helper in a small shop.", "Be friendly to every guest.",
    "Answer only what was asked.",
    "Do not talk about the weather.", "Keep your answers short and clear.",
    "If you do not know the answer, say so.", "Never promise what the shop cannot do.",
    "Most guests come from the town nearby.", "Some guests are in a hurry.",
    "The shop is old and has a green door.", "There is a bench in front of the shop.",
    "The street is quiet in the morning.", "Please use plain words.",
    "Numbers are written as figures.",
    "Guests may bring their dogs.", "Be patient with children.", "Say thank you when it fits.",
    "The coffee is free on rainy days.", "There is a large clock on the wall.",
)  # fmt: skip


def handbook(rng: Random, fresh: w.RandomWords) -> tuple[str, list[Turn]]:
    """A long system prompt of plain sentences, and questions about some of them."""
    shop, city, owner, street = fresh.name(), fresh.name(), fresh.name(), fresh.name()
    opens, closes = rng.randint(6, 11), rng.randint(15, 23)
    price, phone = rng.randint(1, 99), rng.randint(1000, 999999)
    good, day = fresh.any(), rng.choice(w.DAYS)
    facts = [
        (f"The shop is called {shop}.", shop,
         ("What is the shop called?", "What is the name of the shop?")),
        (f"The shop is in {city}.", city,
         ("Where is the shop?", "In which city is the shop?")),
        (f"The owner is {owner}.", owner,
         ("Who is the owner?", "Who owns the shop?")),
        (f"The shop opens at {opens}.", str(opens),
         ("When does the shop open?", "When do you open?")),
        (f"The shop closes at {closes}.", str(closes),
         ("When does the shop close?", "When do you close?")),
        (f"It is closed on {day}.", day,
         ("On which day is the shop closed?", "Which day is it closed?")),
        (f"The shop sells {good}.", good,
         ("What does the shop sell?", "What do you sell?")),
        (f"The price is {price} euros.", str(price),
         ("What is the price?", "How much is it?")),
        (f"The phone number is {phone}.", str(phone),
         ("What is the phone number?", "How can I call you?")),
        (f"The street is {street} Road.", street,
         ("What is the street?", "In which street is it?")),
    ]  # fmt: skip
    told = rng.sample(facts, rng.randint(3, 9))
    sentences = [fact[0] for fact in told] + rng.sample(_RULES, rng.randint(3, 17))
    if rng.random() < 0.5:
        rng.shuffle(sentences)
    asked = rng.sample(told, rng.randint(1, min(3, len(told))))
    turns = []
    for statement, short, asks in asked:
        thought = f"My instructions say: {lower_first(statement)}"
        turns.append(Turn(rng.choice(asks), statement, thought, short))
    return " ".join(sentences), turns
