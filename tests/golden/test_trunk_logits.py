"""The trunk through mlx-lm says what Hugging Face transformers says (make_trunk_logits.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.utils import load_model

from llm_mtplx.demo import MODEL_DIR

GOLDEN = np.load(Path(__file__).with_name("trunk_logits.npz"))
PROMPTS = sorted(name.removeprefix("ids_") for name in GOLDEN.files if name.startswith("ids_"))


@pytest.fixture(scope="module")
def trunk() -> Any:
    model, _ = load_model(MODEL_DIR)
    model.set_dtype(mx.float32)
    return model


@pytest.mark.parametrize("prompt", PROMPTS)
def test_logits_equal_those_of_transformers(trunk: Any, prompt: str) -> None:
    ids, positions = GOLDEN[f"ids_{prompt}"], GOLDEN[f"positions_{prompt}"]
    logits = np.array(trunk(mx.array(ids[None]))[0])
    assert np.abs(logits[positions] - GOLDEN[f"logits_{prompt}"]).max() <= 1e-3
    assert (logits.argmax(-1) == GOLDEN[f"argmax_{prompt}"]).all()
