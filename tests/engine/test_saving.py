"""A prompt is written while it is being read."""

from pathlib import Path

import mlx.core as mx
import pytest

from llm_mtplx.coldstore import BLOCK, ColdStore
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.load import LoadedModel
from llm_mtplx.engine.turn import Turn
from llm_mtplx.errors import EngineError
from llm_mtplx.protocol import Event, Progress, Request
from llm_mtplx.sessions.bank import Bank
from llm_mtplx.sessions.keeper import Keeper
from llm_mtplx.speculative import decoder

from ..dictated import LIMITS, keeper, small_model
from ..speculative.states import assert_equal, named_arrays

LONG = "Now tell me of the sea. " * 120


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return small_model()


def asked(model: LoadedModel, memory: Keeper, emit, cancelled=lambda: False) -> Turn:
    messages = [{"role": "user", "content": LONG}]
    request = Request("m", MODEL_DIR, messages, temperature=0, max_tokens=4, conversation="a")
    return Turn(model, request, memory, emit, cancelled)


def test_blocks_are_there_before_the_first_token(
    model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder, "OPS_CHUNK", 100)  # no multiple of a block
    store = ColdStore(tmp_path)
    written: list[tuple[int, int]] = []

    def emit(event: Event) -> None:
        if isinstance(event, Progress):
            assert store.flush(30)
            written.append((event.done, store.report().blocks))

    turn = asked(model, keeper(model, Bank(LIMITS, lambda: 0.0), store), emit)
    turn.run()
    assert len(turn.prompt) > 3 * BLOCK
    # Said before a chunk's blocks are queued: all that the chunks before it have finished.
    for (_, blocks), (before, _) in zip(written[1:], written, strict=False):
        assert blocks == before // BLOCK
    turn.keep()
    assert store.flush(30)
    # They are the rows of a line that was read at once: what is restored is what was computed.
    again = asked(model, keeper(model, Bank(LIMITS, lambda: 0.0), store), lambda event: None)
    assert again._taken.source == "ssd"
    assert again._loan.position == turn._header
    fresh = decoder.Decoder(model.trunk, model.head, decoder.Sampling())
    list(fresh.prefill(again.decoder.state.ids))
    assert_equal(named_arrays(again.decoder.state), named_arrays(fresh.state))
    store.close(10)


def test_a_turn_that_is_stopped_while_reading_leaves_what_it_read(
    model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder, "OPS_CHUNK", 64)
    store = ColdStore(tmp_path)
    read: list[int] = []

    def emit(event: Event) -> None:
        if isinstance(event, Progress):
            read.append(event.done)

    memory = keeper(model, Bank(LIMITS, lambda: 0.0), store)
    turn = asked(model, memory, emit, lambda: read[-1:] > [2 * BLOCK])
    turn.run()
    assert store.flush(30)
    assert store.report().blocks == 2
    store.close(10)


@pytest.mark.parametrize("how", [{"persist": False}, {"cache": "off"}])
def test_what_is_not_to_be_kept_is_not_written(
    model: LoadedModel, how: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder, "OPS_CHUNK", 100)
    store = ColdStore(tmp_path)
    messages = [{"role": "user", "content": LONG}]
    request = Request("m", MODEL_DIR, messages, temperature=0, max_tokens=4, **how)
    memory = keeper(model, Bank(LIMITS, lambda: 0.0), store)
    turn = Turn(model, request, memory, lambda event: None, lambda: False)
    turn.run()
    turn.keep()
    store.close(10)
    assert not store.path.exists()


def test_rows_that_are_not_finite_are_never_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder, "OPS_CHUNK", 64)
    model = small_model()
    store = ColdStore(tmp_path)
    memory = keeper(model, Bank(LIMITS, lambda: 0.0), store)
    turn = asked(model, memory, lambda event: None)
    # Not a number from this position on.
    turn.prompt[BLOCK + 10] = poisoned = len(model.tokenizer.token_bytes) - 1
    embedding = model.trunk.model.language_model.model.embed_tokens
    rows = mx.arange(embedding.weight.shape[0])[:, None] == poisoned
    embedding.weight = mx.where(rows, mx.nan, embedding.weight)
    with pytest.raises(EngineError, match="not finite"):
        turn.run()
    assert store.flush(30)
    assert store.report().blocks == 1
    store.close(10)
