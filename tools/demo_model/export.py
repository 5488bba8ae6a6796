"""A checkpoint to the raw Hugging Face layout of a Qwen3.5 model folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from tools.demo_model import chat
from tools.demo_model import tokenizer as demo_tokenizer
from tools.demo_model.network import CentredNorm, DemoModel
from tools.demo_model.shape import hf_config

# Kept in float32, as Qwen's own checkpoints keep it: exp of it sets the decay of the state.
FLOAT32 = ("A_log",)


def tensors(model: DemoModel) -> dict[str, torch.Tensor]:
    """Trunk under `model.language_model.`, head under `mtp.`; norms stay zero-centred."""
    centred = {
        f"{name}.weight" for name, part in model.named_modules() if isinstance(part, CentredNorm)
    }
    out = {}
    for name, value in model.state_dict().items():
        key = name if name.startswith("mtp.") else f"model.language_model.{name}"
        if name in centred:
            # Loaders add one in bfloat16; a gain that survives that is the same for all of them.
            value = (1.0 + value).bfloat16().float() - 1.0
        dtype = torch.float32 if name.endswith(FLOAT32) else torch.bfloat16
        out[key] = value.detach().to(dtype).contiguous()
    return out


def export(model: DemoModel, tokenizer: Tokenizer, folder: Path) -> None:
    """Write the whole model folder; the weights appear under their name only when complete."""
    folder.mkdir(parents=True, exist_ok=True)
    demo_tokenizer.save(tokenizer, folder, chat.TEMPLATE_PATH.read_text(encoding="utf-8"))
    eos = demo_tokenizer.control_id(tokenizer, "<|im_end|>")
    pad = demo_tokenizer.control_id(tokenizer, "<|endoftext|>")
    config = hf_config(model.shape, eos, pad)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    # So small a model may not find an end: no answer that it has needs more.
    generation = {
        "do_sample": False,
        "eos_token_id": [eos, pad],
        "max_new_tokens": 1024,
        "pad_token_id": pad,
    }
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    part = folder / "model.safetensors.part"
    save_file(tensors(model), part, metadata={"format": "pt"})
    part.chmod(0o644)  # save_file makes it private; the folder is meant to be shipped
    os.replace(part, folder / "model.safetensors")
