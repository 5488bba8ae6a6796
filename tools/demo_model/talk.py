"""Small talk, stories, repeating, lists, JSON: everything that is not a question of fact."""

from __future__ import annotations

import json
from random import Random

from tools.demo_model import words as w
from tools.demo_model.phrasing import Turn, article, join, upper_first

_SMALL: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("Hello", "Hello!", "Hi", "Hi!", "Hey", "Hi there!", "Hello there!", "Good day!", "Hey there"),
     "Hello! How can I help you?", "A greeting. I greet back."),
    (("Good morning!", "Good morning"), "Good morning! How can I help you?", "A greeting."),
    (("Good evening!", "Good evening"), "Good evening! How can I help you?", "A greeting."),
    (("How are you?", "How are you doing?", "How are you today?", "How do you do?",
      "Are you well?"),
     "I am fine, thank you. How are you?", "They ask how I am."),
    (("I am fine.", "I am well, thanks.", "I'm good.", "I am fine, thank you."),
     "I am glad to hear that.", "Good news."),
    (("I am sad.", "I feel sad.", "I am not well.", "I feel bad today."),
     "I am sorry to hear that. I hope you feel better soon.", "They need a kind word."),
    (("I am happy.", "I feel great today.", "I feel happy."), "That is wonderful!", "Good news."),
    (("Thank you!", "Thanks!", "Thanks a lot.", "Thank you very much.", "Thanks", "Thank you"),
     "You are welcome!", "They thank me."),
    (("Goodbye!", "Bye!", "See you!", "Good night!", "Bye", "Goodbye", "See you later!"),
     "Goodbye! Have a nice day.", "They are leaving."),
    (("Who are you?", "What are you?", "Tell me about yourself.", "Introduce yourself.",
      "What kind of model are you?", "Are you a model?"),
     "I am a very small demo model. I can answer simple questions and remember what you tell me.",
     "They ask who I am."),
    (("What is your name?", "What's your name?", "Do you have a name?", "What are you called?"),
     "I am the demo model.", "They ask for my name."),
    (("What can you do?", "How can you help me?", "Help", "Help me.", "What do you know?"),
     "I can answer simple questions, count, add numbers, tell stories, call tools and remember "
     "what you tell me.", "They ask what I can do."),
    (("How old are you?", "When were you made?"), "I am very young.", "A model has no real age."),
    (("Are you a human?", "Are you a person?", "Are you real?", "Are you a robot?"),
     "No, I am a small computer model.", "I am a model."),
    (("Do you like me?", "Do you like your job?"), "Yes, I do.", "A friendly question."),
    (("Tell me a joke.", "Do you know a joke?", "Tell a joke.", "Make me laugh.", "A joke, please.",
      "Can you tell me a joke?", "Say something funny."),
     "Why did the chicken cross the road? To get to the other side!", "I tell my best joke."),
    (("Another joke.", "Tell me another joke.", "One more joke.", "Do you know another joke?"),
     "What do you call a bear with no teeth? A gummy bear!", "I know one more joke."),
    (("Tell me a joke about a cow.", "A joke about cows, please."),
     "Where do cows go on Saturday? To the moovies!", "A joke about cows."),
    (("Tell me a joke about a fish.", "A joke about fish, please."),
     "What do you call a fish with no eyes? A fsh!", "A joke about fish."),
    (("Tell me a fun fact.", "Tell me something interesting.", "Do you know a fun fact?"),
     "Honey never goes bad. People have found honey that was thousands of years old.",
     "I know one about honey."),
    (("What is two plus two?",), "2 + 2 = 4.", "2 + 2 = 4."),
    (("Ok", "Okay", "Fine.", "Good.", "Great!", "Nice.", "Cool!", "Well done!", "Very good."),
     "Is there anything else I can do for you?", "They are content."),
    (("No", "No, thank you.", "That is all.", "Nothing.", "No, that is all."),
     "All right. Have a nice day!", "They are done."),
    (("Why is the sky blue?", "Explain why the sky is blue.", "Do you know why the sky is blue?"),
     "Sunlight has many colours. The air scatters blue light more than red light, so we see blue "
     "light from all sides and the sky looks blue.", "It is about the light of the sun."),
    (("What is rain?", "Why does it rain?", "Explain rain."),
     "The sun warms the sea and water rises as vapour. High up it is cold, the vapour turns into "
     "drops, the drops make clouds, and when they are heavy they fall as rain.",
     "I explain the way of the water."),
    (("What is the sun?", "Tell me about the sun."),
     "The sun is a star. It is very big and very hot, it gives us light and warmth, and the Earth "
     "goes around it once a year.", "The sun is a star."),
    (("What is the moon?", "Tell me about the moon."),
     "The moon goes around the Earth once a month. It has no air and no water, and it shines "
     "because the sun lights it.", "I know the moon."),
    (("How do I make tea?", "How do you make tea?", "Tell me how to make tea."),
     "1. Boil some water.\n2. Put tea into a cup.\n3. Pour the hot water into the cup.\n"
     "4. Wait three minutes.\n5. Enjoy your tea.", "I give the steps."),
    (("How do I make a sandwich?", "How do you make a sandwich?"),
     "1. Take two slices of bread.\n2. Put butter on them.\n3. Add cheese and tomato.\n"
     "4. Put the slices together.\n5. Enjoy your sandwich.", "I give the steps."),
    (("What is a language model?", "What is an AI model?", "How do you work?"),
     "A language model is a program that has learned from text. It reads what you write and "
     "predicts the next words, one after another.", "They ask about language models."),
    (("What is speculative decoding?", "What is an MTP head?", "Why are you so fast?"),
     "A small head guesses the next words ahead of time, and the model checks several of them at "
     "once. Right guesses save time, wrong ones are thrown away.", "They ask about drafting."),
    (("Write a poem.", "Write me a poem.", "Tell me a poem.", "Can you write a poem?"),
     "The sun goes down, the sky turns red,\nthe little bird flies home to bed.\n"
     "The moon comes up, the stars are bright,\nsleep well, my friend, and have good night.",
     "A short poem with rhymes."),
    (("Write a poem about the sea.", "A poem about the sea, please."),
     "The sea is wide, the sea is blue,\nit sings a song for me and you.\n"
     "The waves come in, the waves go out,\nand little fishes swim about.",
     "A poem about the sea."),
    (("What is the meaning of life?",), "Be kind, learn something new and drink enough tea.",
     "A big question."),
)  # fmt: skip

