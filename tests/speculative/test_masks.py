"""Under rules, drafted decoding has the law of the trunk on what the rules allow."""

from collections import defaultdict
from collections.abc import Iterator

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_mtplx.speculative.decoder import Decoder
from llm_mtplx.speculative.distributions import Candidates, Sampling
from llm_mtplx.speculative.masks import Masks, Until, Without
from llm_mtplx.speculative.penalties import Penalties, PenaltySettings

from ..tiny import random_trunk_and_head
from .states import assert_equal, named_arrays
from .test_acceptance import Branching
from .test_rounds import PROMPT, VOCABULARY, ScriptedDecoder, Tiny, never, prefilled

# state -> the tokens that may come, and the state after each
TABLE = {
    0: {0: 1, 3: 2, 5: 0},
    1: {1: 2, 4: 1},
    2: {2: 0},  # only one way on
}


class Table:
    """Rules of a small vocabulary, written down."""

    def __init__(self) -> None:
        self.states = [0]

    def allowed(self) -> bytes:
        return bytes([sum(1 << token for token in TABLE[self.states[-1]])])

    def take(self, token: int) -> bool:
        after = TABLE[self.states[-1]].get(token)
        if after is not None:
            self.states.append(after)
        return after is not None

    def back(self, tokens: int) -> None:
        del self.states[len(self.states) - tokens :]


class Strides:
    """Rules of the tiny model's vocabulary: by turns, different residues may come."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def may(self) -> list[int]:
        return list(range(len(self.taken) % 5, VOCABULARY - 3, 5))

    def allowed(self) -> bytes:
        bits = np.zeros(VOCABULARY, np.uint8)
        bits[self.may()] = 1
        return np.packbits(bits, bitorder="little").tobytes()[: VOCABULARY // 8]

    def take(self, token: int) -> bool:
        if token not in self.may():
            return False
        self.taken.append(token)
        return True

    def back(self, tokens: int) -> None:
        del self.taken[len(self.taken) - tokens :]


SETTINGS = PenaltySettings(repetition=1.2, presence=0.2, frequency=0.3)
START = [1, 2]
Law = dict[tuple[int, ...], float]


@pytest.fixture(scope="module")
def small() -> Tiny:
    return random_trunk_and_head(
        seed=4, vocab_size=6, hidden_size=32, num_hidden_layers=2, head_dim=16
    )


def plain_law(trunk, sampling: Sampling, length: int) -> Law:
    """One token at a time: penalties, the rules, the rest of the shaping."""

    def walk(answer: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], float]]:
        if len(answer) == length:
            yield answer, 1.0
            return
        rules = Table()
        assert all(rules.take(token) for token in answer)
        penalties = Penalties(SETTINGS, START)
        penalties.emitted(answer)
        logits = penalties.apply(trunk.model(mx.array([[*START, *answer]]))[0, -1:])
        forbidden = [token for token in range(6) if token not in TABLE[rules.states[-1]]]
        logits[:, mx.array(forbidden)] = -mx.inf
        (distribution,) = Candidates(logits, sampling).distributions()
        for token, probability in zip(distribution.ids, distribution.probs, strict=True):
            for sequence, rest in walk((*answer, int(token))):
                yield sequence, float(probability) * rest

    return dict(walk(()))


def round_law(small: Tiny, sampling: Sampling, depth: int, answer: tuple[int, ...]) -> Law:
    """What the decoder's next step emits after ``answer``, along every way chance can take."""
    law: Law = defaultdict(float)
    path: list[int] | None = []
    while path is not None:
        draws = Branching(path)
        penalties, masks = Penalties(SETTINGS, START), Masks(Table())
        decoder = Decoder(*small, sampling, draws, penalties, masks=masks)
        list(decoder.prefill([*START, *answer[:-1]]))
        if answer:
            penalties.emitted(answer)
            masks.emitted(answer)
            decoder.primary = answer[-1]
            tokens = decoder.round(depth, 99, never).tokens
        else:
            tokens = [decoder.first()]
        law[tuple(tokens)] += draws.weight
        path = draws.next_path()
    return law


NARROW = Sampling(0.8, top_k=2, top_p=0.97)


@pytest.mark.parametrize(
    ("sampling", "depth", "length"),
    [(Sampling(1.3), 1, 3), (Sampling(1.3), 2, 3), (NARROW, 1, 4), (NARROW, 2, 4), (NARROW, 3, 3)],
)
def test_the_joint_law_is_that_of_masked_plain_decoding(
    small: Tiny, sampling: Sampling, depth: int, length: int
) -> None:
    law: Law = defaultdict(float)
    unfinished: Law = {(): 1.0}
    while unfinished:
        grown: Law = defaultdict(float)
        for answer, weight in unfinished.items():
            for tokens, probability in round_law(small, sampling, depth, answer).items():
                longer = (*answer, *tokens)
                (grown if len(longer) < length else law)[longer[:length]] += weight * probability
        unfinished = grown
    want = plain_law(small[0], sampling, length)
    assert sum(want.values()) == pytest.approx(1.0)
    assert len(want) > 3
    for sequence in want.keys() | law.keys():
        assert law[sequence] == pytest.approx(want.get(sequence, 0.0), abs=1e-9), sequence


