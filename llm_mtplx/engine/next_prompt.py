"""What the next turn will make of one that has ended: which ids stand for its answer, and up to
where its prompt will be the same."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..chat.answer import Answer
from ..chat.history import common_length
from ..chat.tokenizer import ChatTokenizer
from ..chat.tools import answer_message, results_for, said
from ..protocol import Request
from ..sessions.keeper import ANSWER_START
from ..sessions.session import KnownTurn, Session


@dataclass
class Sequel:
    tokenizer: ChatTokenizer
    request: Request
    encode: Callable[[str], list[int]]  # with earlier answers in their own ids
    text: str  # of the prompt
    prompt: list[int]
    header: int  # where the history ends, before anything of the generation prompt
    read: list[int]  # what of the prompt was forwarded
    emitted: list[int]
    answer: Answer
    session: Session

    @cached_property
    def line(self) -> list[int]:
        """The ids whose state is kept: those forwarded of the prompt, and the whole tokens of the
        answer."""
        if not self.emitted:
            return self.read
        whole = self.answer.whole_tokens if self.answer.stopped else None
        return self.prompt + self.emitted[:whole]

    @cached_property
    def known(self) -> KnownTurn | None:
        """This answer's whole message in the model's own ids; None where it has no exact text."""
        opened = -1 if self.request.prompt else self.text.rfind(ANSWER_START)
        end = self.tokenizer.message_end
        if opened < 0 or end is None or not self.emitted:
            return None
        made = self.line[len(self.prompt) :]
        text = self.tokenizer.decode(made)
        if text is None:
            return None
        if self.answer.stopped:
            # The shown text goes on inside a token that is not kept.
            rest = self.answer.raw[self.answer.whole_length :]
            made, text = made + self.tokenizer.encode(rest), text + rest
        if made[-1:] != [end]:
            made, text = [*made, end], f"{text}<|im_end|>"
        head = self.text[opened:]
        return KnownTurn(
            message=head + text,
            ids=(*self.tokenizer.encode(head), *made),
            said=said(self._message),
            start=self.header,
            end=len(self.line),
        )

    @cached_property
    def tip(self) -> int:
        """Where the next turn's prompt will part from this line at the earliest: at the end of it
        where the template repeats the answer as it was generated, else at the answer header or,
        where it writes the tool rounds before the answer otherwise too, at the first of them."""
        if self.known is None:
            return self._tip_without_answer()
        if self._parting is None:
            return len(self.line)
        shared = self.session.deepest(self._parting[1])
        return shared.position if shared else 0

    @property
    def last_tip(self) -> int:
        """Where the turn that gave the last answer in this prompt had its tip."""
        opened = self.text.rfind(ANSWER_START, 0, self.text.rfind(ANSWER_START))
        if self.tip == len(self.line):  # at the end of the answer, as here
            opened = self.text.find("<|im_start|>", opened + 1)
        return len(self.prompt) - len(self.encode(self.text[opened:]))

    def onward(self) -> list[int]:
        """The ids that the next prompt begins with, where they are not those of this line: the
        template writes the answer otherwise than it was made. Else none."""
        if self.known is None or self.answer.calls or self._parting is None:
            return []
        border, shared = self._parting
        end = max(self._later.rfind("<|im_start|>user"), border)
        return self.prompt[:shared] + self.encode(self._later[border:end])

    def _tip_without_answer(self) -> int:
        line = self.line
        if self.emitted:
            # What ended inside a character cannot be told by its text.
            before = not self.request.prompt and self.session.deepest(self.header)
            return before.position if before else len(line)
        # A prompt that was not read to its end: never inside an answer, which nobody made so.
        starts = [at for at, token in enumerate(line) if token == self.tokenizer.message_start]
        last = self.tokenizer.decode(line[starts[-1] :]) if starts else None
        return starts[-1] if last is not None and last.startswith(ANSWER_START) else len(line)

    @property
    def _message(self) -> dict[str, Any]:
        """The answer as the next prompt's history will have it."""
        return answer_message(self.answer.text, self.answer.reasoning, self.answer.calls)

    @cached_property
    def _later(self) -> str:
        """What the template will render next time."""
        onwards = [*self.request.messages, self._message, *results_for(self.answer.calls)]
        return self.tokenizer.render(onwards, self.request.template_args)

    @cached_property
    def _parting(self) -> tuple[int, int] | None:
        """Where the next prompt parts from this line: characters of its text, and tokens. None
        where it does not."""
        assert self.known is not None
        now = self.text[: self.text.rfind(ANSWER_START)] + self.known.message
        if self._later.startswith(now):
            return None
        border = max(now.rfind("<|im_start|>", 0, common_length(now, self._later)), 0)
        return border, len(self.prompt) - len(self.encode(self.text[border:]))
