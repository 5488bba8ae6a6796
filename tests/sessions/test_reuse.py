"""A turn that begins with kept state gives the ids of a turn that reads everything again."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from llm_mtplx.engine.load import LoadedModel
from llm_mtplx.errors import EngineError
from llm_mtplx.sessions.bank import Bank
from llm_mtplx.sessions.budgets import BankLimits
from llm_mtplx.sessions.reasons import Reason
from llm_mtplx.speculative import decoder

from ..dictated import LIMITS, small_model
from ..speculative.states import assert_equal, named_arrays
from .talk import Clock, Talk

SYSTEM = {"role": "system", "content": "You answer in short sentences and you are never rude."}
PRESERVE = {"preserve_thinking": True}


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return small_model()


@pytest.fixture
def bank() -> Bank:
    return Bank(LIMITS, Clock())


def header(talk: Talk) -> int:
    """Tokens up to the end of the history, before the generation prompt."""
    text = talk.model.tokenizer.render(talk.messages[:-1], talk.template, generation_prompt=False)
    return len(talk.model.tokenizer.encode(text))


@pytest.mark.parametrize("draft", [0, 3])
def test_a_preserving_template_goes_on_from_the_very_end(model, bank, draft: int) -> None:
    talk = Talk(model, bank, template=PRESERVE)
    first = talk.say("One.", depth=draft)
    assert (first.restored, first.source, first.miss_reason) == (0, None, Reason.NOTHING_STORED)
    for text in ("Two.", "Three."):
        kept = talk.turn.decoder.state.position
        again = talk.say(text, depth=3 - draft)
        assert (again.restored, again.source, again.miss_reason) == (kept, "ram", None)
    assert len(bank.sessions) == 1


def test_a_rewriting_template_goes_on_from_the_answer_header(model, bank) -> None:
    talk = Talk(model, bank)
    talk.say("One.")
    for text in ("Two.", "Three."):
        kept = header(talk)
        again = talk.say(text)
        assert (again.restored, again.miss_reason) == (kept, Reason.TEMPLATE_REWRITES)
    assert len(bank.sessions) == 1


@pytest.mark.parametrize("template", [{}, PRESERVE])
def test_two_conversations_share_their_system_prompt(model, bank, template) -> None:
    one = Talk(model, bank, "a", template, [SYSTEM])
    one.say("First question.")
    before = named_arrays(bank.sessions[0].state)
    other = Talk(model, bank, "b", template, [SYSTEM])
    shared = other.say("Quite another question.")
    system = model.tokenizer.render([SYSTEM], {}, generation_prompt=False)
    assert shared.restored == len(model.tokenizer.encode(system))
    (mine,) = [s for s in bank.sessions if s.conversation == "a"]
    assert_equal(named_arrays(mine.state), before)
    assert one.say("And then?").restored > shared.restored
    assert other.say("And then?").restored > shared.restored


def test_back_and_forth_between_conversations_with_a_long_beginning(model, bank) -> None:
    """Each goes on in its own line; none ever writes into another's."""
    words = " ".join(f"rule{number}" for number in range(200))
    long = {"role": "system", "content": words}
    one, other = (Talk(model, bank, name, PRESERVE, [long]) for name in "ab")
    begins = len(model.tokenizer.encode(words))
    assert begins > 1000
    one.say("First question.", max_tokens=4)
    assert other.say("Quite another question.", max_tokens=4).restored > begins
    kept = one.turn.decoder.state.position
    assert one.say("And then?", max_tokens=4).restored == kept


def test_an_edited_answer_is_told_from_a_rewritten_one(model, bank) -> None:
    talk = Talk(model, bank, messages=[SYSTEM])
    talk.say("One.")
    talk.say("Two.")
    talk.messages[2] = {"role": "assistant", "content": "Something it never said."}
    edited = talk.say("Three.")
    assert edited.miss_reason == Reason.HISTORY_EDITED
    assert edited.restored > 0


def test_a_changed_system_prompt_shares_nothing(model, bank) -> None:
    talk = Talk(model, bank, messages=[SYSTEM])
    talk.say("One.")
    talk.messages[0] = {"role": "system", "content": "Be rude."}
    changed = talk.say("Two.")
    assert (changed.restored, changed.miss_reason) == (0, Reason.HISTORY_EDITED)


@pytest.mark.parametrize("changed", range(1, 10))
def test_a_prompt_that_differs_in_its_last_tokens(model, bank, changed: int) -> None:
    """Never the state of the longer sequence, however near."""
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    Talk(model, bank, "a", PRESERVE).say(" ".join(words))
    other = [*words[:-changed], *(word.upper() for word in words[-changed:])]
    Talk(model, bank, "a", PRESERVE).say(" ".join(other))


