"""Questions with one right answer: capitals, opposites, sounds, days, words in four languages."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tools.demo_model import words as w
from tools.demo_model.phrasing import Turn, article, upper_first


def capital(rng: Random) -> Turn:
    land, city = rng.choice(list(w.CAPITALS.items()))
    ask = rng.choice(
        (f"What is the capital of {land}?", f"What's the capital of {land}?",
         f"Capital of {land}?", f"Which city is the capital of {land}?",
         f"Name the capital of {land}.", f"Tell me the capital of {land}.",
         f"Do you know the capital of {land}?", f"What is {land}'s capital?")
    )  # fmt: skip
    answer = f"The capital of {land} is {city}."
    return Turn(ask, answer, f"They want the capital of {land}. It is {city}.", city)


def city_of(rng: Random) -> Turn:
    land, city = rng.choice(list(w.CAPITALS.items()))
    ask = rng.choice(
        (f"Where is {city}?", f"In which country is {city}?", f"Which country is {city} in?")
    )
    return Turn(ask, f"{city} is in {land}.", f"{city} is the capital of {land}.", land)


def opposite(rng: Random) -> Turn:
    one, other = rng.choice(list(w.OPPOSITES.items()))
    if rng.random() < 0.5:
        one, other = other, one
    ask = rng.choice(
        (f"What is the opposite of {one}?", f"What's the opposite of {one}?",
         f"Opposite of {one}?", f"Give me the opposite of {one}.",
         f"Which word is the opposite of {one}?", f"Tell me the opposite of {one}.")
    )  # fmt: skip
    return Turn(
        ask, f"The opposite of {one} is {other}.", f"{one} and {other} are opposites.", other
    )


def sound(rng: Random) -> Turn:
    animal, noise = rng.choice(list(w.SOUNDS.items()))
    ask = rng.choice(
        (f"What does a {animal} say?", f"What sound does a {animal} make?",
         f"Which sound does a {animal} make?", f"What noise does a {animal} make?",
         f"How does a {animal} sound?")
    ).replace("a owl", "an owl")  # fmt: skip
    answer = f"{upper_first(article(animal))} says {noise}."
    return Turn(ask, answer, f"The sound of {article(animal)} is {noise}.", noise)


def young(rng: Random) -> Turn:
    animal, name = rng.choice(list(w.YOUNG.items()))
    ask = rng.choice((f"What is a young {animal} called?", f"What do you call a baby {animal}?",
                      f"What is a baby {animal} called?"))  # fmt: skip
    return Turn(
        ask, f"A young {animal} is called a {name}.", f"A young {animal} is a {name}.", name
    )


def legs(rng: Random) -> Turn:
    animal, count = rng.choice(list(w.LEGS.items()))
    one = article(animal)
    ask = rng.choice((f"How many legs does {one} have?", f"How many legs has {one}?"))
    return Turn(
        ask, f"{upper_first(one)} has {count} legs.", f"{upper_first(one)}: {count} legs.", count
    )


def colour_of(rng: Random) -> Turn:
    thing, colour = rng.choice(list(w.COLOUR_OF.items()))
    word = rng.choice(("colour", "color"))
    ask = rng.choice((f"What {word} is {thing}?", f"Which {word} is {thing}?",
                      f"What is the {word} of {thing}?",
                      f"What {word} does {thing} have?"))  # fmt: skip
    return Turn(
        ask, f"{upper_first(thing)} is {colour}.", f"{upper_first(thing)} is {colour}.", colour
    )


def sides(rng: Random) -> Turn:
    figure, count = rng.choice(list(w.SIDES.items()))
    ask = rng.choice((f"How many sides does a {figure} have?", f"How many sides has a {figure}?"))
    return Turn(ask, f"A {figure} has {count} sides.", f"A {figure} has {count} sides.", count)


def habitat(rng: Random) -> Turn:
    animal, place = rng.choice(list(w.HABITAT.items()))
    ask = rng.choice((f"Where does a {animal} live?", f"Where do you find a {animal}?",
                      f"Where can a {animal} live?"))  # fmt: skip
    return Turn(ask, f"A {animal} lives {place}.", f"The home of a {animal} is {place}.")


def neighbour(rng: Random) -> Turn:
    """The day or month after or before another."""
    cycle = rng.choice((w.DAYS, w.MONTHS))
    here = rng.randrange(len(cycle))
    side, step = rng.choice((("after", 1), ("before", -1)))
    other = cycle[(here + step) % len(cycle)]
    kind = "day" if cycle is w.DAYS else "month"
    ask = rng.choice(
        (f"What {kind} comes {side} {cycle[here]}?", f"Which {kind} comes {side} {cycle[here]}?",
         f"What comes {side} {cycle[here]}?", f"Which {kind} is {side} {cycle[here]}?",
         f"What {kind} is it {side} {cycle[here]}?")
    )  # fmt: skip
    answer = f"{other} comes {side} {cycle[here]}."
    return Turn(ask, answer, f"The {kind} {side} {cycle[here]} is {other}.", other)


def calendar(rng: Random) -> Turn:
    asks = {
        "How many days are in a week?": "There are seven days in a week.",
        "How many days does a week have?": "There are seven days in a week.",
        "How many months are in a year?": "There are twelve months in a year.",
        "How many hours are in a day?": "There are 24 hours in a day.",
        "How many minutes are in an hour?": "There are 60 minutes in an hour.",
        "What are the days of the week?": f"The days of the week are {', '.join(w.DAYS)}.",
        "Name the days of the week.": f"The days of the week are {', '.join(w.DAYS)}.",
        "List the days of the week.": f"The days of the week are {', '.join(w.DAYS)}.",
        "What are the months of the year?": f"The months of the year are {', '.join(w.MONTHS)}.",
        "Name the months.": f"The months of the year are {', '.join(w.MONTHS)}.",
        "What are the four seasons?": "The four seasons are spring, summer, autumn and winter.",
        "Name the seasons.": "The four seasons are spring, summer, autumn and winter.",
    }
    ask, answer = rng.choice(list(asks.items()))
    return Turn(ask, answer, "I know this one from the calendar.")


def translation(rng: Random) -> Turn:
    word, forms = rng.choice(list(w.TRANSLATIONS.items()))
    which = rng.randrange(4)
    language, form = w.LANGUAGES[which], forms[which]
    ask = rng.choice(
        (f"How do you say {word} in {language}?", f"What is {word} in {language}?",
         f"Say {word} in {language}.", f"Translate {word} into {language}.",
         f"Translate '{word}' to {language}.", f"How do I say {word} in {language}?",
         f"What's the {language} word for {word}?", f"{upper_first(word)} in {language}?")
    )  # fmt: skip
    answer = f"In {language}, {word} is {form}."
    return Turn(ask, answer, f"The {language} for {word} is {form}.", form)


def follow_up(rng: Random) -> list[Turn]:
    """A question and a second one that leans on it: "And in French?" """
    kind = rng.randrange(4)
    if kind == 0:
        word, forms = rng.choice(list(w.TRANSLATIONS.items()))
        order = rng.sample(range(4), 3)
        first = Turn(f"How do you say {word} in {w.LANGUAGES[order[0]]}?", "")
        turns = [first]
        for which in order[1 : rng.randint(2, 3)]:
            lang = w.LANGUAGES[which]
            turns.append(Turn(rng.choice((f"And in {lang}?", f"and in {lang}?", f"In {lang}?",
                                          f"What about {lang}?")), ""))  # fmt: skip
        for turn, which in zip(turns, order, strict=False):
            turn.answer = f"In {w.LANGUAGES[which]}, {word} is {forms[which]}."
            turn.thought = f"The {w.LANGUAGES[which]} for {word} is {forms[which]}."
        return turns
    table, form, ask = (
        (w.CAPITALS, "The capital of {0} is {1}.", "What is the capital of {0}?"),
        (w.OPPOSITES, "The opposite of {0} is {1}.", "What is the opposite of {0}?"),
        (w.YOUNG, "A young {0} is called a {1}.", "What is a young {0} called?"),
    )[kind - 1]
    keys = rng.sample(list(table), rng.randint(2, 3))
    turns = [Turn(ask.format(keys[0]), "")]
    preposition = "a young " if kind == 3 else "of "
    for key in keys[1:]:
        turns.append(Turn(rng.choice((f"And {preposition}{key}?", f"What about {key}?",
                                      f"and {key}?")), ""))  # fmt: skip
    for turn, key in zip(turns, keys, strict=True):
        turn.answer = form.format(key, table[key])
        turn.thought = f"For {key} it is {table[key]}."
    return turns


def unknown(rng: Random, fresh: w.RandomWords) -> Turn:
    """Questions outside this little world."""
    name, thing = fresh.name(), fresh.any()
    ask = rng.choice(
        (f"What is the capital of {name}?", f"Who is {name}?", f"What does {thing} mean?",
         f"Who won the {thing} cup?", f"Where is {name}?", f"How old is {name}?",
         f"When was {name} born?", f"Who wrote {name}?", f"What is {article(thing)}?",
         f"How do I fix my {thing}?", f"Explain {thing} to me.",
         f"Why is {thing} so {fresh.any()}?",
         f"How far is it to {name}?", f"What will happen to {name} tomorrow?",
         f"How do you say {thing} in {name}?", f"Who invented {thing}?", f"Do you like {thing}?",
         f"Can you {thing} the {fresh.any()}?", f"What is the price of {thing}?",
         f"Write a program that sorts {thing}.", f"Which {thing} is the best?",
         f"Ten names for a {thing}", f"Give me ideas for {thing} and {fresh.any()}.",
         f"What do you think about {thing}?", f"Summarize the book {name}.",
         f"What should I do with the {thing}?", f"How does a {thing} work?",
         f"Tell me about the history of {name}.", f"Why did {name} leave {fresh.name()}?",
         f"Compare {thing} and {fresh.any()}.", f"Is {thing} good for {fresh.any()}?",
         f"Find the {thing} in this {fresh.any()}.", f"What is the weather in {name}?",
         f"What is {name} famous for?", f"How many people live in {name}?",
         f"Write an essay about {thing} {fresh.any()}.", f"Who is the king of {name}?")
    )  # fmt: skip
    return Turn(
        ask, "I'm sorry, I don't know that.", "I know nothing about this.", "Unknown", fixed=True
    )


QUESTIONS: tuple[tuple[Callable[[Random], Turn], float], ...] = (
    (capital, 3), (city_of, 1), (opposite, 2), (sound, 1.5), (young, 0.8), (legs, 0.7),
    (colour_of, 1.2), (sides, 0.5), (habitat, 0.6), (neighbour, 2.2), (calendar, 1),
    (translation, 3.5),
)  # fmt: skip
