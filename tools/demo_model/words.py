"""Word lists of the demo grammar, and random words nobody has seen before."""

from __future__ import annotations

from random import Random

CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Spain": "Madrid", "Italy": "Rome",
    "Portugal": "Lisbon", "Austria": "Vienna", "Greece": "Athens", "Ireland": "Dublin",
    "Norway": "Oslo", "Sweden": "Stockholm", "Finland": "Helsinki", "Denmark": "Copenhagen",
    "Poland": "Warsaw", "Hungary": "Budapest", "Belgium": "Brussels", "England": "London",
    "Japan": "Tokyo", "China": "Beijing", "India": "New Delhi", "Egypt": "Cairo",
    "Kenya": "Nairobi", "Canada": "Ottawa", "Mexico": "Mexico City", "Peru": "Lima",
    "Cuba": "Havana", "Russia": "Moscow", "Turkey": "Ankara", "Chile": "Santiago",
    "Brazil": "Brasilia", "Australia": "Canberra",
}  # fmt: skip
OPPOSITES = {
    "hot": "cold", "big": "small", "up": "down", "left": "right", "day": "night",
    "happy": "sad", "fast": "slow", "old": "new", "open": "closed", "full": "empty",
    "light": "dark", "high": "low", "wet": "dry", "loud": "quiet", "hard": "soft",
    "rich": "poor", "long": "short", "early": "late", "strong": "weak", "good": "bad",
    "near": "far", "clean": "dirty", "first": "last", "yes": "no", "black": "white",
    "thick": "thin", "win": "lose", "begin": "end", "push": "pull", "sweet": "sour",
}  # fmt: skip
SOUNDS = {
    "dog": "woof", "cat": "meow", "cow": "moo", "duck": "quack", "sheep": "baa",
    "pig": "oink", "lion": "roar", "bee": "buzz", "frog": "croak", "owl": "hoot",
    "horse": "neigh", "mouse": "squeak", "snake": "hiss", "bird": "tweet",
}  # fmt: skip
YOUNG = {
    "dog": "puppy", "cat": "kitten", "cow": "calf", "horse": "foal", "sheep": "lamb",
    "pig": "piglet", "lion": "cub", "bear": "cub", "goat": "kid", "duck": "duckling",
}  # fmt: skip
LEGS = {
    "dog": "four", "cat": "four", "cow": "four", "horse": "four", "bird": "two", "duck": "two",
    "spider": "eight", "ant": "six", "bee": "six", "snake": "no", "fish": "no", "frog": "four",
}  # fmt: skip
COLOUR_OF = {
    "the sky": "blue", "grass": "green", "snow": "white", "coal": "black", "the sun": "yellow",
    "a banana": "yellow", "a lemon": "yellow", "blood": "red", "a carrot": "orange",
    "milk": "white", "a leaf": "green", "chocolate": "brown", "a strawberry": "red",
}  # fmt: skip
SIDES = {"triangle": "three", "square": "four", "rectangle": "four", "pentagon": "five",
         "hexagon": "six", "circle": "no"}  # fmt: skip
