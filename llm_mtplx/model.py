"""The models llm sees: an llm Prompt in, StreamEvents out.

The engine is imported when a prompt runs: every llm command pays for this module.
"""

import json
from collections.abc import AsyncGenerator, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import click
import llm
from llm.parts import Message, StreamEvent
from llm.utils import monotonic_ulid

from .catalog.entries import Entry
from .catalog.template import knows_tools
from .debug import debug, debugging
from .errors import ModelFolderError, MtplxError, RequestError
from .interrupt import first_interrupt_in_chat, in_chat
from .once import first_time
from .options import MtplxOptions, stop_strings
from .settings import is_logging
from .terminal import ProgressLine, notice

if TYPE_CHECKING:
    from .protocol import Event, Finished, Progress, Request, Restored, ToolCall, ToolCallPart


METADATA = "mtplx"  # our key in a part's provider_metadata


class _Shared:
    can_stream = True
    supports_schema = True
    Options = MtplxOptions

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.model_id = entry.model_id

    def __str__(self) -> str:
        name = f"MTPLX: {self.model_id}"
        if self.entry.here:
            return name
        if self.entry.folder is not None:
            return f"{name} (its folder is gone)"
        return f"{name} (not here: {self.entry.download_command})"

    @cached_property
    def supports_tools(self) -> bool:
        """Whether the model's own chat template has a place for them.

        Of a model that is not here this is not known; its first prompt says what is missing.
        """
        try:
            return knows_tools(self.entry.path)
        except ModelFolderError:
            return True


class MtplxModel(_Shared, llm.Model):
    def execute(
        self,
        prompt: llm.Prompt,
        stream: bool,
        response: llm.Response,
        conversation: llm.Conversation | None,
    ) -> Iterator[StreamEvent]:
        from .attach.choose import stream as start

        try:
            events = start(build_request(self.entry, prompt, conversation), stays=in_chat())
            with first_interrupt_in_chat(events.cancel), ProgressLine() as progress:
                reply = _Reply(response, progress)
                for event in events:
                    yield from reply.take(event)
        except MtplxError as error:
            # llm would end the chat; a chat that goes on is worth more than its exit code.
            if not in_chat():
                raise
            click.echo(f"Error: {error}", err=True)


class AsyncMtplxModel(_Shared, llm.AsyncModel):
    async def execute(
        self,
        prompt: llm.Prompt,
        stream: bool,
        response: llm.AsyncResponse,
        conversation: llm.AsyncConversation | None,
    ) -> AsyncGenerator[StreamEvent, None]:
        from .attach.choose import astream

        with ProgressLine() as progress:
            request = build_request(self.entry, prompt, conversation)
            reply = _Reply(response, progress)
            async for event in astream(request):
                for out in reply.take(event):
                    yield out


