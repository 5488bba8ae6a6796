"""What is told of a token is the log softmax of mlx-lm's own logits, however it was chosen."""

import mlx.core as mx
import numpy as np
import pytest

from llm_mtplx.speculative.decoder import Decoder
from llm_mtplx.speculative.distributions import Sampling
from llm_mtplx.speculative.logprobs import Logprobs
from llm_mtplx.speculative.masks import Masks
from llm_mtplx.speculative.penalties import Penalties, PenaltySettings

from .test_masks import Strides
from .test_rounds import PROMPT, VOCABULARY, Tiny, never

LENGTH = 24
# Rows of one long forward against rows of windows, in float32.
CLOSE = {"rtol": 0, "atol": 1e-4}


def plain(tiny: Tiny, answer: list[int]) -> np.ndarray:
    """Log-probabilities [len(answer), V] by mlx-lm's forward over all ids at once."""
    logits = tiny[0].model(mx.array([[*PROMPT, *answer]]))[0]
    rows = np.array(logits, np.float64)[len(PROMPT) - 1 : -1]
    return rows - np.log(np.exp(rows).sum(axis=-1, keepdims=True))


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("top", [0, 5, VOCABULARY + 3])
@pytest.mark.parametrize("shaped", [False, True])
def test_they_are_the_trunks_own(tiny: Tiny, depth: int, top: int, shaped: bool) -> None:
    told = Logprobs(top)
    decoder = Decoder(
        *tiny,
        Sampling(1.2, top_k=12) if shaped else Sampling(),
        3,
        Penalties(PenaltySettings(repetition=1.3, presence=0.4), PROMPT) if shaped else None,
        masks=Masks(Strides()) if shaped else None,
        logprobs=told,
    )
    list(decoder.prefill(PROMPT))
    ids = [decoder.first()]
    while len(ids) < LENGTH:
        ids += decoder.round(depth, LENGTH - len(ids), never).tokens
    want = plain(tiny, ids)
    assert len(told.emitted) == LENGTH
    for row, token, got in zip(want, ids, told.emitted, strict=True):
        np.testing.assert_allclose(got.logprob, row[token], **CLOSE)
        assert len(got.top) == min(top, VOCABULARY)
        values = [value for _, value in got.top]
        assert values == sorted(values, reverse=True)
        np.testing.assert_allclose(values, np.sort(row)[::-1][: len(values)], **CLOSE)
        np.testing.assert_allclose(values, row[[at for at, _ in got.top]], **CLOSE)


def test_what_was_given_has_none(tiny: Tiny) -> None:
    told = Logprobs(1)
    decoder = Decoder(*tiny, Sampling(), logprobs=told)
    list(decoder.prefill(PROMPT))
    ids = [decoder.first()]
    decoder.force([5, 6])
    ids += [5, 6, *decoder.round(2, 3, never).tokens]
    assert [at is None for at in told.emitted[:4]] == [False, True, True, False]
    assert len(told.emitted) == len(ids)
    np.testing.assert_allclose(told.emitted[3].logprob, plain(tiny, ids)[3][ids[3]], **CLOSE)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0), Sampling(0.7, 20, 0.9)])
@pytest.mark.parametrize("ruled", [False, True])
def test_the_next_forward_begins_before_a_token_is_read(
    tiny: Tiny, sampling: Sampling, ruled: bool
) -> None:
    """Sampled or not, penalized, and with log-probabilities; but rules must know the token."""
    penalties = Penalties(PenaltySettings(repetition=1.3, presence=0.4), PROMPT)
    masks = Masks(Strides()) if ruled else None
    decoder = Decoder(*tiny, sampling, 3, penalties, masks=masks, logprobs=Logprobs(2))
    list(decoder.prefill(PROMPT))
    decoder.first()
    for _ in range(3):
        decoder.round(0, 2, never)
        assert (decoder._ahead is not None) == (not ruled)
    decoder.round(0, 1, never)
    assert decoder._ahead is None
