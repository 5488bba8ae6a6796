"""What RAM sessions get: the memory plan's share beside the weights, or what the user says."""

import pytest

from llm_mtplx.catalog import machine
from llm_mtplx.catalog.fit import GIB, Needs
from llm_mtplx.engine.budgets import bank_limits

# A 27B pack of 4 bits: sizes that are published for it.
BIG = Needs(weights=int(19.28 * GIB), kv_per_token=69_632, state=153_944_064)


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory_bytes", lambda: 64 * GIB)


def test_beside_a_model() -> None:
    told = bank_limits([BIG])
    assert told.total_bytes == 48 * GIB - BIG.weights - 3 * GIB
    assert told.per_session_bytes == told.total_bytes // 2
    assert (told.entries, told.idle_s, told.pin_s) == (24, 3600, 600)


def test_two_models_leave_less_than_one() -> None:
    one, two = bank_limits([BIG]), bank_limits([BIG, Needs(10 * GIB, 40_000)])
    assert one.total_bytes - two.total_bytes == 10 * GIB


def test_what_the_user_says_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_MTPLX_RAM_MAX_BYTES", "2G")
    monkeypatch.setenv("LLM_MTPLX_RAM_MAX_ENTRIES", "3")
    monkeypatch.setenv("LLM_MTPLX_ACTIVE_PIN_TTL_S", "7")
    told = bank_limits([BIG])
    assert (told.total_bytes, told.per_session_bytes) == (2 * GIB, 2 * GIB)
    assert (told.entries, told.pin_s) == (3, 7)
