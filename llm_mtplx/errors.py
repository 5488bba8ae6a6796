"""The errors a user may see: one sentence that says what is wrong and what to do."""

import click
import llm


class MtplxError(llm.ModelError, click.ClickException):
    """Shown as ``Error: message`` with exit code 1 by every llm command."""

    def __init__(self, message: str) -> None:
        click.ClickException.__init__(self, message)

    def __str__(self) -> str:
        return self.message


class ModelFolderError(MtplxError):
    """A model folder is missing, incomplete, or holds something this plugin cannot run."""


class RequestError(MtplxError):
    """A prompt or option that cannot be answered."""


class PromptTooLong(RequestError):
    """A prompt of more tokens than the model takes; 0 where only the words are known."""

    def __init__(self, message: str, tokens: int = 0, limit: int = 0) -> None:
        super().__init__(message)
        self.tokens = tokens
        self.limit = limit  # the most that a prompt may have


class EngineError(MtplxError):
    """The engine could not finish a turn."""


class Interrupted(EngineError):
    """A turn was cut off because its engine is stopping."""


class TimedOut(EngineError):
    """A turn was not over within the time it had."""
