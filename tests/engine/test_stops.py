"""Where a stop token or a stop string ends an answer, text, usage and state end together."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.load import LoadedModel
from llm_mtplx.engine.turn import Turn
from llm_mtplx.protocol import Event, Finished, Notice, Request, Text
from llm_mtplx.speculative.decoder import Decoder
from llm_mtplx.speculative.distributions import Sampling

from ..dictated import DictatedDecoder, ram_only, small_model
from ..speculative.states import assert_equal, named_arrays

TEXT = "Say: ab🙂cd über"


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return small_model()


@pytest.fixture(scope="module")
def ids(model: LoadedModel) -> list[int]:
    return model.tokenizer.encode(TEXT)


@pytest.fixture(scope="module")
def fresh(model: LoadedModel):
    @cache
    def prefilled(ids: tuple[int, ...]) -> dict[str, np.ndarray]:
        decoder = Decoder(model.trunk, model.head, Sampling())
        list(decoder.prefill(list(ids)))
        return named_arrays(decoder.state)

    return prefilled


def run(
    model: LoadedModel, dictated: list[int], depth: int, wrong_at: int | None = None, **options
) -> tuple[Turn, Finished, str, list[Event]]:
    events: list[Event] = []
    request = Request(
        "m", MODEL_DIR, [{"role": "user", "content": "x"}], temperature=0, depth=depth, **options
    )
    turn = Turn(model, request, ram_only(model), events.append, lambda: False)
    turn.decoder = DictatedDecoder(model, turn.prompt, dictated, wrong_at)
    finished = turn.run()
    return turn, finished, "".join(e.text for e in events if isinstance(e, Text)), events


def whole_tokens(model: LoadedModel, ids: list[int], shown: str) -> int:
    """The most leading tokens whose text lies wholly inside ``shown``."""
    table = model.tokenizer.token_bytes
    whole = 0
    for count in range(len(ids) + 1):
        raw = b"".join(table[token] for token in ids[:count])
        if shown.encode().startswith(raw):
            whole = count
    return whole


def test_the_text_splits_a_character_over_tokens(model: LoadedModel, ids: list[int]) -> None:
    table = model.tokenizer.token_bytes
    assert any(len(table[token]) and table[token][0] >= 0x80 for token in ids)


@pytest.mark.parametrize(("depth", "wrong_at"), [(0, None), (1, None), (3, None), (3, 1), (5, 0)])
def test_stop_strings_at_every_place(model, ids, fresh, depth: int, wrong_at: int | None) -> None:
    """Every string of one to three characters in the text's middle, as stop string."""
    table = model.tokenizer.token_bytes
    for start in range(4, 11):
        for end in range(start + 1, min(start + 4, len(TEXT)) + 1):
            stop = TEXT[start:end]
            if TEXT.index(stop) != start:
                continue
            turn, finished, shown, _ = run(model, ids, depth, wrong_at, stop=(stop,))
            where = (start, end)
            assert shown == TEXT[:start], where
            assert finished.finish_reason == "stop"
            lengths = np.cumsum([len(table[token]) for token in ids])
            completed_by = int(np.searchsorted(lengths, len(TEXT[:end].encode())))
            assert finished.output_tokens == completed_by + 1, where
            turn.keep()
            kept = turn.prompt + ids[: whole_tokens(model, ids, shown)]
            assert turn.decoder.state.ids == kept, where
            assert_equal(named_arrays(turn.decoder.state), fresh(tuple(kept)))


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 5])
def test_eos_at_every_position_of_a_block(model, ids, fresh, depth: int) -> None:
    (eos,) = model.eos_ids
    for length in range(7):
        answer = ids[:length]
        turn, finished, shown, _ = run(model, [*answer, eos], depth)
        raw = b"".join(model.tokenizer.token_bytes[token] for token in answer)
        assert shown == raw.decode("utf-8", "replace")
        assert finished.finish_reason == "eos"
        assert finished.output_tokens == length + 1
        turn.keep()
        assert turn.decoder.state.ids == [*turn.prompt, *answer, eos]
        assert_equal(named_arrays(turn.decoder.state), fresh((*turn.prompt, *answer, eos)))


@pytest.mark.parametrize("depth", [0, 3, 5])
@pytest.mark.parametrize("limit", [1, 2, 5, 17])
def test_token_limit(model, ids, fresh, depth: int, limit: int) -> None:
    dictated = (ids * 3)[:20]
    turn, finished, _, _ = run(model, dictated, depth, max_tokens=limit)
    assert (finished.finish_reason, finished.output_tokens) == ("length", limit)
    turn.keep()
    assert turn.decoder.state.ids == turn.prompt + dictated[:limit]
    assert_equal(named_arrays(turn.decoder.state), fresh((*turn.prompt, *dictated[:limit])))


def test_the_context_window_ends_the_answer(model: LoadedModel, ids: list[int]) -> None:
    prompt = run(model, ids, 0, max_tokens=1)[0].prompt
    small = LoadedModel(**{**vars(model), "context_window": len(prompt) + 4})
    turn, finished, _, _ = run(small, ids, 3, max_tokens=99)
    assert (finished.finish_reason, finished.output_tokens) == ("length", 4)
    turn.keep()
    assert turn.decoder.state.position == small.context_window


