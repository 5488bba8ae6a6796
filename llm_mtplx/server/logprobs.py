"""Log-probabilities of a text's tokens, in OpenAI's words.

They are the trunk's own, before penalties, temperature, filters and grammar. Listed are the tokens
that lie wholly in the text; those of reasoning and of calls are not.
"""

from collections.abc import Iterable
from typing import Any

from ..protocol import Likely, Token

LEAST = -9999.0  # JSON has no infinity


def of_chat(tokens: Iterable[Token]) -> dict[str, Any]:
    told = [{**_named(token), "top_logprobs": [_named(at) for at in token.top]} for token in tokens]
    return {"content": told, "refusal": None}


def of_completion(tokens: Iterable[Token], offset: int) -> dict[str, Any]:
    """``offset``: characters before their text."""
    listed = list(tokens)
    return {
        "tokens": [_spelled(token) for token in listed],
        "token_logprobs": [_finite(token) for token in listed],
        "top_logprobs": [
            {_spelled(at): _finite(at) for at in [*token.top, token]} if token.top else {}
            for token in listed
        ],
        "text_offset": [offset + token.offset for token in listed],
    }


def _named(token: Likely) -> dict[str, Any]:
    text = bytes(token.raw).decode("utf-8", "replace")
    return {"token": text, "bytes": token.raw, "logprob": _finite(token)}


def _spelled(token: Likely) -> str:
    try:
        return bytes(token.raw).decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.raw)


def _finite(token: Likely) -> float:
    return max(token.logprob, LEAST)
