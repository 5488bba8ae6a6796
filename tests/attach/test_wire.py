"""What goes over the socket comes out as it went in."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_mtplx.attach.wire import (
    event_from,
    event_line,
    from_line,
    request_fields,
    request_from,
    to_line,
)
from llm_mtplx.errors import EngineError, MtplxError, RequestError
from llm_mtplx.protocol import (
    Failed,
    Finished,
    Notice,
    Progress,
    Reasoning,
    Request,
    Restored,
    Text,
    ToolCall,
)

texts = st.text()
messages = st.lists(st.fixed_dictionaries({"role": texts, "content": texts}))


@given(texts, messages, st.none() | st.integers(0, 2**40), st.lists(texts), st.booleans())
def test_requests(name, said, seed, stops, persist) -> None:
    request = Request(
        name, Path("/a/b"), said, seed=seed, stop=tuple(stops), persist=persist, temperature=0.7
    )
    line = to_line({"request": request_fields(request)})
    assert line.count(b"\n") == 1
    assert request_from(from_line(line)["request"]) == request


counts = st.integers(0, 2**40)
EVENTS = (
    st.builds(Text, texts)
    | st.builds(Reasoning, texts)
    | st.builds(Notice, texts)
    | st.builds(ToolCall, texts, st.dictionaries(texts, texts | counts))
    | st.builds(Progress, st.sampled_from(["waiting", "loading", "reading"]), counts, counts)
    | st.builds(
        Restored,
        counts,
        counts,
        st.sampled_from(["ram", "ssd", None]),
        st.none() | texts,
        st.floats(0, 1e6),
    )
)


@given(EVENTS)
def test_events(event) -> None:
    line = event_line(event)
    assert line.count(b"\n") == 1
    assert event_from(line) == event


def test_the_last_event_keeps_its_figures() -> None:
    last = Finished(
        "eos", 9, 4, 0, 2, 3, [3, 2], [2, 1], "ab", 5, "ssd", None, 0.25, 0.5, 0.125, 1.5, 2**40
    )
    assert event_from(event_line(last)) == last


@pytest.mark.parametrize("kind", [RequestError, EngineError, MtplxError])
def test_errors_keep_their_kind_and_words(kind: type[MtplxError]) -> None:
    failed = event_from(event_line(Failed(kind("no\nsuch thing"))))
    assert isinstance(failed, Failed)
    assert type(failed.error) is kind
    assert str(failed.error) == "no\nsuch thing"


def test_another_error_is_the_engines() -> None:
    failed = event_from(event_line(Failed(ZeroDivisionError("by design"))))
    assert isinstance(failed, Failed)
    assert type(failed.error) is EngineError


@pytest.mark.parametrize("line", [b"{}\n", b"[]\n", b"no\n", b'{"event": "Text", "x": 1}\n'])
def test_what_is_no_event_is_an_error(line: bytes) -> None:
    with pytest.raises(EngineError, match="unreadable message"):
        event_from(line)


def test_a_request_that_is_none_is_refused_by_field() -> None:
    fields = request_fields(Request("m", Path("/a"), []))
    with pytest.raises(RequestError, match="temperature"):
        request_from({**fields, "temperature": "warm"})
