"""Conversations decoded side by side say and leave what each does alone."""

import random
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llm_mtplx.speculative.batch import Plan, advance
from llm_mtplx.speculative.decoder import Decoder, Round
from llm_mtplx.speculative.distributions import Sampling
from llm_mtplx.speculative.masks import Masks
from llm_mtplx.speculative.penalties import Penalties

from .same_seed import FILTERS, HEADS, LENGTH, PENALTIES, TEMPERATURES, VOCABULARY, Told, tiny_in
from .states import assert_equal, named_arrays
from .test_masks import Strides
from .test_rounds import Tiny

TYPES = (mx.float32, mx.bfloat16)


@pytest.fixture(scope="module", params=TYPES, ids=str)
def models(request) -> Tiny:
    return tiny_in(request.param)


@dataclass
class Talk:
    """One conversation: how it is asked, and what it has said so far."""

    prompt: list[int]
    seed: int
    temperature: float
    filters: dict[str, Any]
    penalized: bool
    ruled: bool
    head: str
    holds: bool
    ends: int | None  # a token after which nothing comes
    comes: int  # the round before which it joins
    length: int

    def begin(self, tiny: Tiny, right: list[int]) -> None:
        self.decoder = Told(
            *tiny,
            Sampling(self.temperature, **self.filters),
            self.seed,
            Penalties(PENALTIES, self.prompt) if self.penalized else None,
            masks=Masks(Strides()) if self.ruled else None,
        )
        self.decoder.head_is = self.head
        self.decoder.right = [*self.prompt, *right, *[0] * 24]
        list(self.decoder.prefill(self.prompt))
        self.ids = [self.decoder.first()]

    def plan(self, depth: int) -> Plan:
        if self.holds:
            self.decoder.hold = len(self.prompt) + len(self.ids) // 2
        return Plan(depth, self.length - len(self.ids), self.ended)

    def ended(self, token: int) -> bool:
        return token == self.ends

    @property
    def over(self) -> bool:
        return len(self.ids) >= self.length or self.ids[-1] == self.ends

    def left(self) -> dict[str, Any]:
        self.decoder.settle()
        return named_arrays(self.decoder.state)


def alone(tiny: Tiny, talk: Talk) -> tuple[list[int], dict[str, Any]]:
    """Without drafts."""
    talk.begin(tiny, [])
    while not talk.over:
        talk.ids += talk.decoder.round(0, *_rest(talk.plan(0))).tokens
    return talk.ids, talk.left()


def _rest(plan: Plan) -> tuple[int, Any]:
    return plan.room, plan.ends


talks = st.builds(
    Talk,
    st.lists(st.integers(0, VOCABULARY - 1), min_size=2, max_size=9),
    st.integers(0, 9),
    st.sampled_from(TEMPERATURES),
    st.sampled_from(FILTERS),
    st.booleans(),
    st.booleans(),
    st.sampled_from(HEADS),
    st.booleans(),
    st.none() | st.integers(0, VOCABULARY - 1),
    st.integers(0, 4),
    st.integers(1, LENGTH),
)


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(here=st.lists(talks, min_size=2, max_size=5), seed=st.integers(0, 99))
def test_company_changes_nothing(models: Tiny, here: list[Talk], seed: int) -> None:
    """Of any mixture, at any depths, joining and leaving at any time."""
    want = [alone(models, talk) for talk in here]
    rng = random.Random(seed)
    at = 0
    begun: list[Talk] = []
    while not (len(begun) == len(here) and all(talk.over for talk in begun)):
        for talk, (ids, _) in zip(here, want, strict=True):
            if talk.comes == at:
                talk.begin(models, ids)
                begun.append(talk)
        at += 1
        active = [talk for talk in begun if not talk.over]
        rounds = advance([(t.decoder, t.plan(rng.randint(0, 5))) for t in active]) if active else []
        for talk, done in zip(active, rounds, strict=True):
            assert isinstance(done, Round), done
            talk.ids += done.tokens
    for talk, (ids, arrays) in zip(here, want, strict=True):
        assert talk.ids == ids
        assert_equal(talk.left(), arrays)


def two(tiny: Tiny) -> list[Talk]:
    """Of different settings, each with its first tokens said."""
    found = []
    for at, ruled in enumerate((False, True)):
        talk = Talk([3 + at, 5, 7], at, 0.7 * at, {}, True, ruled, "noisy", False, None, 0, LENGTH)
        ids, _ = alone(tiny, talk)
        talk.begin(tiny, ids)
        talk.want = ids  # type: ignore[attr-defined]
        found.append(talk)
    return found


def go_on(talks: list[Talk]) -> list[Round | Exception]:
    done = advance([(talk.decoder, talk.plan(3)) for talk in talks])
    for talk, each in zip(talks, done, strict=True):
        if isinstance(each, Round):
            talk.ids += each.tokens
    return done


class Injected(Exception):
    pass


def test_one_that_fails_ends_alone(models: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = two(models)
    go_on([one, other])

    def fail(*args: object) -> None:
        raise Injected

    with monkeypatch.context() as patched:
        patched.setattr(other.decoder.masks, "apply", fail)
        first, second = go_on([one, other])
    assert isinstance(first, Round)
    assert isinstance(second, Injected)
    while not one.over:
        go_on([one])
    assert one.ids == one.want  # type: ignore[attr-defined]


def test_numbers_that_are_not_finite_end_one_alone(models: Tiny) -> None:
    one, other = two(models)
    go_on([one, other])
    for cache in other.decoder.state.cache:
        if hasattr(cache, "cache"):
            cache.cache = [cache.cache[0], cache.cache[1] * float("nan")]
    first, second = go_on([one, other])
    assert isinstance(first, Round)
    assert "not finite" in str(second)
    while not one.over:
        go_on([one])
    assert one.ids == one.want  # type: ignore[attr-defined]


@pytest.mark.parametrize("where", ["forward_all", "logits", "embed"])
@pytest.mark.parametrize("after", [0, 2])
def test_a_forward_that_fails_is_done_one_by_one(
    models: Tiny, where: str, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever forward of a round it is: as where there is no room for the rows of several."""
    talks = two(models)
    go_on(talks)
    trunk, left = models[0], [after]
    whole = getattr(trunk, where)
    failed = []

    def sometimes(*args: Any) -> Any:
        several = len(args[0]) > 1 if where == "forward_all" else args[0].shape[1] > 4
        if several:
            left[0] -= 1
            if left[0] < 0:
                failed.append(where)
                raise Injected
        return whole(*args)

    monkeypatch.setattr(trunk, where, sometimes)
    while not all(talk.over for talk in talks):
        done = go_on([talk for talk in talks if not talk.over])
        assert all(isinstance(each, Round) for each in done)
    assert failed
    monkeypatch.undo()
    for talk in talks:
        assert talk.ids == talk.want  # type: ignore[attr-defined]
        got = talk.left()
        again = Decoder(*models, Sampling())
        list(again.prefill(talk.decoder.state.ids))
        again.settle()
        assert_equal(got, named_arrays(again.state))
