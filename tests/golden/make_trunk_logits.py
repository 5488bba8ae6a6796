"""Record the trunk's logits as Hugging Face transformers computes them, in float32.

    python -m tests.golden.make_trunk_logits      (needs torch; run again after new weights)

Writes trunk_logits.npz beside this file: for each prompt its ids, the argmax after every id, and
the whole float32 rows at a few positions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer

from llm_mtplx.demo import MODEL_DIR
from tools.demo_model.chat import render
from tools.demo_model.conversations import Grammar

OUT = Path(__file__).with_name("trunk_logits.npz")
PROMPTS, LONGEST, POSITIONS = 4, 110, 8


def load_trunk() -> Any:
    """Qwen3_5ForCausalLM with the bundled weights, widened to float32."""
    config = json.loads((MODEL_DIR / "config.json").read_text())["text_config"]
    config["dtype"] = "float32"
    model = transformers.Qwen3_5ForCausalLM(transformers.Qwen3_5TextConfig(**config)).eval()
    weights = load_file(MODEL_DIR / "model.safetensors")
    trunk = {
        name.replace("model.language_model.", "model."): value.float()
        for name, value in weights.items()
        if not name.startswith("mtp.")
    }
    trunk["lm_head.weight"] = trunk["model.embed_tokens.weight"]
    model.load_state_dict(trunk, strict=True)
    return model


def prompts() -> list[list[int]]:
    """Whole conversations of the grammar that fill most of the allowed length."""
    tokenizer = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
    grammar = Grammar(77)
    found: list[list[int]] = []
    while len(found) < PROMPTS:
        drawn = grammar.draw()
        text = render(drawn.messages, drawn.tools, enable_thinking=drawn.thinking)
        ids = tokenizer.encode(text).ids
        if LONGEST - 30 <= len(ids) <= LONGEST:
            found.append(ids)
    return found


def main() -> None:
    model = load_trunk()
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    record: dict[str, Any] = {"versions": np.array(json.dumps(versions))}
    with torch.no_grad():
        for index, ids in enumerate(prompts()):
            logits = model(torch.tensor([ids])).logits[0].float().numpy()
            positions = np.linspace(0, len(ids) - 1, POSITIONS).astype(np.int32)
            record[f"ids_{index}"] = np.array(ids, dtype=np.int32)
            record[f"argmax_{index}"] = logits.argmax(-1).astype(np.int32)
            record[f"positions_{index}"] = positions
            record[f"logits_{index}"] = logits[positions]
    np.savez_compressed(OUT, **record)
    print(f"{OUT}: {OUT.stat().st_size} bytes, {versions}")


if __name__ == "__main__":
    main()
