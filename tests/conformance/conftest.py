"""What holds for every process that these tests start."""

import pytest


@pytest.fixture(autouse=True)
def patient_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn that a slow machine has not written by its end would be read again, rightly."""
    monkeypatch.setenv("LLM_MTPLX_EXIT_SAVE_S", "60")
