"""``llm mtplx serve`` with a model whose choices are given by what it is asked: the last message of
the user says what to answer, or which tool to call. Every forward, and all that is kept, is real.

    <say>text</say>            answer with this text
    <count>n</count>           answer with the numbers up to n: long enough to be interrupted
    <call>{"name": ..., "arguments": {...}}</call>
                               call this tool, then answer with what it returned
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from mlx.utils import tree_flatten

from llm_mtplx.chat.latesystem import CLOSE, OPEN
from llm_mtplx.engine.turn import Turn
from llm_mtplx.speculative.decoder import Decoder

from ..dictated import DictatedDecoder
from ..forms import save_folder
from ..tiny import TEXT_CONFIG, random_trunk_and_head

# The prompts of coding agents: tens of thousands of tokens of the bundled tokenizer.
CONTEXT = 262_144
SHAPE: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "head_dim": 16,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 1,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "max_position_embeddings": CONTEXT,
}
TOLD = re.compile(r"<(say|count|call)>(.*?)</\1>", re.DOTALL)
RESULT = re.compile(r"<tool_response>\n(.*?)\n</tool_response>", re.DOTALL)
# What the server makes of system messages in mid-conversation.
LATE_SYSTEM = re.compile(re.escape(OPEN) + ".*?" + re.escape(CLOSE), re.DOTALL)


def save_model(folder: Path) -> Path:
    config = {**TEXT_CONFIG, **SHAPE}
    trunk, head = random_trunk_and_head(**SHAPE)
    weights = dict(tree_flatten(trunk.model.parameters()))
    weights.update({f"mtp.{name}": value for name, value in tree_flatten(head.parameters())})
    marked = {"model_type": "qwen3_5", "text_config": config, "mtp_norm_encoding": "absolute"}
    return save_folder(folder, marked, weights)


def answer_to(prompt: str) -> str:
    """What the model is to write after ``prompt``: what its last message of the user asks for,
    system messages aside, which may stand in a user's message, in a tool's result or alone."""
    told_by_user = (
        LATE_SYSTEM.sub("", block.split("<|im_end|>", 1)[0]).strip()
        for block in reversed(prompt.split("<|im_start|>user\n")[1:])
    )
    last = next((message for message in told_by_user if message), "")
    results = RESULT.findall(last)
    if results:
        return f"The tool returned: {' '.join(result.strip() for result in results)}"
    told = TOLD.findall(last)
    if not told:
        return "Fine."
    kind, content = told[-1]
    if kind == "count":
        return " ".join(str(number) for number in range(1, int(content) + 1))
    if kind == "say":
        return content
    # opencode escapes the quotes of what it is asked.
    return call_text(json.loads(content.replace('\\"', '"')))


def call_text(call: dict[str, Any]) -> str:
    """As the template of the model asks for calls."""
    lines = ["<tool_call>", f"<function={call['name']}>"]
    for name, value in call["arguments"].items():
        written = value if isinstance(value, str) else json.dumps(value)
        lines += [f"<parameter={name}>", written, "</parameter>"]
    return "\n".join([*lines, "</function>", "</tool_call>"])


class DictatedTurn(Turn):
    def _decoder(self, thinking: bool) -> Decoder:
        tokenizer = self.model.tokenizer
        ids = [*tokenizer.encode(answer_to(self._text)), tokenizer.message_end]
        state = self._loan.session.state
        return DictatedDecoder(self.model, self.prompt, ids, state=state)


def main(folder: str, *options: str) -> None:
    """Serve, as ``llm mtplx serve`` does, until a signal ends it."""
    from llm.cli import cli

    from llm_mtplx.catalog.entries import Entry, add_entry
    from llm_mtplx.engine import turn

    add_entry(Entry("mtplx/clients/dictated", save_model(Path(folder)), ("dictated",)))
    turn.Turn = DictatedTurn
    cli(["mtplx", "serve", *options])


if __name__ == "__main__":
    main(*sys.argv[1:])
