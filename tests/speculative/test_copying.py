"""Drafts copied from the line: found where they stand, worth what they cost, and never a token."""

import random
from collections.abc import Sequence
from itertools import pairwise

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_mtplx.speculative import copying
from llm_mtplx.speculative.copying import GRAM, MOST, REST, START, CopyIndex, Copying
from llm_mtplx.speculative.decoder import Decoder
from llm_mtplx.speculative.distributions import Sampling
from llm_mtplx.speculative.masks import Masks
from llm_mtplx.speculative.penalties import Penalties

from .same_seed import PENALTIES, SHAPING, tiny_in
from .states import assert_equal, named_arrays
from .test_masks import Strides
from .test_rounds import Tiny, never, prefilled

COPIES = range(1, MOST + 1)


def searched(line: Sequence[int], token: int, most: int) -> list[int]:
    """What followed the latest earlier place that ends as the line and then ``token`` do."""
    gram = [*line[-GRAM + 1 :], token]
    for end in range(len(line), GRAM - 1, -1):
        if list(line[end - GRAM : end]) == gram:
            return list(line[end : end + most])
    return []


@given(
    line=st.lists(st.integers(0, 2), max_size=80),
    token=st.integers(0, 2),
    steps=st.lists(st.integers(-20, 30), max_size=6),
    bulk=st.sampled_from([GRAM, 12, 256]),
)
def test_the_index_finds_what_a_search_finds(
    line: list[int], token: int, steps: list[int], bulk: int
) -> None:
    """However the line came to be: in pieces of any length, cut meanwhile."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(copying, "_BULK", bulk)
        index, at = CopyIndex(), 0
        for step in steps:
            if step < 0:
                # Another text follows what is left of the line.
                at = max(at + step, 0)
                index.extend([*line[:at], *[2 - t for t in line[at : at + 9]]])
            else:
                at = min(at + step, len(line))
            index.extend(line[:at])
        index.extend(line)
        found = list(index.after(line, token, 5))
    if len(line) >= GRAM - 1 and all(step >= 0 for step in steps):
        assert found == searched(line, token, 5)
    elif found:  # never what does not follow the same tokens
        ends = [e for e in range(GRAM, len(line) + 1) if line[e : e + 5] == found]
        assert any(line[e - GRAM : e] == [*line[-GRAM + 1 :], token] for e in ends)


def test_what_a_hash_finds_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "_FACTOR", 0)  # every gram with the same last token has one hash
    monkeypatch.setattr(copying, "_OLDEST", 0)
    index, line = CopyIndex(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9]
    index.extend(line)
    assert list(index.after(line, 8, 3)) == []


def run(policy: Copying, right: float, rounds: int, otherwise: float = 1.0) -> list[int]:
    """How much was copied in each round, where so many copied tokens are right."""
    rng, lengths = random.Random(3), []
    for _ in range(rounds):
        worth = policy.lengths(otherwise)
        copied = worth.stop - 1 if worth else 0
        accepted = 0
        while accepted < copied and rng.random() < right:
            accepted += 1
        policy.add(accepted + 1, copied, accepted)
        lengths.append(copied)
    return lengths


def test_a_right_copy_grows() -> None:
    assert run(Copying(lambda rows: 1 + 0.1 * (rows - 1)), 1.0, 4) == [START, 8, 16, MOST]


def test_wrong_copies_are_rare() -> None:
    lengths = run(Copying(lambda rows: 1 + 0.1 * (rows - 1)), 0.0, 400)
    tried = [at for at, length in enumerate(lengths) if length]
    assert all(lengths[at] <= START for at in tried)
    gaps = [b - a for a, b in pairwise(tried)]
    assert len(tried) <= 6 and gaps == sorted(gaps) and gaps[0] >= REST


def test_nothing_is_copied_where_rows_cost_as_much_as_rounds() -> None:
    assert run(Copying(lambda rows: float(rows)), 1.0, 20) == [0] * 20


def test_the_head_is_preferred_where_it_brings_more() -> None:
    policy = Copying(lambda rows: 1 + 0.2 * (rows - 1))
    assert policy.lengths(otherwise=3.5) is None
    short = policy.lengths(otherwise=1.9)
    assert short is not None and short.start > 1


def test_company_makes_rows_dearer_than_rounds() -> None:
    policy = Copying(lambda rows: 1 + 0.15 * (rows - 1))
    alone, beside = policy.lengths(1.0), policy.lengths(1.0, company=8)
    assert alone is not None and beside is not None
    assert policy.lengths(1.9) is not None
    # One more row is a smaller share of what eight conversations cost together, and brings one.
    assert beside.stop == alone.stop == START + 1


@pytest.fixture(scope="module", params=[mx.float32, mx.bfloat16], ids=str)
def models(request) -> Tiny:
    return tiny_in(request.param)


def repeating(seed: int) -> list[int]:
    """A prompt that says most of a passage twice, and a bit of it a third time."""
    rng = random.Random(seed)
    passage = [rng.randrange(64) for _ in range(24)]
    edited = [token if rng.random() < 0.9 else rng.randrange(64) for token in passage]
    return [*passage, 5, *edited, 9, *passage[:GRAM]]


class Steered(Decoder):
    """Whose trunk says a known text, from which copies come: every forward is real."""

    text: list[int]

    def _shaped(self, logits, drafts=()):
        shaped = super()._shaped(logits, drafts)
        rows = shaped.shape[0]
        first = self._next + len(drafts) + 1 - rows
        for row in range(rows):
            at = first + row
            if at < len(self.text):
                shaped = shaped.at[row, self.text[at]].add(40.0)
        return shaped


@pytest.mark.parametrize("head", [True, False], ids=["head", "no head"])
@pytest.mark.parametrize("depth", [0, 3])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_copies_change_no_token(models: Tiny, head: bool, depth: int, temperature: float) -> None:
    """With filters, penalties and rules; where copies are right, wrong, cut and longer than what
    the head drafts."""
    made = 0
    for seed in range(2):
        filters, penalized, ruled = SHAPING[(seed * 3 + depth) % len(SHAPING)]
        prompt = repeating(seed)
        # What is said goes on from the passage, leaves it and comes back to it.
        said = [*prompt[GRAM:20], 63, *prompt[:22], 1, 2]
        steered = {}
        for copies in (None, COPIES):
            decoder = Steered(
                models[0],
                models[1] if head else None,
                Sampling(temperature, **filters),
                seed,
                Penalties(PENALTIES, prompt) if penalized else None,
                masks=Masks(Strides()) if ruled else None,
            )
            decoder.text = [*prompt, *said]
            list(decoder.prefill(prompt))
            ids, at = [decoder.first()], 0
            while len(ids) < 32:
                done = decoder.round(depth, 32 - len(ids), never, copies)
                assert copies is None or done.copied < copies.stop
                made += done.copied
                ids += done.tokens
                at += 1
            decoder.settle()
            steered[copies] = ids
            assert_equal(
                named_arrays(decoder.state),
                prefilled(models if head else (models[0], None), decoder.state.ids),
            )
        assert len(set(map(tuple, steered.values()))) == 1
    assert made > 20


def test_a_copy_that_is_short_is_gone_on_from_by_the_head(models: Tiny) -> None:
    prompt = repeating(1)
    decoder = Decoder(*models, Sampling())
    list(decoder.prefill([*prompt[:GRAM], 40, 41, *prompt[: GRAM - 1]]))
    decoder.primary = prompt[GRAM - 1]
    decoder._index.extend(decoder.state.ids)
    done = decoder.round(5, 9, never, range(1, 3))
    assert (done.drafted, done.copied) == (5, 2)


def test_a_line_that_is_taken_back_is_copied_from_as_it_is(models: Tiny) -> None:
    """What was said and taken back again is no text to copy from."""
    prompt = repeating(2)
    decoder = Decoder(*models, Sampling())
    list(decoder.prefill(prompt))
    decoder.first()
    decoder.hold = len(prompt)
    ids: list[int] = []
    while len(ids) < 12:
        ids += decoder.round(2, 20, never, COPIES).tokens
    decoder.rewind(len(prompt) + 1)
    decoder.primary = 7
    for _ in range(6):
        decoder.round(2, 20, never, COPIES)
    decoder.settle()
    assert_equal(named_arrays(decoder.state), prefilled(models, decoder.state.ids))
