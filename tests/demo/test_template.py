"""The bundled chat template, rendered the way users' clients render it."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import AutoTokenizer

from llm_mtplx.demo import MODEL_DIR
from tools.demo_model import chat
from tools.demo_model.conversations import Grammar

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers",
        "parameters": {
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
            "type": "object",
        },
    },
}
OFF = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
ON = "<|im_start|>assistant\n<think>\n"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(str(MODEL_DIR))


def render(tokenizer: Any, messages: list[dict[str, Any]], **options: Any) -> str:
    return tokenizer.apply_chat_template(messages, tokenize=False, **options)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str, **extra: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **extra}


def test_system_and_user_with_thinking_off_by_default(tokenizer: Any) -> None:
    messages = [{"role": "system", "content": "Be kind."}, user("Hi")]
    head = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    assert render(tokenizer, messages) == head
    assert render(tokenizer, messages, add_generation_prompt=True) == head + OFF
    off = render(tokenizer, messages, add_generation_prompt=True, enable_thinking=False)
    assert off == head + OFF
    on = render(tokenizer, messages, add_generation_prompt=True, enable_thinking=True)
    assert on == head + ON


def test_rewriting_history_drops_earlier_blocks_only(tokenizer: Any) -> None:
    messages = [
        user("One?"),
        assistant("1", reasoning_content="first"),
        user("Two?"),
        assistant("2", reasoning_content="second"),
    ]
    assert render(tokenizer, messages) == (
        "<|im_start|>user\nOne?<|im_end|>\n<|im_start|>assistant\n1<|im_end|>\n"
        "<|im_start|>user\nTwo?<|im_end|>\n"
        "<|im_start|>assistant\n<think>\nsecond\n</think>\n\n2<|im_end|>\n"
    )
    assert render(tokenizer, messages[:2]) == (
        "<|im_start|>user\nOne?<|im_end|>\n"
        "<|im_start|>assistant\n<think>\nfirst\n</think>\n\n1<|im_end|>\n"
    )


@pytest.mark.parametrize("thinking", [False, True])
def test_preserving_history_is_what_was_generated(tokenizer: Any, thinking: bool) -> None:
    """Prompt + generated text + the turn's end = the start of the next prompt, byte for byte."""
    options = {"preserve_thinking": True, "enable_thinking": thinking}
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": "x y"}}}
    body = (
        "<tool_call>\n<function=add>\n<parameter=a>\n2\n</parameter>\n"
        "<parameter=b>\nx y\n</parameter>\n</function>\n</tool_call>"
    )
    thought = {"reasoning_content": "Let me see.\n\nYes."} if thinking else {}
    generated = "Let me see.\n\nYes.\n</think>\n\n" if thinking else ""
    turns = [
        (assistant(" Hello \n", **thought), generated + " Hello \n"),
        (assistant("", tool_calls=[call], **thought), generated + body),
        (
            assistant("Now:", tool_calls=[call, call], **thought),
            f"{generated}Now:\n\n{body}\n{body}",
        ),
        (assistant("Done.", **thought), generated + "Done."),
    ]
    between = [[user("Hi")], [user("Add")], [{"role": "tool", "content": "4"}], [user("Ok")]]
    messages: list[dict[str, Any]] = []
    for before, (message, text) in zip(between, turns, strict=True):
        messages += before
        prompt = render(tokenizer, messages, tools=[ADD], add_generation_prompt=True, **options)
        messages.append(message)
        history = render(tokenizer, messages, tools=[ADD], **options)
        assert history == prompt + text + "<|im_end|>\n"
        later = render(tokenizer, [*messages, user("More")], tools=[ADD], **options)
        assert later.startswith(history)


def test_tools_and_their_results(tokenizer: Any) -> None:
    messages = [
        {"role": "system", "content": "Be kind."},
        user("Add"),
        assistant("", tool_calls=[{"function": {"name": "add", "arguments": {"a": 1, "b": 2}}}]),
        {"role": "tool", "content": "3"},
        {"role": "tool", "content": "4"},
    ]
    text = render(tokenizer, messages, tools=[ADD], add_generation_prompt=True)
    system, rest = text.split("<|im_end|>\n", 1)
    assert system.startswith("<|im_start|>system\n# Tools\n")
    assert '<tools>\n{"type": "function", "function": {"name": "add",' in system
    assert system.endswith("</tool_call>\n\nBe kind.")
    assert rest == (
        "<|im_start|>user\nAdd<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n<tool_call>\n<function=add>\n"
        "<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n</parameter>\n</function>\n"
        "</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n3\n</tool_response>\n"
        "<tool_response>\n4\n</tool_response><|im_end|>\n" + OFF
    )


def test_tool_results_do_not_end_the_query(tokenizer: Any) -> None:
    """Within one user turn the blocks of all tool rounds stay, in both histories."""
    call = {"function": {"name": "add", "arguments": {"a": 1, "b": 2}}}
    messages = [
        user("Add"),
        assistant("", reasoning_content="call", tool_calls=[call]),
        {"role": "tool", "content": "3"},
    ]
    assert "<think>\ncall\n</think>" in render(tokenizer, messages)
    assert "call\n</think>" not in render(tokenizer, [*messages, assistant("3"), user("Ok")])


def test_a_late_system_message_is_refused(tokenizer: Any) -> None:
    with pytest.raises(Exception, match="system message must come first"):
        render(tokenizer, [user("Hi"), {"role": "system", "content": "Be kind."}])


def test_training_text_is_what_transformers_renders(tokenizer: Any) -> None:
    grammar = Grammar(4)
    for _ in range(200):
        drawn = grammar.draw()
        options = {"enable_thinking": drawn.thinking, "preserve_thinking": drawn.preserve}
        ours = chat.render(drawn.messages, drawn.tools, **options)
        assert ours == render(tokenizer, drawn.messages, tools=drawn.tools or None, **options)


def test_every_byte_survives_the_tokenizer(tokenizer: Any) -> None:
    text = "Grüße, naïve 東京 🙂 e\u0301 हिन्दी\n\n\t tabs  and   spaces 12345 it's <tool_call>"
    ids = tokenizer.encode(text, add_special_tokens=False)
    # The tokenizer normalizes to NFC, as Qwen's does.
    assert tokenizer.decode(ids) == text.replace("e\u0301", "é")
    assert max(ids) < 2048
