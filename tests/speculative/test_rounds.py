"""Drafted decoding emits what plain decoding emits and leaves the state it would leave."""

from functools import cache

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.generate import generate_step

from llm_mtplx.architectures.mtp_head import MTPHead
from llm_mtplx.architectures.state import State
from llm_mtplx.architectures.trunk import Trunk
from llm_mtplx.errors import EngineError
from llm_mtplx.speculative.decoder import Decoder
from llm_mtplx.speculative.distributions import Sampling
from llm_mtplx.speculative.step import Steps

from ..tiny import TEXT_CONFIG, random_trunk_and_head
from .states import assert_equal, named_arrays

PROMPT = [3, 5, 7, 11, 13, 2]
LENGTH = 32
VOCABULARY = TEXT_CONFIG["vocab_size"]

Tiny = tuple[Trunk, MTPHead]


class ScriptedDecoder(Decoder):
    """Drafts the trunk's own next tokens, wrong at one position of each draft (or nowhere)."""

    def __init__(self, tiny: Tiny, oracle: list[int], wrong_at: int | None) -> None:
        super().__init__(*tiny, Sampling())
        self.oracle = oracle
        self.wrong_at = wrong_at

    def _draft(self, primary: int, depth: int, copied=()) -> Steps[list[mx.array]]:
        drafts = yield from super()._draft(primary, depth, copied)
        at = self.state.position + 1
        right = self.oracle[at : at + len(drafts)]
        if self.wrong_at is not None and self.wrong_at < len(right):
            right[self.wrong_at] = (right[self.wrong_at] + 1) % VOCABULARY
        return [mx.array([token], dtype=mx.uint32) for token in right]


def never(token: int) -> bool:
    return False


def plain_ids(trunk: Trunk, prompt: list[int], length: int) -> list[int]:
    """mlx-lm's own greedy loop."""
    steps = generate_step(mx.array(prompt), trunk.model, max_tokens=length)
    return [int(token) for token, _ in steps]


def generate(decoder: Decoder, prompt: list[int], length: int, depth: int) -> list[int]:
    list(decoder.prefill(prompt))
    ids = [decoder.first()]
    while len(ids) < length:
        ids += decoder.round(depth, length - len(ids), never).tokens
    return ids


@pytest.fixture(scope="module")
def oracle(tiny: Tiny) -> list[int]:
    return PROMPT + plain_ids(tiny[0], PROMPT, LENGTH + 8)


@pytest.fixture(scope="module")
def fresh(tiny: Tiny, oracle: list[int]):
    """The arrays of a fresh prefill of the first n ids, for any n."""

    @cache
    def prefill(length: int) -> dict[str, np.ndarray]:
        return prefilled(tiny, oracle[:length])

    return prefill


def prefilled(tiny: Tiny, ids: list[int]) -> dict[str, np.ndarray]:
    decoder = Decoder(*tiny, Sampling())
    list(decoder.prefill(ids))
    return named_arrays(decoder.state)


def settled_arrays(state: State, tiny: Tiny) -> dict[str, np.ndarray]:
    if state.waiting_ids:
        state.feed_head(*tiny)
    return named_arrays(state)


PATTERNS = [(depth, wrong_at) for depth in range(1, 6) for wrong_at in [None, *range(depth)]]


@pytest.mark.parametrize(("depth", "wrong_at"), PATTERNS)
def test_every_accepted_length_leaves_the_plain_state(
    tiny: Tiny, oracle: list[int], fresh, depth: int, wrong_at: int | None
) -> None:
    decoder = ScriptedDecoder(tiny, oracle, wrong_at)
    list(decoder.prefill(PROMPT))
    ids = [decoder.first()]
    while len(ids) < LENGTH:
        room = LENGTH - len(ids)
        done = decoder.round(depth, room, never)
        ids += done.tokens
        expected = done.drafted if wrong_at is None else min(wrong_at, done.drafted)
        assert done.accepted == expected
        state = decoder.state
        assert state.ids == oracle[: state.position]
        assert state.cache[-1].offset == state.position
        assert state.head_position == state.position - 1
        assert_equal(settled_arrays(state, tiny), fresh(state.position))
    assert PROMPT + ids == oracle[: len(PROMPT) + LENGTH]


