"""Warm turns of a mixture of experts, and of Qwen3-Next, equal cold ones."""

from pathlib import Path

import pytest

from llm_mtplx.coldstore import ColdStore
from llm_mtplx.engine.load import load
from llm_mtplx.sessions.bank import Bank

from ..dictated import LIMITS, keeper
from ..forms import save_raw
from .talk import Clock, Talk


@pytest.mark.parametrize("family", ["qwen3_5_moe", "qwen3_next"])
def test_turns_go_on_from_ram_and_ssd(tmp_path: Path, family: str) -> None:
    model = load(save_raw(tmp_path / "model", family), print)
    store = ColdStore(tmp_path / "cache")
    bank = Bank(LIMITS, Clock())

    def other_process():
        assert store.flush(60.0)
        return keeper(model, Bank(LIMITS, Clock()), store)

    try:
        preserve = {"preserve_thinking": True}
        talk = Talk(model, bank, template=preserve, memory=lambda: keeper(model, bank, store))
        # A random model's own answers need not be whole characters.
        said = [*model.tokenizer.encode("A capital."), *model.eos_ids]
        talk.say("One.", depth=3, dictated=said)
        from_ram = talk.say("Two.", depth=0)
        talk.say("And?", dictated=said)
        talk.memory = other_process
        from_ssd = talk.say("Three.", depth=3)
    finally:
        store.close(60.0)
    assert (from_ram.source, from_ssd.source) == ("ram", "ssd")
    assert from_ram.restored > 0 and from_ssd.restored > from_ram.restored