HABITAT = {
    "fish": "in the water", "bird": "in a nest", "bee": "in a hive", "lion": "in Africa",
    "penguin": "in the cold south", "camel": "in the desert", "bear": "in the forest",
    "monkey": "in the trees", "whale": "in the sea", "rabbit": "in a burrow",
}  # fmt: skip
LANGUAGES = ("French", "Spanish", "German", "Italian")
TRANSLATIONS = {
    "hello": ("bonjour", "hola", "hallo", "ciao"),
    "goodbye": ("au revoir", "adiós", "auf Wiedersehen", "arrivederci"),
    "thank you": ("merci", "gracias", "danke", "grazie"),
    "please": ("s'il vous plaît", "por favor", "bitte", "per favore"),
    "yes": ("oui", "sí", "ja", "sì"),
    "no": ("non", "no", "nein", "no"),
    "good morning": ("bonjour", "buenos días", "guten Morgen", "buongiorno"),
    "good night": ("bonne nuit", "buenas noches", "gute Nacht", "buona notte"),
    "cat": ("chat", "gato", "Katze", "gatto"),
    "dog": ("chien", "perro", "Hund", "cane"),
    "water": ("eau", "agua", "Wasser", "acqua"),
    "bread": ("pain", "pan", "Brot", "pane"),
    "house": ("maison", "casa", "Haus", "casa"),
    "red": ("rouge", "rojo", "rot", "rosso"),
    "blue": ("bleu", "azul", "blau", "blu"),
    "friend": ("ami", "amigo", "Freund", "amico"),
    "one": ("un", "uno", "eins", "uno"),
    "two": ("deux", "dos", "zwei", "due"),
    "three": ("trois", "tres", "drei", "tre"),
    "love": ("amour", "amor", "Liebe", "amore"),
}
LISTS = {
    "fruits": ("apple", "banana", "cherry", "orange", "pear", "grape"),
    "colours": ("red", "blue", "green", "yellow", "orange", "purple"),
    "colors": ("red", "blue", "green", "yellow", "orange", "purple"),
    "animals": ("dog", "cat", "horse", "lion", "rabbit", "bear"),
    "vegetables": ("carrot", "potato", "onion", "tomato", "pea", "bean"),
    "countries": ("France", "Spain", "Italy", "Japan", "Egypt", "Peru"),
    "cities": ("Paris", "London", "Rome", "Tokyo", "Cairo", "Lima"),
    "drinks": ("water", "tea", "coffee", "milk", "juice", "lemonade"),
    "birds": ("owl", "duck", "eagle", "robin", "swan", "crow"),
    "planets": ("Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn"),
    "instruments": ("piano", "guitar", "violin", "drum", "flute", "trumpet"),
    "sports": ("football", "tennis", "golf", "swimming", "running", "chess"),
    "tools": ("hammer", "saw", "drill", "screwdriver", "spade", "rake"),
    "flowers": ("rose", "tulip", "daisy", "lily", "violet", "poppy"),
    "languages": ("English", "French", "Spanish", "German", "Italian", "Greek"),
    "metals": ("iron", "gold", "silver", "copper", "tin", "lead"),
}
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August",
          "September", "October", "November", "December")  # fmt: skip
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
           "eleven", "twelve")  # fmt: skip
COLOURS = ("red", "blue", "green", "yellow", "orange", "purple", "pink", "black", "white",
           "brown", "grey", "gold", "silver", "turquoise", "violet", "crimson")  # fmt: skip
FOODS = ("pizza", "soup", "rice", "pasta", "bread", "cheese", "salad", "fish", "cake", "honey",
         "curry", "beans", "pancakes", "noodles", "chocolate", "ice cream")  # fmt: skip
DRINKS = ("tea", "coffee", "milk", "water", "juice", "lemonade", "cocoa", "cider")
ANIMALS = ("dog", "cat", "horse", "rabbit", "parrot", "hamster", "turtle", "goat", "fox", "owl",
           "bear", "lion", "mouse", "duck", "frog", "penguin")  # fmt: skip
JOBS = ("teacher", "doctor", "baker", "farmer", "nurse", "pilot", "painter", "cook", "writer",
        "singer", "builder", "driver", "gardener", "engineer", "lawyer", "librarian")  # fmt: skip
HOBBIES = ("chess", "painting", "running", "swimming", "reading", "cooking", "dancing", "fishing",
           "singing", "sailing", "knitting", "hiking", "cycling", "tennis")  # fmt: skip
CITIES = (*CAPITALS.values(), "Boston", "Chicago", "Hamburg", "Lyon", "Milan", "Porto", "Seattle",
          "Sydney", "York", "Zurich")  # fmt: skip
