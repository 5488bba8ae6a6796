"""Models are loaded on demand and make room for each other."""

from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest

from llm_mtplx.catalog import fit, footprint, machine
from llm_mtplx.catalog.folder import inspect
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.engine import shared_engine
from llm_mtplx.engine.loaded_models import Residents
from llm_mtplx.protocol import Finished, Request

from ..folders import copy_demo


def on_engine(task: Callable[[], None]) -> None:
    shared_engine().call(task)


def get(residents: Residents, folder: Path) -> None:
    residents.get(folder.name, folder, lambda line: None)


def loaded(residents: Residents) -> list[str]:
    return [each.model_id for each in residents.all]


def test_the_least_recently_used_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, c = (copy_demo(tmp_path / name) for name in "abc")
    needs = footprint.of_folder(inspect(a))
    each = needs.weights + fit.STEP * needs.kv_per_token + needs.state
    memory = fit.TRANSIENTS + 5 * each // 2  # two and a half, and what a forward needs
    monkeypatch.setattr(machine, "memory_bytes", lambda: memory)

    def task() -> None:
        residents = Residents()
        for folder in (a, b, a, c):
            get(residents, folder)
        assert loaded(residents) == ["a", "c"]
        residents.tidy(3600)
        residents.tidy(0)
        assert loaded(residents) == ["a", "c"]
        mx.clear_cache()
        residents.tidy(1e-9)
        assert loaded(residents) == []
        # Whatever held a model while it was dropped would have let its memory go later.
        assert mx.get_cache_memory() < needs.weights

    on_engine(task)


def test_an_unloaded_models_sessions_leave_ram_with_it(tmp_path: Path) -> None:
    folder = copy_demo(tmp_path / "demo")
    said = [{"role": "user", "content": "Hello, I am Tamsin and I live in Porto."}]
    asked = Request("m", folder, said, max_tokens=4, temperature=0, persist=False)

    def turn() -> Finished:
        *_, last = shared_engine().stream(asked)
        assert isinstance(last, Finished)
        return last

    assert (turn().restored, turn().restored > 0) == (0, True)
    on_engine(lambda: shared_engine()._residents.drop(folder))
    assert turn().restored == 0


def test_salts_see_nothing_of_each_other() -> None:
    said = [{"role": "user", "content": "Hello, I am Wimbo and I live in Lisbon."}]

    def restored(salt: str) -> int:
        asked = Request("m", MODEL_DIR, said, max_tokens=4, temperature=0, salt=salt)
        *_, last = shared_engine().stream(asked)
        assert isinstance(last, Finished)
        return last.restored

    assert (restored("a"), restored("b")) == (0, 0)
    assert restored("a") > 0
