"""What ``llm prompt`` would ask for the same arguments, without asking it."""

import contextlib
import io
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click
import llm
import llm.cli
from llm.parts import StreamEvent

from ..errors import MtplxError
from ..model import MtplxModel, build_request

if TYPE_CHECKING:
    from ..catalog.entries import Entry
    from ..engine.protocol import Request

_PROMPT = llm.cli.cli.commands["prompt"]


def takes(*names: str) -> Callable[[click.Command], click.Command]:
    """Give a command these arguments of ``llm prompt``."""

    def add(command: click.Command) -> click.Command:
        shared = [param for param in _PROMPT.params if param.name in names]
        command.params = [*shared, *command.params]
        return command

    return add


def request_of(arguments: dict[str, Any], stdin: str) -> "tuple[Entry, Request]":
    """The model that ``llm prompt`` would ask with these arguments, and the request.

    llm's own command runs, with a model that only takes note: fragments, templates, tools and
    conversations mean here what they mean there.
    """
    context = _PROMPT.make_context("prompt", ["--no-log", "--no-stream"])
    asked: list[tuple[Entry, Request]] = []

    def noting_model(name: str, *args: Any, **kwargs: Any) -> llm.Model:
        model = find(name, *args, **kwargs)
        if not isinstance(model, MtplxModel):
            raise MtplxError(f"{model.model_id} is not a model of llm-mtplx; name one with -m.")
        return _Noting(model.entry, asked)

    # The command offers no other way to give it a model; this process runs nothing else.
    find, llm.cli.get_model = llm.cli.get_model, noting_model
    before, sys.stdin = sys.stdin, io.StringIO(stdin)
    try:
        with context, contextlib.redirect_stdout(io.StringIO()):
            context.invoke(_PROMPT, **{**context.params, **arguments})
    finally:
        llm.cli.get_model, sys.stdin = find, before
    return asked[0]


def piped() -> str:
    """What is piped into this command."""
    return "" if sys.stdin.isatty() else sys.stdin.read()


class _Noting(MtplxModel):
    def __init__(self, entry: "Entry", asked: "list[tuple[Entry, Request]]") -> None:
        super().__init__(entry)
        self._asked = asked

    def execute(
        self,
        prompt: llm.Prompt,
        stream: bool,
        response: llm.Response,
        conversation: llm.Conversation | None,
    ) -> Iterator[StreamEvent]:
        self._asked.append((self.entry, build_request(self.entry, prompt, conversation)))
        yield from ()