@pytest.mark.parametrize(
    ("asked", "wrong_every", "drafted"),
    [
        (None, 2, 48),  # half of the drafts wrong: auto stops drafting once it has seen enough
        (None, 10, None),  # one in ten wrong: it goes on
        (1, 2, None),  # a depth that was asked for stays
    ],
)
def test_auto_stops_drafting_where_it_would_lose(
    model, ids, asked: int | None, wrong_every: int, drafted: int | None
) -> None:
    class Sometimes(DictatedDecoder):
        drafts = 0

        def _draft(self, primary, depth, copied=()):
            if depth:
                self.drafts += 1
            self.wrong_at = 0 if self.drafts % wrong_every == 0 else None
            return (yield from super()._draft(primary, depth, copied))

    request = Request(
        "m",
        MODEL_DIR,
        [{"role": "user", "content": "x"}],
        temperature=0,
        depth=asked,
        max_tokens=200,
    )
    turn = Turn(model, request, ram_only(model), lambda event: None, lambda: False)
    turn.decoder = Sometimes(model, turn.prompt, (ids * 40)[:220])
    finished = turn.run()
    assert finished.output_tokens == 200
    if drafted is None:
        assert finished.drafted[0] > 80
    else:
        assert finished.drafted[0] == drafted


@pytest.mark.parametrize("depth", [1, 4])
def test_a_useless_head_switches_itself_off_and_says_so_once(model, ids, depth: int) -> None:
    dictated = (ids * 20)[:120]
    _, finished, _, events = run(model, dictated, depth, wrong_at=0, max_tokens=120)
    notices = [event.line for event in events if isinstance(event, Notice)]
    assert len(notices) == 1 and "64 drafts" in notices[0]
    assert finished.drafted == [64 // depth] + [0] * (depth - 1)
    assert sum(finished.accepted) == 0


@pytest.mark.parametrize("depth", [0, 3])
@pytest.mark.parametrize("after_rounds", [1, 2])
def test_a_cancelled_turn_ends_within_one_round(model, ids, depth: int, after_rounds: int) -> None:
    turn, finished = cancelled_after(model, ids, depth, after_rounds)
    assert finished.rounds == after_rounds
    assert finished.output_tokens == 1 + after_rounds * (depth + 1)
    turn.keep()
    assert turn.decoder.state.ids == turn.prompt + (ids * 20)[: finished.output_tokens]


def test_a_turn_cancelled_while_reading_ends_within_one_chunk(model, ids) -> None:
    turn, finished = cancelled_after(model, ids, depth=3, rounds=0)
    assert (finished.rounds, finished.output_tokens) == (0, 0)
    read = turn.decoder.state.position
    assert 0 < read < len(turn.prompt)
    assert turn.decoder.state.ids == turn.prompt[:read]


def cancelled_after(
    model: LoadedModel, ids: list[int], depth: int, rounds: int
) -> tuple[Turn, Finished]:
    request = Request(
        "m", MODEL_DIR, [{"role": "user", "content": "x"}], temperature=0, depth=depth
    )
    turn = Turn(
        model,
        request,
        ram_only(model),
        lambda event: None,
        lambda: turn._counts.rounds >= rounds,
    )
    turn.decoder = DictatedDecoder(model, turn.prompt, (ids * 20)[:120], None)
    finished = turn.run()
    assert finished.finish_reason == "interrupted"
    return turn, finished


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def pinned(turn: Turn) -> tuple[int, int]:
    """Rounds that can be taken back, and states that are kept of them."""
    windows = [*turn.decoder._windows]
    states = [r.states or [r.state_before] for w in windows for r in w.tape.layers]
    return len(windows), sum(map(len, states)) // max(len(windows[0].tape.layers), 1)


@pytest.mark.parametrize("depth", [0, 3])
@pytest.mark.parametrize(
    "stop", ["never comes", "x" * 200], ids=["inside a call", "a long stop string"]
)
def test_an_undecided_stop_pins_few_states(model, depth: int, stop: str) -> None:
    """However long a call is being written, or text that a stop string begins with."""
    text = '<tool_call>\n{"name": "f", "arguments": {"a": "' if stop[0] == "n" else ""
    dictated = model.tokenizer.encode(text) + model.tokenizer.encode("x" * 199)
    seen: list[tuple[int, int]] = []

    def cancelled() -> bool:
        if turn.decoder._windows:
            seen.append(pinned(turn))
        return False

    messages = [{"role": "user", "content": "x"}]
    request = Request("m", MODEL_DIR, messages, temperature=0, depth=depth, stop=(stop,))
    request = replace(request, template_args={"tools": [TOOL]}, max_tokens=len(dictated))
    turn = Turn(model, request, ram_only(model), lambda event: None, cancelled)
    turn.decoder = DictatedDecoder(model, turn.prompt, dictated)
    turn.run()
    assert len(seen) > 20
    windows, states = map(max, zip(*seen, strict=True))
    assert windows <= 4
    # One state of each round, and of the latest one a state a row.
    assert states <= 3 + depth + 1


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("at", [0, 3, 17, 40])
def test_a_stop_far_back_in_what_turned_out_to_be_no_call(model, fresh, depth: int, at: int):
    """The call never ends, so its text is text after all, and the stop string lies rounds ago."""
    words = [f"{'abcdefgh'[n % 8]}{n}" for n in range(48)]
    stop = words[at]
    text = "<tool_call>\n{" + " ".join(words)
    dictated = [*model.tokenizer.encode(text), *model.eos_ids]
    turn, _, shown, _ = run(model, dictated, depth, stop=(stop,), template_args={"tools": [TOOL]})
    assert shown == text[: text.index(stop)].rstrip("\n")
    turn.keep()
    kept = turn.prompt + dictated[: whole_tokens(model, dictated, shown)]
    assert turn.decoder.state.ids == kept
    assert_equal(named_arrays(turn.decoder.state), fresh(tuple(kept)))