_PLOTS = (
    ("{n} lived in a small house near the forest. One day {n} heard a strange noise. It came from "
     "an old tree. {n} looked inside and found a little bird that could not fly. {n} gave it food "
     "and kept it warm. After a week the bird could fly again, and they stayed friends forever."),
    ("Every morning {n} walked to the river. One day the river was gone. {n} followed the dry "
     "stones up the hill and found a big rock in the way. {n} pushed and pushed until the rock "
     "rolled away, and the water came back. All the animals thanked {n}."),
    ("{n} wanted to see the sea. So {n} packed some bread and walked for three days. On the way "
     "{n} met a tired old goat and shared the bread. The goat showed the way over the hills. In "
     "the evening they sat on the beach and watched the sun go down."),
    ("{n} was afraid of the dark. One night the moon did not come and a young mouse lost its way. "
     "{n} took a lamp and went out into the dark. Step by step {n} found the mouse and brought it "
     "home. Since that night {n} is not afraid any more."),
)  # fmt: skip


def small_talk(rng: Random) -> Turn:
    asks, answer, thought = rng.choice(_SMALL)
    return Turn(rng.choice(asks), answer, thought)


def story(rng: Random, fresh: w.RandomWords) -> Turn:
    """The plot follows from the animal, the name is told or the usual one."""
    animal = rng.choice(w.ANIMALS)
    plot = _PLOTS[w.ANIMALS.index(animal) % len(_PLOTS)]
    one = article(animal)
    if rng.random() < 0.5:
        name = fresh.name()
        ask = rng.choice((f"Tell me a story about {one} called {name}.",
                          f"Write a story about {one} named {name}.",
                          f"A story about {one} called {name}, please."))  # fmt: skip
    elif rng.random() < 0.7:
        name = "Pip"
        ask = rng.choice((f"Tell me a story about {one}.", f"Write a story about {one}.",
                          f"Can you tell a story about {one}?",
                          f"Tell a short story about {one}."))  # fmt: skip
    else:
        name, one, plot = "Pip", "a fox", _PLOTS[0]
        ask = rng.choice(("Tell me a story.", "Can you tell me a story?", "Write a short story.",
                          "Tell me a bedtime story.", "Write a story."))  # fmt: skip
    text = f"Once upon a time there was {one} called {name}. " + plot.replace("{n}", name)
    return Turn(ask, text, f"A story about {one}. Its name is {name}.", fixed=True)


