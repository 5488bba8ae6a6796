"""The forms in which one set of weights is found on disk, made from a raw checkpoint or the demo.

Where a form rounds (quantization), its *twin* is the same folder with the rounded values unpacked:
what the form must compute, by a path that knows nothing of packing.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.utils import quantize_model

from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.load import LoadedModel
from llm_mtplx.speculative.decoder import Decoder
from llm_mtplx.speculative.distributions import Sampling

from . import raw
from .folders import Weights, save

PACKED = ("weight", "scales", "biases")
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def arrays(module: nn.Module) -> Weights:
    return dict(tree_flatten(module.parameters()))


def save_folder(folder: Path, config: dict[str, Any], weights: Weights) -> Path:
    """A model folder with the bundled tokenizer."""
    folder.mkdir(parents=True)
    for name in TOKENIZER:
        shutil.copy(MODEL_DIR / name, folder)
    save(folder / "model.safetensors", weights)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text('{"do_sample": false}')
    return folder


def save_raw(folder: Path, family: str, weights: raw.Arrays | None = None) -> Path:
    """A mixture of experts as the hub has it; ``weights`` where its experts are laid out anew."""
    stored = raw.checkpoint(family) if weights is None else weights
    as_mlx = {name: mx.array(value) for name, value in stored.items()}
    return save_folder(folder, raw.config(family), as_mlx)


def converted(model: LoadedModel) -> Weights:
    """Trunk as mlx-lm converts it, and the head with absolute norms beside it, in float32."""
    assert model.head is not None
    head = {f"mtp.{name}": value for name, value in arrays(model.head).items()}
    return {k: v.astype(mx.float32) for k, v in (arrays(model.trunk.model) | head).items()}


def mixed_bits(path: str, module: nn.Module) -> bool | dict[str, Any]:
    """2 to 8 bits, two group sizes, and some modules left as they are."""
    if path.endswith(("in_proj_a", "in_proj_b")) or not hasattr(module, "to_quantized"):
        return False
    kinds = {
        "q_proj": (8, 32), "k_proj": (8, 64), "o_proj": (6, 64), "v_proj": (5, 32),
        "gate_proj": (2, 32), "up_proj": (3, 64), "down_proj": (4, 32),
        "in_proj_qkv": (5, 64), "in_proj_qkvz": (5, 64), "out_proj": (6, 32),
    }  # fmt: skip
    bits, group = kinds.get(path.rsplit(".", 1)[-1], (8, 64))
    if module.weight.shape[-1] % group:
        group = 32
    if module.weight.shape[-1] % group:
        return False
    return {"bits": bits, "group_size": group}


def quantize_trunk(model: LoadedModel, config: dict[str, Any]) -> tuple[dict[str, Any], Weights]:
    """Config and weights as mlx-lm's own converter makes them. Changes ``model``."""
    trunk = model.trunk.model
    trunk.set_dtype(mx.float32)
    trunk, config = quantize_model(trunk, dict(config), 64, 4, quant_predicate=mixed_bits)
    return config, arrays(trunk)


def pack(weights: Weights, forms: dict[str, tuple[int, int]]) -> Weights:
    """``weights`` with the named modules packed in (bits, group size)."""
    out = dict(weights)
    for name, (bits, group) in forms.items():
        value = out.pop(f"{name}.weight")
        parts = mx.quantize(value, group_size=group, bits=bits)
        out |= {
            f"{name}.{p}": v for p, v in zip(("weight", "scales", "biases"), parts, strict=True)
        }
    return out


def unpack(weights: Weights, inputs: dict[str, int]) -> Weights:
    """Every packed module as plain weights. ``inputs``: the columns of each."""
    out = dict(weights)
    for name in [n.removesuffix(".scales") for n in weights if n.endswith(".scales")]:
        packed, scales, biases = (out.pop(f"{name}.{part}") for part in PACKED)
        columns = inputs[name]
        out[f"{name}.weight"] = mx.dequantize(
            packed, scales, biases,
            group_size=columns // scales.shape[-1],
            bits=packed.shape[-1] * 32 // columns,
        )  # fmt: skip
    return out


def columns(weights: Weights) -> dict[str, int]:
    return {n.removesuffix(".weight"): v.shape[-1] for n, v in weights.items() if v.ndim > 1}


def logits(model: LoadedModel, ids: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """The trunk's rows over ``ids``, and the head's over the same with the next ids known."""
    trunk, head = model.trunk, model.head
    assert head is not None
    hidden = trunk.forward(mx.array([ids]), trunk.make_cache())
    following = trunk.embed(mx.array([ids[1:]]))
    drafted = head(hidden[:, :-1], following, head.make_cache())
    both = trunk.logits(hidden)[0], trunk.logits(drafted)[0]
    return np.array(both[0].astype(mx.float32)), np.array(both[1].astype(mx.float32))


def rounds(model: LoadedModel, prompt: list[int], length: int) -> tuple[list[int], list[int]]:
    """Greedy ids at depth 3, and how many drafts each round accepted."""
    decoder = Decoder(model.trunk, model.head, Sampling())
    list(decoder.prefill(prompt))
    ids, accepted = [decoder.first()], []
    while len(ids) < length:
        done = decoder.round(3, length - len(ids), lambda token: False)
        ids += done.tokens
        accepted.append(done.accepted)
    return ids, accepted


def assert_same_outputs(
    got: LoadedModel, want: LoadedModel, close: float = 1e-4, length: int = 24
) -> None:
    """Trunk and head logits, and what decoding makes of them."""
    ids = [5, 9, 300, 41, 7, 1200, 88, 5, 9, 300, 17, 2]
    for ours, theirs in zip(logits(got, ids), logits(want, ids), strict=True):
        assert np.abs(ours - theirs).max() <= close * np.abs(theirs).max()
    assert rounds(got, ids, length) == rounds(want, ids, length)