@pytest.mark.parametrize("template", [{}, PRESERVE])
def test_forks_of_one_conversation(model, bank, template) -> None:
    trunk = Talk(model, bank, "a", template)
    trunk.say("One.")
    forks = [trunk.fork("a"), trunk.fork("a"), trunk.fork(None)]
    for number, fork in enumerate(forks):
        assert fork.say(f"Fork {number}.").restored > 0
    for number, fork in enumerate(forks):
        assert fork.say(f"On with {number}.").restored > 0


def test_a_conversation_id_decides_nothing(model, bank) -> None:
    Talk(model, bank, "a", PRESERVE).say("My word is plum.")
    stranger = Talk(model, bank, "a", PRESERVE)
    assert stranger.say("What is the word?").restored == 0
    nameless = Talk(model, bank, None, PRESERVE, Talk(model, bank, "b", PRESERVE).messages)
    assert nameless.say("My word is plum.").restored > 0


def test_ids_the_tokenizer_would_not_make_are_kept(model, bank) -> None:
    """An answer spelled letter by letter is gone on from in its own ids."""
    tokenizer = model.tokenizer
    spelled = [token for letter in "capital" for token in tokenizer.encode(letter)]
    assert spelled != tokenizer.encode("capital")
    (eos,) = model.eos_ids
    talk = Talk(model, bank, template=PRESERVE)
    talk.say("One.", dictated=[*spelled, eos])
    assert talk.messages[-1]["content"] == "capital"
    kept = talk.turn.decoder.state.position
    again = talk.say("Two.")
    assert (again.restored, again.miss_reason) == (kept, None)
    assert talk.turn.prompt[:kept][-len(spelled) - 1 :] == [*spelled, eos]


@pytest.mark.parametrize("at", [0, 3, 6])
def test_one_changed_character_in_the_answer_is_tokenized_anew(model, bank, at: int) -> None:
    (eos,) = model.eos_ids
    talk = Talk(model, bank, template=PRESERVE)
    talk.say("One.", dictated=[*model.tokenizer.encode("capital"), eos])
    text = talk.messages[-1]["content"]
    talk.messages[-1]["content"] = text[:at] + "x" + text[at + 1 :]
    changed = talk.say("Two.")
    assert changed.miss_reason == Reason.HISTORY_EDITED


def test_one_changed_character_in_the_reasoning(model, bank) -> None:
    (eos,) = model.eos_ids
    template = {**PRESERVE, "enable_thinking": True}
    ids = model.tokenizer.encode("a thought\n</think>\n\ncapital")
    talk = Talk(model, bank, template=template)
    talk.say("One.", dictated=[*ids, eos])
    assert talk.messages[-1] == {
        "role": "assistant",
        "content": "capital",
        "reasoning_content": "a thought",
    }
    fork = talk.fork("a")
    kept = talk.turn.decoder.state.position
    assert talk.say("Two.").restored == kept
    fork.messages[-1]["reasoning_content"] = "b thought"
    assert fork.say("Two.").restored < kept


def test_an_answer_cut_by_a_stop_string_is_gone_on_from(model, bank) -> None:
    talk = Talk(model, bank, template=PRESERVE)
    ids = model.tokenizer.encode("The capital of France is Paris.")
    stopped = talk.say("One.", dictated=ids, stop=("ance",))
    assert stopped.finish_reason == "stop"
    assert talk.messages[-1]["content"] == "The capital of Fr"
    kept = talk.turn.decoder.state.position
    assert talk.say("Two.").restored == kept


@pytest.mark.parametrize("limit", [1, 2, 9])
def test_an_answer_cut_by_the_limit_is_gone_on_from(model, bank, limit: int) -> None:
    talk = Talk(model, bank, template=PRESERVE)
    talk.say("One.", dictated=model.tokenizer.encode("abc def ghi jkl mno"), max_tokens=limit)
    kept = talk.turn.decoder.state.position
    assert talk.say("Two.").restored == kept


@pytest.mark.parametrize("draft", [0, 3])
def test_after_an_error_the_bank_has_what_it_had(model, bank, monkeypatch, draft: int) -> None:
    """One that comes after a round's forward: its rows lie in the caches already."""
    talk = Talk(model, bank, template=PRESERVE)
    talk.say("One.")
    kept = talk.turn.decoder.state.position
    before = named_arrays(bank.sessions[0].state)
    judged = itertools.count()
    require_finite = decoder._require_finite

    def broken(top: Any) -> None:
        require_finite(top)
        if next(judged) == 2:
            raise EngineError("by design")

    with monkeypatch.context() as patch:
        patch.setattr(decoder, "_require_finite", broken)
        with pytest.raises(EngineError, match="by design"):
            talk.say("Two.", depth=draft)
    talk.messages.pop()
    assert_equal(named_arrays(bank.sessions[0].state), before)
    assert talk.say("Two.").restored == kept


