"""Functions declared by the user, calls to them, and answers made from their results."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from tools.demo_model import words as w
from tools.demo_model.phrasing import Turn, article, join

_TYPES = {"s": "string", "i": "integer", "n": "number"}


@dataclass
class Tool:
    name: str
    description: str
    arguments: dict[str, str]  # name -> s, i or n

    def schema(self, rng: Random, style: int) -> dict[str, Any]:
        """The declaration, in one of the key orders that clients send."""
        properties: dict[str, Any] = {}
        for name, kind in self.arguments.items():
            properties[name] = {"type": _TYPES[kind]}
        if style == 2:
            for name in properties:
                properties[name]["description"] = f"The {name.replace('_', ' ')}"
        parameters: dict[str, Any] = {"properties": properties, "type": "object"}
        if properties:
            parameters = {
                "properties": properties, "required": list(properties), "type": "object"
            }  # fmt: skip
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        if style == 1:
            function = {k: function[k] for k in ("description", "name", "parameters")}
            return {"function": function, "type": "function"}
        if style == 2:
            parameters = {"type": "object", "properties": properties, "required": list(properties)}
            function["parameters"] = parameters
        return {"type": "function", "function": function}


def _value(rng: Random, fresh: w.RandomWords, kind: str) -> Any:
    if kind == "i":
        return rng.randint(0, 10 ** rng.randint(1, 4))
    if kind == "n":
        return round(rng.uniform(0, 100), rng.choice((1, 2)))
    roll = rng.random()
    if roll < 0.4:
        return fresh.name()
    return " ".join(fresh.any() for _ in range(rng.choice((1, 1, 1, 2, 3))))


def _result(rng: Random, fresh: w.RandomWords) -> str:
    roll = rng.random()
    if roll < 0.45:
        return str(rng.randint(0, 10 ** rng.randint(1, 6)))
    if roll < 0.55:
        return str(round(rng.uniform(0, 1000), 2))
    if roll < 0.65:
        return json.dumps({fresh.word(): rng.choice((fresh.any(), rng.randint(0, 999)))})
    return " ".join(fresh.any() for _ in range(rng.randint(1, 4)))


_KNOWN: tuple[tuple[str, str, dict[str, str], tuple[str, ...]], ...] = (
    ("get_weather", "Get the weather for a city", {"city": "s"},
     ("What is the weather in {city}?", "How is the weather in {city}?", "Weather in {city}?",
      "What's the weather like in {city}?")),
    ("add", "Add two numbers", {"a": "i", "b": "i"},
     ("Add {a} and {b}.", "What is {a} + {b}?", "What is {a} plus {b}?", "{a} + {b}")),
    ("multiply", "Multiply two numbers.", {"a": "i", "b": "i"},
     ("Multiply {a} by {b}.", "What is {a} * {b}?", "What is {a} times {b}?")),
    ("multiply", "Multiply two numbers.", {"x": "i", "y": "i"},
     ("Multiply {x} by {y}.", "What is {x} * {y}?", "What is {x} times {y}?")),
    ("search", "Search the web", {"query": "s"},
     ("Search for {query}.", "Look up {query}.", "Find {query} on the web.", "Search: {query}")),
    ("get_population", "Get the population of a country", {"country": "s"},
     ("How many people live in {country}?", "What is the population of {country}?")),
    ("send_message", "Send a message to a person", {"to": "s", "text": "s"},
     ("Send {to} the message {text}.", "Tell {to}: {text}", "Write to {to}: {text}")),
    ("set_timer", "Set a timer", {"minutes": "i"},
     ("Set a timer for {minutes} minutes.", "Timer, {minutes} minutes.")),
    ("lookup_user", "Find a user by name", {"name": "s"},
     ("Find the user {name}.", "Look up the user {name}.", "Who is the user {name}?")),
    ("reverse", "Reverse a text", {"text": "s"},
     ("Reverse {text}.", "Write {text} backwards.", "What is {text} backwards?")),
    ("count_letters", "Count the letters of a word", {"word": "s"},
     ("How many letters has {word}?", "Count the letters of {word}.",
      "How many letters are in {word}?")),
    ("get_price", "Get the price of a product", {"product": "s"},
     ("What does {product} cost?", "What is the price of {product}?", "How much is {product}?")),
    ("roll_dice", "Roll some dice", {"sides": "i"}, ("Roll a dice with {sides} sides.",)),
    ("upper", "Convert text to upper case", {"text": "s"},
     ("Convert {text} to upper case.", "Write {text} in capitals.", "Upper case: {text}")),
    ("convert", "Convert an amount between units", {"amount": "n", "unit": "s"},
     ("Convert {amount} to {unit}.", "How much is {amount} in {unit}?")),
    ("read_file", "Read a file", {"path": "s"}, ("Read the file {path}.", "What is in {path}?")),
)  # fmt: skip
_VERBS = ("get", "find", "make", "set", "check", "load", "send", "open", "count", "list", "show",
          "run", "book", "update", "delete", "create", "fetch", "compute")  # fmt: skip


def _call(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": tool.name, "arguments": arguments}}


def _from_result(result: str) -> str:
    return f"The result is {result}."


def _known(rng: Random, fresh: w.RandomWords) -> tuple[Tool, Turn]:
    name, description, kinds, asks = rng.choice(_KNOWN)
    tool = Tool(name, description, kinds)
    arguments = {key: _value(rng, fresh, kind) for key, kind in kinds.items()}
    if "city" in arguments or "country" in arguments:
        key = "city" if "city" in arguments else "country"
        arguments[key] = rng.choice(w.CITIES if key == "city" else tuple(w.CAPITALS))
        if rng.random() < 0.5:
            arguments[key] = fresh.name()
    ask = rng.choice(asks).format(**arguments)
    result = _result(rng, fresh)
    if name == "get_weather" and rng.random() < 0.7:
        result = (
            f"{rng.choice(('sunny', 'rainy', 'cloudy', 'windy'))}, {rng.randint(-9, 39)} degrees"
        )
    turn = Turn(ask, "", f"I can call {name} for this.", fixed=True)
    turn.calls, turn.results = [_call(tool, arguments)], [result]
    turn.after = _from_result(result)
    turn.after_thought = f"The tool replied: {result}"
    return tool, turn


def _random_tool(rng: Random, fresh: w.RandomWords) -> Tool:
    name = fresh.word().lower()
    if rng.random() < 0.6:
        name = f"{rng.choice(_VERBS)}_{name}"
    elif rng.random() < 0.3:
        name = f"{name}_{fresh.word().lower()}"
    count = rng.choice((0, 1, 1, 1, 2, 2, 3))
    keys: list[str] = []
    while len(keys) < count:
        key = rng.choice(("name", "text", "id", "count", "city", "x", "y", "n", "a", "b", "query",
                          "word", "path", "value", "date", fresh.word().lower()))  # fmt: skip
        if key not in keys:
            keys.append(key)
    kinds = {key: rng.choice("sssiin") for key in keys}
    subject = name.replace("_", " ")
    description = rng.choice((f"{subject.capitalize()}", f"Function to {subject}",
                              f"Use this for {fresh.any()}", f"Returns the {subject}"))  # fmt: skip
    return Tool(name, description, kinds)


def _random(rng: Random, fresh: w.RandomWords) -> tuple[Tool, Turn]:
    tool = _random_tool(rng, fresh)
    arguments = {key: _value(rng, fresh, kind) for key, kind in tool.arguments.items()}
    given = join([f"{key} {value}" for key, value in arguments.items()]) if arguments else ""
    equal = ", ".join(f"{key}={value}" for key, value in arguments.items())
    name = tool.name
    if given:
        ask = rng.choice((f"Use {name} with {given}.", f"Call {name} with {given}.",
                          f"Call {name} with {equal}.", f"Run {name} with {given}.",
                          f"Please call {name} with {given}.", f"{name}({equal})",
                          f"Use the {name} tool with {given}.",
                          f"{tool.description}: {given}"))  # fmt: skip
    else:
        ask = rng.choice((f"Use {name}.", f"Call {name}.", f"Run {name}.", f"Please call {name}.",
                          f"{name}()", f"Use the {name} tool."))  # fmt: skip
    result = _result(rng, fresh)
    turn = Turn(ask, "", f"I can call {name} for this.", fixed=True)
    turn.calls, turn.results = [_call(tool, arguments)], [result]
    turn.after = _from_result(result)
    turn.after_thought = f"The tool replied: {result}"
    return tool, turn


VERSION = Tool("llm_version", "Return the installed version of llm", {})
TIME = Tool("llm_time", "Returns the current time, as local time and UTC", {})


def _version(rng: Random, fresh: w.RandomWords) -> tuple[Tool, Turn]:
    ask = rng.choice(("What version of llm is this?", "Which version of llm do I have?",
                      "What is the llm version?", "llm version?", "Which llm version is installed?",
                      "What version of LLM are you using?", "What version of llm is installed?",
                      "What version?"))  # fmt: skip
    version = f"{rng.randint(0, 2)}.{rng.randint(0, 60)}" + rng.choice(
        ("", f".{rng.randint(0, 9)}", "a0")
    )
    turn = Turn(ask, "", "I can call llm_version for this.")
    turn.calls, turn.results = [_call(VERSION, {})], [version]
    turn.after = f"The installed version of llm is {version}."
    turn.after_thought = f"The tool replied: {version}"
    return VERSION, turn


def _time(rng: Random, fresh: w.RandomWords) -> tuple[Tool, Turn]:
    ask = rng.choice(("What time is it?", "What's the time?", "Tell me the time.", "Time?",
                      "What is the time?", "What is the current time?", "Do you know the time?",
                      "What is the date?", "What day is it?"))  # fmt: skip
    day = f"{rng.randint(2024, 2029)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
    minute = f"{rng.randint(0, 59):02d}:{rng.randint(0, 59):02d}"
    hour, offset = rng.randint(0, 23), rng.choice((0, 0, 0, 1, 2, -5, -8))
    local = f"{(hour + offset) % 24:02d}:{minute}"
    result = json.dumps({
        "utc_time": f"{day} {hour:02d}:{minute} UTC",
        "utc_time_iso": f"{day}T{hour:02d}:{minute}.{rng.randint(0, 999999):06d}+00:00",
        "local_timezone": {0: "UTC", 1: "CET", 2: "CEST", -5: "EST", -8: "PST"}[offset],
        "local_time": f"{day} {local}",
        "timezone_offset": f"UTC{'+' if offset >= 0 else ''}{offset:02d}:00",
        "is_dst": rng.random() < 0.3,
    })  # fmt: skip
    turn = Turn(ask, "", "I can call llm_time for this.")
    turn.calls, turn.results = [_call(TIME, {})], [result]
    if "da" in ask.lower():
        turn.after = f"The date is {day}."
    else:
        turn.after = f"It is {local} on {day}."
    turn.after_thought = f"The local time is {day} {local}."
    return TIME, turn


def _pair(rng: Random, fresh: w.RandomWords) -> tuple[Tool, Turn]:
    """Two calls of one function in one turn."""
    tool = Tool("get_weather", "Get the weather for a city", {"city": "s"})
    one, other = fresh.name(), fresh.name()
    results = [_result(rng, fresh), _result(rng, fresh)]
    turn = Turn(
        f"What is the weather in {one} and {other}?",
        "",
        "I need two calls of get_weather.",
        fixed=True,
    )
    turn.calls = [_call(tool, {"city": one}), _call(tool, {"city": other})]
    turn.results = results
    turn.after = f"The results are {results[0]} and {results[1]}."
    turn.after_thought = f"The tool replied: {results[0]} and {results[1]}"
    return tool, turn


_MAKERS: tuple[tuple[Callable[[Random, w.RandomWords], tuple[Tool, Turn]], float], ...] = (
    (_known, 3.5), (_random, 3.5), (_version, 1), (_time, 1.2), (_pair, 0.3),
)  # fmt: skip


def tool_turns(rng: Random, fresh: w.RandomWords) -> tuple[list[dict[str, Any]], list[Turn]]:
    """One or two turns that need a tool, and the declarations of 1-4 tools."""
    makers, weights = zip(*_MAKERS, strict=True)
    tools: dict[str, Tool] = {}
    turns: list[Turn] = []
    for _ in range(rng.choice((1, 1, 1, 2))):
        tool, turn = rng.choices(makers, weights)[0](rng, fresh)
        if tool.name in tools:
            continue
        tools[tool.name] = tool
        turns.append(turn)
    if rng.random() < 0.3:
        for extra in (VERSION, TIME):
            tools.setdefault(extra.name, extra)
    while len(tools) < 4 and rng.random() < 0.4:
        known = rng.choice(_KNOWN)
        extra = Tool(*known[:3]) if rng.random() < 0.4 else _random_tool(rng, fresh)
        tools.setdefault(extra.name, extra)
    declared = list(tools.values())
    rng.shuffle(declared)
    style = rng.randrange(3)
    return [tool.schema(rng, style) for tool in declared], turns


def describe(rng: Random) -> str:
    """A system line that may stand beside tools."""
    return rng.choice(("You are a helpful assistant.", "Use the tools.", "You can call tools.",
                       f"You are {article(rng.choice(w.JOBS))}."))  # fmt: skip
