"""A model's tokenizer and chat template, from its own files."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel
from tokenizers.models import BPE

from ..errors import ModelFolderError, RequestError

# As mlx-lm does: without it transformers tells everybody that PyTorch is missing.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
from transformers import PreTrainedTokenizerFast

Message = dict[str, Any]

LONG = 1 << 14  # characters; encoding longer texts lets other threads of this process run


class ChatTokenizer:
    """Renders conversations with the model's template and encodes them with its tokenizer.json.

    The template runs in transformers. Encoding does not: transformers rebuilds some tokenizers
    with another split rule than the one their tokenizer.json carries. So it is given an empty
    vocabulary: to read one of 250,000 tokens takes as long as everything else that loads.
    """

    def __init__(self, folder: Path) -> None:
        try:
            self._encoder = Tokenizer.from_file(str(folder / "tokenizer.json"))
            self._templates = PreTrainedTokenizerFast.from_pretrained(
                str(folder), tokenizer_object=Tokenizer(BPE())
            )
        except Exception as error:  # tokenizers raises bare Exception
            raise ModelFolderError(f"{folder} has no readable tokenizer: {error}.") from error
        if self._templates.chat_template is None:
            raise ModelFolderError(
                f"{folder} has no chat template. Add the model's chat_template.jinja to it."
            )
        self.think_start = self._encoder.token_to_id("<think>")
        self.think_end = self._encoder.token_to_id("</think>")
        self.message_start = self._encoder.token_to_id("<|im_start|>")
        self.message_end = self._encoder.token_to_id("<|im_end|>")
        self.token_bytes = token_bytes(self._encoder)
        self.longest = max(map(len, self.token_bytes))  # bytes of a token
        self.added_ids = sorted(self._encoder.get_added_tokens_decoder())

    def render(
        self,
        messages: Sequence[Message],
        template_args: Mapping[str, Any],
        generation_prompt: bool = True,
    ) -> str:
        """The prompt text, with or without the beginning of the answer."""
        try:
            text: str = self._templates.apply_chat_template(
                list(messages),
                tokenize=False,
                add_generation_prompt=generation_prompt,
                **template_args,
            )
        except (TemplateError, ValueError, TypeError) as error:
            raise RequestError(f"The model's chat template refuses this prompt: {error}") from error
        return text

    def encode(self, text: str) -> list[int]:
        if len(text) > LONG:
            (whole,) = self._encoder.encode_batch_fast([text], add_special_tokens=False)
            return list(whole.ids)
        ids: list[int] = self._encoder.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str | None:
        """The text of ``ids``, control tokens included; None where they are no whole text."""
        raw = b"".join(self.token_bytes[i] if i < len(self.token_bytes) else b"" for i in ids)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            return None

    def starts_in_reasoning(self, prompt: Sequence[int]) -> bool:
        """Whether the generation prompt leaves a think block open."""
        if self.think_start is None:
            return False
        for token in reversed(prompt):
            if token == self.think_start:
                return True
            if token in (self.think_end, self.message_start):
                return False
        return False


def token_bytes(tokenizer: Tokenizer) -> list[bytes]:
    """The bytes each id stands for in a byte-level BPE vocabulary."""
    if not isinstance(tokenizer.decoder, ByteLevel):
        raise ModelFolderError(
            f"The tokenizer decodes with {type(tokenizer.decoder).__name__!r}; only byte-level BPE "
            "is supported."
        )
    stand_ins = str.maketrans({c: chr(byte) for c, byte in _byte_level_alphabet().items()})
    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    added = tokenizer.get_added_tokens_decoder()
    table = [b""] * (1 + max([*vocabulary.values(), *added]))
    # One character is one byte, so all tokens are turned at once.
    raw = "".join(vocabulary).translate(stand_ins).encode("latin-1")
    end = 0
    for token, token_id in vocabulary.items():
        start, end = end, end + len(token)
        table[token_id] = raw[start:end]
    for token_id, content in added.items():
        table[token_id] = content.content.encode()
    return table


def _byte_level_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in character for each byte -> that byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    alphabet.update({chr(0x100 + n): byte for n, byte in enumerate(others)})
    return alphabet
