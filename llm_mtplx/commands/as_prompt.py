"""What ``llm prompt`` would ask for the same arguments, without asking it."""

import contextlib
import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
import llm
import llm.cli
from llm.parts import StreamEvent

from ..errors import MtplxError
from ..model import MtplxModel, build_request

if TYPE_CHECKING:
    from ..catalog.entries import Entry
    from ..protocol import Request

# What a prompt may go on with. Its first tokens may join the last ones of the beginning, so the
# beginning ends where all of these still agree.
_GOES_ON = ("a", "The", "1", "(", "\nx", " x", "é")

_PROMPT = llm.cli.cli.commands["prompt"]


def takes(*names: str) -> Callable[[click.Command], click.Command]:
    """Give a command these arguments of ``llm prompt``."""

    def add(command: click.Command) -> click.Command:
        shared = [param for param in _PROMPT.params if param.name in names]
        command.params = [*shared, *command.params]
        return command

    return add


def request_of(
    arguments: dict[str, Any], stdin: str, beginning: bool = False
) -> "tuple[Entry, Request]":
    """The model that ``llm prompt`` would ask with these arguments, and the request.

    With ``beginning`` the request may lack a message of the user: a system prompt or tools alone.

    llm's own command runs, with a model that only takes note: fragments, templates, tools and
    conversations mean here what they mean there.
    """
    context = _PROMPT.make_context("prompt", ["--no-log", "--no-stream"])
    asked: list[tuple[Entry, Request]] = []

    def noting_model(name: str, *args: Any, **kwargs: Any) -> llm.Model:
        model = find(name, *args, **kwargs)
        if not isinstance(model, MtplxModel):
            raise MtplxError(f"{model.model_id} is not an llm-mtplx model; choose one with -m.")
        return _Noting(model.entry, asked, beginning)

    # The command offers no other way to give it a model; this process runs nothing else.
    find, llm.cli.get_model = llm.cli.get_model, noting_model
    before, sys.stdin = sys.stdin, io.StringIO(stdin)
    try:
        with context, contextlib.redirect_stdout(io.StringIO()):
            context.invoke(_PROMPT, **{**context.params, **arguments})
    finally:
        llm.cli.get_model, sys.stdin = find, before
    return asked[0]


def continuations(request: "Request", marker: str) -> "list[Request]":
    """What would have been asked with other prompts in the place of ``marker``. Asking llm again
    would fetch fragments, and run functions, again."""
    return [
        replace(
            request,
            messages=[
                {**message, "content": message["content"].replace(marker, prompt)}
                for message in request.messages
            ],
        )
        for prompt in _GOES_ON
    ]


def piped() -> str:
    """What is piped into this command."""
    return "" if sys.stdin.isatty() else sys.stdin.read()


class _Noting(MtplxModel):
    def __init__(
        self, entry: "Entry", asked: "list[tuple[Entry, Request]]", beginning: bool
    ) -> None:
        super().__init__(entry)
        self._asked = asked
        self._beginning = beginning

    def execute(
        self,
        prompt: llm.Prompt,
        stream: bool,
        response: llm.Response,
        conversation: llm.Conversation | None,
    ) -> Iterator[StreamEvent]:
        request = build_request(self.entry, prompt, conversation, self._beginning)
        self._asked.append((self.entry, request))
        yield from ()
