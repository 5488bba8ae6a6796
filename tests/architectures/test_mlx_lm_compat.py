"""What is expected of mlx-lm beyond its forward, so that a version that breaks it is noticed."""

import copy
import inspect

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear

from llm_mtplx.architectures.mlx_lm_compat import build_model, sanitize

from .. import raw
from ..rotated import TEXT, RotatedModel
from ..tiny import TEXT_CONFIG

CONFIGS = {
    "qwen3_5": {"model_type": "qwen3_5", "text_config": TEXT_CONFIG},
    "qwen3_5_moe": raw.config("qwen3_5_moe"),
    "qwen3_next": raw.config("qwen3_next"),
}


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("is_raw", [True, False])
def test_one_is_added_to_the_norms_of_raw_checkpoints_alone(family: str, is_raw: bool) -> None:
    """Known by their conv1d, and never to the recurrent layers' own norm."""
    prefix = "model." if family == "qwen3_next" else "language_model.model."
    conv = mx.zeros((5, 1, 4) if is_raw else (5, 4, 1))
    names = ["norm", "layers.0.input_layernorm", "layers.0.post_attention_layernorm"]
    names += ["layers.1.self_attn.q_norm", "layers.1.self_attn.k_norm"]
    weights = {f"{prefix}{name}.weight": mx.zeros(3) for name in names}
    gated = f"{prefix}layers.0.linear_attn.norm.weight"
    weights |= {f"{prefix}layers.0.linear_attn.conv1d.weight": conv, gated: mx.ones(3)}
    out = sanitize(build_model(CONFIGS[family]), weights)
    assert out.keys() == weights.keys()
    assert out[f"{prefix}layers.0.linear_attn.conv1d.weight"].shape == (5, 4, 1)
    for name, value in out.items():
        if value.ndim == 1:
            wanted = 1.0 if is_raw or name == gated else 0.0
            assert np.array_equal(np.array(value), np.full(3, wanted)), name


def test_names_of_the_hub_and_the_tower_of_vision() -> None:
    weights = {
        "model.language_model.norm.weight": mx.zeros(3),
        "vision_tower.x": mx.zeros(3),
        "model.visual.x": mx.zeros(3),
    }
    model = build_model(CONFIGS["qwen3_5"])
    assert set(sanitize(model, weights)) == {"language_model.model.norm.weight"}


def test_layers_that_can_be_quantized_say_so() -> None:
    layer = SwitchLinear(64, 32, 4, bias=False).to_quantized(group_size=32, bits=3, mode="affine")
    assert isinstance(layer, QuantizedSwitchLinear)
    assert (layer.bits, layer.group_size) == (3, 32)


def test_rotated_modules_are_packed_from_the_start() -> None:
    model = build_model(RotatedModel().config(2))
    embedding = model.language_model.model.embed_tokens
    assert embedding.weight.dtype == mx.uint32
    assert embedding.signs.shape == (TEXT["hidden_size"],)
    assert "as_linear" in dict(inspect.getmembers(embedding))


def test_the_configs_are_not_changed_by_building() -> None:
    """mlx-lm renames a key of rope_parameters in place; a second build must not mind."""
    config = raw.config("qwen3_5_moe")
    before = copy.deepcopy(config)
    build_model(config)
    assert config == before
