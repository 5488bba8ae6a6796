"""What a turn tells of its tokens: mlx-lm's own figures, at every depth alike, warm or cold."""

import mlx.core as mx
import numpy as np
import pytest

from llm_mtplx.attach.wire import event_from, event_line
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.load import LoadedModel
from llm_mtplx.engine.turn import Turn
from llm_mtplx.protocol import Event, Likely, Request, Text, Token

from ..dictated import ram_only, small_model

# Rows of one long forward against rows of windows, in float32.
CLOSE = {"rtol": 0, "atol": 1e-4}


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return small_model()


def run(model: LoadedModel, keeper, **options) -> tuple[Turn, str, list[Token]]:
    events: list[Event] = []
    asked = [{"role": "user", "content": "x"}]
    request = Request("m", MODEL_DIR, asked, max_tokens=20, **options)
    turn = Turn(model, request, keeper, events.append, lambda: False)
    turn.run()
    turn.keep()
    texts = [event for event in events if isinstance(event, Text)]
    return turn, "".join(t.text for t in texts), [token for t in texts for token in t.tokens]


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1.1, "seed": 3}])
def test_they_are_those_of_a_plain_forward(model: LoadedModel, sampling) -> None:
    for depth in (0, 3):
        keeper = ram_only(model)
        for restored in (False, True):  # the first row is one from RAM the second time
            turn, _, tokens = run(model, keeper, depth=depth, logprobs=4, **sampling)
            ids = mx.array([[*turn.prompt, *turn.emitted]])
            rows = np.array(model.trunk.model(ids)[0], np.float64)[len(turn.prompt) - 1 : -1]
            rows -= np.log(np.exp(rows).sum(axis=-1, keepdims=True))
            table = model.tokenizer.token_bytes
            at = 0
            for token in tokens:
                while table[turn.emitted[at]] != bytes(token.raw):
                    at += 1
                np.testing.assert_allclose(token.logprob, rows[at][turn.emitted[at]], **CLOSE)
                best = np.sort(rows[at])[::-1][:4]
                np.testing.assert_allclose([t.logprob for t in token.top], best, **CLOSE)
                assert bytes(token.top[0].raw) == table[rows[at].argmax()]
                at += 1
            assert len(tokens) > 15
            assert (turn._loan.position > 0) == restored


def test_asking_changes_no_token(model: LoadedModel) -> None:
    texts = {
        run(model, ram_only(model), depth=depth, logprobs=asked, temperature=0)[1]
        for depth, asked in [(0, None), (0, 0), (3, 20)]
    }
    assert len(texts) == 1


def test_unasked_nothing_is_told(model: LoadedModel) -> None:
    _, text, tokens = run(model, ram_only(model), temperature=0)
    assert text and not tokens


def test_they_come_over_the_socket() -> None:
    event = Text("é", [Token([0xC3], -0.5, 0, [Likely([97], -0.25)]), Token([0xA9], -1.5, 0, [])])
    assert event_from(event_line(event)) == event
