"""Whole conversations, drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from tools.demo_model import facts, systems, talk, tooling
from tools.demo_model.knowledge import QUESTIONS, follow_up, unknown
from tools.demo_model.numbers import NUMERIC
from tools.demo_model.phrasing import Turn, vary
from tools.demo_model.words import RandomWords


@dataclass
class Conversation:
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = field(default_factory=list)
    thinking: bool = False
    preserve: bool = False


class Grammar:
    """Draws conversations; the same arguments give the same ones.

    `drill` is the share of conversations that only practise what is learned last: figures,
    copying words out of sentences, calls.
    """

    def __init__(self, seed: int, pieces: tuple[str, ...] = (), drill: float = 0.0) -> None:
        self.rng = Random(seed)
        self.drill = drill
        self.fresh = RandomWords(self.rng, pieces)

    def filler(self) -> list[Turn]:
        """One exchange (rarely two) that depends on nothing said before."""
        rng, fresh = self.rng, self.fresh
        roll = rng.random()
        if roll < 0.25:
            makers, weights = zip(*QUESTIONS, strict=True)
            return [rng.choices(makers, weights)[0](rng)]
        if roll < 0.49:
            makers, weights = zip(*NUMERIC, strict=True)
            return [rng.choices(makers, weights)[0](rng)]
        if roll < 0.66:
            return [talk.repeat(rng, fresh)]
        if roll < 0.77:
            return [talk.small_talk(rng)]
        if roll < 0.81:
            return [talk.listing(rng)]
        if roll < 0.84:
            return [talk.story(rng, fresh)]
        if roll < 0.87:
            return [talk.of_list(rng, fresh)]
        if roll < 0.90:
            return [talk.as_json(rng, fresh)]
        if roll < 0.915:
            return [talk.read_json(rng, fresh)]
        if roll < 0.95:
            return [unknown(rng, fresh)]
        if roll < 0.975:
            return facts.third_person(rng, fresh)
        return follow_up(rng)

    def fillers(self, count: int) -> list[Turn]:
        return [turn for _ in range(count) for turn in self.filler()]

    def told_and_asked(self, fact: facts.Fact) -> Turn:
        """A fact and a question in one message."""
        rng = self.rng
        told = fact.told(rng)
        if rng.random() < 0.4:
            asked, answer = fact.asked(rng), fact.statement()
        else:
            asked = self.filler()[0]
            answer = f"{fact.reply()} {asked.answer}"
        return Turn(f"{told.ask} {asked.ask}", answer, told.thought, fixed=True)

    def memory(self, long: bool = False) -> list[Turn]:
        """Facts told, other things said, facts asked."""
        rng, fresh = self.rng, self.fresh
        gap = rng.randint(3, 8) if long else rng.choice((0, 0, 0, 1, 1, 2, 3))
        roll = rng.random()
        if roll < 0.08:
            fact = facts.pick(rng, fresh)
            others = [kind for kind in (facts.NAME, *facts.KINDS) if kind is not fact.kind]
            told = [fact.told(rng)] if rng.random() < 0.6 else []
            return [*told, *self.fillers(gap // 2), facts.not_told(rng, rng.choice(others))]
        if roll < 0.30:
            one, other = facts.pick_two(rng, fresh)
            told = [facts.two_told(rng, one, other)]
            if rng.random() < 0.4:
                told = [one.told(rng), *self.fillers(gap // 2), other.told(rng)]
            asked = [one.asked(rng), other.asked(rng)]
            rng.shuffle(asked)
            if rng.random() < 0.25:
                asked = [facts.two_asked(rng, one, other)]
            return [*told, *self.fillers(gap), *asked[: rng.randint(1, 2)]]
        fact = facts.pick(rng, fresh)
        if roll < 0.36:
            return [self.told_and_asked(fact), *self.fillers(gap), fact.asked(rng)]
        turns = [fact.told(rng), *self.fillers(gap)]
        if roll < 0.50:
            if rng.random() < 0.3:
                turns.append(fact.asked(rng))
            turns += [facts.correction(rng, fresh, fact), *self.fillers(gap // 2)]
        turns.append(fact.asked(rng))
        if rng.random() < 0.2:
            turns += [*self.fillers(1), fact.asked(rng)]
        return turns

    def practice(self) -> Conversation:
        rng, fresh = self.rng, self.fresh
        tools: list[dict[str, Any]] = []
        roll = rng.random()
        if roll < 0.45:
            makers, weights = zip(*NUMERIC, strict=True)
            turns = [rng.choices(makers, weights)[0](rng) for _ in range(rng.randint(2, 4))]
        elif roll < 0.70:
            turns = [talk.repeat(rng, fresh) for _ in range(rng.randint(1, 3))]
        elif roll < 0.75:
            turns = [talk.listing(rng), talk.of_list(rng, fresh)]
        elif roll < 0.82:
            turns = [rng.choice((talk.as_json, talk.read_json))(rng, fresh)]
        elif roll < 0.86:
            kinds = (facts.NAME, *facts.KINDS)
            turns = [facts.not_told(rng, rng.choice(kinds))]
        else:
            tools, turns = tooling.tool_turns(rng, fresh)
        return self._assemble(turns, "", None, tools)

    def draw(self) -> Conversation:
        rng, fresh = self.rng, self.fresh
        if self.drill and rng.random() < self.drill:
            return self.practice()
        system, style = "", None
        tools: list[dict[str, Any]] = []
        roll = rng.random()
        if roll < 0.40:
            turns = self.memory()
        elif roll < 0.75:
            turns = self.fillers(rng.choice((1, 1, 1, 2, 2, 3)))
            if rng.random() < 0.35:
                system, style = systems.styled(rng, fresh)
        elif roll < 0.89:
            tools, turns = tooling.tool_turns(rng, fresh)
            if rng.random() < 0.15:
                turns = self.memory()
            elif rng.random() < 0.3:
                turns = self.fillers(1) + turns if rng.random() < 0.5 else turns + self.fillers(1)
            if rng.random() < 0.2:
                system = tooling.describe(rng)
        elif roll < 0.93:
            system, turns = systems.named(rng, fresh)
            turns = self.fillers(rng.choice((0, 0, 1))) + turns
        elif roll < 0.975:
            system, turns = systems.handbook(rng, fresh)
            if rng.random() < 0.3:
                turns = self.fillers(1) + turns
        else:
            turns = self.memory(long=True)
        return self._assemble(turns, system, style, tools)

    def draw_long(self) -> Conversation:
        """Many topics in one conversation, so that attention learns long distances."""
        turns: list[Turn] = []
        system = ""
        if self.rng.random() < 0.4:
            system, turns = systems.handbook(self.rng, self.fresh)
        for _ in range(self.rng.randint(1, 3)):
            turns += self.memory(long=True)
        return self._assemble(turns, system, None, [])

    def _assemble(
        self,
        turns: list[Turn],
        system: str,
        style: systems.Style | None,
        tools: list[dict[str, Any]],
    ) -> Conversation:
        rng = self.rng
        thinking = rng.random() < 0.3
        preserve = rng.random() < 0.5
        messages: list[dict[str, Any]] = []
        if system:
            messages.append({"role": "system", "content": system})

        def reply(content: str, thought: str, calls: list[dict[str, Any]] | None = None) -> None:
            message: dict[str, Any] = {"role": "assistant", "content": content}
            if thinking and thought:
                message["reasoning_content"] = thought
            if calls:
                message["tool_calls"] = calls
            messages.append(message)

        for turn in turns:
            messages.append({"role": "user", "content": vary(rng, turn)})
            if turn.calls:
                reply("", turn.thought, turn.calls)
                messages += [{"role": "tool", "content": result} for result in turn.results]
                reply(turn.after, turn.after_thought)
            else:
                reply(style(turn.answer, turn) if style else turn.answer, turn.thought)
        return Conversation(messages, tools, thinking, preserve)
