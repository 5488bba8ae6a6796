"""A context that the memory plan says fits takes what the plan says."""

from pathlib import Path

import mlx.core as mx
import pytest

from llm_mtplx.architectures.state import State
from llm_mtplx.catalog import fit
from llm_mtplx.catalog.footprint import of_config
from llm_mtplx.coldstore import ColdStore, ladder
from llm_mtplx.engine.loaded_models import VERIFY_ROWS
from llm_mtplx.sessions.bank import Bank
from llm_mtplx.sessions.session import Checkpoint, Session
from llm_mtplx.speculative.decoder import Decoder
from llm_mtplx.speculative.distributions import Sampling

from ..dictated import LIMITS, keeper, small_model

WINDOW = fit.STEP + 640  # so that there are rungs, and a growth shortly before the end
KIND = {"num_hidden_layers": 4, "dtype": "float32"}


def planned(model) -> int:
    """Bytes of one conversation that fills its window."""
    config = {**vars(model.trunk.args), **KIND, "mtp_num_hidden_layers": 1}
    needs = of_config(config, weights=0)
    return WINDOW * needs.kv_per_token + fit.STATES * needs.state


def filled(session: Session, model, length: int) -> None:
    """Read ``length`` tokens more, leaving what a turn leaves."""
    decoder = Decoder(model.trunk, model.head, Sampling(), state=session.state)
    start, end = session.state.position, session.state.position + length
    marks = sorted({40, *ladder.rungs(end - 8), end - 8})
    for _ in decoder.prefill([1 + n % 50 for n in range(start, end)], marks):
        if decoder.state.position in marks:
            session.checkpoints.append(Checkpoint.of(decoder.state))
    decoder.settle()
    session.checkpoints.append(Checkpoint.of(decoder.state))


@pytest.fixture
def model():
    made = small_model()
    made.trunk.max_rows = WINDOW + VERIFY_ROWS
    return made


@pytest.mark.parametrize("way", ["read", "copied", "restored"])
def test_a_full_window_is_what_was_planned(model, way: str, tmp_path: Path) -> None:
    """Whether its rows were read, or came as a copy in RAM or from the disk and grew from there."""
    bank = Bank(LIMITS, lambda: 0.0)
    store = ColdStore(tmp_path)
    session = Session(model.key, None, State.empty(model.trunk, model.head))
    part = WINDOW if way == "read" else WINDOW - 600
    filled(session, model, part)
    if way != "read":
        memory = keeper(model, bank, store)
        memory.give_back(session, session.checkpoints[-1], "on")
        assert store.flush(60)
        source = memory if way == "copied" else keeper(model, Bank(LIMITS, lambda: 0.0), store)
        ids = session.ids if way == "restored" else session.ids[: part - 8]
        taken = source.take(
            ids, "b", set(), lambda: State.empty(model.trunk, model.head), "on", False
        )
        assert taken.source == ("ssd" if way == "restored" else "ram")
        session = taken.loan.session
        filled(session, model, WINDOW - session.state.position)
    assert session.state.position == WINDOW
    mx.eval(session.state.arrays())
    rows = session.nbytes
    assert rows <= planned(model) * 1.05
    if way == "read":
        assert rows >= planned(model) * 0.95
    session.state.reserve()
    assert session.nbytes == rows  # there is nothing to reserve beyond the window
    store.close(10)
