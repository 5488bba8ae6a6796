"""Tool calls and bounded reasoning in a turn, at every depth alike."""

import pytest

from llm_mtplx.chat.effort import declared_levels, nearest
from llm_mtplx.chat.tokenizer import ChatTokenizer
from llm_mtplx.chat.tools import declare
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.load import LoadedModel
from llm_mtplx.engine.turn import Turn
from llm_mtplx.protocol import Event, Finished, Notice, Reasoning, Request, Text, ToolCall
from llm_mtplx.speculative.decoder import Decoder
from llm_mtplx.speculative.distributions import Sampling

from ..dictated import DictatedDecoder, ram_only, small_model
from ..folders import copy_demo
from ..speculative.states import assert_equal, named_arrays

TOOLS = [declare("f", None, {"properties": {"n": {"type": "integer"}, "t": {"type": "string"}}})]
CALL = "<tool_call>\n<function=f>\n<parameter=t>\na b\n</parameter>\n</function>\n</tool_call>"


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return small_model()


def begin(model: LoadedModel, events: list[Event], **options) -> Turn:
    request = Request("m", MODEL_DIR, [{"role": "user", "content": "x"}], temperature=0, **options)
    return Turn(model, request, ram_only(model), events.append, lambda: False)


def run(model: LoadedModel, answer: str, depth: int, **options) -> tuple[Finished, list[Event]]:
    events: list[Event] = []
    turn = begin(model, events, depth=depth, **options)
    (eos,) = model.eos_ids
    dictated = [*model.tokenizer.encode(answer), eos]
    turn.decoder = DictatedDecoder(model, turn.prompt, dictated, wrong_at=1)
    finished = turn.run()
    turn.keep()
    return finished, [e for e in events if isinstance(e, Text | Reasoning | ToolCall | Notice)]


def joined(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


@pytest.mark.parametrize("depth", [0, 1, 3, 5])
def test_calls_between_texts(model, depth: int) -> None:
    done, events = run(
        model, f"Look:\n\n{CALL}\n{CALL}\n\nDone.", depth, template_args={"tools": TOOLS}
    )
    assert done.finish_reason == "tool_calls"
    assert joined(events) == "Look:Done."
    calls = [event for event in events if isinstance(event, ToolCall)]
    assert calls == [ToolCall("f", {"t": "a b"})] * 2
    before = events[: events.index(calls[0])]
    assert joined(before) == "Look:"


def test_what_is_no_call_stays_text_and_says_why(model) -> None:
    broken = CALL.replace("</parameter>", "")
    done, events = run(model, broken, 3, template_args={"tools": TOOLS})
    assert done.finish_reason == "eos"
    assert joined(events) == broken
    (notice,) = [event for event in events if isinstance(event, Notice)]
    assert "a parameter is not closed" in notice.line


def test_without_tools_markup_is_text(model) -> None:
    done, events = run(model, CALL, 3)
    assert (done.finish_reason, joined(events)) == ("eos", CALL)
    (notice,) = [event for event in events if isinstance(event, Notice)]
    assert "none was offered" in notice.line


@pytest.mark.parametrize("depth", [0, 3])
@pytest.mark.parametrize(
    ("stop", "text", "calls"), [("a b", "Look:", 1), ("Look", "", 0), ("Done", "Look:", 1)]
)
def test_a_stop_string_ends_text_not_calls(model, depth, stop, text, calls) -> None:
    answer = f"Look:\n\n{CALL}\n\nDone."
    done, events = run(model, answer, depth, template_args={"tools": TOOLS}, stop=(stop,))
    assert joined(events) == text + ("Done." if stop == "a b" else "")
    assert sum(isinstance(event, ToolCall) for event in events) == calls
    assert done.finish_reason == ("tool_calls" if stop == "a b" else "stop")


def test_a_call_ends_reasoning_that_was_left_open(model) -> None:
    args = {"tools": TOOLS, "enable_thinking": True}
    done, events = run(model, f"I need f.\n{CALL}", 3, template_args=args)
    assert done.finish_reason == "tool_calls"
    assert "".join(e.text for e in events if isinstance(e, Reasoning)) == "I need f."


@pytest.mark.parametrize("budget", [0, 1, 2, 5, 9])
def test_a_thinking_budget_ends_the_block_at_any_depth(model, budget: int) -> None:
    """The random model never closes its block itself."""
    lines = []
    for depth in (0, 1, 3, 5):
        events: list[Event] = []
        turn = begin(model, events, depth=depth, max_tokens=24, thinking_budget=budget,
                     template_args={"enable_thinking": True})  # fmt: skip
        finished = turn.run()
        turn.keep()
        state = turn.decoder.state
        made = state.ids[len(turn.prompt) :]
        # The newline before the closing tag belongs to it.
        end = made.index(model.tokenizer.think_end)
        assert end in (budget, budget + 1)
        assert (finished.reasoning_tokens, finished.output_tokens) == (end, 24)
        lines.append(made)
        fresh = Decoder(model.trunk, model.head, Sampling())
        list(fresh.prefill(state.ids))
        assert_equal(named_arrays(state), named_arrays(fresh.state))
    assert lines == [lines[0]] * 4


@pytest.mark.parametrize("depth", [0, 3])
def test_characters_of_several_tokens_in_reasoning_hold_nothing_up(model, depth: int) -> None:
    """Stop strings are not looked for there: every token of it is whole at once."""
    events: list[Event] = []
    thinking = {"template_args": {"enable_thinking": True}, "thinking_budget": 24}
    turn = begin(model, events, depth=depth, stop=("END",), **thinking)
    (eos,) = model.eos_ids
    dictated = [*model.tokenizer.encode("é日本語 and so on and on and on and on again"), eos]
    turn.decoder = DictatedDecoder(model, turn.prompt, dictated, wrong_at=1)
    take, windows = turn._take, []

    def watched(tokens: list[int]):
        windows.append(len(turn.decoder._windows))
        return take(tokens)

    turn._take = watched
    turn.run()
    assert max(windows) <= 2
    turn.keep()


def test_a_budget_that_is_not_reached_changes_nothing(model) -> None:
    answer = "thought\n</think>\n\nAnswer."
    args = {"enable_thinking": True}
    wide = run(model, answer, 3, thinking_budget=50, template_args=args)[1]
    assert joined(wide) == "Answer."


LEVELS = (
    "{%- if reasoning_effort is defined and reasoning_effort not in LIST -%}"
    "{{- raise_exception('Unknown effort ' ~ reasoning_effort) -}}{%- endif -%}"
)


@pytest.mark.parametrize(
    ("declared", "asked", "want"),
    [
        (["xhigh", "medium", "low"], "high", "xhigh"),
        (["xhigh", "medium", "low"], "low", "low"),
        (["xhigh", "medium"], "low", "medium"),
        (["low"], "xhigh", "low"),
    ],
)
def test_an_effort_the_template_does_not_know(tmp_path, declared, asked, want) -> None:
    folder = copy_demo(tmp_path / "levels")
    template = folder / "chat_template.jinja"
    template.write_text(LEVELS.replace("LIST", str(declared)) + template.read_text())
    found = declared_levels(ChatTokenizer(folder))
    assert sorted(found) == sorted(declared)
    assert nearest(asked, found) == want


def test_a_template_without_levels_says_so(model) -> None:
    events: list[Event] = []
    begin(model, events, reasoning_effort="high")
    (notice,) = [event for event in events if isinstance(event, Notice)]
    assert "does not support reasoning_effort" in notice.line