def test_an_answer_that_nobody_takes_is_not_kept(model, bank) -> None:
    talk = Talk(model, bank, template=PRESERVE)
    talk.say("One.")
    turn = talk.begin("Two.")
    turn.run()
    turn.drop_answer()
    (session,) = bank.sessions
    history = model.tokenizer.render(talk.messages, PRESERVE, generation_prompt=False)
    opening = model.tokenizer.render(talk.messages, PRESERVE)[len(history) :]
    assert session.ids == turn.prompt[: -len(model.tokenizer.encode(opening))]
    talk.messages.pop()
    kept = len(session.ids)
    assert talk.say("Two.").restored == kept


@pytest.fixture
def few(model) -> Iterator[tuple[Bank, Clock]]:
    clock = Clock()
    yield Bank(replace(LIMITS, entries=2, idle_s=100), clock), clock


def test_the_least_recently_used_session_goes_first(model, few) -> None:
    bank, clock = few
    talks = {name: Talk(model, bank, name, PRESERVE) for name in "abc"}
    for clock.now, name in enumerate("abac"):
        talks[name].say(f"Hello from {name}.")
    assert sorted(s.conversation for s in bank.sessions) == ["a", "c"]
    gone = talks["b"].say("Again.")
    assert (gone.restored, gone.miss_reason) == (0, Reason.EVICTED)


def test_idle_sessions_go(model, few) -> None:
    bank, clock = few
    talk = Talk(model, bank, "a", PRESERVE)
    talk.say("Hello.")
    clock.now = 99
    assert talk.say("Again.").restored > 0
    clock.now = 300
    gone = talk.say("Again.")
    assert (gone.restored, gone.miss_reason) == (0, Reason.IDLE)


def test_a_session_over_its_budget_is_leased_while_it_is_active(model) -> None:
    clock = Clock()
    bank = Bank(BankLimits(10**9, 1000, entries=4, idle_s=0, pin_s=100), clock)
    talk = Talk(model, bank, "a", PRESERVE)
    talk.say("Hello.")
    assert bank.leases == bank.sessions != ()
    clock.now = 99
    assert talk.say("Again.").restored > 0
    other = Talk(model, bank, "b", PRESERVE)
    other.say("Hello too.")
    assert [lease.conversation for lease in bank.leases] == ["b"]
    gone = talk.say("And again.")
    assert (gone.restored, gone.miss_reason) == (0, Reason.OVERSIZED)
    clock.now = 300
    gone = talk.say("And again.")
    assert (gone.restored, gone.miss_reason) == (0, Reason.OVERSIZED)


def test_a_session_over_the_whole_budget_is_not_kept(model) -> None:
    bank = Bank(BankLimits(1000, 1000, entries=4, idle_s=0), Clock())
    talk = Talk(model, bank, "a", PRESERVE)
    talk.say("Hello.")
    assert bank.sessions == ()
    gone = talk.say("Again.")
    assert (gone.restored, gone.miss_reason) == (0, Reason.OVERSIZED)


def test_a_copy_that_does_not_fit_takes_the_place_of_the_older_line(model) -> None:
    probe = Bank(LIMITS, Clock())
    Talk(model, probe, "a", PRESERVE, [SYSTEM]).say("Hello.")
    bank = Bank(BankLimits(int(probe.nbytes * 1.1), probe.nbytes * 2, entries=9, idle_s=0), Clock())
    Talk(model, bank, "a", PRESERVE, [SYSTEM]).say("Hello.")
    other = Talk(model, bank, "b", PRESERVE, [SYSTEM])
    assert other.say("Quite another question.").restored > 0
    assert [session.conversation for session in bank.sessions] == ["b"]


def test_the_total_budget_holds(model) -> None:
    probe = Bank(LIMITS, Clock())
    Talk(model, probe, "a", PRESERVE).say("Hello.")
    one = probe.nbytes
    bank = Bank(BankLimits(int(one * 2.5), one * 2, entries=9, idle_s=0), Clock())
    for name in "abcd":
        Talk(model, bank, name, PRESERVE).say(f"Hello from {name}.")
        assert bank.nbytes <= one * 2.5
    assert len(bank.sessions) == 2


def test_what_a_session_holds_does_not_grow_with_its_turns(model, bank) -> None:
    talk = Talk(model, bank, "a", PRESERVE)
    counts = []
    for number in range(5):
        talk.say(f"Turn {number}.")
        counts.append(len(bank.sessions[0].checkpoints))
    assert max(counts) <= 3
    assert np.isfinite(bank.nbytes)
