"""The bundled folder: small, complete, in the raw Hugging Face layout, cheap to point at."""

from __future__ import annotations

import json
import subprocess
import sys

import mlx.core as mx

from llm_mtplx.demo import MODEL_DIR

HEAD = {
    "mtp.fc.weight",
    "mtp.norm.weight",
    "mtp.pre_fc_norm_embedding.weight",
    "mtp.pre_fc_norm_hidden.weight",
    *(
        f"mtp.layers.0.{name}.weight"
        for name in (
            "input_layernorm",
            "post_attention_layernorm",
            "mlp.down_proj",
            "mlp.gate_proj",
            "mlp.up_proj",
            "self_attn.k_norm",
            "self_attn.k_proj",
            "self_attn.o_proj",
            "self_attn.q_norm",
            "self_attn.q_proj",
            "self_attn.v_proj",
        )
    ),
}


def test_it_is_complete_and_small() -> None:
    names = {path.name for path in MODEL_DIR.iterdir()}
    assert names == {
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert sum(path.stat().st_size for path in MODEL_DIR.iterdir()) <= 8_000_000


def test_the_weights_are_raw() -> None:
    weights = mx.load(str(MODEL_DIR / "model.safetensors"))
    head = {name for name in weights if name.startswith("mtp.")}
    assert head == HEAD
    assert all(name.startswith("model.language_model.") for name in weights.keys() - head)
    assert weights["model.language_model.layers.0.linear_attn.conv1d.weight"].shape == (512, 1, 4)
    # Norms are offsets from one that stay the same offset when a loader adds one in bfloat16.
    for name, value in weights.items():
        if name.endswith("norm.weight") and "linear_attn" not in name:
            exact = value.astype(mx.float32) + 1.0
            assert ((value + 1.0).astype(mx.float32) == exact).all()


def test_the_config_declares_the_head() -> None:
    config = json.loads((MODEL_DIR / "config.json").read_text())
    assert config["model_type"] == "qwen3_5"
    assert config["text_config"]["mtp_num_hidden_layers"] == 1
    assert config["text_config"]["max_position_embeddings"] >= 4096


def test_pointing_at_it_imports_nothing_heavy() -> None:
    code = (
        "import sys, llm_mtplx.demo; "
        "print(sorted({'mlx', 'mlx_lm', 'torch', 'transformers', 'tokenizers'} "
        "& set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
