"""Mixtures of experts say what Hugging Face transformers says (make_expert_logits.py)."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from llm_mtplx.engine.load import load

from ..forms import save_raw

GOLDEN = np.load(Path(__file__).with_name("expert_logits.npz"))


@pytest.mark.parametrize("family", ["qwen3_5_moe", "qwen3_next"])
def test_logits_equal_those_of_transformers(tmp_path: Path, family: str) -> None:
    trunk = load(save_raw(tmp_path / family, family), print).trunk
    hidden = trunk.forward(mx.array(GOLDEN[f"ids_{family}"][None]), trunk.make_cache())
    logits = np.array(trunk.logits(hidden)[0])
    want = GOLDEN[f"logits_{family}"]
    assert np.abs(logits[:, GOLDEN["kept"]] - want).max() <= 1e-4 * np.abs(want).max()
    assert (logits.argmax(-1) == GOLDEN[f"argmax_{family}"]).all()