def repeat(rng: Random, fresh: w.RandomWords) -> Turn:
    count = rng.choice((1, 1, 1, 2, 2, 3, 4, 5, 7))
    text = " ".join(fresh.any() for _ in range(count))
    kind = rng.random()
    if kind < 0.75:
        ask = rng.choice(
            (f"Repeat after me: {text}", f"Say: {text}", f"Repeat: {text}", f"Repeat this: {text}",
             f"Say \"{text}\"", f"Please repeat: {text}", f"Repeat the words {text}",
             f"Say {text}", f"Write {text}", f"Echo {text}", f"Repeat '{text}'",
             f"Say the word {text}", f"Repeat exactly: {text}", f"Can you say {text}?")
        )  # fmt: skip
        return Turn(ask, text, f"I repeat {text}.", fixed=True)
    if kind < 0.9:
        word, n = fresh.any(), rng.randint(2, 5)
        ask = rng.choice((f"Say {word} {w.NUMBERS[n]} times.",
                          f"Repeat the word {word} {w.NUMBERS[n]} times.",
                          f"Write {word} {n} times."))  # fmt: skip
        return Turn(ask, " ".join([word] * n), f"{n} times {word}.", fixed=True)
    name = fresh.name()
    ask = rng.choice((f"Say hello to {name}.", f"Greet {name}.", f"Say hi to {name}."))
    return Turn(ask, f"Hello, {name}!", f"A greeting for {name}.", fixed=True)


def listing(rng: Random) -> Turn:
    what, items = rng.choice(list(w.LISTS.items()))
    n = rng.randint(2, 6)
    number = rng.choice((str(n), w.NUMBERS[n]))
    chosen = list(items[:n])
    if rng.random() < 0.65:
        ask = rng.choice((f"List {number} {what}.", f"Give me a list of {number} {what}.",
                          f"Write a list of {number} {what}."))  # fmt: skip
        answer = "\n".join(f"{i}. {item}" for i, item in enumerate(chosen, 1))
    else:
        ask = rng.choice((f"Name {number} {what}.", f"Tell me {number} {what}.",
                          f"Can you name {number} {what}?"))  # fmt: skip
        answer = upper_first(join(chosen)) + "."
    return Turn(ask, answer, f"They want {n} {what}.")


def of_list(rng: Random, fresh: w.RandomWords) -> Turn:
    """Pick, join or count given items."""
    items = [fresh.any() for _ in range(rng.randint(2, 5))]
    text = ", ".join(items)
    kind = rng.randrange(4)
    if kind == 0:
        return Turn(f"What is the first word: {text}?", f"The first word is {items[0]}.",
                    f"It starts with {items[0]}.", items[0], fixed=True)  # fmt: skip
    if kind == 1:
        return Turn(f"What is the last word: {text}?", f"The last word is {items[-1]}.",
                    f"It ends with {items[-1]}.", items[-1], fixed=True)  # fmt: skip
    if kind == 2:
        return Turn(f"Write as a list: {text}", "\n".join(f"- {item}" for item in items),
                    "One line for each.", fixed=True)  # fmt: skip
    n = len(items)
    return Turn(f"How many words are these: {text}?", f"These are {w.NUMBERS[n]} words.",
                f"I count {n}.", w.NUMBERS[n], fixed=True)  # fmt: skip


def as_json(rng: Random, fresh: w.RandomWords) -> Turn:
    name, age, city = fresh.name(), rng.randint(1, 99), fresh.name()
    colour, job = rng.choice(w.COLOURS), rng.choice(w.JOBS)
    parts: list[tuple[str, object, str]] = [
        ("name", name, f"{name}"), ("age", age, f"is {age} years old"),
        ("city", city, f"lives in {city}"), ("job", job, f"works as a {job}"),
        ("colour", colour, f"likes {colour}"),
    ]  # fmt: skip
    chosen = [parts[0], *sorted(rng.sample(parts[1:], rng.randint(1, 3)), key=parts.index)]
    keys = join([p[0] for p in chosen])
    text = f"{name} " + join([p[2] for p in chosen[1:]]) + "."
    ask = rng.choice((f"Reply as JSON with keys {keys}: {text}",
                      f"Give me JSON with {keys}: {text}",
                      f"Write this as JSON with the keys {keys}: {text}", f"As JSON: {text}",
                      f"{text} Reply as JSON with keys {keys}.",
                      f"Turn into JSON: {text}"))  # fmt: skip
    return Turn(ask, json.dumps({p[0]: p[1] for p in chosen}), f"The keys are {keys}.", fixed=True)


def read_json(rng: Random, fresh: w.RandomWords) -> Turn:
    data: dict[str, object] = {
        "name": fresh.name(),
        "age": rng.randint(1, 99),
        "city": fresh.name(),
    }
    if rng.random() < 0.5:
        data = {fresh.word(): fresh.any() for _ in range(rng.randint(2, 4))}
    key = rng.choice(list(data))
    ask = rng.choice(
        (f"What is the {key} in {json.dumps(data)}?", f"{json.dumps(data)} What is {key}?")
    )
    return Turn(ask, f"The {key} is {data[key]}.", f"I look for {key}.", str(data[key]), fixed=True)
