"""What a turn cost and why it ended, in each API's words."""

from typing import Any

from ..protocol import Finished

# An answer that was interrupted never gets here: it is an error.
OPENAI_FINISH = {
    "eos": "stop",
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
}
ANTHROPIC_STOP = {
    "eos": "end_turn",
    "stop": "stop_sequence",
    "length": "max_tokens",
    "tool_calls": "tool_use",
}


def openai_usage(turn: Finished) -> dict[str, Any]:
    return {
        "prompt_tokens": turn.prompt_tokens,
        "completion_tokens": turn.output_tokens,
        "total_tokens": turn.prompt_tokens + turn.output_tokens,
        "prompt_tokens_details": {"cached_tokens": turn.restored},
        "completion_tokens_details": {"reasoning_tokens": turn.reasoning_tokens},
    }


def responses_usage(turn: Finished) -> dict[str, Any]:
    return {
        "input_tokens": turn.prompt_tokens,
        "input_tokens_details": {"cached_tokens": turn.restored, "cache_write_tokens": 0},
        "output_tokens": turn.output_tokens,
        "output_tokens_details": {"reasoning_tokens": turn.reasoning_tokens},
        "total_tokens": turn.prompt_tokens + turn.output_tokens,
    }


def anthropic_usage(turn: Finished) -> dict[str, Any]:
    """Tokens from the cache are no input tokens here."""
    return {
        "input_tokens": turn.prompt_tokens - turn.restored,
        "cache_read_input_tokens": turn.restored,
        "cache_creation_input_tokens": 0,
        "output_tokens": turn.output_tokens,
    }