@pytest.mark.parametrize("depth", range(6))
def test_real_head_and_plain_give_the_same_ids(
    tiny: Tiny, oracle: list[int], fresh, depth: int
) -> None:
    decoder = Decoder(*tiny, Sampling())
    ids = generate(decoder, PROMPT, LENGTH, depth)
    assert PROMPT + ids == oracle[: len(PROMPT) + LENGTH]
    decoder.settle()
    assert decoder.state.ids == PROMPT + ids
    assert_equal(named_arrays(decoder.state), fresh(len(PROMPT) + LENGTH))


def test_every_plain_round_leaves_the_plain_state(tiny: Tiny, oracle: list[int], fresh) -> None:
    """Although the next forward has begun by then."""
    decoder = Decoder(*tiny, Sampling())
    list(decoder.prefill(PROMPT))
    ids = [decoder.first()]
    for number in range(12):
        ids += decoder.round(0, LENGTH, never).tokens
        if number % 3 == 0:
            position = decoder.state.position
            assert decoder.state.cache[-1].offset == position
            assert_equal(settled_arrays(decoder.state, tiny), fresh(position))
    assert PROMPT + ids == oracle[: len(PROMPT) + len(ids)]


def test_without_a_head(tiny: Tiny, oracle: list[int]) -> None:
    decoder = Decoder(tiny[0], None, Sampling())
    ids = generate(decoder, PROMPT, LENGTH, depth=3)
    assert PROMPT + ids == oracle[: len(PROMPT) + LENGTH]
    decoder.settle()
    assert decoder.state.head_cache is None


def test_depth_may_change_between_rounds(tiny: Tiny, oracle: list[int], fresh) -> None:
    """The head's history of plain rounds is appended before the next draft needs it."""
    decoder = ScriptedDecoder(tiny, oracle, wrong_at=1)
    list(decoder.prefill(PROMPT))
    ids = [decoder.first()]
    for depth in [0, 0, 3, 0, 1, 4, 0, 0, 2]:
        ids += decoder.round(depth, LENGTH, never).tokens
        assert decoder.state.head_position == decoder.state.position - 1
    assert PROMPT + ids == oracle[: len(PROMPT) + len(ids)]
    assert_equal(settled_arrays(decoder.state, tiny), fresh(decoder.state.position))


@pytest.mark.parametrize("stop_at", range(1, 7))
@pytest.mark.parametrize("depth", [0, 1, 3, 5])
def test_a_stop_token_ends_text_and_state_together(
    tiny: Tiny, oracle: list[int], fresh, depth: int, stop_at: int
) -> None:
    answer = oracle[len(PROMPT) :]
    stop = answer[stop_at]
    first = answer.index(stop)
    decoder = ScriptedDecoder(tiny, oracle, wrong_at=None)
    list(decoder.prefill(PROMPT))
    ids = [decoder.first()]
    while stop not in ids:
        ids += decoder.round(depth, LENGTH, stop.__eq__).tokens
    assert ids == answer[: first + 1]
    decoder.settle()
    assert decoder.state.ids == PROMPT + ids
    assert_equal(named_arrays(decoder.state), fresh(len(PROMPT) + len(ids)))


@pytest.mark.parametrize("room", [1, 2, 3])
def test_a_round_emits_no_more_than_asked(tiny: Tiny, oracle: list[int], room: int) -> None:
    decoder = ScriptedDecoder(tiny, oracle, wrong_at=None)
    list(decoder.prefill(PROMPT))
    decoder.first()
    assert len(decoder.round(5, room, never).tokens) == room


@pytest.mark.parametrize("chunk", [1, 2, 7])
def test_prefill_is_the_same_in_any_chunks(tiny: Tiny, fresh, oracle, chunk, monkeypatch) -> None:
    monkeypatch.setattr(Decoder, "_chunk_rows", lambda self: chunk)
    assert_equal(prefilled(tiny, oracle[:20]), fresh(20))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite_are_an_error(temperature: float) -> None:
    trunk, head = random_trunk_and_head()
    trunk.model.language_model.model.norm.weight *= float("nan")
    decoder = Decoder(trunk, head, Sampling(temperature))
    list(decoder.prefill(PROMPT))
    with pytest.raises(EngineError, match="not finite"):
        decoder.first()
