"""What doctor says that would make an installation better."""

from typing import Any

import pytest

from llm_mtplx.commands.advice import advice

GIB = 2**30
FINE: dict[str, Any] = {
    "backend": "metal",
    "blas": "Accelerate",
    "memory_limits": {"mlx_limit_bytes": 48 * GIB, "gpu_working_set_bytes": 48 * GIB},
    "model": {
        "id": "m",
        "head": True,
        "tuned_depth": 2,
        "fits": True,
        "envelope_bytes": 36 * GIB,
    },
    "store": {
        "enabled": True,
        "restorable": True,
        "last_miss_reason": None,
        "skips_writes": None,
    },
}


def test_nothing_where_all_is_well() -> None:
    assert advice(FINE) == []


@pytest.mark.parametrize(
    ("group", "changed", "said"),
    [
        ("model", {"fits": False}, "models --recommended"),
        ("model", {"envelope_bytes": 50 * GIB}, f"iogpu.wired_limit_mb={50 * 1024}"),
        ("model", {"tuned_depth": None}, "llm mtplx tune m"),
        ("store", {"restorable": False, "last_miss_reason": "other_version"}, "(other_version)"),
        ("store", {"skips_writes": "low_disk"}, "The disk is nearly full"),
        ("store", {"skips_writes": "write_budget"}, "LLM_MTPLX_WRITE_BUDGET_PER_HOUR"),
    ],
)
def test_one_line_for_what_is_wrong(group: str, changed: dict[str, Any], said: str) -> None:
    (line,) = advice({**FINE, group: {**FINE[group], **changed}})
    assert said in line


def test_a_head_is_what_there_is_to_tune_and_a_store_what_there_is_to_use() -> None:
    model = {**FINE["model"], "head": False, "tuned_depth": None}
    store = {**FINE["store"], "enabled": False, "restorable": False}
    assert advice({**FINE, "model": model, "store": store}) == []
