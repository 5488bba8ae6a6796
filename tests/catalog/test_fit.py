"""The memory plan on published numbers, and what must hold for any."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_mtplx.catalog import fit, known
from llm_mtplx.catalog.fit import GIB, Needs, Verdict, fit_together, plan
from llm_mtplx.catalog.folder import inspect
from llm_mtplx.catalog.footprint import of_config, of_folder
from llm_mtplx.catalog.recommend import recommended
from llm_mtplx.demo import MODEL_DIR

QWEN_27B = {
    "num_hidden_layers": 64,
    "full_attention_interval": 4,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "max_position_embeddings": 262_144,
    "mtp_num_hidden_layers": 1,
}
V2 = Needs(19_887_455_621, 65_536, 153_944_064)
FLASH_NEXT = Needs(66 * GIB, 24_576)


def test_the_bytes_of_a_27b() -> None:
    needs = of_config(QWEN_27B, 1)
    assert needs.kv_per_token == 65_536 + 4_096
    assert needs.state == 150_994_944 + 2_949_120
    assert of_config({**QWEN_27B, "layer_types": ["full_attention"] * 64}, 1).state == 0


def test_the_bytes_of_the_demo_model() -> None:
    needs = of_folder(inspect(MODEL_DIR))
    content = (MODEL_DIR / "model.safetensors").read_bytes()
    assert needs.weights == len(content) - 8 - struct.unpack("<Q", content[:8])[0]
    assert needs.kv_per_token == 2 * (2 * 2 * 64 * 2)
    assert (
        needs.max_context
        == json.loads((MODEL_DIR / "config.json").read_text())["text_config"][
            "max_position_embeddings"
        ]
    )


@pytest.mark.parametrize(
    ("memory", "usable"), [(8, 8), (16, 12), (48, 36), (64, 48), (128, 90), (192, 144), (512, 192)]
)
def test_usable(memory: int, usable: int) -> None:
    assert fit.usable(memory * GIB) == usable * GIB


@pytest.mark.parametrize(
    ("memory", "needs", "per_session"),
    [(48, V2, 7.2), (64, V2, 13.2), (128, V2, 32), (128, FLASH_NEXT, 10.5)],
)
def test_published_budgets_of_a_session(memory: int, needs: Needs, per_session: float) -> None:
    assert plan(memory * GIB, needs).per_session / GIB == pytest.approx(per_session, abs=0.05)


@pytest.mark.parametrize(
    ("needs", "window"),
    [
        (Needs(8_847_919_618, 65_536, peak=int(11.8 * GIB)), 8_192),  # Bonsai 2
        (Needs(8_695_118_659, 32_768, peak=10 * GIB), 20_480),  # Qwen 3.5 9B
    ],
)
def test_published_windows_on_16_gib(needs: Needs, window: int) -> None:
    small = plan(16 * GIB, needs)
    assert small.fits
    assert small.window == window


def test_sessions_are_more_on_a_large_machine() -> None:
    assert plan(64 * GIB, V2).sessions == 24
    assert plan(96 * GIB, V2).sessions == 48


def test_what_does_not_fit_has_the_least_window_and_not_none() -> None:
    none = plan(16 * GIB, V2)
    assert not none.fits
    assert none.window == 4_096
    assert none.per_session <= none.bank


SIZES = st.integers(2 * GIB, 512 * GIB)
NEEDS = st.builds(
    Needs,
    weights=st.integers(0, 200 * GIB),
    kv_per_token=st.integers(1, 400_000),
    state=st.integers(0, GIB),
    max_context=st.integers(8_192, 1_000_000),
)


@given(SIZES, NEEDS)
def test_what_fits_stays_within_the_memory(memory: int, needs: Needs) -> None:
    made = plan(memory, needs)
    assert made.envelope <= memory
    assert 0 <= made.per_session <= made.bank <= fit.BANK_CAP
    assert made.window <= max(needs.max_context, 4_096)
    assert made.window % 4_096 == 0 or made.window == needs.max_context
    if made.fits:
        used = needs.weights + fit.TRANSIENTS + made.window * needs.kv_per_token
        used += fit.STATES * needs.state
        assert used <= made.envelope


@given(SIZES, NEEDS, st.integers(1, GIB))
def test_a_lighter_model_never_has_a_smaller_window(memory: int, needs: Needs, less: int) -> None:
    lighter = Needs(max(needs.weights - less, 0), needs.kv_per_token, 0, needs.max_context)
    peak = fit.peak(needs)
    same = Needs(needs.weights, needs.kv_per_token, 0, needs.max_context, peak)
    lighter = Needs(lighter.weights, needs.kv_per_token, 0, needs.max_context, peak)
    assert plan(memory, lighter).window >= plan(memory, same).window


def test_two_models() -> None:
    small = Needs(8_695_118_659, 32_768)
    assert fit_together(32 * GIB, [small, small])
    assert not fit_together(16 * GIB, [small, small])
    assert fit_together(64 * GIB, [V2, V2])
    assert not fit_together(48 * GIB, [V2, V2])


def test_two_processes_need_more_than_two_models_in_one() -> None:
    both = 2 * (V2.weights + 4_096 * V2.kv_per_token + fit.STATES * V2.state)
    memory = (both + fit.TRANSIENTS) * 4 // 3 + 1
    assert fit_together(memory, [V2, V2])
    assert fit.copies(memory, V2) == 1
    assert fit.copies((both + 2 * fit.TRANSIENTS) * 4 // 3 + 1, V2) == 2


@pytest.mark.parametrize(
    ("memory", "verdict"),
    [(24, Verdict.TOO_LARGE), (25, Verdict.TIGHT), (37, Verdict.TIGHT), (38, Verdict.RECOMMENDED)],
)
def test_verdicts(memory: int, verdict: Verdict) -> None:
    assert fit.verdict(memory * GIB, 25 * GIB) == verdict


def test_disk() -> None:
    assert fit.disk_needed(20 * GIB) == 25 * GIB
    assert fit.disk_needed(10**6) == 2 * 10**6
    assert fit.disk_needed(0) == 0


@pytest.mark.parametrize(
    ("memory", "chip", "first", "absent"),
    [
        (8, "Apple M3", "qwen3.5-4b-mtp", "qwen3.5-9b-mtp"),
        (8, "Apple M1", None, None),
        (16, "Apple M4", "bonsai-2-27b-mtp", "qwen3.8-27b-mtp"),
        (16, "Apple M2", "qwen3.5-9b-mtp", "bonsai-2-27b-mtp"),
        (32, "Apple M4 Pro", "qwen3.8-27b-mtp", "qwen3.8-27b-mtp-quality"),
        (64, "Apple M2 Max", "qwen3.8-27b-mtp", "qwen3.5-4b-mtp"),
        (64, "", "qwen3.8-27b-mtp", None),
        (64, "Intel(R) Core(TM) i9-9980HK CPU @ 2.40GHz", None, None),
    ],
)
def test_recommended(memory: int, chip: str, first: str | None, absent: str | None) -> None:
    ids = [pack.model_id for pack in recommended(memory * GIB, chip)]
    assert (ids[0] if ids else None) == first
    assert absent not in ids


def test_every_pack_is_recommended_somewhere() -> None:
    assert {p.model_id for p in recommended(64 * GIB, "Apple M5")} == {
        pack.model_id for pack in known.PACKS
    }
