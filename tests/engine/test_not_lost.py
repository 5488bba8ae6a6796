"""No exception anywhere in a turn loses its session from RAM."""

from collections.abc import Callable
from pathlib import Path

import pytest

from llm_mtplx.coldstore import ColdStore
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine import ahead, turn, warm
from llm_mtplx.engine.load import LoadedModel
from llm_mtplx.protocol import Request
from llm_mtplx.sessions import keeper as keeper_module
from llm_mtplx.sessions.bank import Bank
from llm_mtplx.sessions.session import Session
from llm_mtplx.speculative.decoder import Decoder

from ..dictated import LIMITS, keeper, small_model

FIRST = [{"role": "user", "content": "One, two, three: what comes then, and what after that?"}]


class Injected(Exception):
    pass


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return small_model()


class Talk:
    def __init__(self, model: LoadedModel, store: ColdStore | None = None) -> None:
        self.model = model
        self.bank = Bank(LIMITS, lambda: 0.0)
        self.keeper = keeper(model, self.bank, store)
        self.messages = list(FIRST)

    def ask(self) -> turn.Turn:
        request = Request(
            "m",
            MODEL_DIR,
            list(self.messages),
            conversation="a",
            temperature=0,
            depth=2,
            max_tokens=6,
            stop=("never",),
        )
        made = turn.Turn(self.model, request, self.keeper, lambda event: None, lambda: False)
        made.run()
        made.keep()
        return made

    def go_on(self, made: turn.Turn) -> None:
        self.messages += [
            {"role": "assistant", "content": made.answer.text},
            {"role": "user", "content": "And then?"},
        ]


def fail(*args: object, **kwargs: object) -> None:
    raise Injected


def later(method: Callable, calls: int) -> Callable:
    """As ``method`` for some calls, and then an error."""
    left = [calls]

    def failing(*args: object, **kwargs: object) -> object:
        left[0] -= 1
        if left[0] < 0:
            raise Injected
        return method(*args, **kwargs)

    return failing


PLACES = {
    "adopt": (Session, "adopt", fail),
    "sampling": (turn, "resolve_sampling", fail),
    "penalties": (turn, "resolve_penalties", fail),
    "masks": (turn, "masks_for", fail),
    "prefill": (Decoder, "_forward", fail),
    "first": (Decoder, "first", fail),
    "round": (Decoder, "round", fail),
    "later round": (Decoder, "round", later(Decoder.round, 1)),
    "draft": (Decoder, "_draft", fail),
    "judge": (Decoder, "_judge", later(Decoder._judge, 1)),
    "keep": (Decoder, "_keep", fail),
    "complete": (turn, "check_complete", fail),
    "sequel": (turn, "Sequel", fail),
    "settle": (Decoder, "settle", fail),
    "checkpoint": (turn.Checkpoint, "of", fail),
    "save": (keeper_module, "save_line", fail),
}


@pytest.mark.parametrize("place", PLACES)
def test_the_next_turn_goes_on_where_the_last_good_one_ended(
    model: LoadedModel, place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = ColdStore(tmp_path) if place.startswith("sav") else None
    talk = Talk(model, store)
    talk.go_on(talk.ask())
    owner, name, failing = PLACES[place]
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, failing)
        with pytest.raises(Injected):
            talk.ask()
    assert len(talk.bank.sessions) == 1
    if store is not None:
        talk.keeper = keeper(model, talk.bank)  # so that nothing comes from the disk
    good = talk.ask()
    assert good._loan.position > 10
    cold = Talk(model)
    cold.messages = talk.messages
    assert cold.ask().emitted == good.emitted
    if store is not None:
        store.close(10)


def test_the_first_error_is_the_one_that_is_seen(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = Talk(model)
    talk.go_on(talk.ask())
    monkeypatch.setattr(Decoder, "first", fail)

    def broken(*args: object) -> None:
        raise OSError("going back failed, too")

    monkeypatch.setattr(keeper_module, "go_back", broken)
    with pytest.raises(Injected):
        talk.ask()


def test_reading_ahead_and_warming_lose_nothing(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = Talk(model)
    made = talk.ask()
    monkeypatch.setattr(Decoder, "prefill", fail)
    ids = made.decoder.state.ids
    with pytest.raises(Injected):
        ahead.read(model, talk.keeper, ahead.Ahead(made._request, model.key, [*ids, 5, 6]), bool)
    assert len(talk.bank.sessions) == 1
    request = Request("m", MODEL_DIR, [*talk.messages])
    monkeypatch.setattr(warm, "beginning_of", lambda *args: (0, [*ids, 5, 6]))
    with pytest.raises(Injected):
        warm.warm(model, talk.keeper, [request])
    assert len(talk.bank.sessions) == 1


def test_a_block_that_cannot_be_saved_is_no_error(
    model: LoadedModel,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    talk = Talk(model, ColdStore(tmp_path))
    monkeypatch.setattr(keeper_module, "save_blocks", fail)
    assert talk.ask().emitted == Talk(model).ask().emitted
    assert [record.message for record in caplog.records] == [
        "the prompt's blocks were not saved: Injected()"
    ]