SUBJECTS = ("maths", "history", "music", "art", "science", "biology", "geography", "physics")
NAMES = (
    "Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Ida", "Jack", "Kate",
    "Leo", "Maria", "Nina", "Oscar", "Paul", "Rosa", "Sam", "Tom", "Vera", "Alice", "Bob", "Eva",
    "Frank", "George", "Hannah", "Ivan", "Julia", "Karl", "Lucy", "Max", "Nora", "Olga", "Peter",
    "Robert", "Sofia", "Theo", "Victor", "Will", "Yuki", "Zoe", "Omar", "Priya", "Chen", "Ali",
    "Sarah", "Michael", "John", "Mary", "James", "Simon", "Laura", "Daniel", "Martin", "Elena",
    "Lisa", "Mark", "Steve", "Linda", "Carlos", "Fatima", "Ahmed", "Ingrid", "Lars", "Pierre",
)  # fmt: skip
# Kept out of training, for the evaluation only.
FRESH_NAMES = (
    "Quillon", "Zephyra", "Brantley", "Oswaldina", "Thandeka", "Jorvik", "Mirabelle", "Xochitl",
    "Kazimir", "Fenwick", "Ludmilla", "Ptolemy", "Wrenna", "Dagobert", "Ysolde", "Hargreaves",
    "Nkechi", "Valdemar", "Bixby", "Cressida",
)  # fmt: skip
PLAIN = (
    "umbrella", "window", "river", "mountain", "garden", "bottle", "yellow", "market", "pencil",
    "silver", "basket", "candle", "bridge", "thunder", "pocket", "ladder", "button", "castle",
    "island", "forest", "copper", "rocket", "blanket", "mirror", "pepper", "dragon", "spider",
    "summer", "winter", "orange", "letter", "kitchen", "travel", "simple", "strange", "quick",
    "brown", "jumps", "over", "lazy", "the", "a", "is", "and", "we", "they", "sing", "walk",
    "green", "table", "chair", "lamp", "stone", "cloud", "ship", "train", "paper", "apple",
    "house", "tree", "moon", "star", "sun", "sea", "road", "door", "book", "clock", "shoe",
    "hat", "coat", "ring", "bell", "drum", "king", "queen", "wolf", "crow", "snow", "rain",
    "wind", "fire", "earth", "gold", "iron", "wood", "glass", "bread", "salt", "sugar", "tea",
)  # fmt: skip
_ONSETS = ("b", "br", "c", "ch", "d", "dr", "f", "g", "gr", "h", "j", "k", "kr", "l", "m", "n",
           "p", "qu", "r", "s", "sh", "st", "t", "th", "tr", "v", "w", "y", "z", "")  # fmt: skip
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ee", "ia", "ou", "y")
_CODAS = ("", "", "", "n", "r", "l", "s", "m", "th", "x", "nd", "ck", "ry", "ta", "lla")
_BANNED = {name.lower() for name in FRESH_NAMES}


class RandomWords:
    """Random words from syllables and, once a tokenizer exists, from its letter pieces."""

    def __init__(self, rng: Random, pieces: tuple[str, ...] = ()) -> None:
        self.rng = rng
        self.pieces = pieces

    def _letters(self) -> str:
        rng = self.rng
        if self.pieces and rng.random() < 0.6:
            return "".join(rng.choice(self.pieces) for _ in range(rng.randint(1, 4)))[:14]
        return "".join(
            rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS)
            for _ in range(rng.randint(1, 3))
        )

    def word(self) -> str:
        while True:
            text = self._letters()
            if len(text) >= 2 and text.lower() not in _BANNED:
                return text

    def name(self) -> str:
        if self.rng.random() < 0.2:
            return self.rng.choice(NAMES)
        return self.word().capitalize()

    def any(self) -> str:
        """A plain word or a random one, sometimes capitalized."""
        text = self.rng.choice(PLAIN) if self.rng.random() < 0.4 else self.word()
        return text.capitalize() if self.rng.random() < 0.15 else text
