"""``doctor --verify``: it finds equal answers equal, and a wrong state wrong."""

import mlx.core as mx

from llm_mtplx.architectures.mlx_lm_compat import ArraysCache
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.load import load
from llm_mtplx.measure.verify import verify
from llm_mtplx.sessions import bank
from llm_mtplx.sessions.session import go_back

from ..dictated import small_model


def test_every_way_gives_the_cold_answer() -> None:
    found = verify(small_model())
    assert [way.name for way in found.ways] == ["from RAM", "from SSD", "without drafts"]
    assert all(way.ids == found.cold for way in found.ways)
    assert [way.restored > 0 for way in found.ways] == [True, True, False]
    assert found.holds


def test_a_wrong_state_is_found(monkeypatch) -> None:
    def spoiled(state, checkpoint) -> None:
        go_back(state, checkpoint)
        for cache in state.cache:
            if isinstance(cache, ArraysCache):
                cache.cache = [50 * mx.ones_like(array) for array in cache.cache]

    monkeypatch.setattr(bank, "go_back", spoiled)
    # A random model's answers hardly depend on what it read.
    found = verify(load(MODEL_DIR, lambda line: None))
    ram, ssd, _ = found.ways
    assert ram.first_difference is not None
    assert ram.ids[ram.first_difference] != found.cold[ram.first_difference]
    assert ram.gap is not None
    assert ram.gap > 1e-3
    assert ssd.holds
    assert not found.holds
