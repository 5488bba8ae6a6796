"""Greedy answers of a model folder, by plain mlx-lm and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm import load
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache


@dataclass
class Reply:
    prompt: list[int]
    ids: list[int]  # with the closing token, if there is one
    text: str
    thought: str | None


class Asker:
    def __init__(self, folder: Path) -> None:
        self.model, self.tokenizer = load(str(folder))[:2]

    def reply(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        *,
        thinking: bool = False,
        preserve: bool = False,
        limit: int = 200,
    ) -> Reply:
        prompt = self.tokenizer.apply_chat_template(
            messages,
            tools=tools or None,
            add_generation_prompt=True,
            enable_thinking=thinking,
            preserve_thinking=preserve,
        )
        ids: list[int] = []
        cache = make_prompt_cache(self.model)
        for token, _ in generate_step(
            mx.array(prompt), self.model, max_tokens=limit, prompt_cache=cache
        ):
            ids.append(int(token))
            if ids[-1] in self.tokenizer.eos_token_ids:
                break
        ended = bool(ids) and ids[-1] in self.tokenizer.eos_token_ids
        text = self.tokenizer.decode(ids[:-1] if ended else ids)
        thought = None
        if thinking:
            thought, closed, rest = text.partition("\n</think>\n\n")
            text = rest if closed else ""
        return Reply(list(prompt), ids, text, thought)

    def chat(self, *asks: str, system: str = "", thinking: bool = False) -> list[str]:
        """The answers to a few user messages in a row."""
        messages: list[dict[str, Any]] = []
        if system:
            messages.append({"role": "system", "content": system})
        answers = []
        for ask in asks:
            messages.append({"role": "user", "content": ask})
            reply = self.reply(messages, thinking=thinking)
            messages.append({"role": "assistant", "content": reply.text})
            answers.append(reply.text)
        return answers
