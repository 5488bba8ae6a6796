"""Record the logits of mixtures of experts as Hugging Face transformers computes them, in float32.

    python -m tests.golden.make_expert_logits      (needs torch)

Writes expert_logits.npz beside this file: for each family its ids and the float32 row after every
id. The weights are random and made anew from the seed wherever they are needed (tests/raw.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from tests import raw

OUT = Path(__file__).with_name("expert_logits.npz")
FAMILIES = {
    "qwen3_5_moe": (transformers.Qwen3_5MoeForCausalLM, transformers.Qwen3_5MoeTextConfig),
    "qwen3_next": (transformers.Qwen3NextForCausalLM, transformers.Qwen3NextConfig),
}
LENGTH, KEPT = 40, 256  # ids; logits kept of each row, spread over the vocabulary


def load(family: str) -> Any:
    model_class, config_class = FAMILIES[family]
    model = model_class(config_class(**raw.text_config(family))).eval()
    weights = raw.fuse_experts(raw.checkpoint(family))
    if family != "qwen3_next":
        weights = raw.checkpoint(family)
    trunk = {
        name.replace("model.language_model.", "model."): torch.from_numpy(value)
        for name, value in weights.items()
        if not name.startswith("mtp.")
    }
    model.load_state_dict(trunk, strict=True)
    return model


def main() -> None:
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    record: dict[str, Any] = {"versions": np.array(json.dumps(versions))}
    kept = np.arange(0, raw.VOCAB, raw.VOCAB // KEPT)
    with torch.no_grad():
        for family in FAMILIES:
            ids = np.random.default_rng(1).integers(0, raw.VOCAB, LENGTH).astype(np.int32)
            logits = load(family)(torch.tensor(ids[None].astype(np.int64))).logits[0].numpy()
            record[f"ids_{family}"] = ids
            record[f"argmax_{family}"] = logits.argmax(-1).astype(np.int32)
            record[f"logits_{family}"] = logits[:, kept].astype(np.float32)
    np.savez_compressed(OUT, kept=kept, **record)
    print(f"{OUT}: {OUT.stat().st_size} bytes, {versions}")


if __name__ == "__main__":
    main()