def build_request(
    entry: Entry,
    prompt: llm.Prompt,
    conversation: llm.Conversation | llm.AsyncConversation | None,
    beginning: bool = False,
) -> "Request":
    """Everything the engine needs to know about ``prompt``.

    With ``beginning`` it may be a system prompt or tools alone, with nothing to answer.
    """
    from .chat.tools import declared
    from .messages import check_calls, template_messages, without_failed_turns
    from .protocol import Request

    history = prompt.messages
    if conversation is not None and (conversation.responses or _is_loaded(conversation)):
        history, failed = without_failed_turns(history)
        if failed:
            notice(f"left out of the history: {failed} earlier message(s) without an answer.")
    messages = template_messages(history, prompt.system)
    asked = [m for m in messages if m["role"] != "user" or m["content"].strip()]
    if beginning and (asked or prompt.tools) and all(m["role"] == "system" for m in asked):
        messages = asked
    elif not messages or messages[-1] not in asked:
        raise RequestError("The prompt is empty: give the model something to answer.")
    if prompt.schema is not None:
        _check_schema(prompt)
    options = prompt.options
    if options.thinking == "off":
        for name in ("reasoning_effort", "thinking_budget"):
            if getattr(options, name) is not None:
                raise RequestError(f"'thinking off' and '{name}' contradict each other.")
    template_args: dict[str, Any] = {}
    if options.thinking in ("on", "off"):
        template_args["enable_thinking"] = options.thinking == "on"
    tools = {tool.name: tool for tool in prompt.tools}
    if tools:
        template_args["tools"] = declared(
            (name, tool.description, tool.input_schema) for name, tool in tools.items()
        )
    if unknown := check_calls(history, tools):
        line = (
            f"this conversation called {unknown}, which this prompt does not offer; pass it again "
            "with -T or --functions to let the model call it."
        )
        if first_time(line):
            notice(line)
    return Request(
        model_id=entry.model_id,
        folder=entry.path,
        messages=messages,
        template_args=template_args,
        conversation=conversation.id if conversation is not None else None,
        pointer=_latest_pointer(prompt.messages),
        cache=options.cache or "on",
        persist=_is_logged(),
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        min_p=options.min_p,
        repetition_penalty=options.repetition_penalty,
        presence_penalty=options.presence_penalty,
        frequency_penalty=options.frequency_penalty,
        seed=options.seed,
        stop=stop_strings(options.stop),
        max_tokens=options.max_tokens,
        depth=None if options.draft == "auto" else options.draft,
        reasoning_effort=options.reasoning_effort,
        thinking_budget=options.thinking_budget,
        schema=prompt.schema,
    )


def _is_loaded(conversation: llm.Conversation | llm.AsyncConversation) -> bool:
    """Whether its history comes from the log; llm keeps it under this name since 0.35."""
    return bool(getattr(conversation, "loaded_messages", None))


def _latest_pointer(messages: list[Message]) -> str | None:
    """What the latest answer that says so called its state."""
    for message in reversed(messages):
        for part in reversed(message.parts if message.role == "assistant" else []):
            ours = (part.provider_metadata or {}).get(METADATA)
            told = ours.get("kv") if isinstance(ours, dict) else None
            if isinstance(told, str):
                return told
    return None


def _check_schema(prompt: llm.Prompt) -> None:
    from .chat.grammar import compile_schema

    # llm declares a conversation's tools again: once they have answered, JSON may follow.
    if prompt.tools and not any(message.role == "tool" for message in prompt.messages):
        raise RequestError(
            "A schema and tools cannot be used together: a tool call is not JSON of the schema. "
            "Let the tools answer first, then ask for the JSON with -c."
        )
    compile_schema(prompt.schema)


def _is_logged() -> bool:
    """False under ``llm -n`` and ``llm logs off``: what llm does not keep, we do not keep."""
    context = click.get_current_context(silent=True)
    if context is None:
        return True
    return not context.params.get("no_log") and is_logging()


