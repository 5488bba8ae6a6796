"""A raw prompt that is known to its very end is restored whole, and nothing is forwarded."""

from pathlib import Path

import pytest

from llm_mtplx.coldstore import ColdStore
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.load import LoadedModel
from llm_mtplx.engine.turn import Turn
from llm_mtplx.protocol import Finished, Request
from llm_mtplx.sessions.bank import Bank
from llm_mtplx.sessions.keeper import Keeper

from ..dictated import LIMITS, DictatedDecoder, keeper, small_model

TEXT = "Once there was a fox that lived by the sea, and every evening it sat on a stone and"
GOES_ON = TEXT + " looked out over the water for its friends."


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return small_model()


def complete(
    model: LoadedModel, memory: Keeper, prompt: str, dictated: list[int] | None = None, **options
) -> tuple[Turn, Finished]:
    options["max_tokens"] = 6 if dictated is None else len(dictated)
    request = Request("m", MODEL_DIR, [], prompt=prompt, seed=7, depth=2, **options)
    turn = Turn(model, request, memory, lambda event: None, lambda: False)
    if dictated is not None:
        state = turn.decoder.state
        turn.decoder = DictatedDecoder(model, turn.prompt, dictated, state=state)
    finished = turn.run()
    turn.keep()
    return turn, finished


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_retry_reads_nothing(model: LoadedModel, temperature: float) -> None:
    memory = keeper(model, Bank(LIMITS, lambda: 0.0))
    first, cold = complete(model, memory, TEXT, temperature=temperature)
    again, warm = complete(model, memory, TEXT, temperature=temperature)
    assert cold.restored == 0
    assert warm.restored == warm.prompt_tokens == len(first.prompt)
    assert warm.miss_reason is None
    assert again.emitted == first.emitted
    assert again.decoder.state.ids == first.decoder.state.ids


@pytest.mark.parametrize("place", ["ram", "ssd"])
def test_a_text_that_goes_on_from_its_answer_reads_nothing(
    model: LoadedModel, place: str, tmp_path: Path
) -> None:
    store = ColdStore(tmp_path)
    bank = Bank(LIMITS, lambda: 0.0)
    # An answer in the tokenizer's own ids, so that its text gives them back.
    whole = model.tokenizer.encode(GOES_ON)
    dictated = whole[len(model.tokenizer.encode(TEXT)) :]
    line = complete(model, keeper(model, bank, store), TEXT, dictated, temperature=0)[
        0
    ].decoder.state.ids
    assert line == whole
    assert store.flush(30)
    if place == "ssd":
        bank = Bank(LIMITS, lambda: 0.0)
    text = GOES_ON
    _, warm = complete(model, keeper(model, bank, store), text, temperature=0)
    assert (warm.restored, warm.source) == (len(line), place)
    _, cold = complete(model, keeper(model, Bank(LIMITS, lambda: 0.0)), text, temperature=0)
    assert cold.prompt_tokens == warm.prompt_tokens
    store.close(10)
