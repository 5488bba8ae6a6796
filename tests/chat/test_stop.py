"""A stop string ends the text at the same place however the text arrives."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_mtplx.chat.stop import StopScanner


def scan(stops: list[str], chunks: list[str]) -> tuple[str, bool]:
    scanner = StopScanner(stops)
    shown = "".join(scanner.add(chunk) for chunk in chunks)
    if not scanner.stopped:
        shown += scanner.finish()
    assert scanner.emitted == len(shown)
    return shown, scanner.stopped


@pytest.mark.parametrize(
    ("stops", "text", "shown", "stopped"),
    [
        (["END"], "to the END of it", "to the ", True),
        (["END"], "to the EN", "to the EN", False),
        (["aab"], "aaab", "a", True),
        (["abX", "b"], "abX", "a", True),
        (["bc", "abc"], "abcd", "", True),
        (["\n\n"], "one\ntwo\n\nthree", "one\ntwo", True),
        (["ü"], "Grüße", "Gr", True),
        (["nope"], "", "", False),
    ],
)
def test_every_split_gives_the_same_text(stops, text, shown, stopped) -> None:
    for cuts in itertools.combinations(range(1, max(len(text), 1)), 2):
        chunks = [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]
        assert scan(stops, chunks) == (shown, stopped)
    assert scan(stops, list(text)) == (shown, stopped)
    assert scan(stops, [text]) == (shown, stopped)


texts = st.text(alphabet="ab", max_size=12)


@given(st.lists(st.text(alphabet="ab", min_size=1, max_size=4), min_size=1, max_size=3), texts)
def test_chunks_do_not_matter_and_no_stop_is_shown(stops: list[str], text: str) -> None:
    shown, stopped = scan(stops, list(text))
    assert (shown, stopped) == scan(stops, [text])
    assert stopped == any(stop in text for stop in stops)
    assert not any(stop in shown for stop in stops)
    assert text.startswith(shown)


def test_nothing_is_shown_after_the_stop() -> None:
    scanner = StopScanner(["."])
    assert scanner.add("One. Two") == "One"
    assert scanner.add(" three") == ""


def test_only_what_may_begin_a_stop_is_held_back() -> None:
    scanner = StopScanner(["<end>"])
    assert scanner.add("a <") == "a "
    assert scanner.add("b") == "<b"
