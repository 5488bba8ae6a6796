"""Which depth a turn drafts with, and that it changes no token."""

from dataclasses import replace

import pytest

from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.defaults import resolve_penalties
from llm_mtplx.engine.load import LoadedModel
from llm_mtplx.engine.turn import Turn
from llm_mtplx.protocol import Finished, Request
from llm_mtplx.speculative.pace import Pace

from ..dictated import ram_only, small_model

CHEAP = {0: 1.0, 1: 1.01, 2: 1.02, 3: 1.03}


@pytest.mark.parametrize(
    ("found", "want"),
    [(None, 1.0), (1.3, 1.3), (1e-300, 0.01), (0, 0.01), (-2, 0.01), (1e300, 100.0)],
)
def test_a_penalty_from_the_models_files_does_not_overflow(found, want: float) -> None:
    request = Request("m", MODEL_DIR, [])
    defaults = {} if found is None else {"repetition_penalty": found}
    assert resolve_penalties(request, defaults).repetition == want
    asked = replace(request, repetition_penalty=found)
    assert resolve_penalties(asked, {}).repetition == want


@pytest.fixture(scope="module")
def measured() -> LoadedModel:
    return replace(small_model(), eos_ids=frozenset(), costs=CHEAP)


def run(model: LoadedModel, **options) -> tuple[list[int], Finished]:
    request = Request("m", MODEL_DIR, [{"role": "user", "content": "x"}], max_tokens=40, **options)
    turn = Turn(model, request, ram_only(model), lambda event: None, lambda: False)
    finished = turn.run()
    return turn.emitted, finished


def test_measured_costs_choose_and_ids_stay_those_of_plain_decoding(measured: LoadedModel) -> None:
    plain, _ = run(measured, temperature=0, depth=0)
    ids, finished = run(measured, temperature=0)
    assert ids == plain
    assert finished.depth == 3
    assert 0 < finished.drafted[0] <= finished.rounds


def test_a_seed_gives_one_text_and_the_same_depths(measured: LoadedModel) -> None:
    (ids, one), (again, other) = (run(measured, temperature=1.0, seed=3) for _ in range(2))
    assert ids == again
    assert (one.rounds, one.drafted, one.accepted) == (other.rounds, other.drafted, other.accepted)


def test_rounds_are_timed_and_change_no_token(measured: LoadedModel) -> None:
    """Whatever the clock says: the first answer learns, the second knows."""
    pace = Pace({0: 1.0, 1: 1.2, 2: 1.4})
    learning = replace(measured, costs=None, pace=pace)
    for temperature in (0, 1.0):
        plain, _ = run(measured, temperature=temperature, seed=3, depth=0)
        for _ in range(2):
            ids, finished = run(learning, temperature=temperature, seed=3)
            assert ids == plain
            assert finished.depth == 2
    assert pace.costs[0] == 1 and pace.costs[1] != 1.2


def test_where_drafting_never_pays_nothing_is_drafted(measured: LoadedModel) -> None:
    ids, finished = run(replace(measured, costs={0: 1.0, 1: 2.0, 2: 3.0}), temperature=0)
    assert finished.drafted == [0, 0]
    assert finished.rounds == len(ids) - 1


def test_a_depth_that_is_asked_for_is_taken(measured: LoadedModel) -> None:
    _, finished = run(measured, temperature=0, depth=2)
    assert finished.depth == 2
    assert finished.drafted[0] > 0


def test_without_a_head_there_are_no_drafts(measured: LoadedModel) -> None:
    _, finished = run(replace(measured, head=None), temperature=0)
    assert (finished.depth, finished.drafted) == (0, [])