@pytest.fixture(scope="module")
def masked(tiny: Tiny) -> list[int]:
    """Prompt and masked greedy answer, by mlx-lm's own forward over all ids at once."""
    rules, ids = Strides(), list(PROMPT)
    for _ in range(30):
        logits = np.array(tiny[0].model(mx.array([ids]))[0, -1])
        may = rules.may()
        ids.append(may[int(np.argmax(logits[may]))])
        assert rules.take(ids[-1])
    return ids


LENGTH = 24


@pytest.mark.parametrize("depth", range(5))
def test_greedy_ids_at_any_depth_are_those_of_masked_plain_decoding(
    tiny: Tiny, masked: list[int], depth: int
) -> None:
    decoder = Decoder(*tiny, Sampling(), Branching([]), masks=Masks(Strides()))
    list(decoder.prefill(PROMPT))
    ids = [decoder.first()]
    while len(ids) < LENGTH:
        ids += decoder.round(depth, LENGTH - len(ids), never).tokens
    assert PROMPT + ids == masked[: len(PROMPT) + LENGTH]
    decoder.settle()
    assert_equal(named_arrays(decoder.state), prefilled(tiny, PROMPT + ids))


@pytest.mark.parametrize("wrong_at", [None, 0, 1, 2])
def test_drafts_against_the_rules_are_rejected_and_leave_nothing(
    tiny: Tiny, masked: list[int], wrong_at: int | None
) -> None:
    """The script's wrong draft is one that the rules forbid."""
    decoder = ScriptedDecoder(tiny, masked, wrong_at)
    rules = Strides()
    decoder.masks = Masks(rules)
    list(decoder.prefill(PROMPT))
    ids = [decoder.first()]
    while len(ids) < LENGTH:
        done = decoder.round(3, LENGTH - len(ids), never)
        ids += done.tokens
        assert done.accepted == (done.drafted if wrong_at is None else min(wrong_at, done.drafted))
        assert rules.taken == ids
        assert decoder.state.head_position == decoder.state.position - 1
    assert PROMPT + ids == masked[: len(PROMPT) + LENGTH]
    decoder.settle()
    assert_equal(named_arrays(decoder.state), prefilled(tiny, PROMPT + ids))


@pytest.mark.parametrize("top_k", [0, 1, 20, 63])
def test_top_k_chooses_among_allowed_tokens(top_k: int) -> None:
    """Also where fewer than k are allowed, and in a vocabulary searched by blocks."""
    for vocabulary in (64, 20_000):
        rng = np.random.default_rng(3)
        logits = rng.normal(size=(2, vocabulary)).astype(np.float32)
        may = np.sort(rng.choice(vocabulary, size=5, replace=False))
        masked = np.full_like(logits, -np.inf)
        masked[:, may] = logits[:, may]
        got = Candidates(mx.array(masked), Sampling(1.0, top_k=top_k)).distributions()
        for row, distribution in enumerate(got):
            best = np.sort(may[np.argsort(-logits[row, may])][: top_k or None])
            weights = np.exp(logits[row, best].astype(np.float64))
            assert distribution.ids.tolist() == best.tolist()
            np.testing.assert_allclose(distribution.probs, weights / weights.sum(), rtol=1e-12)


def test_few_allowed_tokens_are_no_tie() -> None:
    """A tie would bring a whole row of logits to the host."""
    logits = mx.full((1, 20_000), -mx.inf)
    logits[0, 7] = 1.0
    candidates = Candidates(logits, Sampling(1.0, top_k=20))
    *_, crowded = candidates.arrays
    assert not crowded.item()
    assert candidates.distributions()[0].ids.tolist() == [7]


@pytest.mark.parametrize("tokens", [8, 11])
def test_without_forbids_one_token_alone(tokens: int) -> None:
    rules = Without(9 % tokens, tokens)
    logits = Masks(rules).apply(mx.zeros((1, tokens)))
    forbidden = [token for token in range(tokens) if logits[0, token].item() == -np.inf]
    assert forbidden == [9 % tokens]
    assert [rules.take(token) for token in range(tokens)].count(False) == 1


@given(
    st.lists(st.integers(0, 9) | st.tuples(st.integers(1, 4)), max_size=30),
    st.sampled_from([None, 3]),
)
def test_until_allows_an_end_alone_after_its_token(
    steps: list[int | tuple[int]], opener: int | None
) -> None:
    """7 closes, 3 may have to come first, 8 and 9 are ends; a tuple takes tokens back."""
    rules, taken = Until(7, {8, 9}, 10, opener), list[int]()
    for step in steps:
        if isinstance(step, tuple):
            back = min(step[0], len(taken))
            rules.back(back)
            del taken[len(taken) - back :]
            continue
        counts = taken if opener is None else taken[taken.index(3) :] if 3 in taken else []
        may = range(10) if 7 not in counts else (8, 9)
        bits = np.unpackbits(np.frombuffer(rules.allowed(), np.uint8), bitorder="little")
        assert np.flatnonzero(bits).tolist() == list(may)
        assert rules.take(step) == (step in may)
        taken += [step] * (step in may)
