"""System messages in the midst of a conversation.

They stay where they stand: to merge one into the first would change the beginning of the prompt,
and so lose everything that is kept of it. Templates that take a system message at the beginning
only, or put it there, have it as part of a neighbouring message instead, marked as what it is.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import RequestError

if TYPE_CHECKING:
    from .tokenizer import ChatTokenizer

Message = dict[str, Any]

OPEN, CLOSE = "[System message]\n", "\n[End of system message]"


def in_place(messages: Sequence[Message], tokenizer: "ChatTokenizer") -> list[Message]:
    """``messages`` as the model's template takes them."""
    late = any(message["role"] == "system" for message in messages[1:])
    if not late or _takes_late(tokenizer):
        return list(messages)
    return late_system_as_user(messages)


def _takes_late(tokenizer: "ChatTokenizer") -> bool:
    """Whether the template shows system messages where they stand."""
    words = ["first-word", "asked-word", "late-word", "said-word", "later-word", "last-word"]
    roles = ["system", "user", "system", "assistant", "system", "user"]
    probe = [{"role": role, "content": word} for role, word in zip(roles, words, strict=True)]
    for messages, expected in ((probe, words), (probe[:3], words[:3])):
        try:
            text = tokenizer.render(messages, {})
        except RequestError:
            return False
        places = [text.find(word) for word in expected]
        if -1 in places or places != sorted(places):
            return False
    return True


def late_system_as_user(messages: Sequence[Message]) -> list[Message]:
    """Each late system message at the beginning of what the user, or a tool, says next; else at
    the end of a tool's result; else as what the user says."""
    folded: list[Message] = []
    waiting: list[str] = []

    def close() -> None:
        """No user message or result follows what waits."""
        if not waiting:
            return
        marked = "\n\n".join(waiting)
        last = folded[-1]
        if last["role"] == "tool":
            folded[-1] = {**last, "content": f"{last['content']}\n\n{marked}"}
        else:
            folded.append({"role": "user", "content": marked})
        waiting.clear()

    for at, message in enumerate(messages):
        if at and message["role"] == "system":
            waiting.append(f"{OPEN}{message['content']}{CLOSE}")
            continue
        if waiting and message["role"] in ("user", "tool"):
            message = {**message, "content": "\n\n".join([*waiting, message["content"]])}
            waiting.clear()
        close()
        folded.append(message)
    close()
    return folded
