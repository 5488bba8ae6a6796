"""The figures that the page shows."""

from dataclasses import replace

from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.observe import Observer
from llm_mtplx.engine.pace import STEPS, Pace
from llm_mtplx.protocol import Finished, Request
from llm_mtplx.server import create_app
from llm_mtplx.sessions.reasons import Reason

from .client import ask

REQUEST = Request("mtplx-demo", MODEL_DIR, [])
DONE = Finished(
    "interrupted", 9, 0, 0, 1, 0, [], [], None, 0, None, "history_edited", 0.0, 1.5, 1.0, 0.0, 0
)


def test_a_turn_without_a_token_has_no_first_one() -> None:
    observer = Observer()
    observer.finish(observer.begin(REQUEST), REQUEST, DONE)
    observer.finish(observer.begin(REQUEST), REQUEST, replace(DONE, output_tokens=1))
    assert [turn["ttft_ms"] for turn in observer.recent] == [1500.0, None]
    assert sum(observer.totals.ttft.counts.values()) == 1


def test_reasons_are_told_in_words() -> None:
    observer = Observer()
    observer.finish(observer.begin(REQUEST), REQUEST, DONE)
    observer.finish(observer.begin(REQUEST), REQUEST, replace(DONE, miss_reason=None))
    meanings = [turn["miss_meaning"] for turn in observer.recent]
    assert meanings == [None, Reason.HISTORY_EDITED.meaning]


def test_the_pace_of_the_last_minutes() -> None:
    pace = Pace()
    pace.made(1000.0, 10)
    pace.made(1004.9, 5)
    pace.waits(1004.9, 2)
    pace.waits(1004.9, 1)
    pace.made(1010.0, 20)
    pace.waits(1011.0, 0)
    series = pace.series(1016.0)
    assert series["tokens_per_s"][-4:] == [3.0, 0.0, 4.0, 0.0]
    assert series["waiting"][-4:] == [2, 1, 1, 0]
    assert [len(values) for values in series.values()] == [STEPS, STEPS]
    later = pace.series(1000.0 + 10_000)
    assert set(later["tokens_per_s"]) == {0.0} and set(later["waiting"]) == {0}


def test_tokens_are_counted_once() -> None:
    observer = Observer()
    one, other = observer.begin(REQUEST), observer.begin(REQUEST)
    for done in (1, 3, 7):
        observer.progress(one, "answering", done)
        observer.progress(other, "answering", 2 * done)
    assert sum(step.tokens for step in observer.pace._steps) == 7 + 14
    assert sum(observer.totals.gaps.counts.values()) == 4  # two between the parts of each


def test_the_page_gets_them() -> None:
    said = {"model": "mtplx-demo", "max_tokens": 4, "messages": [{"role": "user", "content": "a"}]}
    app = create_app(require_key=False)
    assert ask(app, "/v1/chat/completions", said).status == 200
    told = ask(app, "/health/recent").json
    assert sum(told["pace"]["tokens_per_s"]) * told["pace"]["step_s"] >= 4
    assert told["recent"][0]["ttft_ms"] > 0
