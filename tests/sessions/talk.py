"""A conversation whose every turn is compared with a turn that reads everything again."""

from collections.abc import Callable
from typing import Any

from llm_mtplx.chat.tools import answer_message
from llm_mtplx.engine.load import LoadedModel
from llm_mtplx.engine.turn import Turn
from llm_mtplx.protocol import Finished, Request
from llm_mtplx.sessions.bank import Bank
from llm_mtplx.sessions.keeper import Keeper

from ..dictated import LIMITS, DictatedDecoder, keeper
from ..speculative.states import assert_equal, named_arrays

Messages = list[dict[str, Any]]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Talk:
    """One conversation, message by message, on one bank."""

    def __init__(
        self,
        model: LoadedModel,
        bank: Bank,
        name: str | None = "a",
        template: dict[str, Any] | None = None,
        messages: Messages | None = None,
        memory: Callable[[], Keeper] | None = None,
    ) -> None:
        self.model, self.bank, self.name = model, bank, name
        self.memory = memory or (lambda: keeper(model, self.bank))
        self.template = template or {}
        self.messages: Messages = list(messages or [])
        self.pointer: str | None = None

    def say(self, text: str, dictated: list[int] | None = None, **options: Any) -> Finished:
        """Ask, answer, remember; the answer's ids are compared with those of a cold turn."""
        self.messages.append({"role": "user", "content": text})
        return self._go(dictated, options)

    def results(self, *outputs: str, dictated: list[int] | None = None, **options: Any) -> Finished:
        """As ``say``, with what the functions that the last answer calls have returned."""
        self.messages += [{"role": "tool", "name": "f", "content": output} for output in outputs]
        return self._go(dictated, options)

    def _go(self, dictated: list[int] | None, options: dict[str, Any]) -> Finished:
        options = {"max_tokens": 12, "temperature": 0, **options}
        self.turn = self._turn(self.memory(), options)
        if dictated is not None:
            state = self.turn.decoder.state
            self.turn.decoder = DictatedDecoder(self.model, self.turn.prompt, dictated, state=state)
        finished = self.turn.run()
        self.turn.keep()
        if dictated is None:
            nothing = keeper(self.model, Bank(LIMITS, Clock()))
            cold = self._turn(nothing, options, prompt=self.turn.prompt)
            cold.run()
            cold.keep()
            assert cold.decoder.state.ids == self.turn.decoder.state.ids
            assert cold.answer.text == self.turn.answer.text
            assert_equal(named_arrays(self.turn.decoder.state), named_arrays(cold.decoder.state))
        self._remember()
        self.pointer = finished.pointer
        return finished

    def begin(self, text: str) -> Turn:
        """A turn that has not run yet."""
        self.messages.append({"role": "user", "content": text})
        return self._turn(self.memory(), {"max_tokens": 12, "temperature": 0})

    def _turn(
        self, memory: Keeper, options: dict[str, Any], prompt: list[int] | None = None
    ) -> Turn:
        request = Request(
            "m",
            self.model.folder.path,
            list(self.messages),
            self.template,
            conversation=self.name,
            pointer=self.pointer,
            **options,
        )
        turn = Turn(self.model, request, memory, lambda event: None, lambda: False)
        if prompt is not None:
            # The same ids, where the warm turn has the model's own for an earlier answer.
            turn.prompt = prompt
        return turn

    def _remember(self) -> None:
        answer = self.turn.answer
        self.messages.append(answer_message(answer.text, answer.reasoning, answer.calls))

    def fork(self, name: str | None) -> "Talk":
        fork = Talk(self.model, self.bank, name, self.template, self.messages, self.memory)
        fork.pointer = self.pointer
        return fork