class _Reply:
    """Hands the engine's events to llm, for one response."""

    def __init__(self, response: llm.Response | llm.AsyncResponse, progress: ProgressLine) -> None:
        self._response = response
        self._progress = progress
        self._restored: Restored | None = None
        self._said_text = False
        self._last_call: str | None = None
        self._writing: str | None = None  # arguments sent of the call that is being written

    def take(self, event: "Event") -> Iterator[StreamEvent]:
        from .protocol import (
            Finished,
            Notice,
            Progress,
            Reasoning,
            Restored,
            Text,
            ToolCall,
            ToolCallPart,
        )

        if isinstance(event, Progress):
            self._progress.show(progress_words(event, self._restored))
            return
        if isinstance(event, Restored):
            self._restored = event
            if debugging():
                debug(restored_words(event))
            return
        self._progress.clear()
        if isinstance(event, Text):
            self._said_text = True
            yield StreamEvent("text", event.text)
        elif isinstance(event, Reasoning):
            yield StreamEvent("reasoning", event.text)
        elif isinstance(event, ToolCallPart):
            yield from self._call_part(event)
        elif isinstance(event, ToolCall):
            yield from self._call(event)
        elif isinstance(event, Notice):
            notice(event.line)
        elif isinstance(event, Finished):
            if event.pointer is not None:
                yield self._pointer_event({METADATA: {"kv": event.pointer}})
            _record(event, self._response)

    def _call_part(self, part: "ToolCallPart") -> Iterator[StreamEvent]:
        if part.begins:
            yield from self._begin_call(part.name)
            self._writing = ""
        self._writing = (self._writing or "") + part.text
        yield self._call_args(part.text)

    def _begin_call(self, name: str) -> Iterator[StreamEvent]:
        # llm runs what was added and logs what was streamed; the id says that both are one.
        self._last_call = f"tc_{str(monotonic_ulid()).lower()}"
        yield StreamEvent("tool_call_name", name, tool_call_id=self._last_call)

    def _call_args(self, text: str) -> StreamEvent:
        return StreamEvent("tool_call_args", text, tool_call_id=self._last_call)

    def _call(self, call: "ToolCall") -> Iterator[StreamEvent]:
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        if self._writing is None:
            yield from self._begin_call(call.name)
        yield self._call_args(arguments.removeprefix(self._writing or ""))
        self._writing = None
        call_id = self._last_call
        self._response.add_tool_call(llm.ToolCall(call.name, call.arguments, call_id))

    def _pointer_event(self, metadata: dict[str, Any]) -> StreamEvent:
        """Joins a part before it: an empty text part of its own would be dropped."""
        if self._last_call is not None:
            return StreamEvent(
                "tool_call_args", "", tool_call_id=self._last_call, provider_metadata=metadata
            )
        kind: Literal["text", "reasoning"] = "text" if self._said_text else "reasoning"
        return StreamEvent(kind, "", provider_metadata=metadata)


def progress_words(progress: "Progress", restored: "Restored | None") -> str:
    """The transient line; what was restored and why not more is part of it."""
    from .sessions.reasons import meaning

    if not progress.total:
        return f"{progress.phase} the model"
    words = f"{progress.phase} {progress.done:,} of {progress.total:,} tokens"
    if restored is None:
        return words
    if restored.tokens:
        words += f", {restored.tokens:,} of them from {restored.source}"
    return f"{words}; {meaning(restored.miss_reason)}" if restored.miss_reason else words


def restored_words(restored: "Restored") -> str:
    from .sessions.reasons import meaning

    words = f"{restored.tokens:,} of {restored.prompt_tokens:,} tokens restored"
    if restored.source:
        words += f" from {restored.source} in {restored.seconds * 1000:.0f} ms"
    if restored.miss_reason:
        words += f"; {restored.miss_reason}: {meaning(restored.miss_reason)}"
    return words


def _record(turn: "Finished", response: llm.Response | llm.AsyncResponse) -> None:
    details: dict[str, Any] = {}
    if turn.restored:
        details |= {"cached": turn.restored, "cached_from": turn.source}
    if turn.reasoning_tokens:
        details["reasoning"] = turn.reasoning_tokens
    response.set_usage(input=turn.prompt_tokens, output=turn.output_tokens, details=details or None)
    response.response_json = {
        "prompt_tps": _rate(turn.prompt_tokens - turn.restored, turn.prefill_s),
        "generation_tps": _rate(turn.output_tokens - 1, turn.decode_s),
        "ttft_ms": round(turn.ttft_s * 1000, 1),
        "peak_memory": turn.peak_memory,
        "finish_reason": turn.finish_reason,
        "seed": turn.seed,
        "mtp": {
            "depth": turn.depth,
            "rounds": turn.rounds,
            "drafted": turn.drafted,
            "accepted": turn.accepted,
            "copied": turn.copied,
            "copies_accepted": turn.copies_accepted,
        },
        "cache": {
            "source": turn.source,
            "restored": turn.restored,
            "prefilled": turn.prompt_tokens - turn.restored,
            "restore_ms": round(turn.restore_s * 1000, 1),
            "miss_reason": turn.miss_reason,
        },
    }


def _rate(tokens: int, seconds: float) -> float | None:
    return round(tokens / seconds, 1) if tokens > 0 and seconds > 0 else None
