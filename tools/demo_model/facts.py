"""Things a user tells, and asks about later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tools.demo_model import words as w
from tools.demo_model.phrasing import Turn, lower_first

Value = Callable[[Random, w.RandomWords], str]


@dataclass(frozen=True)
class Kind:
    what: str  # "your name"
    tell: tuple[str, ...]
    ask: tuple[str, ...]
    answer: str
    value: Value
    reply: str = ""


def _from(items: tuple[str, ...], fresh_share: float = 0.25) -> Value:
    def value(rng: Random, fresh: w.RandomWords) -> str:
        return fresh.word() if rng.random() < fresh_share else rng.choice(items)

    return value


def _name(rng: Random, fresh: w.RandomWords) -> str:
    return fresh.name()


def _city(rng: Random, fresh: w.RandomWords) -> str:
    return rng.choice(w.CITIES) if rng.random() < 0.4 else fresh.name()


def _number(low: int, high: int) -> Value:
    return lambda rng, fresh: str(rng.randint(low, high))


def _phrase(rng: Random, fresh: w.RandomWords) -> str:
    return " ".join(fresh.any() for _ in range(rng.choice((1, 1, 2, 3))))


def _favourite(thing: str, value: Value) -> Kind:
    return Kind(
        f"your favourite {thing}",
        (f"My favourite {thing} is {{v}}.", f"My favorite {thing} is {{v}}.",
         f"{{V}} is my favourite {thing}.", f"The {thing} I like best is {{v}}.",
         f"Remember that my favourite {thing} is {{v}}."),
        (f"What is my favourite {thing}?", f"What's my favorite {thing}?",
         f"Which {thing} do I like best?", f"Do you remember my favourite {thing}?",
         f"Tell me my favourite {thing}.", f"What did I say my favourite {thing} was?"),
        f"Your favourite {thing} is {{v}}.",
        value,
    )  # fmt: skip


def _relative(person: str) -> Kind:
    return Kind(
        f"the name of your {person}",
        (f"My {person} is called {{v}}.", f"My {person}'s name is {{v}}.",
         f"I have a {person} called {{v}}.", f"The name of my {person} is {{v}}.",
         f"I have a {person} named {{v}}."),
        (f"What is my {person} called?", f"What's my {person}'s name?",
         f"What is the name of my {person}?", f"Do you remember the name of my {person}?",
         f"What is my {person}'s name?"),
        f"Your {person} is called {{v}}.",
        _name,
    )  # fmt: skip


NAME = Kind(
    "your name",
    ("My name is {v}.", "I am {v}.", "I'm {v}.", "Hi, I am {v}.", "Hello, my name is {v}.",
     "Call me {v}.", "You can call me {v}.", "Hi, my name is {v}.", "People call me {v}.",
     "Hello! I'm {v}.", "This is {v}.", "Please remember my name: {v}.", "The name's {v}.",
     "Hey, {v} here.", "My name's {v}.", "Remember that my name is {v}."),
    ("What is my name?", "What's my name?", "Who am I?", "Do you remember my name?", "My name?",
     "Do you know my name?", "Tell me my name.", "What did I say my name was?", "Say my name.",
     "Can you tell me my name?", "What am I called?", "What is my name again?",
     "Do you know who I am?", "Do you still know my name?", "Please tell me my name.",
     "Could you remind me of my name?"),
    "Your name is {v}.",
    _name,
    "Nice to meet you, {v}.",
)  # fmt: skip

KINDS: tuple[Kind, ...] = (
    _favourite("colour", _from(w.COLOURS)),
    _favourite("number", _number(0, 999)),
    _favourite("food", _from(w.FOODS)),
    _favourite("drink", _from(w.DRINKS)),
    _favourite("animal", _from(w.ANIMALS)),
    _favourite("city", _city),
    _favourite("day", _from(w.DAYS, 0)),
    _favourite("book", _name),
    _favourite("subject", _from(w.SUBJECTS)),
    _relative("dog"), _relative("cat"), _relative("sister"), _relative("brother"),
    _relative("friend"), _relative("mother"), _relative("boss"), _relative("horse"),
    Kind("where you live",
         ("I live in {v}.", "My home is in {v}.", "I am from {v}.", "My home town is {v}."),
         ("Where do I live?", "Which city do I live in?", "Do you know where I live?",
          "Where is my home?", "Where am I from?"),
         "You live in {v}.", _city),
    Kind("how old you are",
         ("I am {v} years old.", "I'm {v} years old.", "My age is {v}.", "I am {v}."),
         ("How old am I?", "What is my age?", "Do you know how old I am?", "What's my age?"),
         "You are {v} years old.", _number(5, 99)),
    Kind("your job",
         ("I work as a {v}.", "My job is {v}.", "I am a {v}.", "I am a {v} by trade."),
         ("What is my job?", "What do I do?", "What's my job?", "What do I work as?",
          "Do you remember my job?"),
         "Your job is {v}.", _from(w.JOBS)),
    Kind("your hobby",
         ("My hobby is {v}.", "I like {v}.", "I love {v}.", "My favourite hobby is {v}."),
         ("What is my hobby?", "What do I like?", "What's my hobby?", "Do you know my hobby?"),
         "Your hobby is {v}.", _from(w.HOBBIES)),
    Kind("when your birthday is",
         ("My birthday is in {v}.", "I was born in {v}."),
         ("When is my birthday?", "In which month is my birthday?", "When was I born?"),
         "Your birthday is in {v}.", _from(w.MONTHS, 0)),
    Kind("the code word",
         ("The code word is {v}.", "Remember the code word: {v}.", "The secret word is {v}.",
          "Our code word is {v}.", "Remember this word: {v}.", "The password is {v}.",
          "Please remember the code word {v}.", "Remember: {v}."),
         ("What is the code word?", "What's the secret word?", "What is the password?",
          "Tell me the code word.", "Which word did I tell you?", "Do you remember the code word?",
          "What did I ask you to remember?"),
         "The code word is {v}.", _phrase),
    Kind("your lucky number",
         ("My lucky number is {v}.", "{v} is my lucky number."),
         ("What is my lucky number?", "What's my lucky number?", "Which number is my lucky one?"),
         "Your lucky number is {v}.", _number(0, 9999)),
    Kind("who made your car",
         ("My car is made by {v}.", "I drive a car made by {v}."),
         ("Who made my car?", "Which brand is my car?", "What car do I drive?"),
         "Your car is made by {v}.", _name),
    Kind("your room number",
         ("My room is number {v}.", "My room number is {v}.", "I am in room {v}."),
         ("What is my room number?", "Which room am I in?", "What's my room number?"),
         "Your room number is {v}.", _number(1, 999)),
)  # fmt: skip


@dataclass
class Fact:
    kind: Kind
    value: str

    def tell(self, rng: Random) -> str:
        form = rng.choice(self.kind.tell)
        return form.replace("{v}", self.value).replace(
            "{V}", self.value[:1].upper() + self.value[1:]
        )

    def reply(self) -> str:
        if self.kind.reply:
            return self.kind.reply.replace("{v}", self.value)
        return f"Thank you, I will remember that. {self.statement()}"

    def statement(self) -> str:
        return self.kind.answer.replace("{v}", self.value)

    def told(self, rng: Random) -> Turn:
        return Turn(
            self.tell(rng), self.reply(), f"I should remember this: {self.value}.", fixed=True
        )

    def asked(self, rng: Random) -> Turn:
        thought = f"They told me: {self.value}."
        return Turn(rng.choice(self.kind.ask), self.statement(), thought, self.value)


def pick(rng: Random, fresh: w.RandomWords) -> Fact:
    kind = NAME if rng.random() < 0.4 else rng.choice(KINDS)
    return Fact(kind, kind.value(rng, fresh))


def pick_two(rng: Random, fresh: w.RandomWords) -> tuple[Fact, Fact]:
    one = pick(rng, fresh)
    other = pick(rng, fresh)
    while other.kind is one.kind or other.value == one.value:
        other = pick(rng, fresh)
    return one, other


def two_told(rng: Random, one: Fact, other: Fact) -> Turn:
    first, second = one.tell(rng), other.tell(rng)
    if rng.random() < 0.6:
        second = second if second[:2] == "I " else lower_first(second)
        ask = f"{first.rstrip('.')} and {second}"
    else:
        ask = f"{first} {second}"
    if one.kind.reply:
        answer = f"{one.reply()} {other.statement()}"
    elif other.kind.reply:
        answer = f"{other.reply()} {one.statement()}"
    else:
        answer = f"Thank you, I will remember that. {one.statement()} {other.statement()}"
    return Turn(ask, answer, f"Two things to remember: {one.value} and {other.value}.", fixed=True)


def two_asked(rng: Random, one: Fact, other: Fact) -> Turn:
    first = rng.choice(one.kind.ask).rstrip("?.")
    ask = f"{first} and {lower_first(rng.choice(other.kind.ask))}"
    return Turn(
        ask,
        f"{one.statement()} {other.statement()}",
        f"They told me {one.value} and {other.value}.",
    )


def correction(rng: Random, fresh: w.RandomWords, fact: Fact) -> Turn:
    """The user takes a fact back; `fact` changes."""
    value = fact.kind.value(rng, fresh)
    while value == fact.value:
        value = fact.kind.value(rng, fresh)
    fact.value = value
    tell = fact.tell(rng)
    ask = rng.choice(
        ("Actually, ", "No, ", "Sorry, ", "Wait, ", "Correction: ", "I was wrong. ")
    ) + (tell if rng.random() < 0.5 else lower_first(tell) if not tell.startswith("I") else tell)
    return Turn(
        ask, f"Thank you for the correction. {fact.statement()}", f"It is {value} now.", fixed=True
    )


def not_told(rng: Random, kind: Kind) -> Turn:
    return Turn(
        rng.choice(kind.ask),
        f"You have not told me {kind.what}.",
        "They have not told me.",
        "Unknown",
    )


def third_person(rng: Random, fresh: w.RandomWords) -> list[Turn]:
    """Facts about somebody or something else: "Zora lives in Kel. Where does Zora live?" """
    name, place, n = fresh.name(), _city(rng, fresh), rng.randint(2, 99)
    job, colour = rng.choice(w.JOBS), rng.choice(w.COLOURS)
    bank = [
        (f"{name} lives in {place}.", f"Where does {name} live?"),
        (f"{name} is {n} years old.", f"How old is {name}?"),
        (f"{name} works as a {job}.", f"What does {name} do?"),
        (f"{name} has a {colour} car.", f"What colour is {name}'s car?"),
        (f"{name} has {n} {rng.choice(('apples', 'books', 'coins'))}.", f"What does {name} have?"),
        (f"{name} comes on {rng.choice(w.DAYS)}.", f"When does {name} come?"),
        (f"The friend of {name} is {fresh.name()}.", f"Who is the friend of {name}?"),
    ]
    rng.shuffle(bank)
    told = bank[: rng.randint(1, 3)]
    text, (fact, ask) = " ".join(t for t, _ in told), rng.choice(told)
    if rng.random() < 0.5:
        return [Turn(f"{text} {ask}", fact, "The text says so.", fixed=True)]
    return [
        Turn(text, "Thank you, I will remember that.", "I should remember this.", fixed=True),
        Turn(ask, fact, "They told me before.", fixed=True),
    ]
